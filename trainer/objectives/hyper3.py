"""The Hyper3-CLIP objective: contrastive groups, inherited entailments, query relations."""

import torch
from torch import Tensor

from trainer.config import ObjectiveSection
from trainer.objectives.contrastive import (
    part_to_whole,
    repeats,
    symmetric,
    wholes_that_repeat,
)
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
    """Every term by name, and their sum under ``loss`` (docs/mathematics.md).

    ``loss = contrastive + λ (base entailments + query relations)``.

    Args:
        nodes: The points of the batch.
        scales: Inverse temperatures.
        curvature: c > 0.
        options: Weights and switches.

    Returns:
        Scalars. Entailment terms are given before λ.
    """
    contrastive = _contrastive(nodes, scales, curvature, options)
    entailment = _entailment(nodes, curvature)
    below_lambda = torch.stack(list(entailment.values())).sum()
    queries: dict[str, Tensor] = {}
    if options.query_weight > 0 and len(nodes.query_weight):
        queries = query_terms(nodes, curvature)
        below_lambda = (
            below_lambda + options.query_weight * torch.stack(list(queries.values())).sum()
        )
    loss = torch.stack(list(contrastive.values())).sum() + options.entailment_weight * below_lambda
    return contrastive | entailment | queries | {"loss": loss}


def _contrastive(
    nodes: Nodes, scales: Scales, curvature: Tensor, options: ObjectiveSection
) -> dict[str, Tensor]:
    owner, count = nodes.part_owner, None
    if options.part_columns == "repeated":
        count = nodes.part_count
    whole_repeats = part_repeats = shows = None
    if options.mask_repeats:
        whole_repeats = repeats(nodes.text_id)
        part_repeats = repeats(nodes.part_id, nodes.part_text_id)
        shows = wholes_that_repeat(part_repeats, owner, len(nodes.images))

    def across(parts: Tensor, wholes: Tensor) -> Tensor:
        return part_to_whole(parts, wholes, owner, scales.cross, curvature, count, shows)

    return {
        "contrastive/global": symmetric(
            nodes.images, nodes.texts, scales.whole, curvature, whole_repeats
        ),
        "contrastive/local": symmetric(
            nodes.part_images, nodes.part_texts, scales.part, curvature, part_repeats
        ),
        "contrastive/global_local": (
            across(nodes.part_images, nodes.texts) + across(nodes.part_texts, nodes.images)
        )
        / 2,
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
