"""The forms of the compared systems in the place of ours."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from core import lorentz


class Guarded:
    """MERU's forms, which all its line has: acos and acosh, held off their ends by a constant.

    Of torch tensors; the curvature is one too.
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def lift(self, tangent: Any, curvature: Any) -> Any:
        norm = curvature**0.5 * tangent.norm(dim=-1)
        sinh = norm.clamp(self.epsilon, math.asinh(2**15)).sinh()
        factor = sinh / norm.clamp_min(self.epsilon)
        return lorentz.from_space(factor[..., None] * tangent, curvature)

    def pairwise_distance(self, x: Any, y: Any, curvature: Any) -> Any:
        c = curvature[..., None, None]
        products = lorentz.inner(x[..., :, None, :], y[..., None, :, :])
        return (-c * products).clamp_min(1 + self.epsilon).acosh() / c**0.5

    def aperture_at(self, norm: Any) -> Any:
        sine = 2 * lorentz.MIN_RADIUS / (norm + self.epsilon)
        return sine.clamp_max(1 - self.epsilon).asin()

    def exterior_angle(self, general: Any, specific: Any, curvature: Any) -> Any:
        product = curvature * lorentz.inner(general, specific)
        along = specific[..., 0] + product * general[..., 0]
        length = (product**2 - 1).clamp_min(self.epsilon).sqrt()
        cosine = along / (general[..., 1:].norm(dim=-1) * length + self.epsilon)
        return cosine.clamp(self.epsilon - 1, 1 - self.epsilon).acos()

    def angle_and_length(self, general: Any, specific: Any, curvature: Any) -> Any:
        length = general[..., 1:].norm(dim=-1)
        return self.exterior_angle(general, specific, curvature), length

    def pairwise_exterior_angle(self, general: Any, specific: Any, curvature: Any) -> Any:
        return self.exterior_angle(general[:, None], specific[None], curvature)


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts forms with this guard into `core.lorentz` and the cones until the test ends."""

    def put(epsilon: float) -> None:
        guarded = Guarded(epsilon)
        for name in (
            "lift",
            "pairwise_distance",
            "aperture_at",
            "exterior_angle",
            "pairwise_exterior_angle",
        ):
            monkeypatch.setattr(lorentz, name, getattr(guarded, name))
        angles = "trainer.objectives.entailment.angle_and_length"
        monkeypatch.setattr(angles, guarded.angle_and_length)

    return put
