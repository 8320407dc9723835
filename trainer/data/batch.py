"""Samples -> batches: what one optimizer step needs, counted and indexed by the loader."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from core.queries import build_queries
from core.text import Tokenizer
from trainer.features.store import Features
from trainer.sections import DataSection

_LENGTHS = (*range(2, 17), *range(20, 65, 4), 77, 128, 256, 512)
"""Texts up to the next of these lengths are encoded together: hardly any padding."""


class Seen(NamedTuple):
    """What an image tower gives, or gave when its features were stored."""

    feature: Tensor  # (n, width): the whole image
    patches: Tensor  # (n, patches, patch_width): for the query pooling


@dataclass(frozen=True)
class Links:
    """What belongs together: rows of pictures and of distinct texts, and ids of the same things.

    Ids are digests of what they stand for, so that they are equal across batches and processes.
    """

    caption: Tensor  # (n,) text of each image
    caption_id: Tensor  # (n,)
    part_text: Tensor  # (p,)
    part_text_id: Tensor  # (p,)
    part_id: Tensor  # (p,) of the thing that a part shows or names
    part_owner: Tensor  # (p,) image of each part
    part_count: Tensor  # (n,)
    query_text: Tensor  # (q,)
    query_text_id: Tensor  # (q,)
    query_parent: Tensor  # (q,) text of the parent; 0 where there is none
    query_owner: Tensor  # (q,)
    query_has_parent: Tensor  # (q,) 1.0 or 0.0
    query_weight: Tensor  # (q,)

    def to(self, device: torch.device) -> "Links":
        """The same links on a device."""
        return self.each(lambda kept: kept.to(device, non_blocking=True))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Links":
        """The same links, something done to each tensor."""
        return Links(*(change(getattr(self, field.name)) for field in fields(self)))


@dataclass(frozen=True)
class Batch:
    """n whole images, their p parts, and the q non-root queries of their captions.

    Each distinct text stands once in ``tokens``, sorted by length; everything else points at
    its row there. Where no sample could be used, n is 0 (`without_samples`).
    """

    pictures: Tensor | Seen
    """The wholes, then the parts: ``(n + p, side, side, 3)`` uint8; or what the tower gave for
    them, as it is stored (float16), with patches of the wholes alone."""
    tokens: tuple[Tensor, ...]  # groups of (texts, length) int64, padded with 0
    links: Links
    query_slot: Tensor  # (q,) owner * query_slots + its place among the owner's queries
    query_slots: int  # most queries of any image of the batch
    skipped: tuple[str, ...]  # why samples were left out
    truncated: int  # texts cut to the context length

    def __len__(self) -> int:
        return len(self.links.caption)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return self.each(lambda kept: kept.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """The same batch where a GPU can fetch it by itself; PyTorch's loader asks for it so."""
        return self.each(Tensor.pin_memory)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same batch, something done to each tensor."""
        pictures = self.pictures
        return replace(
            self,
            pictures=Seen(*map(change, pictures))
            if isinstance(pictures, Seen)
            else change(pictures),
            tokens=tuple(map(change, self.tokens)),
            links=self.links.each(change),
            query_slot=change(self.query_slot),
        )


Picture = npt.NDArray[Any]
"""A square, ``(side, side, 3)`` uint8, or its stored feature, ``(width,)`` float16."""


@dataclass(frozen=True)
class Decoded:
    """One sample, ready to be put into a batch.

    Its pictures are squares of 8 bits, or, where there are ``patches``, stored features.
    """

    image: Picture
    caption: str
    parts: list[Picture]
    phrases: list[str]
    names: list[str]
    patches: npt.NDArray[np.float16] | None = None  # (patches, patch_width)


def collate(
    samples: Sequence[Decoded], tokenizer: Tokenizer, options: DataSection, skipped: Sequence[str]
) -> Batch:
    """Build the batch: queries, distinct texts in groups of like length, and every index."""
    texts: dict[str, int] = {}

    def row(text: str) -> int:
        return texts.setdefault(text, len(texts))

    caption = [row(sample.caption) for sample in samples]
    part_text = [row(phrase) for sample in samples for phrase in sample.phrases]
    queries = _queries(samples, options, row)
    encoded = tokenizer.encode(list(texts))
    order, groups = _group([entry.ids for entry in encoded], tokenizer)
    place = torch.empty(len(order), dtype=torch.int64)
    place[order] = torch.arange(len(order))
    text_id = _ids(texts)
    names = [name.casefold() for sample in samples for name in sample.names]
    count = torch.tensor([len(sample.parts) for sample in samples])
    parents = torch.tensor(queries.parent, dtype=torch.int64)
    links = Links(
        caption=place[caption],
        caption_id=text_id[caption],
        part_text=place[part_text],
        part_text_id=text_id[part_text],
        part_id=_ids(names),
        part_owner=torch.repeat_interleave(torch.arange(len(samples)), count),
        part_count=count,
        query_text=place[queries.text],
        query_text_id=text_id[queries.text],
        query_parent=torch.where(parents >= 0, place[parents], 0),
        query_owner=torch.tensor(queries.owner, dtype=torch.int64),
        query_has_parent=(parents >= 0).float(),
        query_weight=torch.tensor(queries.weight, dtype=torch.float32),
    )
    return Batch(
        pictures=_stack(samples),
        tokens=groups,
        links=links,
        query_slot=torch.tensor(queries.slot, dtype=torch.int64),
        query_slots=_slots(options),
        skipped=tuple(skipped),
        truncated=sum(entry.truncated for entry in encoded),
    )


def _stack(samples: Sequence[Decoded]) -> Tensor | Seen:
    """The wholes, then the parts."""
    wholes = [sample.image for sample in samples]
    stacked = _joined([*wholes, *(part for sample in samples for part in sample.parts)])
    patches = [sample.patches for sample in samples if sample.patches is not None]
    return Seen(stacked, _joined(patches)) if patches else stacked


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> Tensor:
    """Arrays behind each other; of a loader process, where the training process finds them.

    Copied there afterwards, hundreds of megabytes would be written twice.
    """
    shape = (len(arrays), *arrays[0].shape)
    like = torch.from_numpy(np.empty(0, arrays[0].dtype))
    if get_worker_info() is None:
        joined = like.new_empty(shape)
    else:
        size = arrays[0].nbytes * len(arrays)
        shared = torch.UntypedStorage._new_shared(size)  # noqa: SLF001 - as torch's own collate
        joined = like.set_(shared).view(shape)
    np.stack(arrays, out=joined.numpy())
    return joined


class _Queries(NamedTuple):
    """The queries that losses see, of all samples behind each other."""

    text: list[int]
    parent: list[int]  # text of the parent, or -1
    owner: list[int]
    weight: list[float]
    slot: list[int]


def _queries(
    samples: Sequence[Decoded], options: DataSection, row: Callable[[str], int]
) -> _Queries:
    made = _Queries([], [], [], [], [])
    for number, sample in enumerate(samples):
        queries = build_queries(
            sample.caption,
            sample.phrases,
            limit=options.max_queries,
            phrase_parent=options.phrase_parent,
            phrases_end_at_sentences=options.phrases_end_at_sentences,
        )
        rows = [row(query.text) for query in queries]
        active = [place for place, query in enumerate(queries) if query.weight > 0]
        parents = [queries[place].parent for place in active]
        made.text.extend(rows[place] for place in active)
        made.parent.extend(rows[parent] if parent >= 0 else -1 for parent in parents)
        made.owner.extend([number] * len(active))
        made.weight.extend(queries[place].weight for place in active)
        made.slot.extend(number * _slots(options) + place for place in range(len(active)))
    return made


def _slots(options: DataSection) -> int:
    """Most queries of an image, the root aside."""
    return max(options.max_queries - 1, 1)


def without_samples(skipped: Sequence[str], side: int, features: Features | None = None) -> Batch:
    """What is left when no sample can be used: two grey pictures and a text, of nobody.

    They are for the towers, some of which cannot run on nothing: a process whose share this is
    has to meet the others in the backward pass. No link points at them, so that no loss sees
    them and every gradient through them is 0. A batch norm over a map of one cell refuses a
    single picture. Of stored features they are zeros.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    links = dict.fromkeys((field.name for field in fields(Links)), nothing)
    links |= dict.fromkeys(("query_has_parent", "query_weight"), nothing.float())
    pictures: Tensor | Seen = torch.full((2, side, side, 3), 127, dtype=torch.uint8)
    if features:
        zeros = (torch.zeros((2, *shape), dtype=torch.float16) for shape in features.shapes)
        pictures = Seen(*zeros)
    return Batch(
        pictures=pictures,
        tokens=(torch.zeros((1, 2), dtype=torch.int64),),
        links=Links(**links),
        query_slot=nothing,
        query_slots=1,
        skipped=tuple(skipped),
        truncated=0,
    )


def _ids(words: Iterable[str]) -> Tensor:
    """A digest of 63 bits of each."""
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words]
    return torch.tensor(
        [int.from_bytes(digest, "big") >> 1 for digest in digests], dtype=torch.int64
    )


def _group(ids: list[list[int]], tokenizer: Tokenizer) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Rows sorted by length, and their padded groups in that order."""
    order = np.argsort([len(row) for row in ids], kind="stable")
    lengths = np.array([len(ids[number]) for number in order])
    bounds = [0, *np.searchsorted(lengths, _LENGTHS, side="right").tolist(), len(ids)]
    groups = [
        torch.from_numpy(tokenizer.pad([ids[number] for number in order[low:high]]))
        for low, high in pairwise(bounds)
        if high > low
    ]
    return torch.from_numpy(order), tuple(groups)
