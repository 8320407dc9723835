"""Processed-GRIT shards -> samples.

A shard is a tar whose members of one sample stand together::

    {key}.json            optional: {"photo": id, "names": [...], "boxes": [...]}, see below
    {key}.child.jpg       the whole image           {key}.child.txt      its caption
    {key}.numparents.txt  how many parts
    {key}.parent000.jpg   a part's crop             {key}.parent000.txt  its phrase

A part without a crop is cut out of the whole when it is loaded. The JSON has for each part its
name, or null, and its box, [left, top, right, bottom] in 0..1 of the stored whole, or null.

The headers are read once, at the start. After that a sample is one read at a known place.
"""

import contextlib
import functools
import glob
import itertools
import json
import logging
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import braceexpand
import numpy as np
import numpy.typing as npt

from core.errors import DataError
from trainer.data.address import check_address, copy_of, is_address, shown
from trainer.data.sample import Corners, Part, Sample
from trainer.data.shard_writer import MANIFEST
from trainer.data.tar import check_end, members, padded

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardIndex:
    """Where every sample of some shards lies."""

    shards: tuple[Path, ...]
    shard: npt.NDArray[np.int32]  # (samples,)
    offset: npt.NDArray[np.int64]  # (samples,) of the first header
    size: npt.NDArray[np.int64]  # (samples,) in bytes, padding included
    photo: npt.NDArray[np.int64]  # (samples,) equal for captions of one photo
    torn: tuple[str, ...] = ()  # which shards break off, and where

    def __len__(self) -> int:
        return len(self.shard)


def find_shards(pattern: str, cache: Path | None = None) -> list[Path]:
    """The tars that a folder, a file, a glob or braces (``{00000..00099}.tar``) stand for.

    A folder that a glob finds (``data/*/train``) stands for its tars too. What is there under
    the very name is no glob, whatever letters it has.

    Args:
        pattern: What a recipe names.
        cache: Where shards that lie elsewhere have been fetched to.

    Raises:
        DataError: There are none, or one that was named does not exist.
    """
    found: list[Path] = []
    for name in _expand(pattern):
        if is_address(name):
            found.append(_copy(name, cache))
            continue
        path = Path(name)
        matches = [path]
        if any(letter in name for letter in "*?[") and not path.exists():
            matches = sorted(map(Path, glob.glob(name)))  # noqa: PTH207 - Path's finds hidden ones
        for match in matches:
            found += sorted(match.glob("*.tar")) if match.is_dir() else [match]
    missing = [path for path in found if not path.is_file()]
    if missing:
        raise DataError(f"{missing[0]}: no such shard (from {shown(pattern)!r})")
    if not found:
        below = sorted({str(tar.parent) for tar in Path(pattern).glob("*/*.tar")})
        remedy = (
            f"name one of {', '.join(below[:5])}" if below else "`hyper3 data prepare` makes some"
        )
        raise DataError(f"{pattern}: no shards (*.tar) here; {remedy}")
    return found


def find_addresses(pattern: str) -> list[str]:
    """The shards of a pattern that have to be fetched; globs stand for paths alone.

    Raises:
        DataError: Its braces are not closed, or no request can be made of an address.
    """
    return [name for name in _expand(pattern) if is_address(name)]


def distinct(paths: Iterable[Path]) -> list[Path]:
    """Every file once, as it is named first."""
    found: dict[Path, Path] = {}
    for path in paths:
        found.setdefault(path.resolve(), path)
    return list(found.values())


def data_set_of(shard: Path) -> Path:
    """The folder within which the ids of photos are unlike: that of the manifest, if it has one.

    Splits of one prepared data set may share photos; in another, the same id is another photo.
    """
    folder = shard.resolve().parent
    return folder.parent if (folder.parent / MANIFEST).is_file() else folder


def index_shards(shards: list[Path], advance: Callable[[int], None] = lambda _: None) -> ShardIndex:
    """Read the headers of all shards.

    A shard that breaks off is used up to its last whole sample, with a warning. Samples are of
    one photo where they have its id and are of one data set, see `data_set_of`.

    Args:
        shards: Where they lie.
        advance: Told how many have been read.

    Raises:
        DataError: A file is no tar, or no sample is left.
    """
    tables: list[npt.NDArray[np.int64]] = []
    photos: dict[Path, dict[str, int]] = {}  # by data set
    new = itertools.count()
    torn: list[str] = []
    for number, path in enumerate(shards):
        known = photos.setdefault(data_set_of(path), {})
        rows = []
        for offset, size, photo in _scan(path, torn):
            if photo not in known:
                known[photo] = next(new)
            rows.append((number, offset, size, known[photo]))
        tables.append(np.array(rows, np.int64).reshape(-1, 4))
        advance(number + 1)
    table = np.concatenate(tables)
    if not len(table):
        raise DataError(f"{shards[0].parent}: {len(shards)} shards, but not one whole sample")
    _, offset, size, photo = (column.copy() for column in table.T)
    shard = table[:, 0].astype(np.int32)
    index = ShardIndex(tuple(shards), shard, offset, size, photo, tuple(torn))
    warn_of_torn(index)
    return index


def warn_of_torn(index: ShardIndex) -> None:
    """Log which shards break off."""
    for why in index.torn:
        log.warning("shard %s", why)


