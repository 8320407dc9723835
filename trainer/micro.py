"""Gradient caching: the towers see a batch piece by piece, and the loss sees it whole.

GradCache (Gao et al., arXiv:2101.06983). The towers run once without keeping anything; the loss
of all tangents gives a gradient for each of them; then the towers run again, piece by piece, and
every piece is taken back with the gradients of its rows. What has to fit at once is the graph of
one piece. Gradients are those of the whole batch: each tangent depends on its own piece alone.

Texts are divided by themselves, each distinct one into one piece. The pooling of a picture's
queries reads states of texts that may lie in any piece; what comes back to these states is
collected, and taken back through the text tower behind the last picture.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, autograd

from trainer.data.batch import Batch, Seen
from trainer.distributed import Shares
from trainer.model import Asked, DualEncoder, Tangents

Rounding = Callable[[], AbstractContextManager[object]]
"""A context in which the towers run: autocast, or none."""


@dataclass(frozen=True)
class Piece:
    """Pictures that pass the towers together, and texts that do: rows of the batch."""

    wholes: slice
    parts: slice
    queries: slice
    texts: slice
    tokens: tuple[Tensor, ...]  # of the texts; where there are none, of one that is nobody's


def cut(batch: Batch, shares: Shares, samples: int) -> list[Piece]:
    """Pieces of ``samples`` samples, the last one of fewer, and as many of the texts' tokens.

    Every process has as many pieces as the one with the most, so that those that share weights
    meet in each of their passes.
    """
    images = len(shares.own.caption)
    most = max([size.images for size in shares.sizes] or [images])
    count = max(-(-most // samples), 1)
    bounds = [min(number * samples, images) for number in range(count + 1)]
    return [
        Piece(wholes, parts, queries, texts, _tokens(batch.tokens, texts))
        for wholes, parts, queries, texts in zip(
            _slices(bounds),
            _slices(np.searchsorted(shares.own.part_owner.numpy(), bounds).tolist()),
            _slices(np.searchsorted(shares.own.query_owner.numpy(), bounds).tolist()),
            _slices(_text_bounds(batch.tokens, count)),
            strict=True,
        )
    ]


def _slices(bounds: list[int]) -> Iterator[slice]:
    return (slice(low, high) for low, high in pairwise(bounds))


def _text_bounds(groups: tuple[Tensor, ...], count: int) -> list[int]:
    """Rows at which texts are divided so that every piece has about as many tokens."""
    lengths = np.concatenate([np.full(len(group), group.shape[1]) for group in groups])
    before = np.cumsum(lengths) - lengths
    piece = before * count // lengths.sum()
    bounds: list[int] = np.searchsorted(piece, np.arange(count + 1)).tolist()
    return bounds


def _tokens(groups: tuple[Tensor, ...], rows: slice) -> tuple[Tensor, ...]:
    """The groups of some rows."""
    found, start = [], 0
    for group in groups:
        taken = group[max(rows.start - start, 0) : max(rows.stop - start, 0)]
        if len(taken):
            found.append(taken)
        start += len(group)
    return tuple(found) or (groups[0][:1],)


@torch.no_grad()
def encode(
    model: DualEncoder,
    batch: Batch,
    images: Tensor | Seen,
    pieces: list[Piece],
    rounding: Rounding,
    seed: int,
) -> tuple[Tensor, Tangents]:
    """States of all texts, and all tangents, without a graph.

    Args:
        model: Towers, and what stands beside them.
        batch: On the device.
        images: As for `DualEncoder.forward`.
        pieces: Of the batch.
        rounding: Of the towers.
        seed: What is drawn for a piece follows from it and the piece's number.
    """
    with rounding():
        states = torch.cat([_states(model, piece) for piece in pieces])
        found = [
            _visual(model, batch, images, piece, states, (seed, number))
            for number, piece in enumerate(pieces)
        ]
        wholes, parts, queries = (torch.cat(kind) for kind in zip(*found, strict=True))
        return states, Tangents(wholes, parts, queries, model.textual(states))


def take_back(
    model: DualEncoder,
    batch: Batch,
    images: Tensor | Seen,
    pieces: list[Piece],
    rounding: Rounding,
    seed: int,
    states: Tensor,
    gradients: Tangents,
) -> None:
    """Add to every weight's gradient what comes through the tangents.

    Args:
        model: As for `encode`, and so are the next five.
        batch: As above.
        images: As above.
        pieces: As above.
        rounding: As above.
        seed: As above.
        states: That `encode` gave.
        gradients: Of the tangents that it gave.
    """
    trained = any(value.requires_grad for value in model.text_tower.parameters())
    states = states.detach().requires_grad_(trained)
    for number, piece in enumerate(pieces):
        with rounding():
            found = _visual(model, batch, images, piece, states, (seed, number))
        kinds = gradients.images[piece.wholes], gradients.part_images[piece.parts]
        autograd.backward(found, (*kinds, gradients.query_images[piece.queries]))
    for piece in pieces:
        with rounding():
            own = _states(model, piece)
            tangents = model.textual(own)
        through, above = [tangents], [gradients.texts[piece.texts]]
        if states.grad is not None:
            through.append(own)
            above.append(states.grad[piece.texts])
        autograd.backward(through, above)


def sow(seed: int, number: int = 0) -> None:
    """Let what layers draw, such as the patches that are left out, follow from two numbers."""
    torch.manual_seed(int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))


def _states(model: DualEncoder, piece: Piece) -> Tensor:
    states: Tensor = model.text_tower(*piece.tokens)
    return states[: piece.texts.stop - piece.texts.start]


def _visual(
    model: DualEncoder,
    batch: Batch,
    images: Tensor | Seen,
    piece: Piece,
    states: Tensor,
    seed: tuple[int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Tangents of the piece's wholes, parts and queries."""
    links, slots, first = batch.links, batch.query_slots, piece.wholes.start
    asked = Asked(
        links.query_text[piece.queries],
        links.query_owner[piece.queries] - first,
        batch.query_slot[piece.queries] - first * slots,
        slots,
    )
    count = piece.wholes.stop - first
    sow(*seed)
    wholes, parts, queries = model.visual(
        _pictures(images, len(batch), piece), count, states, asked
    )
    return wholes, parts[: piece.parts.stop - piece.parts.start], queries


def _pictures(images: Tensor | Seen, wholes: int, piece: Piece) -> Tensor | Seen:
    """The piece's wholes, then its parts; where it has none, one picture that is nobody's."""

    def rows(every: Tensor) -> Tensor:
        parts = every[wholes + piece.parts.start : wholes + piece.parts.stop]
        taken = torch.cat([every[piece.wholes], parts])
        return taken if len(taken) else every[:1]

    if isinstance(images, Seen):
        return Seen(rows(images.feature), images.patches[piece.wholes])
    return rows(images)
