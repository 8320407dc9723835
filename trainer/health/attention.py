"""What the queries of a few held-out pictures find in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.data.batch import Batch, Seen
from trainer.model import DualEncoder
from trainer.pooling import QueryPooling

SHOWN = 4
"""Pictures that are looked at: as many as a screen holds with their queries."""


@dataclass(frozen=True)
class Glance:
    """Pictures, and for each of their queries where it looks."""

    pictures: npt.NDArray[np.uint8]  # (n, side, side, 3)
    attention: npt.NDArray[np.float32]  # (q, rows, rows), each map adding up to 1; mean of heads
    owner: tuple[int, ...]  # (q,) picture of each query
    tokens: tuple[tuple[int, ...], ...]  # of each query


@contextmanager
def watched(model: DualEncoder) -> Iterator[list[Tensor]]:
    """Within, the attention of the first pictures that are pooled is noted, once.

    No tower runs a second time for it. What comes out is one tensor ``(q, patches)`` of the
    queries of the first `SHOWN` pictures, or nothing where the model does not pool.
    """
    noted: list[Tensor] = []

    def note(pooling: QueryPooling, arguments: tuple[Any, ...]) -> None:
        if not noted:
            noted.append(_attention(pooling, *arguments))

    if model.pooling is None:
        yield noted
        return
    handle = model.pooling.register_forward_pre_hook(note)
    try:
        yield noted
    finally:
        handle.remove()


@torch.no_grad()
def _attention(
    pooling: QueryPooling, patches: Tensor, states: Tensor, slot: Tensor, slots: int
) -> Tensor:
    """Weights of the patches, mean over heads; the arguments are those of the pooling."""
    few = slot < SHOWN * slots
    keys = patches[slot[few] // slots]
    query = pooling.text_query_proj(states[few])[:, None]
    _, weights = pooling.cross_attention(query, keys, keys, need_weights=True)
    return weights[:, 0].float().cpu()  # type: ignore[no-any-return]


def glance(batch: Batch, attention: Tensor) -> Glance | None:
    """What there is to show of the first pictures of a batch.

    Args:
        batch: On the host, as it was loaded.
        attention: Of `watched`.

    Returns:
        None where the batch holds stored features instead of pictures, the patches make no
        square, or no query has a node.
    """
    rows = round(attention.shape[-1] ** 0.5)
    if isinstance(batch.pictures, Seen) or rows**2 != attention.shape[-1] or not len(attention):
        return None
    texts = [row for group in batch.tokens for row in group.tolist()]
    shown = slice(len(attention))  # queries stand picture after picture
    return Glance(
        batch.pictures[: min(SHOWN, len(batch))].numpy(),
        attention.unflatten(-1, (rows, rows)).numpy(),
        tuple(batch.links.query_owner[shown].tolist()),
        tuple(
            tuple(texts[row][: int(np.argmax(texts[row])) + 1])  # the end token is the largest
            for row in batch.links.query_text[shown].tolist()
        ),
    )
