"""Entailment cones: how far the specific side stands outside the cone of the general one."""

import torch
from torch import Tensor

from core.lorentz import exterior_angle, half_aperture
from trainer.objectives.contrastive import uncertainty

ACROSS_MODALITIES = 0.7
"""Aperture scale of image below text (HyCoCLIP, UNCHA, Hyper3-CLIP)."""

WITHIN_MODALITY = 1.2
"""Aperture scale of whole below part, and of parent below child."""

CALIBRATION_WEIGHT = 10.0
"""α of the uncertainty calibration (UNCHA)."""


def residual(general: Tensor, specific: Tensor, curvature: Tensor, aperture_scale: float) -> Tensor:
    """Violations ``max(φ - sΘ, 0)`` in radians of the scaled cones, ``(n,)`` (MERU, eq. 6)."""
    angle = exterior_angle(general, specific, curvature)
    return torch.relu(angle - aperture_scale * half_aperture(general, curvature))


def calibration(general: Tensor, violation: Tensor) -> Tensor:
    """``α (r / 2(σ + 1e-6) + u / 2)``, ``(n,)``, with ``σ = exp u`` of the general side.

    The violation r is a constant here: only the uncertainty u, hence the radius of the general
    point, learns from it (UNCHA, without its entropy term).
    """
    u = uncertainty(general)
    sigma = u.exp().clamp(1e-6, 1e6)
    return CALIBRATION_WEIGHT * (violation.detach() / (sigma + 1e-6) + u) / 2
