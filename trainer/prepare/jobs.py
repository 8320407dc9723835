"""The shards of a split, each made by one process and finished for good.

Beside the shards lies a note of each that is finished: what it was made of, what it holds, what
was left out. A run that was killed goes on from these notes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.bundle import sha256
from core.errors import ImageError
from core.evaluation.records import find_image
from core.image import ImageLimits
from trainer.data.sample import Sample
from trainer.data.shard_writer import ShardInfo, write_shard
from trainer.prepare.records import Tally, sound_record
from trainer.prepare.samples import PrepareSettings, make_sample, open_picture
from trainer.prepare.sources.grit import read_tar
from trainer.prepare.sources.source import GritRules
from trainer.prepare.spool import Places, read_spool
from trainer.storage import write_json

Report = Callable[[int], None]
"""Told how many captions, or bytes of a tar, were just finished."""


@dataclass(frozen=True)
class Captions:
    """Some captions of a spool."""

    spool: Path
    images: Path
    places: Places

    @property
    def weight(self) -> int:
        """How many they are."""
        return len(self.places)


@dataclass(frozen=True)
class Tar:
    """A tar of GRIT, or its first samples."""

    path: Path
    name: str  # unlike any other's
    rules: GritRules
    most: int | None

    @property
    def weight(self) -> int:
        """Its bytes."""
        return self.path.stat().st_size


@dataclass(frozen=True)
class Job:
    """One shard to make.

    Attributes:
        shard: Its file.
        note: What is written of it when it is finished.
        work: What it is made of.
        settings: How.
        digest: Of all that decides its bytes.
    """

    shard: Path
    note: Path
    work: Captions | Tar
    settings: PrepareSettings
    digest: str


@dataclass(frozen=True)
class Finished:
    """The note of a shard that is there.

    Attributes:
        digest: Of the job.
        shard: What the shard holds; without samples there is no file.
        size: Bytes of the file.
        photos: How many photos met their first caption here.
        tally: What was left out.
        source: The tar that it was made of: file, bytes and sha256.
    """

    digest: str
    shard: ShardInfo
    size: int
    photos: int
    tally: Tally
    source: dict[str, Any] | None


def finished(job: Job) -> Finished | None:
    """The note of a job that was finished by an earlier run, if its shard is still there."""
    try:
        note = json.loads(job.note.read_bytes())
        kept = Finished(
            **note | {"shard": ShardInfo(**note["shard"]), "tally": Tally(**note["tally"])}
        )
        is_there = kept.shard.samples == 0 or job.shard.stat().st_size == kept.size
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kept if is_there and kept.digest == job.digest else None


def tar_name(tar: Path) -> str:
    """What the manifest calls a tar: its folder and name."""
    return f"{tar.resolve().parent.name}/{tar.name}".encode(errors="replace").decode()


def run_job(job: Job, report: Report) -> Finished:
    """Make one shard and its note.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    tally = Tally()
    counted: Counter[str] = Counter()
    work, source = job.work, None
    if isinstance(work, Tar):
        samples = _of_tar(work, job.settings, tally, counted, report)
        source = {"file": tar_name(work.path), "bytes": work.weight, "sha256": sha256(work.path)}
    else:
        samples = _of_captions(work, job.settings, tally, counted, report)
    info = write_shard(job.shard, samples)
    size = job.shard.stat().st_size
    if info.samples == 0:
        job.shard.unlink()
    made = Finished(job.digest, info, size, counted["photos"], tally, source)
    write_json(job.note, asdict(made))
    return made


def _of_tar(
    work: Tar, settings: PrepareSettings, tally: Tally, counted: Counter[str], report: Report
) -> Iterator[Sample]:
    reached = 0
    for found, data, end in read_tar(work.path, work.name, work.rules, work.most, tally):
        report(end - reached)
        reached = end
        record = sound_record(found, found["id"], tally)
        if record is None:
            continue
        try:
            picture = open_picture(record, data, settings)
        except ImageError as error:
            tally.skip("photos", str(error), record["id"])
            continue
        sample = make_sample(record, 0, picture, settings, tally)
        if sample:
            counted["photos"] += 1
            yield sample
    report(work.weight - reached)


def _of_captions(
    work: Captions, settings: PrepareSettings, tally: Tally, counted: Counter[str], report: Report
) -> Iterator[Sample]:
    for record, caption, is_first in read_spool(work.spool, work.places):
        report(1)
        try:
            picture = open_picture(record, _read(work.images, record["image"]), settings)
        except ImageError as error:
            if is_first:  # so that a photo is counted once, whichever shards its captions are in
                tally.skip("photos", str(error), f"{record['id']}: {record['image']}")
            continue
        counted["photos"] += is_first
        sample = make_sample(record, caption, picture, settings, tally)
        if sample:
            yield sample


def _read(folder: Path, name: str) -> bytes:
    path = find_image(folder, name)
    if path is None:
        raise ImageError("image is not a path below the images' folder")
    try:
        if not path.is_file():  # a pipe would never end
            raise ImageError("image file missing")
        if path.stat().st_size > ImageLimits().max_bytes:
            raise ImageError("image unreadable")
        return path.read_bytes()
    except OSError as error:
        raise ImageError("image file missing") from error
