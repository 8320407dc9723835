"""The three relations of the query nodes (Hyper3-CLIP, sec. 2.3)."""

from torch import Tensor

from trainer.objectives.entailment import (
    ACROSS_MODALITIES,
    WITHIN_MODALITY,
    calibration,
    residual,
)
from trainer.objectives.nodes import Nodes
from trainer.objectives.options import Hyper3Objective


def query_terms(nodes: Nodes, curvature: Tensor, options: Hyper3Objective) -> dict[str, Tensor]:
    """The trained relations of every query, weighted by its reliability and normalised; scalars.

    The visual node of a query lies in the cone of its text; the image in the cone of the visual
    node; the text of the parent in the cone of the text. A query without a parent takes no part
    in the last, but counts.
    """
    weight = nodes.query_weight / _normaliser(nodes, options)
    terms: dict[str, Tensor] = {}
    if "image_text" in options.relations:
        cones = residual(
            nodes.query_texts, nodes.query_images, curvature, ACROSS_MODALITIES, options.residual
        )
        terms["query/image_text"] = (weight * cones.violation).sum()
    if "visual_hierarchy" in options.relations:
        general, specific = nodes.query_images, nodes.images.index_select(0, nodes.query_owner)
        if options.visual_order == "reversed":
            general, specific = specific, general
        terms |= _calibrated("visual", general, specific, weight, curvature, options)
    if "text_hierarchy" in options.relations:
        parents, has_parent = nodes.query_parents, nodes.query_has_parent
        if options.parents == "shuffled":
            parents, has_parent = parents.roll(1, 0), has_parent.roll(1, 0)
        terms |= _calibrated(
            "text", nodes.query_texts, parents, weight * has_parent, curvature, options
        )
    return terms


def _calibrated(
    side: str,
    general: Tensor,
    specific: Tensor,
    weight: Tensor,
    curvature: Tensor,
    options: Hyper3Objective,
) -> dict[str, Tensor]:
    """A relation within one modality, and its calibration."""
    cones = residual(general, specific, curvature, WITHIN_MODALITY, options.residual)
    calibrated = calibration(cones, entropy=options.entropy)
    return {
        f"query/{side}_hierarchy": (weight * cones.violation).sum(),
        f"query/{side}_calibration": (weight * calibrated).sum(),
    }


def _normaliser(nodes: Nodes, options: Hyper3Objective) -> Tensor | int:
    """What sums over queries are divided by."""
    if options.query_normaliser == "count":
        return len(nodes.query_weight)
    if options.query_normaliser == "weight":
        return nodes.query_weight.sum()
    return len(nodes.images) if options.query_normaliser == "images" else 1
