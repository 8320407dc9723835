"""Which samples of some shards are looked at."""

import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.errors import DataError
from trainer.data.sample import Sample
from trainer.data.shards import (
    ShardIndex,
    distinct,
    index_shards,
    key_and_kind,
    read_sample,
)
from trainer.data.tar import members

_PLACE = re.compile(r"0|[1-9]\d*")


@dataclass(frozen=True)
class Found:
    """A sample, or why there is none."""

    shard: Path
    sample: Sample | None
    fault: str = ""


def some_of(shards: Sequence[Path], count: int, rng: np.random.Generator) -> list[Found]:
    """Random samples, of as many shards as possible; only those shards are read."""
    shards = distinct(shards)
    chosen = rng.permutation(len(shards))[:count].tolist()
    found: list[Found] = []
    for place, shard in enumerate(chosen):
        quota = len(range(place, count, len(chosen)))
        found += _some_of_shard(shards[shard], quota, rng)
    return found


def _some_of_shard(shard: Path, count: int, rng: np.random.Generator) -> list[Found]:
    try:
        index = index_shards([shard])
    except DataError as error:
        return [Found(shard, None, _without(shard, error))]
    numbers = rng.choice(len(index), min(count, len(index)), replace=False)
    return [_read(index, int(number)) for number in numbers]


def named(shards: Sequence[Path], names: Sequence[str]) -> list[Found]:
    """The samples of the given keys, or places.

    Args:
        shards: Searched in this order, no further than needed.
        names: Keys; digits that do not begin with a 0 are places among all samples, from 0.

    Raises:
        DataError: There is no such sample.
    """
    found: dict[str, Found] = {}
    before = 0
    for shard in distinct(shards):
        if len(found) == len(set(names)):
            break
        try:
            index = index_shards([shard])
        except DataError:
            continue
        for name, number in _matches(index, before, set(names) - found.keys()):
            found[name] = _read(index, number)
        before += len(index)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"no sample {missing[0]} among {before:,} of {len(shards):,} shards; give a key such "
            "as 00000000012 (`tar tf SHARD` lists them) or a place, from 0"
        )
    return [found[name] for name in names]


def _matches(index: ShardIndex, before: int, names: set[str]) -> Iterator[tuple[str, int]]:
    """Those of the names that a shard has, each with its place there."""
    for name in names:
        if _PLACE.fullmatch(name) and before <= int(name) < before + len(index):
            yield name, int(name) - before
    keys = {name for name in names if not _PLACE.fullmatch(name)}
    if keys:
        for number, key in enumerate(_keys(index)):
            if key in keys:
                yield key, number


def _keys(index: ShardIndex) -> Iterator[str]:
    """The key of each sample of an index of one shard."""
    path = index.shards[0]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = iter(index.offset.tolist())
        start = next(starts)
        for name, _, _, head in members(data, path):
            if head == start:
                yield key_and_kind(name)[0]
                start = next(starts, -1)
                if start < 0:
                    return


def _read(index: ShardIndex, number: int) -> Found:
    shard = index.shards[0]
    try:
        return Found(shard, read_sample(index, number))
    except DataError as error:
        return Found(shard, None, _without(shard, error))


def _without(shard: Path, error: DataError) -> str:
    return str(error).replace(f"{shard}: ", "")
