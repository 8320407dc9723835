"""Softmax losses over the distances of all pairs, taken block by block.

Autograd would keep a matrix of all pairs for each of a dozen steps. Here a block of rows is brought
from points to sums of its softmax, and on the way back once more; what stays between are the sums.
So the memory does not grow with the number of pairs. A block that is the only one stays as it is.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from core import lorentz

_AT_ONCE = 2**22
"""Pairs of a block, of which some eight matrices stand at a time."""


@dataclass(frozen=True)
class Distances:
    """Similarities of all pairs of points: their negative distances, not taken yet.

    Attributes:
        x: ``(n, dim + 1)``, the rows.
        y: ``(m, dim + 1)``, the columns.
        curvature: ``()``.
        factor: ``(n,)`` by which the distances of a row are multiplied, or none; a constant.
    """

    x: Tensor
    y: Tensor
    curvature: Tensor
    factor: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def taken(self) -> Tensor:
        """The similarities, ``(n, m)``."""
        apart = lorentz.pairwise_distance(self.x, self.y, self.curvature)
        return -apart if self.factor is None else -self.factor[:, None] * apart

    def softmax(
        self,
        own: Tensor,
        scale: Tensor,
        excluded: Tensor | None = None,
        count: Tensor | None = None,
        *,
        both: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What the cross-entropies of the rows, and of the columns, are made of.

        Args:
            own: ``(n,)`` the right column of each row.
            scale: Of the logits, ``()``.
            excluded: As for `trainer.objectives.contrastive.match`.
            count: The same, for rows alone.
            both: Whether columns are asked for.

        Returns:
            Logarithms of the sums of ``exp`` of the logits of each row, ``(n,)``, and column,
            ``(m,)``, of infinities where not asked for; and the logits of the right columns,
            ``(n,)``.
        """
        root = self.curvature**0.5
        x, y = root * self.x[:, 1:], root * self.y[:, 1:]
        weight = (2 * scale / root).expand(len(x))
        if self.factor is not None:
            weight = weight * self.factor
        log_count = None if count is None else count.to(x.dtype).log()
        sinh_a, sinh_b = lorentz.length(x), lorentz.length(y)
        half_a, half_b = _halves(sinh_a), _halves(sinh_b)
        sums: tuple[Tensor, Tensor, Tensor] = _Sums.apply(
            torch.cat([sinh_a[:, None], -x], 1) / 2,
            torch.cat([sinh_b[:, None], y], 1),
            torch.stack(half_a, 1),
            torch.stack([half_b[1], -half_b[0]], 1),
            weight, own, excluded, log_count, both,
        )  # fmt: skip
        return sums


def _halves(sinh: Tensor) -> tuple[Tensor, Tensor]:
    """``sinh(A / 2)`` and ``cosh(A / 2)``, each ``(n,)``, of ``sinh A``."""
    cosh_half = ((1 + (1 + sinh**2).sqrt()) / 2).sqrt()
    return sinh / (2 * cosh_half), cosh_half


