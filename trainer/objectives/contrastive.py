"""Contrastive terms: softmax over negative distances, rows against columns.

Each group is half the sum of its two directions (method of UNCHA and Hyper3-CLIP).
"""

import torch
from torch import Tensor
from torch.nn import functional

from core.lorentz import pairwise_distance


def symmetric(
    a: Tensor, b: Tensor, scale: Tensor, curvature: Tensor, repeated: Tensor | None = None
) -> Tensor:
    """Half the cross-entropies of a against b and b against a; row i belongs to column i.

    Args:
        a: Points, ``(n, dim + 1)``.
        b: Points, ``(n, dim + 1)``.
        scale: Inverse temperature.
        curvature: c > 0.
        repeated: ``(n, n)`` pairs that are no negatives, as `repeats` gives them.

    Returns:
        The loss, 0 for n = 0.
    """
    if len(a) == 0:
        return a.sum()
    logits = -scale * pairwise_distance(a, b, curvature)
    if repeated is not None:
        logits = logits.masked_fill(repeated, -torch.inf)
    target = torch.arange(len(a), device=a.device)
    rows = functional.cross_entropy(logits, target)
    columns = functional.cross_entropy(logits.T, target)
    return (rows + columns) / 2


def part_to_whole(
    part: Tensor,
    whole: Tensor,
    owner: Tensor,
    scale: Tensor,
    curvature: Tensor,
    count: Tensor | None = None,
    shows: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of parts against all wholes of the other modality; the owner's is right.

    With ``count`` a whole stands once in the denominator for each of its parts, the paper's
    "repeated" columns: k copies of a logit are that logit plus ln k, so the copies are never
    made. Without, each whole stands once.

    Args:
        part: Points, ``(p, dim + 1)``.
        whole: Points, ``(n, dim + 1)``.
        owner: ``(p,)`` row of each part's whole.
        scale: Inverse temperature.
        curvature: c > 0.
        count: ``(n,)`` parts of each whole, or ``None`` for unique columns. A whole without
            parts stands nowhere then, as in the paper.
        shows: ``(p, n)`` other wholes that show the same thing, and so are no negatives.

    Returns:
        The loss, 0 for p = 0.
    """
    if len(part) == 0:
        return part.sum()
    confidence = torch.exp(-uncertainty(part).detach() / 2).clamp(0.1, 10)
    logits = -scale * confidence[:, None] * pairwise_distance(part, whole, curvature)
    own = logits.gather(1, owner[:, None])[:, 0]
    if shows is not None:
        logits = logits.masked_fill(shows, -torch.inf)
    columns = logits if count is None else logits + count.to(logits.dtype).log()
    return (torch.logsumexp(columns, 1) - own).mean()


def repeats(*identities: Tensor) -> Tensor:
    """Pairs of rows that share any identity, ``(n, n)``; a row is no repeat of itself."""
    shared = torch.stack([one[:, None] == one[None, :] for one in identities]).any(0)
    return shared.fill_diagonal_(False)  # noqa: FBT003 - the value of the cells


def wholes_that_repeat(repeated: Tensor, owner: Tensor, wholes: int) -> Tensor:
    """For each part, ``(p, n)``, the other wholes that hold a repeat of it."""
    held = repeated.new_zeros((len(owner), wholes), dtype=torch.float32)
    shows = held.index_add_(1, owner, repeated.float()) > 0
    return shows.scatter_(1, owner[:, None], False)  # noqa: FBT003 - its own whole is right


def uncertainty(point: Tensor) -> Tensor:
    """``u = softplus(-|x|)`` of the space norm, in (0, ln 2]: near the origin is uncertain."""
    return functional.softplus(-point[..., 1:].norm(dim=-1))