def read_sample(index: ShardIndex, number: int, *, pictures: bool = True) -> Sample:
    """Read one sample.

    Args:
        index: Where it lies.
        number: Its row there.
        pictures: Whether its JPEGs are wanted; without, each that is stored is empty.

    Raises:
        DataError: Its image, caption or a part is missing; the message names shard and key.
    """
    path = index.shards[index.shard[number]]
    start = int(index.offset[number])
    data = _mapped(path)[start : start + int(index.size[number])]
    held: dict[str, bytes] = {}
    key = ""
    for name, start, size, _ in members(data, path):
        key, kind = key_and_kind(name)
        unread = not pictures and kind.endswith(".jpg")
        held[kind] = b"" if unread else data[start : start + size]
    try:
        count = min(int(held.get("numparents.txt", b"0")), len(held))
        about = json.loads(held.get("json", b"{}"))
        names = _of_parts(about, "names", count)
        boxes = _of_parts(about, "boxes", count)
        return Sample(
            photo=photo_of(about, key),
            jpeg=held["child.jpg"],
            text=held["child.txt"].decode("utf-8").strip(),
            parts=tuple(_part(held, part, names[part], boxes[part]) for part in range(count)),
            key=key,
        )
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: sample {key}: missing or broken member: {error}") from error


def _part(held: dict[str, bytes], number: int, name: Any, box: Any) -> Part:
    stem = f"parent{number:03d}"
    corners = None if box is None else _corners(box)
    jpeg = held[f"{stem}.jpg"] if corners is None else held.get(f"{stem}.jpg")
    text = held[f"{stem}.txt"].decode("utf-8").strip()
    if name is not None:
        name = str(name)
        name.encode()  # JSON may hold halves of a surrogate pair, of which no digest can be taken
    return Part(jpeg, text, name, corners)


def _corners(box: Any) -> Corners:
    left, top, right, bottom = (min(max(float(corner), 0.0), 1.0) for corner in box)
    if not (left < right and top < bottom):
        raise ValueError(f"box {box} is empty; it is [left, top, right, bottom] in 0..1")
    return left, top, right, bottom


def _of_parts(about: Any, what: str, count: int) -> list[Any]:
    """What the JSON says of each part, or nothing of any."""
    found = about.get(what) if isinstance(about, dict) else "?"
    if found is None:
        return [None] * count
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"json has {what}, but not one for each of the {count} parts")
    return found


def _expand(pattern: str) -> list[str]:
    """The names that braces stand for; what is there under the very name is no pattern."""
    if (scheme := re.match(r"(\w+)://", pattern)) and not is_address(pattern):
        raise DataError(
            f"{shown(pattern)}: shards are paths, or lie at https, http, s3 or gs, not "
            f'{scheme[1]}; "pipe:COMMAND" reads what a command writes'
        )
    if os.path.exists(pattern):  # noqa: PTH110 - a Path's fails where braces are long
        return [pattern]
    is_command = pattern.startswith("pipe:")
    try:
        names = list(braceexpand.braceexpand(pattern, escape=not is_command))
    except ValueError as error:
        why = shown(f"{pattern}: braces are {{00000..00099}} or {{a,b}}: {error}")
        raise DataError(why) from error
    for name in filter(is_address, names):
        check_address(name)
    return names


def _copy(address: str, cache: Path | None) -> Path:
    """Where a shard has been fetched to."""
    if cache is None:
        raise DataError(
            f"{shown(address)}: lies elsewhere; `hyper3 train` fetches such shards into "
            "data.cache, and that folder can be named here"
        )
    return copy_of(address, cache)


def _scan(path: Path, torn: list[str]) -> Iterator[tuple[int, int, str]]:
    """Offset, size and photo of each whole sample of a shard; where it breaks off is noted."""
    if path.stat().st_size == 0:
        raise DataError(f"{path}: an empty file, not a tar")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        current, first, end, photo = "", 0, 0, ""
        try:
            for name, start, size, head in members(data, path):
                key, kind = key_and_kind(name)
                if key != current:
                    if end:
                        yield first, end - first, photo
                    current, first, photo = key, head, f"{path}/{key}"
                if kind == "json":
                    with contextlib.suppress(ValueError, RecursionError):  # `read_sample` says it
                        photo = photo_of(json.loads(data[start : start + size]), photo)
                end = start + padded(size)
            check_end(data, path)
        except (DataError, ValueError) as error:
            if end == 0:
                raise DataError(f"{path}: not a tar of samples: {error}") from error
            torn.append(f"{path} breaks off after byte {first}: {error}")
            return  # the sample that was being read is not whole
        if end:
            yield first, end - first, photo


def photo_of(about: Any, otherwise: str) -> str:
    """What the captions of one photo share, by the JSON of a sample."""
    return str(about.get("photo", otherwise)) if isinstance(about, dict) else otherwise


@functools.lru_cache(maxsize=4096)
def _mapped(path: Path) -> mmap.mmap:
    """A shard's bytes; the pages stay with the operating system's cache."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def key_and_kind(name: str) -> tuple[str, str]:
    """The sample that a member belongs to, its folder included, and what it is of it."""
    folder, slash, base = name.rpartition("/")
    key, _, kind = base.partition(".")
    return folder + slash + key, kind
