"""Exterior angles of pairs of points, with a way back of their own.

The values are those of `core.lorentz.exterior_angle`. A gradient by a point lies in the plane of
the two points, so that it takes two numbers a row; autograd would fill some fifty arrays as large
as the points.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from core.lorentz import length


def exterior_angle(general: Tensor, specific: Tensor, curvature: Tensor) -> Tensor:
    """Angles ``(...)`` in radians at the general points, ``(..., dim + 1)``, as core has them.

    Of the origin, and of a point to itself, the angle and its gradient are 0.

    Args:
        general: Roots of the cones.
        specific: Of the same shape.
        curvature: ``()``, or for points ``(n, factors, dim + 1)`` of a product ``(factors,)``.
    """
    angle: Tensor = _Angles.apply(general[..., 1:], specific[..., 1:], curvature)
    return angle


class _Angles(torch.autograd.Function):
    """``atan2(P, R)``, ``P = |a| sin θ``, ``R = |a| cos θ √(1 + c|b|²) - |b| √(1 + c|a|²)``.

    b is the general side, a the specific one, θ the angle between them. P is the length of what
    ``a - b`` has across b; for R see `core.lorentz.exterior_angle`.
    """

    @staticmethod
    def forward(ctx: Any, b: Tensor, a: Tensor, c: Tensor) -> Tensor:
        gap = a - b
        norm_a, norm_b = length(a), length(b)
        time_a, time_b = (1 + c * norm_a**2).sqrt(), (1 + c * norm_b**2).sqrt()
        at_origin = norm_b <= 0
        safe_b = norm_b.masked_fill(at_origin, 1)
        along_b = _dot(gap, b)  # |b| times what the gap has along b
        slope = along_b / safe_b**2
        aside = torch.addcmul(gap, slope[..., None], b, value=-1)
        across = length(aside)
        shadow = along_b / safe_b + norm_b  # |a| cos θ
        # |a| (1 - cos θ), of a small θ from its sine
        away = (norm_a + shadow).masked_fill(shadow <= 0, 1)
        versed = torch.where(shadow > 0, across**2 / away, norm_a - shadow)
        weight = norm_a * time_b + norm_b * time_a
        apart = (length(gap) ** 2 + 2 * along_b) / weight.masked_fill(weight <= 0, 1)
        along = apart - versed * time_b
        met = at_origin | (torch.hypot(across, along) < _least(across))
        ctx.save_for_backward(
            aside, b, c, norm_a, norm_b, time_a, time_b, slope, shadow, across, along, met
        )
        return torch.atan2(across, along).masked_fill(met, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        aside, b, c, norm_a, norm_b, time_a, time_b, slope, shadow, across, along, met = (
            ctx.saved_tensors
        )
        still = met | (across < _least(across))  # a length has no slope at 0
        above = above.masked_fill(still, 0)
        across, norm_b = across.masked_fill(still, 1), norm_b.masked_fill(still, 1)
        # Quotients before products: of points far out, at the end of what `lift` makes, a product
        # of three lengths overflows.
        size = torch.hypot(across, along)
        by_across, by_along = above * (along / size) / size, -above * (across / size) / size
        own_a = by_along * norm_b * c / time_a  # of a itself, which is aside + (1 + slope) b
        own_b = by_along * (shadow * c * norm_b / time_b - time_a) / norm_b
        gradient_a = _combined(
            by_across / across - own_a,
            aside,
            by_along * time_b / norm_b - own_a * (1 + slope),
            b,
        )
        aside_b = by_along * time_b / norm_b - by_across * shadow / (norm_b * across)
        gradient_b = _combined(aside_b, aside, own_b, b)
        by_c = norm_b * (shadow * (norm_b / time_b) - norm_a * (norm_a / time_a))
        return gradient_b, gradient_a, (by_along * by_c / 2).sum_to_size(c.shape)


def _least(lengths: Tensor) -> float:
    """Of smaller lengths the square is not a normal number."""
    least: float = torch.finfo(lengths.dtype).tiny ** 0.5
    return least


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("...d,...d->...", x, y)


def _combined(p: Tensor, x: Tensor, q: Tensor, y: Tensor) -> Tensor:
    """``p x + q y``, row by row."""
    return (p[..., None] * x).addcmul_(q[..., None], y)
