"""Exterior angles of pairs of points, with a way back of their own.

The values are those of `core.lorentz.exterior_angle`. A gradient by a point lies in the plane of
the two points, so that it takes two numbers a row; autograd would fill some fifty arrays as large
as the points. Rows are taken some at a time, in memory that is used again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from core.lorentz import length

_AT_ONCE = 2**20  # numbers of each side


def angle_and_length(general: Tensor, specific: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """Exterior angles, and how long the space parts of the general points are.

    Of the origin, and of a point to itself, the angle and its gradient are 0.

    Args:
        general: Roots of the cones, ``(..., dim + 1)``.
        specific: Of the same shape.
        curvature: ``()``, or for points ``(n, factors, dim + 1)`` of a product ``(factors,)``.

    Returns:
        Angles in radians, ``(...)``, as core has them, and lengths, ``(...)``.
    """
    shape = general.shape[:-1]
    rows = (general.flatten(0, -2), specific.flatten(0, -2), curvature.expand(shape).flatten())
    angle, lengths = _Angles.apply(*rows)
    return angle.view(shape), lengths.view(shape)


class _Angles(torch.autograd.Function):
    """``atan2(P, R)``, ``P = |a| sin θ``, ``R = |a| cos θ √(1 + c|b|²) - |b| √(1 + c|a|²)``.

    b is the general side, a the specific one, θ the angle between them. P is the length of what
    ``a - b`` has across b; for R see `core.lorentz.exterior_angle`.
    """

    @staticmethod
    def forward(ctx: Any, general: Tensor, specific: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        kept = c.new_empty((7, len(c)))
        space = _Scratch.like(general)
        for some in _blocks(general):
            b, a, gap, other = space.of(general, specific, some)
            norm_a, norm_b = length(a), length(b)
            along_b = _dot(gap, b, other)  # |b| times what the gap has along b
            safe_b = norm_b.masked_fill(norm_b <= 0, 1)
            slope = along_b / safe_b / safe_b
            apart = length(gap) ** 2 + 2 * along_b
            across = length(torch.addcmul(gap, slope[:, None], b, value=-1, out=other))
            kept[:, some] = torch.stack(
                [norm_a, norm_b, slope, along_b / safe_b + norm_b, across, apart, safe_b]
            )
        norm_a, norm_b, slope, shadow, across, apart, safe_b = kept  # shadow: |a| cos θ
        time_a, time_b = (1 + c * norm_a**2).sqrt(), (1 + c * norm_b**2).sqrt()
        # |a| (1 - cos θ), of a small θ from its sine
        away = (norm_a + shadow).masked_fill(shadow <= 0, 1)
        versed = torch.where(shadow > 0, across**2 / away, norm_a - shadow)
        weight = norm_a * time_b + norm_b * time_a
        along = apart / weight.masked_fill(weight <= 0, 1) - versed * time_b
        met = (norm_b <= 0) | (torch.hypot(across, along) < _least(across))
        ctx.save_for_backward(
            general, specific, c, norm_a, norm_b, slope, shadow, across, along, time_a, time_b, met
        )
        return torch.atan2(across, along).masked_fill(met, 0), norm_b.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor, by_length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        general, specific, c, norm_a, norm_b, slope, shadow, across, along, time_a, time_b, met = (
            ctx.saved_tensors
        )
        still = met | (across < _least(across))  # a length has no slope at 0
        above = above.masked_fill(still, 0)
        across, long = across.masked_fill(still, 1), norm_b.masked_fill(norm_b <= 0, 1)
        # Quotients before products: of points far out, at the end of what `lift` makes, a product
        # of three lengths overflows.
        size = torch.hypot(across, along)
        by_across, by_along = above * (along / size) / size, -above * (across / size) / size
        own_a = by_along * norm_b * c / time_a  # of a itself, which is aside + (1 + slope) b
        own_b = by_along * (shadow * c * norm_b / time_b - time_a) / long
        turned = by_along * time_b / long
        of_a = by_across / across - own_a, turned - own_a * (1 + slope)
        of_b = turned - by_across * shadow / (long * across), own_b + by_length / long
        by_general, by_specific = torch.empty_like(general), torch.empty_like(specific)
        by_general[:, 0] = by_specific[:, 0] = 0  # time follows from space
        space = _Scratch.like(general)
        for some in _blocks(general):
            b, _, gap, _ = space.of(general, specific, some)
            aside = gap.addcmul_(slope[some, None], b, value=-1)
            for gradient, (by_aside, by_b) in ((by_specific, of_a), (by_general, of_b)):
                out = torch.mul(aside, by_aside[some, None], out=gradient[some, 1:])
                out.addcmul_(b, by_b[some, None])
        by_c = norm_b * (shadow * (norm_b / time_b) - norm_a * (norm_a / time_a))
        return by_general, by_specific, by_along * by_c / 2


@dataclass(frozen=True)
class _Scratch:
    """Memory for two arrays of the rows of a block."""

    gap: Tensor
    other: Tensor

    @classmethod
    def like(cls, points: Tensor) -> "_Scratch":
        rows = min(len(points), _at_once(points))
        return cls(*points.new_empty((2, rows, points.shape[1] - 1)))

    def of(
        self, general: Tensor, specific: Tensor, some: slice
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Space parts of both sides, what leads from one to the other, and room for as much."""
        b, a = general[some, 1:], specific[some, 1:]
        gap = torch.sub(a, b, out=self.gap[: len(b)])
        return b, a, gap, self.other[: len(b)]


def _at_once(points: Tensor) -> int:
    return max(1, _AT_ONCE // points.shape[1])


def _blocks(points: Tensor) -> Iterator[slice]:
    step = _at_once(points)
    return (slice(start, start + step) for start in range(0, len(points), step))


def _dot(x: Tensor, y: Tensor, product: Tensor) -> Tensor:
    return torch.mul(x, y, out=product).sum(1)


def _least(lengths: Tensor) -> float:
    """Of smaller lengths the square is not a normal number."""
    least: float = torch.finfo(lengths.dtype).tiny ** 0.5
    return least
