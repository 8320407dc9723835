"""HyCoCLIP (arXiv:2410.06912): MERU, and one part of each image below its whole."""

from collections.abc import Callable

from torch import Tensor

from trainer.objectives.contrastive import match, repeats, symmetric, wholes_that_repeat
from trainer.objectives.distances import Distances
from trainer.objectives.entailment import inherited
from trainer.objectives.nodes import Nodes, Scalars, total
from trainer.objectives.options import HycoclipObjective, PhyclipObjective

RELATION_WEIGHTS = (0.5, 0.5, 0.5, 0.5)
"""Half of each of the four entailments."""

Similarity = Callable[[Tensor, Tensor], Tensor | Distances]


def hycoclip_objective(
    nodes: Nodes, scalars: Scalars, options: HycoclipObjective
) -> dict[str, Tensor]:
    """The objective with distances on one hyperboloid."""
    return compose(nodes, scalars, options, lambda a, b: Distances(a, b, scalars.curvature))


def compose(
    nodes: Nodes,
    scalars: Scalars,
    options: HycoclipObjective | PhyclipObjective,
    similarity: Similarity,
) -> dict[str, Tensor]:
    """``loss = a quarter of four contrasts + λ half of four entailments``.

    The contrasts are of wholes with wholes, both ways, and of the parts of either modality with
    the wholes of the other. The system draws one part an image (`data.max_parts = 1`); of more,
    each counts the same.

    Args:
        nodes: The points of the batch.
        scalars: Curvature and temperature.
        options: λ, and what is masked.
        similarity: Of all pairs of two sets of points.
    """
    whole_repeats = shows = None
    if options.mask_repeats:
        whole_repeats = repeats(nodes.text_id)
        shows = wholes_that_repeat(nodes)
    wholes = symmetric(similarity(nodes.images, nodes.texts), scalars.whole, whole_repeats)
    parts = [
        match(similarity(part, whole), nodes.part_owner, scalars.whole, shows)
        for part, whole in ((nodes.part_images, nodes.texts), (nodes.part_texts, nodes.images))
    ]
    terms = {
        "contrastive/global": wholes / 2,
        "contrastive/global_local": (parts[0] + parts[1]) / 4,
    }
    cones, _, _ = inherited(nodes, scalars.curvature, RELATION_WEIGHTS)
    return terms | cones | {"loss": total(terms) + options.entailment_weight * total(cones)}
