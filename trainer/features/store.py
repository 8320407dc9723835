"""What a frozen image tower gives for every picture of some shards, kept on disk.

::

    FOLDER/lock                      held by the one process that fills
           shards-STATE.npz          which pictures some shards hold: their keys
           FINGERPRINT/about.json    the tower and the options that it stands for, weights aside
                       feature.keys  a digest of 16 bytes for each row
                       feature.f16   the rows, half precision
                       patches.*     the same, of whole pictures
                       broken.json   pictures that cannot be decoded, and why

A key is a digest of a picture's JPEG, and of its box where it is cut when it is loaded: captions
of a photo share its row, and so do runs and systems whose tower is the same.

Half precision keeps 11 bits: a feature is off by less than 0.05%, an eighth of what a tower in
bfloat16 rounds away in every layer.
"""

import functools
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import BrokenImage, DataError
from trainer.data.pictures import WHOLE
from trainer.data.sample import Part
from trainer.data.shards import ShardIndex, read_sample
from trainer.features.table import KEY_BYTES, Half, Keys, Table, key_at
from trainer.storage import replacing, write_json

BROKEN = "broken.json"
_UNUSED = b""  # in the place of the key of a part without a text


@dataclass(frozen=True)
class Pictures:
    """The distinct pictures of some shards, and which of them each sample shows."""

    keys: Keys  # (pictures,), sorted
    sample: npt.NDArray[np.int64]  # (pictures,) where each is met first
    part: npt.NDArray[np.int64]  # (pictures,) of that sample, or WHOLE
    first: npt.NDArray[np.int64]  # (samples + 1,) where each sample's pictures begin in `shown`
    shown: npt.NDArray[np.int64]  # its whole, then all its parts; -1 for one that is never used

    def of(self, samples: npt.NDArray[np.int64], *, parts: bool) -> npt.NDArray[np.bool_]:
        """Which pictures these samples show, ``(pictures,)``, with or without their parts."""
        chosen = np.zeros(len(self.first) - 1, np.bool_)
        chosen[samples] = True
        count = np.diff(self.first)
        if parts:
            places = np.flatnonzero(np.repeat(chosen, count))
        else:
            places = self.first[:-1][chosen & (count > 0)]
        seen = np.zeros(len(self.keys) + 1, np.bool_)
        seen[self.shown[places]] = True  # that of -1 falls off
        return seen[:-1]


@dataclass(frozen=True)
class Stored:
    """A table, and where the pictures of some shards are in it."""

    table: Table
    rows: npt.NDArray[np.int64]  # (pictures,), -1 for one that is not there

    def of(self, picture: int) -> Half:
        """The row of a picture, still in the file."""
        found: Half = self.table.values(self._count)[self.rows[picture]]
        return found

    @functools.cached_property
    def _count(self) -> int:
        return int(self.rows.max()) + 1


@dataclass(frozen=True)
class Features:
    """What is stored for some shards, by sample and part."""

    pictures: Pictures
    feature: Stored
    patches: Stored | None  # where an objective needs them
    broken: dict[bytes, str]  # why a picture has no row

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a feature, and of a picture's patches."""
        return self.feature.table.shape, self.patches.table.shape if self.patches else (0, 0)

    def of(self, number: int, parts: Sequence[int]) -> tuple[list[Half], Half]:
        """Features of a sample's whole and of some of its parts, and patches of the whole.

        Raises:
            BrokenImage: One of these pictures could not be decoded.
        """
        start, end = self.pictures.first[number : number + 2]
        shown = self.pictures.shown[start:end]
        wanted = shown[[0, *(1 + part for part in parts)]]
        absent = wanted[self.feature.rows[wanted] < 0]
        if len(absent):
            raise BrokenImage(self.broken[key_at(self.pictures.keys, absent[0])])
        patches = self.patches.of(shown[0]) if self.patches else np.empty((0, 0), np.float16)
        return [self.feature.of(picture) for picture in wanted], patches


def known_pictures(index: ShardIndex, folder: Path) -> Pictures | None:
    """The pictures of shards that `look_through` has met before."""
    file = _file(index, folder)
    if not file.exists():
        return None
    with np.load(file) as stored:
        return Pictures(**stored)


def look_through(index: ShardIndex, folder: Path, advance: Callable[[int], None]) -> Pictures:
    """Hash the pictures of some shards, and keep what was found for these very shards.

    Args:
        index: Of the shards.
        folder: Of the features.
        advance: Told how many samples have been read.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
        DataError: A shard was replaced meanwhile.
    """
    file = _file(index, folder)
    keys: list[bytes] = []
    places: list[tuple[int, int]] = []
    first = [0]
    for number in range(len(index)):
        for place, key in _keys_of(index, number):
            keys.append(key)
            places.append((number, place))
        first.append(len(keys))
        advance(number + 1)
    every = np.array(keys, f"S{KEY_BYTES}")
    distinct, met, shown = np.unique(every, return_index=True, return_inverse=True)
    unused = int(_UNUSED in keys)  # sorts before every digest, and so becomes -1
    sample, part = np.array(places, np.int64).reshape(-1, 2)[met][unused:].T
    found = Pictures(distinct[unused:], sample, part, np.array(first, np.int64), shown - unused)
    if _file(index, folder) != file:
        raise DataError(
            f"{index.shards[0].parent}: shards were replaced while their pictures were looked for; "
            "run again once they stay as they are"
        )
    with replacing(file) as temporary, temporary.open("wb") as out:
        np.savez(out, **vars(found))
    return found


def key_of(jpeg: bytes, part: Part | None = None) -> bytes:
    """The key of a whole picture, or of one of its parts, stored or to be cut out."""
    if part and part.jpeg is not None:
        jpeg, part = part.jpeg, None
    digest = hashlib.blake2b(jpeg, digest_size=KEY_BYTES).digest()
    if part is None:
        return digest
    box = struct.pack("<4d", *(part.box or (0.0, 0.0, 1.0, 1.0)))
    return hashlib.blake2b(digest + box, digest_size=KEY_BYTES).digest()


def _keys_of(index: ShardIndex, number: int) -> Iterator[tuple[int, bytes]]:
    """The whole's key and those of its parts."""
    try:
        sample = read_sample(index, number)
    except DataError:  # the loader will meet it again, and count it
        return
    if not sample.text:
        return
    yield WHOLE, key_of(sample.jpeg)
    for place, part in enumerate(sample.parts):
        yield place, key_of(sample.jpeg, part) if part.text else _UNUSED


def _file(index: ShardIndex, folder: Path) -> Path:
    """Where it is kept what these shards hold: another place once they have changed."""
    digest = hashlib.sha256()
    for path in index.shards:
        status = path.stat()
        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"  # a copy may keep the first
        digest.update(f"{path.resolve()}\n{status.st_size} {times}\n".encode())
    for rows in (index.shard, index.offset, index.size):
        digest.update(np.ascontiguousarray(rows).data)
    return folder / f"shards-{digest.hexdigest()[:16]}.npz"


def read_broken(folder: Path) -> dict[bytes, str]:
    """Why pictures could not be decoded, by key."""
    file = folder / BROKEN
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return {bytes.fromhex(key): why for key, why in found.items()}


def write_broken(folder: Path, broken: dict[bytes, str]) -> None:
    """Keep why pictures could not be decoded."""
    write_json(folder / BROKEN, {key.hex(): why for key, why in broken.items()})
