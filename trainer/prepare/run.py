"""A data set -> processed-GRIT shards, one sample per caption, and an entry in the manifest.

The work stands in a folder ``.SPLIT.partial`` until all of it is there: the records, every
finished shard with a note of it, and the plan, which is all that decides the bytes. So a run
that was killed is gone on with by the same command, and ends in the same bytes.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from core.lock import take_lock
from trainer.data.shard_writer import MANIFEST, is_ours, read_manifest
from trainer.prepare.jobs import Captions, Finished, Job, Tar, tar_name
from trainer.prepare.plan import MADE_BY, Plan, differences, plan_in, plan_of
from trainer.prepare.pool import run_jobs
from trainer.prepare.records import Tally
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.grit import count_samples
from trainer.prepare.sources.source import Source
from trainer.prepare.spool import Spool, shuffled, write_spool
from trainer.storage import check_ours, clear, storage_errors, write_json

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
        ConfigError: The split's name is not a plain one.
        DataError: The source is not what it seems, or holds nothing that can be used; or the
            split would take the place of files that were not written here.
        StorageError: The folder cannot be written, the disk is full, or another process is there.
    """
    _check_name(source.split)
    _check_free(out / source.split, source)
    staging = out / f".{source.split}.partial"
    with storage_errors(out), take_lock(staging):
        plan = plan_of(source, settings)
        _begin(staging, plan, _entry_in(out, source.split), say)
        if not (staging / _ENTRY).is_file():
            entry = _make(source, staging, plan, settings, workers, advance)
            write_json(staging / _ENTRY, entry)
        entry = json.loads((staging / _ENTRY).read_bytes())
        _publish(staging, out, source.split, entry)
    return dict(entry)


def left_out(entry: dict[str, Any]) -> list[str]:
    """What an entry of the manifest counts as left out: a line each, with the first of its kind."""
    return [
        f"{count:>11,} {kind}: {reason} ({entry['first_skipped'].get(f'{kind}: {reason}', '?')})"
        for kind, reasons in entry["skipped"].items()
        for reason, count in reasons.items()
    ]


def is_complete(source: Source, out: Path, settings: PrepareSettings) -> bool:
    """Whether the split is already there, made from the same files by the same settings."""
    entry = _entry_in(out, source.split)
    if not entry or (out / f".{source.split}.partial").exists():
        return False
    if differences(plan_in(entry), plan_of(source, settings)):
        return False
    written = (out / MANIFEST).stat().st_mtime
    return all(tar.stat().st_mtime <= written for tar in source.tars) and all(
        (out / source.split / shard["file"]).is_file() for shard in entry["shards"]
    )


def _make(
    source: Source,
    staging: Path,
    plan: Plan,
    settings: PrepareSettings,
    workers: int,
    advance: Callable[[int, int], None],
) -> dict[str, Any]:
    """Make every shard that is not there, and the split's entry."""
    (staging / _SHARDS).mkdir(exist_ok=True)
    tally = Tally()
    spool = None
    jobs: Iterable[Job]
    if source.read is None:
        jobs = tar_jobs = _tar_jobs(source, staging, settings)
        total, count = sum(job.work.weight for job in tar_jobs), len(tar_jobs)
    else:
        spool = write_spool(source, staging / "records.jsonl", settings.limit, tally)
        jobs = _caption_jobs(source, spool, staging, plan, settings)
        total, count = len(spool.places), -(-len(spool.places) // SHARD_SAMPLES)
    notes = run_jobs(jobs, min(workers, count), lambda done: advance(done, total))
    notes.sort(key=lambda note: note.shard.file)
    for note in notes:
        tally.add(note.tally)
    entry = _entry(plan, spool, notes, tally)
    if entry["samples"] == 0:
        shutil.rmtree(staging)
        files = ", ".join(source.files)
        where = f"{files}, with pictures in {source.images}" if files else str(source.images)
        lines = left_out(entry) or ["  nothing"]
        raise DataError("\n".join([f"{where}: no usable caption; left out:", *lines]))
    wanted = {shard["file"] for shard in entry["shards"]}
    for path in (staging / _SHARDS).iterdir():  # of an earlier plan, or torn
        if path.name not in wanted:
            path.unlink()
    return entry


def _entry(plan: Plan, spool: Spool | None, notes: list[Finished], tally: Tally) -> dict[str, Any]:
    """What the manifest says of a split."""
    shards = [note.shard for note in notes if note.shard.samples]
    read = {note.source["file"]: note.source for note in notes if note.source}
    return plan | {
        "inputs": [read.get(item["file"], item) for item in plan["inputs"]],
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


def _publish(staging: Path, out: Path, split: str, entry: dict[str, Any]) -> None:
    """Put the finished split in its place; killed at any point, this is done again."""
    manifest = read_manifest(out) or {}
    splits = manifest.setdefault("splits", {})
    if (staging / _SHARDS).is_dir():
        clear(out / split, ".tar")
        if splits.pop(split, None):
            write_json(out / MANIFEST, manifest)
        (staging / _SHARDS).rename(out / split)
    splits[split] = entry
    manifest.setdefault("source", "photos with captions and boxes")
    write_json(out / MANIFEST, manifest)
    shutil.rmtree(staging)


def _entry_in(out: Path, split: str) -> dict[str, Any] | None:
    """What the manifest says of a split that is there."""
    entry = ((read_manifest(out) or {}).get("splits") or {}).get(split)
    return entry if isinstance(entry, dict) else None


def _check_name(split: str) -> None:
    if not re.fullmatch(r"[\w-][\w.-]*", split):
        raise ConfigError(
            f"split {split!r}: write a plain name of letters, digits and ._- with --split"
        )


def _check_free(folder: Path, source: Source) -> None:
    """Make sure that what a split would replace was written here: raw data are tars as well."""
    for tar in source.tars:
        if tar.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{tar}: is read from {folder}, which would be written; name another --out or "
                "--split, or a SOURCE without it"
            )
    check_ours(folder, ".tar")
    for tar in sorted(folder.glob("*.tar")):
        if not is_ours(tar):
            raise DataError(
                f"{tar}: was not written by this command and would be lost; name another --out or "
                "--split"
            )
