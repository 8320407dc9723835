"""The whole Hyper3-CLIP objective: three contrastive groups, four inherited entailments with
calibration, and the query relations.
"""

from torch import Tensor

from trainer.config import ObjectiveSection
from trainer.objectives.contrastive import part_to_whole, symmetric
from trainer.objectives.entailment import (
    ACROSS_MODALITIES,
    WITHIN_MODALITY,
    calibration,
    residual,
)
from trainer.objectives.nodes import Nodes, Scales
from trainer.objectives.queries import query_terms


def hyper3_objective(
    nodes: Nodes, scales: Scales, curvature: Tensor, options: ObjectiveSection
) -> dict[str, Tensor]:
    """Every term by name, and their sum under ``loss`` (spec 1.3, 1.4, preset `paper`).

    ``loss = contrastive + λ (base entailments + query relations)``.

    Args:
        nodes: The points of the batch.
        scales: Inverse temperatures.
        curvature: c > 0.
        options: Weights and switches.

    Returns:
        Scalars. Entailment terms are given before λ.
    """
    terms = _contrastive(nodes, scales, curvature, options) | _entailment(nodes, curvature)
    contrastive = sum(value for name, value in terms.items() if name.startswith("contrastive/"))
    entailment = sum(value for name, value in terms.items() if not name.startswith("contrastive/"))
    if options.query_weight > 0 and len(nodes.query_weight):
        queries = query_terms(nodes, curvature)
        terms |= {
            "query/image_text": queries.image_text,
            "query/visual_hierarchy": queries.visual_hierarchy,
            "query/text_hierarchy": queries.text_hierarchy,
            "query/visual_calibration": queries.visual_calibration,
            "query/text_calibration": queries.text_calibration,
        }
        entailment = entailment + options.query_weight * queries.total()
    terms["loss"] = contrastive + options.entailment_weight * entailment
    return terms


def _contrastive(
    nodes: Nodes, scales: Scales, curvature: Tensor, options: ObjectiveSection
) -> dict[str, Tensor]:
    text_id = nodes.text_id if options.mask_repeats else None
    part_id = nodes.part_id if options.mask_repeats else None
    count = nodes.part_count if options.part_columns == "repeated" else None
    image_to_text = part_to_whole(
        nodes.part_images, nodes.texts, nodes.part_owner, scales.cross, curvature, count
    )
    text_to_image = part_to_whole(
        nodes.part_texts, nodes.images, nodes.part_owner, scales.cross, curvature, count
    )
    return {
        "contrastive/global": symmetric(
            nodes.images, nodes.texts, scales.whole, curvature, text_id
        ),
        "contrastive/local": symmetric(
            nodes.part_images, nodes.part_texts, scales.part, curvature, part_id
        ),
        "contrastive/global_local": (image_to_text + text_to_image) / 2,
    }


def _entailment(nodes: Nodes, curvature: Tensor) -> dict[str, Tensor]:
    terms = {
        "entailment/image_text": residual(
            nodes.texts, nodes.images, curvature, ACROSS_MODALITIES
        ).mean()
    }
    if len(nodes.part_images) == 0:
        return terms
    whole_image, whole_text = nodes.images[nodes.part_owner], nodes.texts[nodes.part_owner]
    across = residual(nodes.part_texts, nodes.part_images, curvature, ACROSS_MODALITIES)
    visual = residual(nodes.part_images, whole_image, curvature, WITHIN_MODALITY)
    textual = residual(nodes.part_texts, whole_text, curvature, WITHIN_MODALITY)
    return terms | {
        "entailment/part_image_text": across.mean(),
        "entailment/image_part": visual.mean(),
        "entailment/text_part": textual.mean(),
        "calibration/image_part": calibration(nodes.part_images, visual).mean(),
        "calibration/text_part": calibration(nodes.part_texts, textual).mean(),
    }
