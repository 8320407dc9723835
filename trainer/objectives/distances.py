"""Distances of all pairs, with a way back of their own.

The values are those of `core.lorentz.pairwise_distance`. What autograd would keep of each of its
dozen steps, a matrix of all pairs, is here two: cosines, and ``sinh²(√c d / 2)``.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from core import lorentz


def pairwise_distance(x: Tensor, y: Tensor, curvature: Tensor) -> Tensor:
    """Geodesic distances ``(n, m)`` of points ``(n, dim + 1)`` and ``(m, dim + 1)``.

    Where two points coincide the distance is 0, and so is the gradient.
    """
    root = curvature**0.5
    a, b = root * lorentz.length(x[:, 1:]), root * lorentz.length(y[:, 1:])
    doubled: Tensor = _Distances.apply(
        lorentz.unit(x[:, 1:]), lorentz.unit(y[:, 1:]), a.asinh(), b.asinh(), a, b
    )
    return doubled / root


class _Distances(torch.autograd.Function):
    """Distances in units of ``1 / √c``, of directions, radii and their hyperbolic sines.

    With q = sinh²((A - B) / 2) + sinh A sinh B (1 - cos θ) / 2, ``d = 2 asinh √q``, whose slope by
    q is ``1 / √(q (1 + q))``.
    """

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, v: Tensor, a: Tensor, b: Tensor, sinh_a: Tensor, sinh_b: Tensor
    ) -> Tensor:
        cosine = u @ v.T
        q = (a[:, None] - b).div_(2).sinh_().square_()
        q.addcmul_(sinh_a[:, None] * (sinh_b / 2), (1 - cosine).clamp_(0, 2))
        ctx.save_for_backward(u, v, a, b, sinh_a, sinh_b, cosine, q)
        return q.sqrt().asinh_().mul_(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, ...]:
        u, v, a, b, sinh_a, sinh_b, cosine, q = ctx.saved_tensors
        met = q <= 0  # a square root has no slope at 0; a NaN goes on
        # Root by root: of points far out, at the end of what `lift` makes, q² overflows.
        slope = q.masked_fill(met, 1).rsqrt_().mul_((q + 1).rsqrt_()).masked_fill_(met, 0)
        slope.mul_(above)
        radial = (a[:, None] - b).sinh_().mul_(slope).div_(2)
        versed = 1 - cosine
        by_sinh = versed.clamp(0, 2).mul_(slope)
        rounded = (versed < 0) | (versed > 2)  # by which a clamp has no slope
        by_cosine = slope.mul_(sinh_a[:, None]).mul_(sinh_b / -2).masked_fill_(rounded, 0)
        return (
            by_cosine @ v,
            by_cosine.T @ u,
            radial.sum(1),
            -radial.sum(0),
            by_sinh @ (sinh_b / 2),
            sinh_a / 2 @ by_sinh,
        )
