"""Entailment cones: how far the specific side stands outside the cone of the general one."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from core import lorentz
from trainer.objectives.angles import angle_and_length
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


class Cones(NamedTuple):
    """How pairs lie to the cones of their general sides."""

    violation: Tensor  # radians, (n,), or (n, factors) in a product
    length: Tensor  # of the space parts of the general sides, of the same shape


def residual(
    general: Tensor,
    specific: Tensor,
    curvature: Tensor,
    aperture_scale: float,
    form: Residual = "hinge",
) -> Cones:
    """Violations of the scaled cones.

    "hinge": ``max(φ - sΘ, 0)`` (MERU, eq. 6). "piecewise" adds 0.1 φ everywhere, so that the
    specific side is drawn to the axis even within the cone (UNCHA).
    """
    angle, length = angle_and_length(general, specific, curvature)
    outside = torch.relu(angle - aperture_scale * lorentz.aperture_at(curvature**0.5 * length))
    return Cones(outside + _PULL * angle if form == "piecewise" else outside, length)


def calibration(cones: Cones, *, entropy: bool = False) -> Tensor:
    """``α (r / 2(σ + 1e-6) + u / 2)``, ``(n,)``, with ``σ = exp u`` of the general side (UNCHA).

    The violation r is a constant here: only the uncertainty u, hence the radius of the general
    point, learns from it. With ``entropy`` every row also has α H, where H is the entropy of
    the softmax of all uncertainties; it grows with the logarithm of their number.
    """
    u = uncertainty(cones.length)
    sigma = u.exp().clamp(1e-6, 1e6)
    rows = cones.violation.detach() / (sigma + 1e-6) / 2 + u / 2
    if entropy:
        share = u.softmax(0)
        rows = rows - (share * (share + 1e-8).log()).sum()
    return CALIBRATION_WEIGHT * rows


def inherited(
    nodes: Nodes,
    curvature: Tensor,
    weights: tuple[float, float, float, float],
    form: Residual = "hinge",
) -> tuple[dict[str, Tensor], Cones, Cones]:
    """The four relations of wholes and parts (HyCoCLIP), as weighted means.

    Images lie in the cones of their texts; wholes in the cones of their parts, within each
    modality.

    Returns:
        The terms by name, and the cones of image-part and of text-part entailment. Where there
        are no parts there is but the first term.
    """
    image_text, part_image_text, image_part, text_part = weights
    first = residual(nodes.texts, nodes.images, curvature, ACROSS_MODALITIES, form)
    terms = {"entailment/image_text": image_text * first.violation.mean()}
    if len(nodes.part_images) == 0:
        none = Cones(first.violation[:0], first.length[:0])
        return terms, none, none
    owner = nodes.part_owner
    across = residual(nodes.part_texts, nodes.part_images, curvature, ACROSS_MODALITIES, form)
    visual = residual(
        nodes.part_images, nodes.images.index_select(0, owner), curvature, WITHIN_MODALITY, form
    )
    textual = residual(
        nodes.part_texts, nodes.texts.index_select(0, owner), curvature, WITHIN_MODALITY, form
    )
    terms |= {
        "entailment/part_image_text": part_image_text * across.violation.mean(),
        "entailment/image_part": image_part * visual.violation.mean(),
        "entailment/text_part": text_part * textual.violation.mean(),
    }
    return terms, visual, textual
