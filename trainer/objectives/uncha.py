"""UNCHA: three contrastive groups, and calibrated entailment of wholes and parts.

Hyper3-CLIP builds on it; with its own options it equals UNCHA's code on one process.
"""

from torch import Tensor

from trainer.objectives.contrastive import part_to_whole, repeats, symmetric, wholes_that_repeat
from trainer.objectives.distances import Distances
from trainer.objectives.entailment import calibration, inherited
from trainer.objectives.nodes import Nodes, Scalars, total
from trainer.objectives.options import WholePart


def uncha_objective(nodes: Nodes, scalars: Scalars, options: WholePart) -> dict[str, Tensor]:
    """Every term by name, and ``loss = contrastive + λ entailment``.

    Args:
        nodes: The points of the batch.
        scalars: Curvature, and a temperature for each contrastive group.
        options: Weights and switches.

    Returns:
        Scalars. Entailment terms are given before λ.
    """
    terms = groups(nodes, scalars, options)
    cones = inheritance(nodes, scalars.curvature, options)
    loss = total(terms) + options.entailment_weight * total(cones)
    return terms | cones | {"loss": loss}


def groups(nodes: Nodes, scalars: Scalars, options: WholePart) -> dict[str, Tensor]:
    """Wholes, parts, and parts against wholes: each half the sum of its two directions."""
    whole_repeats = part_repeats = shows = None
    if options.mask_repeats:
        whole_repeats = repeats(nodes.text_id)
        part_repeats = repeats(nodes.part_id, nodes.part_text_id)
        shows = wholes_that_repeat(nodes)

    def across(parts: Tensor, wholes: Tensor) -> Tensor:
        repeated_columns = options.part_columns == "repeated"
        return part_to_whole(
            parts, wholes, nodes, scalars, repeated_columns=repeated_columns, shows=shows
        )

    c = scalars.curvature
    wholes = Distances(nodes.images, nodes.texts, c)
    parts = Distances(nodes.part_images, nodes.part_texts, c)
    return {
        "contrastive/global": symmetric(wholes, scalars.whole, whole_repeats),
        "contrastive/local": symmetric(parts, scalars.part, part_repeats),
        "contrastive/global_local": (
            across(nodes.part_images, nodes.texts) + across(nodes.part_texts, nodes.images)
        )
        / 2,
    }


def inheritance(nodes: Nodes, curvature: Tensor, options: WholePart) -> dict[str, Tensor]:
    """Entailments of wholes and parts; those within a modality are calibrated as well."""
    terms, visual, textual = inherited(nodes, curvature, options.relation_weights, options.residual)
    if len(nodes.part_images) == 0:
        return terms
    return terms | {
        f"calibration/{side}_part": calibration(cones, entropy=options.entropy).mean()
        for side, cones in (("image", visual), ("text", textual))
    }
