"""Contrastive terms: each row of similarities is to find its own column."""

import torch
from torch import Tensor
from torch.nn import functional

from core import lorentz
from trainer.objectives.distances import Distances
from trainer.objectives.nodes import Nodes, Scalars, Temperature


def match(
    similarity: Tensor | Distances,
    own: Tensor,
    temperature: Temperature,
    excluded: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """Mean loss of the rows: cross-entropy, or SigLIP's sum over single pairs.

    SigLIP (arXiv:2303.15343): ``Σ_j softplus(∓(s·similarity + b))``, minus for the own column.

    Args:
        similarity: ``(rows, columns)``; larger is nearer. Distances are taken block by block.
        own: ``(rows,)`` the right column of each row.
        temperature: Its bias decides for the sigmoid.
        excluded: ``(rows, columns)`` pairs that are neither right nor negatives.
        count: ``(columns,)`` how often each column stands in the denominator of the softmax: k
            copies of a logit are that logit plus ln k, so the copies are never made. A column
            with count 0 stands nowhere. Single pairs have no denominator: the sigmoid takes
            each column once.

    Returns:
        The loss, 0 without rows.
    """
    if isinstance(similarity, Distances):
        if temperature.bias is None and len(similarity):
            rows, _, right = similarity.softmax(own, temperature.scale, excluded, count)
            return (rows - right).mean()
        similarity = similarity.taken()
    if len(similarity) == 0:
        return similarity.sum()
    logits = temperature.scale * similarity
    if temperature.bias is not None:
        logits = logits + temperature.bias
    right = logits.gather(1, own[:, None])[:, 0]
    if excluded is not None:
        logits = logits.masked_fill(excluded, -torch.inf)
    if temperature.bias is not None:
        return (functional.softplus(logits).sum(1) - right).mean()
    if count is not None:
        logits = logits + count.to(logits.dtype).log()
    return (torch.logsumexp(logits, 1) - right).mean()


def symmetric(
    similarity: Tensor | Distances, temperature: Temperature, repeated: Tensor | None = None
) -> Tensor:
    """Half the losses of the rows and of the columns; row i belongs to column i.

    Args:
        similarity: ``(n, n)``.
        temperature: Of the logits.
        repeated: ``(n, n)`` pairs that are no negatives, as `repeats` gives them.
    """
    own = torch.arange(len(similarity), device=temperature.scale.device)
    if isinstance(similarity, Distances):
        if temperature.bias is None and len(similarity):
            scale = temperature.scale
            rows, columns, right = similarity.softmax(own, scale, repeated, both=True)
            return ((rows + columns) / 2 - right).mean()
        similarity = similarity.taken()
    rows = match(similarity, own, temperature, repeated)
    return (rows + match(similarity.T, own, temperature, repeated)) / 2


def part_to_whole(
    part: Tensor,
    whole: Tensor,
    nodes: Nodes,
    scalars: Scalars,
    *,
    repeated_columns: bool,
    shows: Tensor | None,
) -> Tensor:
    """Parts against all wholes of the other modality; the owner's is right (UNCHA).

    The rows are multiplied by ``τ = exp(-u / 2)`` of the part's uncertainty, as a constant.

    Args:
        part: Points, ``(p, dim + 1)``.
        whole: Points, ``(n, dim + 1)``.
        nodes: For owners and counts.
        scalars: Curvature, and the temperature of the group.
        repeated_columns: Whether a whole stands once for each of its parts.
        shows: ``(p, n)`` other wholes that show the same thing, and so are no negatives.
    """
    confidence = torch.exp(-uncertainty(lorentz.length(part.detach()[:, 1:])) / 2).clamp(0.1, 10)
    similarity = Distances(part, whole, scalars.curvature, confidence)
    count = nodes.part_count if repeated_columns else None
    return match(similarity, nodes.part_owner, scalars.cross, shows, count)


def repeats(*identities: Tensor) -> Tensor:
    """Pairs of rows that share any identity, ``(n, n)``; a row is no repeat of itself."""
    shared = torch.stack([one[:, None] == one[None, :] for one in identities]).any(0)
    return shared.fill_diagonal_(False)  # noqa: FBT003 - the value of the cells


def wholes_that_repeat(nodes: Nodes) -> Tensor:
    """For each part, ``(p, n)``, the other wholes that hold the same thing or phrase."""
    repeated = repeats(nodes.part_id, nodes.part_text_id)
    held = repeated.new_zeros((len(repeated), len(nodes.images)), dtype=torch.float32)
    shows = held.index_add_(1, nodes.part_owner, repeated.float()) > 0
    own = nodes.part_owner[:, None]
    return shows.scatter_(1, own, False)  # noqa: FBT003 - its own whole is right


def uncertainty(length: Tensor) -> Tensor:
    """``u = softplus(-|x|)`` of the space norm, in (0, ln 2]: near the origin is uncertain."""
    return functional.softplus(-length)
