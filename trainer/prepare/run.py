"""A data set -> processed-GRIT shards, one sample per caption, and an entry in the manifest.

The work stands in a folder ``.SPLIT.partial`` until all of it is there: the records, every
finished shard with a note of it, and the plan, which is all that decides the bytes. So a run
that was killed is gone on with by the same command, and ends in the same bytes.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.lock import take_lock
from trainer.data.shard_writer import MANIFEST
from trainer.prepare.jobs import Captions, Finished, Job, Tar, tar_name
from trainer.prepare.plan import MADE_BY, Plan, differences, plan_in, plan_of
from trainer.prepare.pool import run_jobs
from trainer.prepare.publish import check_place, entry_in, publish
from trainer.prepare.records import Tally
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.grit import count_samples
from trainer.prepare.sources.source import Source
from trainer.prepare.spool import Spool, pictures_of, shuffled, write_spool
from trainer.storage import storage_errors, write_json

SHARD_SAMPLES = 1_000
_PLAN, _ENTRY, _SHARDS, _NOTES = "plan.json", "entry.json", "shards", "notes"


def prepare(
    source: Source,
    out: Path,
    settings: PrepareSettings,
    *,
    workers: int,
    advance: Callable[[int, int], None],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Write the shards of one split and enter it in the folder's manifest.

    A split of that name is replaced when the new one is whole.

    Args:
        source: What is prepared, and the split's name: letters, digits, and ``._-``.
        out: Folder of the data set; the split's shards go into a folder of its name.
        settings: Sizes, seed and rules.
        workers: Number of processes.
        advance: Called with what was just finished and the whole: captions, or bytes of tars.
        say: Told what is made of what an earlier run left.

    Returns:
        The split's entry in the manifest: counts, skipped by reason, shards.

    Raises:
        ConfigError: The split's name is not a plain one, or the manifest's.
        DataError: The source is not what it seems, or holds nothing that can be used; or the
            split would take the place of files that were not written here.
        StorageError: The folder cannot be written, the disk is full, or another process is there.
    """
    check_place(out, source)
    is_new = not out.exists()
    staging = out / f".{source.split}.partial"
    with storage_errors(out), take_lock(staging):
        try:
            plan, spool = _read(source, staging, settings)
            _begin(staging, plan, entry_in(out, source.split), say)
            if not (staging / _ENTRY).is_file():
                entry = _make(source, staging, plan, spool, settings, workers, advance)
                write_json(staging / _ENTRY, entry)
        except DataError:
            if not any((staging / _NOTES).glob("*.json")):
                _remove(staging, out if is_new else None)
            raise
        entry = json.loads((staging / _ENTRY).read_bytes())
        publish(staging / _SHARDS, out, source.split, entry)
        shutil.rmtree(staging)
    return dict(entry)


def left_out(entry: dict[str, Any]) -> list[str]:
    """What an entry of the manifest counts as left out: a line each, with the first of its kind."""
    return [
        f"{count:>11,} {kind}: {reason} ({entry['first_skipped'].get(f'{kind}: {reason}', '?')})"
        for kind, reasons in entry["skipped"].items()
        for reason, count in reasons.items()
    ]


def is_complete(source: Source, out: Path, settings: PrepareSettings) -> bool:
    """Whether the split is already there, made from the same files by the same settings.

    Of pictures that are files, the records are read for their names, and none is opened.
    """
    entry = entry_in(out, source.split)
    if not entry or (out / f".{source.split}.partial").exists():
        return False
    before = plan_in(entry)
    if differences(before | {"pictures": None}, plan_of(source, settings)):
        return False
    written = (out / MANIFEST).stat().st_mtime
    return (
        all(tar.stat().st_mtime <= written for tar in source.tars)
        and all((out / source.split / shard["file"]).is_file() for shard in entry["shards"])
        and (source.read is None or pictures_of(source, settings.limit) == before["pictures"])
    )


def _read(source: Source, staging: Path, settings: PrepareSettings) -> tuple[Plan, Spool | None]:
    """The plan, and the records where pictures are files."""
    plan = plan_of(source, settings)  # first, so that a file that changes meanwhile differs later
    if source.read is None:
        return plan, None
    spool = write_spool(source, staging / "records.jsonl", settings.limit)
    return plan | {"pictures": spool.pictures}, spool


def _remove(staging: Path, out: Path | None) -> None:
    """Take away the folder of a work of which nothing is left, and the one around it if empty."""
    shutil.rmtree(staging, ignore_errors=True)
    if out:
        with contextlib.suppress(OSError):
            out.rmdir()


