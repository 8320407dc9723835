"""The three relations of the query nodes (Hyper3-CLIP, sec. 2.3)."""

from torch import Tensor

from trainer.objectives.entailment import (
    ACROSS_MODALITIES,
    WITHIN_MODALITY,
    calibration,
    residual,
)
from trainer.objectives.nodes import Nodes


def query_terms(nodes: Nodes, curvature: Tensor) -> dict[str, Tensor]:
    """Relations of every query, weighted by its reliability, divided by their number; scalars.

    The visual node of a query lies in the cone of its text; the image in the cone of the visual
    node; the text of the parent in the cone of the text. A query without a parent takes no part
    in the last, but counts.
    """
    weight = nodes.query_weight / max(len(nodes.query_weight), 1)
    text_weight = weight * nodes.query_has_parent
    image_text = residual(nodes.query_texts, nodes.query_images, curvature, ACROSS_MODALITIES)
    visual = residual(
        nodes.query_images, nodes.images[nodes.query_owner], curvature, WITHIN_MODALITY
    )
    text = residual(nodes.query_texts, nodes.query_parents, curvature, WITHIN_MODALITY)
    return {
        "query/image_text": (weight * image_text).sum(),
        "query/visual_hierarchy": (weight * visual).sum(),
        "query/text_hierarchy": (text_weight * text).sum(),
        "query/visual_calibration": (weight * calibration(nodes.query_images, visual)).sum(),
        "query/text_calibration": (text_weight * calibration(nodes.query_texts, text)).sum(),
    }
