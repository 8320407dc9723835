"""The three relations of the query nodes (Hyper3-CLIP, sec. 2.3; spec 1.4)."""

from dataclasses import dataclass

from torch import Tensor

from trainer.objectives.entailment import (
    ACROSS_MODALITIES,
    WITHIN_MODALITY,
    calibration,
    residual,
)
from trainer.objectives.nodes import Nodes


@dataclass(frozen=True)
class QueryTerms:
    """Weighted means over the non-root queries of a batch; scalars."""

    image_text: Tensor  # the visual node of a query lies in the cone of its text
    visual_hierarchy: Tensor  # the image lies in the cone of the query's visual node
    text_hierarchy: Tensor  # the parent's text lies in the cone of the query's text
    visual_calibration: Tensor
    text_calibration: Tensor

    def total(self) -> Tensor:
        """Sum of the terms."""
        return (
            self.image_text
            + self.visual_hierarchy
            + self.text_hierarchy
            + self.visual_calibration
            + self.text_calibration
        )


def query_terms(nodes: Nodes, curvature: Tensor) -> QueryTerms:
    """Relations of every query, weighted by its reliability, divided by their number.

    A query without a parent takes no part in the text hierarchy, but counts.
    """
    weight = nodes.query_weight / max(len(nodes.query_weight), 1)
    text_weight = weight * nodes.query_has_parent
    image_text = residual(nodes.query_texts, nodes.query_images, curvature, ACROSS_MODALITIES)
    visual = residual(
        nodes.query_images, nodes.images[nodes.query_owner], curvature, WITHIN_MODALITY
    )
    text = residual(nodes.query_texts, nodes.query_parents, curvature, WITHIN_MODALITY)
    return QueryTerms(
        image_text=(weight * image_text).sum(),
        visual_hierarchy=(weight * visual).sum(),
        text_hierarchy=(text_weight * text).sum(),
        visual_calibration=(weight * calibration(nodes.query_images, visual)).sum(),
        text_calibration=(text_weight * calibration(nodes.query_texts, text)).sum(),
    )
