"""How many parts the samples of some shards have, and what a cap on them keeps.

The figures of Hyper3-CLIP, section 4.3 and Fig. 2 (left). Of each sample the headers of its
members are read, and the few bytes that say how many parts it has and which photo it shows: no
picture and no text.
"""

import hashlib
import itertools
import json
import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation.metrics import part_statistics
from core.evaluation.report.document import plain
from trainer.data.shards import data_set_of, distinct, key_and_kind, photo_of
from trainer.data.tar import check_end, members
from trainer.inspection.pool import over

CAPS = (1, 2, 3, 4, 5, 6)
_OF_SAMPLES = ("child.jpg", "numparents.txt")  # one of which every sample has
_MOST_DIGITS = 30  # of a number that is shown

PUBLISHED: dict[str, float] = {
    "shards": 2_051,
    "samples": 13_149_251,
    "parts": 25_185_017,
    "parts of a sample, mean": 1.9153,
    "parts of a sample, most": 20,
    "with one part": 0.4068,
    "with at most two": 0.7923,
    "cap 5, parts kept": 0.9938,
    "cap 5, samples whole": 0.9920,
}
"""Of GRIT as the paper's authors processed it, by the names of `Scan.figures`."""


@dataclass(frozen=True)
class Scan:
    """What the shards hold."""

    shards: int
    photos: int
    """Distinct ones, of every data set; a sample shows its own where nothing else is said."""
    histogram: dict[int, int]
    """Samples by their number of parts, in rising order."""
    broken: dict[str, str]
    """Why, by shard; what could be read of it is counted."""

    def figures(self) -> dict[str, float]:
        """Counts, and shares in 0..1 of the samples or parts; caps where there are parts."""
        samples = sum(self.histogram.values())
        has_parts = max(self.histogram) > 0
        if not has_parts:
            return {"shards": self.shards, "samples": samples, "photos": self.photos, "parts": 0}
        found = part_statistics(self.histogram, CAPS)
        figures = {
            "shards": self.shards,
            "samples": samples,
            "photos": self.photos,
            "parts": found.parts,
            "parts of a sample, mean": found.mean,
            "parts of a sample, most": found.most,
            "with no part": self.histogram.get(0, 0) / samples,
            "with one part": found.one,
            "with at most two": found.one_or_two,
        }
        for cap in CAPS:
            figures[f"cap {cap}, parts kept"] = found.retained[cap]
            figures[f"cap {cap}, samples whole"] = found.untruncated[cap]
        return figures


@dataclass
class ShardScan:
    """What was counted of one shard, and what is wrong with it."""

    histogram: Counter[int] = field(default_factory=Counter)
    alone: int = 0
    """Samples that do not say which photo they show."""
    photos: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    """Digests of those that the others name."""
    broken: str = ""


def scan(shards: Sequence[Path], workers: int, advance: Callable[[int], None]) -> Scan:
    """Count the parts of all samples.

    A shard that is broken, or holds no samples, is named in the result and ends nothing. As in
    training, its samples before the break count, and those that lack a part do not.

    Args:
        shards: Tars; one that is named twice counts once.
        workers: Processes.
        advance: Called with the samples of each shard when it is done.

    Raises:
        DataError: There is no sample at all.
    """
    shards = distinct(shards)
    histogram: Counter[int] = Counter()
    alone, photos, broken = 0, [], {}
    for place, found in over(scan_shard, shards, workers):
        histogram.update(found.histogram)
        alone += found.alone
        photos.append(found.photos)
        if found.broken:
            broken[place] = found.broken
        advance(found.histogram.total())
    if not histogram:
        raise DataError(f"{shards[0]}: {broken[0]}; of {len(shards)} shards none has a sample")
    return Scan(
        len(shards),
        alone + len(np.unique(np.concatenate(photos))),
        dict(sorted(histogram.items())),
        {str(shards[place]): broken[place] for place in sorted(broken)},
    )


def scan_shard(path: Path) -> ShardScan:
    """Count the parts of the samples of one shard."""
    found = ShardScan()
    photos: set[bytes] = set()
    data_set = str(data_set_of(path)).encode(errors="surrogateescape")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for key, said, kinds, about in _samples(data, path):
                count, fault = _parts(said, kinds)
                if fault:
                    found.broken = found.broken or f"sample {plain(key)}: {fault}"
                    continue
                found.histogram[count] += 1
                photo = _photo(about, data_set)
                if photo is None:
                    found.alone += 1
                else:
                    photos.add(photo)
    except DataError as error:
        found.broken = "breaks off" if found.histogram else "not a tar of samples"
        found.broken += f": {error}".replace(f"{path}: ", "")
    except (OSError, ValueError) as error:  # of an empty file no memory can be mapped
        found.broken = f"cannot be read: {error}"
    if not found.broken and not found.histogram:
        found.broken = "no samples: no member is called KEY.child.jpg"
    found.photos = np.frombuffer(b"".join(photos), np.uint64)
    return found


def _samples(data: mmap.mmap, path: Path) -> Iterator[tuple[str, bytes, set[str], bytes]]:
    """Key, numparents.txt, kinds of all members and JSON of each whole sample."""
    stem, said, about = "\0", b"0", b""
    kinds: set[str] = set()
    for name, start, size, _ in members(data, path):
        if not name.startswith(stem):  # of another sample
            if not kinds.isdisjoint(_OF_SAMPLES):
                yield stem[:-1], said, kinds, about
            stem, said, about, kinds = f"{key_and_kind(name)[0]}.", b"0", b"", set()
        kind = name[len(stem) :]
        kinds.add(kind)
        if kind == "numparents.txt":
            said = data[start : start + size]
        elif kind == "json":
            about = data[start : start + size]
    check_end(data, path)
    if not kinds.isdisjoint(_OF_SAMPLES):
        yield stem[:-1], said, kinds, about


def _parts(said: bytes, kinds: set[str]) -> tuple[int, str]:
    """How many parts a sample has, or why training leaves it out."""
    try:
        count = max(int(said), 0)
    except ValueError:
        return 0, "numparents.txt is not a number"
    there = itertools.takewhile(lambda part: f"parent{part:03d}.txt" in kinds, range(count))
    found = sum(1 for _ in there)
    if found < count:
        shown = said.decode("ascii", "replace").strip()[:_MOST_DIGITS]
        return 0, f"numparents.txt says {shown}, but from 0 on there are {found:,} parts"
    return count, ""


def _photo(about: bytes, data_set: bytes) -> bytes | None:
    """A digest of 64 bits of what the captions of one photo share, where the JSON says it."""
    if not about:
        return None
    try:
        photo = photo_of(json.loads(about), "")
    except (ValueError, RecursionError):
        return None
    if not photo:
        return None
    named = data_set + b"\0" + photo.encode(errors="surrogatepass")
    return hashlib.blake2b(named, digest_size=8).digest()