class _Sums(torch.autograd.Function):
    """Logits ``-w asinh √q`` of all pairs, and sums of their exponentials.

    Points in units of ``1 / √c`` with ``|x| = sinh A`` have half the distance ``asinh √q`` for
    ``q = (|x| |y| - x·y) / 2 + sinh²((A - B) / 2)``, see `core.lorentz.pairwise_distance`. Both
    are products of a row by a column: ``q = max(u·v, 0) + (g·h)²``, of ``u = (|x|, -x) / 2``,
    ``v = (|y|, y)``, ``g = (sinh A/2, cosh A/2)``, ``h = (cosh B/2, -sinh B/2)``. The slope by q
    is ``1 / 2√(q (1 + q))``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,  # (n, dim + 1)
        v: Tensor,  # (m, dim + 1)
        g: Tensor,  # (n, 2)
        h: Tensor,  # (m, 2)
        w: Tensor,  # (n,)
        own: Tensor,
        excluded: Tensor | None,
        log_count: Tensor | None,
        both: bool,  # noqa: FBT001 - autograd passes by position
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, right = torch.empty_like(w), torch.empty_like(w)
        columns = v.new_full((len(v),), -torch.inf)
        blocks = _blocks(u, v)
        for some in blocks:
            pairs = _Pairs.of(u[some], v, g[some], h)
            logits = pairs.half * -w[some, None]
            right[some] = logits.gather(1, own[some, None])[:, 0]
            if excluded is not None:
                logits.masked_fill_(excluded[some], -torch.inf)
            if both:
                columns = torch.logaddexp(columns, logits.logsumexp(0))
            if log_count is not None:
                logits.add_(log_count)
            rows[some] = logits.logsumexp(1)
        kept = pairs if len(blocks) == 1 else ()
        ctx.save_for_backward(u, v, g, h, w, own, excluded, log_count, rows, columns, *kept)
        ctx.both = both
        return rows, columns, right

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_rows: Tensor, by_columns: Tensor, by_right: Tensor
    ) -> tuple[Tensor | None, ...]:
        u, v, g, h, w, own, excluded, log_count, rows, columns, *kept = ctx.saved_tensors
        by_u, by_g, by_w = torch.empty_like(u), torch.empty_like(g), torch.empty_like(w)
        by_v, by_h = torch.zeros_like(v), torch.zeros_like(h)
        shifts = columns.masked_fill(columns == -torch.inf, 0)  # of columns without any pair
        for some in _blocks(u, v):
            pairs = _Pairs(*kept) if kept else _Pairs.of(u[some], v, g[some], h)
            logits = pairs.half * -w[some, None]
            if excluded is not None:
                logits.masked_fill_(excluded[some], -torch.inf)
            shift = rows[some, None] if log_count is None else rows[some, None] - log_count
            by_logits = (logits - shift).exp_().mul_(by_rows[some, None])
            if ctx.both:
                by_logits.addcmul_(logits.sub_(shifts).exp_(), by_columns)
            by_logits.scatter_add_(1, own[some, None], by_right[some, None])
            by_w[some] = -torch.mul(pairs.half, by_logits, out=logits).sum(1)
            by_q = by_logits.mul_(pairs.steepness).mul_(w[some, None] / -2)
            by_gap = torch.mul(by_q, pairs.gap, out=logits)
            by_g[some] = by_gap @ h
            by_h.addmm_(by_gap.T, g[some])
            by_q.mul_(pairs.is_apart)
            by_u[some] = by_q @ v
            by_v.addmm_(by_q.T, u[some])
        return by_u, by_v, by_g.mul_(2), by_h.mul_(2), by_w, None, None, None, None


class _Pairs(NamedTuple):
    """Of all pairs of a block, ``(rows, columns)``."""

    is_apart: Tensor  # where the clamp has a slope
    gap: Tensor  # g·h
    half: Tensor  # asinh √q
    steepness: Tensor  # 1 / √(q (1 + q))

    @classmethod
    def of(cls, u: Tensor, v: Tensor, g: Tensor, h: Tensor) -> "_Pairs":
        # Two products that are rounded apart: of equal radii the gap is 0 to the last bit.
        gap = torch.outer(g[:, 0], h[:, 0]).add_(torch.outer(g[:, 1], h[:, 1]))
        q = u @ v.T
        is_apart = q > 0
        q.clamp_(min=0).addcmul_(gap, gap)
        root, more = q.sqrt(), q.add_(1).sqrt_()
        # Root by root: of points far out, at the end of what `lift` makes, q² overflows. Where two
        # points coincide whatever stands here is multiplied by 0.
        steepness = (root * more).clamp_(min=torch.finfo(q.dtype).tiny ** 0.5).reciprocal_()
        return cls(is_apart, gap, more.add_(root).log_(), steepness)


def _blocks(u: Tensor, v: Tensor) -> list[slice]:
    at_once = max(1, _AT_ONCE // max(len(v), 1))
    return [slice(start, start + at_once) for start in range(0, len(u), at_once)]
