"""The records of a split on the disk, and the order of their captions.

However large a data set is, memory holds three numbers of each caption.
"""

import contextlib
import hashlib
import json
import os
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from trainer.prepare.records import Record, Tally, sound_record
from trainer.prepare.sources.source import Source

_MOST_LICENCES = 1_000

Places = npt.NDArray[np.int64]
"""``(captions, 3)``: byte of the record, index of the caption, and 1 at a record's first one."""


@dataclass(frozen=True)
class Spool:
    """Sound records, one JSON a line, and where each caption is.

    Attributes:
        file: The records.
        places: Of the captions.
        licences: That the records name.
        pictures: A digest of names, sizes and times of all pictures, which are not opened.
        tally: What was left out.
    """

    file: Path
    places: Places
    licences: tuple[str, ...]
    pictures: str
    tally: Tally


def write_spool(source: Source, file: Path, limit: int | None) -> Spool:
    """Read a source once and keep what can be used.

    Args:
        source: Of records.
        file: Is written.
        limit: Most records to read.

    Raises:
        DataError: The source is missing, or not what it seems.
    """
    if source.read is None:
        raise ValueError(f"{source.format} is not read as records")
    places, tally, pictures = array("q"), Tally(), hashlib.sha256()
    licences: set[str] = set()
    with file.open("wb") as lines:
        for where, found in islice(source.read(tally), limit):
            record = sound_record(found, where, tally)
            if record is None:
                continue
            pictures.update(_state(source.images, record["image"]))
            for place, caption in enumerate(record["usable"]):
                places.extend((lines.tell(), caption, place == 0))
            if "license" in record and len(licences) < _MOST_LICENCES:
                licences.add(str(record["license"]))
            lines.write(json.dumps(record).encode() + b"\n")
    if source.licence:
        licences.add(source.licence)
    table = np.array(places, np.int64).reshape(-1, 3)
    return Spool(file, table, tuple(sorted(licences)), pictures.hexdigest(), tally)


def pictures_of(source: Source, limit: int | None) -> str:
    """What the digest of the pictures would be now; nothing is written."""
    return write_spool(source, Path(os.devnull), limit).pictures


def _state(folder: Path, image: str) -> bytes:
    """Name of a picture, and what tells that its file is another or can be read, if it is there."""
    state = ""
    with contextlib.suppress(OSError, ValueError):  # no such file, or a name that none can have
        found = (folder / image).stat()
        state = f"{found.st_size} {found.st_mtime_ns} {found.st_mode & 0o444}"
    return f"{image}\0{state}\n".encode()


def shuffled(places: Places, seed: int) -> Places:
    """Every caption, in an order in which those of one photo lie apart."""
    order = array("q", range(len(places)))
    random.Random(seed).shuffle(order)  # noqa: S311 - not for secrets
    return places[np.array(order, np.int64)]


def read_spool(file: Path, places: Places) -> Iterator[tuple[Record, int, bool]]:
    """The record, the index of the caption, and whether it is the record's first.

    Raises:
        DataError: The file was changed meanwhile.
    """
    with file.open("rb") as lines:
        for start, caption, is_first in places.tolist():
            lines.seek(start)
            try:
                yield json.loads(lines.readline()), caption, bool(is_first)
            except ValueError as error:
                raise DataError(f"{file}: was changed meanwhile; run the command again") from error
