"""MERU (arXiv:2304.09172): distances, and images within the cones of their captions."""

from torch import Tensor

from trainer.objectives.contrastive import repeats, symmetric
from trainer.objectives.distances import Distances
from trainer.objectives.entailment import residual
from trainer.objectives.nodes import Nodes, Scalars
from trainer.objectives.options import MeruObjective


def meru_objective(nodes: Nodes, scalars: Scalars, options: MeruObjective) -> dict[str, Tensor]:
    """``loss = global + λ image-text entailment``, with the aperture as it is."""
    masked = repeats(nodes.text_id) if options.mask_repeats else None
    near = Distances(nodes.images, nodes.texts, scalars.curvature)
    contrast = symmetric(near, scalars.whole, masked)
    cones = residual(nodes.texts, nodes.images, scalars.curvature, 1.0).violation.mean()
    return {
        "contrastive/global": contrast,
        "entailment/image_text": cones,
        "loss": contrast + options.entailment_weight * cones,
    }
