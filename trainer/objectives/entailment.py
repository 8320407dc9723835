"""Entailment cones: how far the specific side stands outside the cone of the general one."""

from typing import Literal

import torch
from torch import Tensor

from core import lorentz
from trainer.objectives.angles import exterior_angle
from trainer.objectives.contrastive import uncertainty
from trainer.objectives.nodes import Nodes

ACROSS_MODALITIES = 0.7
"""Aperture scale of image below text (HyCoCLIP, UNCHA, Hyper3-CLIP)."""

WITHIN_MODALITY = 1.2
"""Aperture scale of whole below part, and of parent below child."""

CALIBRATION_WEIGHT = 10.0
"""α of the uncertainty calibration (UNCHA)."""

_PULL = 0.1  # of the angle itself, in the piecewise residual (UNCHA)

Residual = Literal["hinge", "piecewise"]


def residual(
    general: Tensor,
    specific: Tensor,
    curvature: Tensor,
    aperture_scale: float,
    form: Residual = "hinge",
) -> Tensor:
    """Violations of the scaled cones, in radians: ``(n,)``, or ``(n, factors)`` in a product.

    "hinge": ``max(φ - sΘ, 0)`` (MERU, eq. 6). "piecewise" adds 0.1 φ everywhere, so that the
    specific side is drawn to the axis even within the cone (UNCHA).
    """
    angle = exterior_angle(general, specific, curvature)
    outside = torch.relu(angle - aperture_scale * lorentz.half_aperture(general, curvature))
    return outside + _PULL * angle if form == "piecewise" else outside


def calibration(general: Tensor, violation: Tensor, *, entropy: bool = False) -> Tensor:
    """``α (r / 2(σ + 1e-6) + u / 2)``, ``(n,)``, with ``σ = exp u`` of the general side (UNCHA).

    The violation r is a constant here: only the uncertainty u, hence the radius of the general
    point, learns from it. With ``entropy`` every row also has α H, where H is the entropy of
    the softmax of all uncertainties; it grows with the logarithm of their number.
    """
    u = uncertainty(general)
    sigma = u.exp().clamp(1e-6, 1e6)
    rows = violation.detach() / (sigma + 1e-6) / 2 + u / 2
    if entropy:
        share = u.softmax(0)
        rows = rows - (share * (share + 1e-8).log()).sum()
    return CALIBRATION_WEIGHT * rows


def inherited(
    nodes: Nodes,
    curvature: Tensor,
    weights: tuple[float, float, float, float],
    form: Residual = "hinge",
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The four relations of wholes and parts (HyCoCLIP), as weighted means.

    Images lie in the cones of their texts; wholes in the cones of their parts, within each
    modality.

    Returns:
        The terms by name, and the violations of image-part and of text-part entailment. Where
        there are no parts there is but the first term.
    """
    image_text, part_image_text, image_part, text_part = weights
    first = residual(nodes.texts, nodes.images, curvature, ACROSS_MODALITIES, form)
    terms = {"entailment/image_text": image_text * first.mean()}
    if len(nodes.part_images) == 0:
        return terms, first[:0], first[:0]
    owner = nodes.part_owner
    across = residual(nodes.part_texts, nodes.part_images, curvature, ACROSS_MODALITIES, form)
    visual = residual(nodes.part_images, nodes.images[owner], curvature, WITHIN_MODALITY, form)
    textual = residual(nodes.part_texts, nodes.texts[owner], curvature, WITHIN_MODALITY, form)
    terms |= {
        "entailment/part_image_text": part_image_text * across.mean(),
        "entailment/image_part": image_part * visual.mean(),
        "entailment/text_part": text_part * textual.mean(),
    }
    return terms, visual, textual