def _make(
    source: Source,
    staging: Path,
    plan: Plan,
    spool: Spool | None,
    settings: PrepareSettings,
    workers: int,
    advance: Callable[[int, int], None],
) -> dict[str, Any]:
    """Make every shard that is not there, and the split's entry."""
    (staging / _SHARDS).mkdir(exist_ok=True)
    tally = Tally()
    jobs: Iterable[Job]
    if spool is None:
        jobs = tar_jobs = _tar_jobs(source, staging, settings)
        total, count = sum(job.work.weight for job in tar_jobs), len(tar_jobs)
    else:
        tally.add(spool.tally)
        jobs = _caption_jobs(source, spool, staging, plan, settings)
        total, count = len(spool.places), -(-len(spool.places) // SHARD_SAMPLES)
    notes = run_jobs(jobs, min(workers, count), lambda done: advance(done, total))
    notes.sort(key=lambda note: note.shard.file)
    for note in notes:
        tally.add(note.tally)
    entry = _entry(plan, spool, notes, tally)
    if entry["samples"] == 0:
        shutil.rmtree(staging / _NOTES, ignore_errors=True)
        raise _nothing(source, left_out(entry))
    wanted = {shard["file"] for shard in entry["shards"]}
    for path in (staging / _SHARDS).iterdir():  # of an earlier plan, or torn
        if path.name not in wanted:
            path.unlink()
    return entry


def _nothing(source: Source, lines: list[str]) -> DataError:
    """That a source has no caption that can be used, and what was left out."""
    files = [str(of[0]) if len(of) == 1 else name for name, of in source.files.items()]
    where = f"{', '.join(files)}, with pictures in {source.images}" if files else source.images
    if not lines:
        return DataError(f"{where}: empty: not one photo is named there; name another SOURCE")
    return DataError("\n".join([f"{where}: no usable caption; left out:", *lines]))


def _entry(plan: Plan, spool: Spool | None, notes: list[Finished], tally: Tally) -> dict[str, Any]:
    """What the manifest says of a split."""
    shards = [note.shard for note in notes if note.shard.samples]
    read = [note.source for note in notes if note.source]  # in the order of the tars
    return plan | {
        "inputs": [*read, *plan["inputs"][len(read) :]],
        "photos": sum(note.photos for note in notes),
        "samples": sum(shard.samples for shard in shards),
        "samples_without_parts": tally.without_parts,
        "parts": sum(shard.parts for shard in shards),
        "skipped": tally.counts(),
        "first_skipped": dict(sorted(tally.first.items())),
        "notes": dict(sorted(tally.notes.items())),
        "licences": list(spool.licences) if spool else ["pictures: each of its own owner"],
        "shards": [asdict(shard) for shard in shards],
    }


def _tar_jobs(source: Source, staging: Path, settings: PrepareSettings) -> list[Job]:
    """A job for each tar, as far as the limit goes."""
    jobs: list[Job] = []
    left = settings.limit
    for tar in source.tars:
        most = None
        if left is not None:
            found = count_samples(tar, left)
            most = found if found == left else None
            left -= found
        state = tar.stat()
        made_of = [tar_name(tar), state.st_size, state.st_mtime_ns, most, dict(source.choices)]
        if source.grit is None:
            raise ValueError(f"{source.format} has tars, but no rules for them")
        work = Tar(tar, f"{len(jobs):05d}", source.grit, most)
        jobs.append(_job(staging, len(jobs), work, settings, made_of))
        if left == 0:
            break
    return jobs


def _caption_jobs(
    source: Source, spool: Spool, staging: Path, plan: Plan, settings: PrepareSettings
) -> Iterator[Job]:
    """A job for each thousand captions of the shuffled order."""
    order = shuffled(spool.places, settings.seed)
    for number, start in enumerate(range(0, len(order), SHARD_SAMPLES)):
        work = Captions(spool.file, source.images, order[start : start + SHARD_SAMPLES])
        yield _job(staging, number, work, settings, [plan, SHARD_SAMPLES])


def _job(
    staging: Path, number: int, work: Captions | Tar, settings: PrepareSettings, made_of: list[Any]
) -> Job:
    decides = json.dumps([MADE_BY, number, asdict(settings), made_of])
    return Job(
        shard=staging / _SHARDS / f"{number:05d}.tar",
        note=staging / _NOTES / f"{number:05d}.json",
        work=work,
        settings=settings,
        digest=hashlib.sha256(decides.encode()).hexdigest(),
    )


def _begin(
    staging: Path, plan: Plan, published: dict[str, Any] | None, say: Callable[[str], None]
) -> None:
    """Make ready the folder of the work, and say what becomes of what is there."""
    try:
        before = json.loads((staging / _PLAN).read_bytes())
    except (OSError, ValueError):
        before = published and plan_in(published)
    finished = len(list((staging / _NOTES).glob("*.json")))
    changes = differences(before, plan) if isinstance(before, dict) else []
    if changes:
        (staging / _ENTRY).unlink(missing_ok=True)
        say(f"{'; '.join(changes)}: what no longer fits is made anew")
    elif finished:
        say(f"going on with what an earlier run left: {finished:,} shards are finished")
    write_json(staging / _PLAN, plan)
