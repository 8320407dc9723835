"""ATMG: exterior angles take the place of distances, and order the modalities by themselves.

Seen from a text, its image lies outward: the angle is small. Seen from an image, its text lies
inward: the angle is large.
"""

import torch
from torch import Tensor

from core import lorentz
from trainer.objectives.contrastive import match, repeats
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import AtmgObjective


def atmg_objective(nodes: Nodes, scalars: Scalars, options: AtmgObjective) -> dict[str, Tensor]:
    """Half of images finding texts by large angles, and texts finding images by small ones."""
    masked = repeats(nodes.text_id) if options.mask_repeats else None
    own = torch.arange(len(nodes.images), device=nodes.images.device)

    def angles(general: Tensor, specific: Tensor) -> Tensor:
        return lorentz.pairwise_exterior_angle(general, specific, scalars.curvature)

    images = match(angles(nodes.images, nodes.texts), own, scalars.whole, masked)
    texts = match(-angles(nodes.texts, nodes.images), own, scalars.whole, masked)
    loss = (images + texts) / 2
    return {"contrastive/global": loss, "loss": loss}
