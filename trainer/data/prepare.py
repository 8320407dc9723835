"""Photos with captions and boxes -> processed-GRIT shards, one sample per caption.

The rules for parts are those of HyCoCLIP's preparation of GRIT (arXiv:2410.06912): a text seen
before in the sample is skipped, even where the earlier one was too small; a box counts when
its area in the original photo is over 1,024 square pixels.
"""

import multiprocessing
import random
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from core.bundle import sha256
from core.errors import ConfigError, DataError, ImageError
from core.evaluation.pictures import unsquash
from core.evaluation.records import find_image
from core.image import decode, resize
from trainer.data.records import (
    Record,
    Tally,
    is_text,
    is_usable,
    parts_of,
    read_records,
    record_id,
    sound_boxes,
)
from trainer.data.sample import Part, Sample, cut
from trainer.data.shard_writer import (
    MANIFEST,
    ShardInfo,
    encode_jpeg,
    read_manifest,
    write_shard,
)
from trainer.storage import check_ours, clear, storage_errors, write_json

SHARD_SAMPLES = 1_000


@dataclass(frozen=True)
class PrepareSettings:
    """What decides the bytes of a split, besides its records.

    Attributes:
        side: Height and width of a whole in pixels.
        part_side: The same for a part.
        seed: Of the order of the samples.
        limit: Most photos to read; None for all.
        require_parts: Leave out captions to which no usable box belongs, as GRIT does.
    """

    side: int = 224
    part_side: int = 224
    seed: int = 0
    limit: int | None = None
    require_parts: bool = False


@dataclass(frozen=True)
class _Job:
    """One shard: its captions as (record, index of the caption)."""

    path: Path
    folder: Path  # of the images
    work: tuple[tuple[Record, int], ...]
    settings: PrepareSettings


def prepare(
    records_path: Path,
    out: Path,
    split: str,
    settings: PrepareSettings,
    *,
    workers: int,
    advance: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write the shards of one split and enter it in the folder's manifest.

    A split of that name is replaced when the new one is whole.

    Args:
        records_path: JSONL; images lie beside it.
        out: Folder of the data set; the split's shards go into a folder of its name.
        split: Such as "train": letters, digits, and ``._-``.
        settings: Sizes, seed and rules.
        workers: Number of processes.
        advance: Called with the number of captions finished and the number of all.

    Returns:
        The split's entry in the manifest: counts, skipped by reason, shards.

    Raises:
        ConfigError: The split's name is not a plain one.
        DataError: The file is not JSONL, or holds nothing that can be used.
        StorageError: The folder cannot be written, or the disk is full.
    """
    _check_name(split)
    tally = Tally()
    records = [
        record | {"boxes": sound_boxes(record, tally)}
        for number, record in read_records(records_path, settings.limit)
        if is_usable(record, f"line {number}", tally)
    ]
    order = _order(records, settings.seed, tally)
    manifest = read_manifest(out) or {}
    staging = out / f".{split}.partial"
    check_ours(out / split, ".tar")
    with storage_errors(out):
        clear(staging, ".tar")  # of a run that was killed
    jobs = [
        _Job(staging / f"{index:05d}.tar", records_path.parent, work, settings)
        for index, work in enumerate(_chunks(records, order))
    ]
    try:
        shards = _run_all(jobs, workers, tally, lambda done: advance(done, len(order)))
        entry = _entry(records_path, settings, records, order, tally, shards)
        with storage_errors(out):
            _forget(out, split, manifest)
            staging.rename(out / split)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    manifest.setdefault("source", "photos with captions and boxes")
    manifest.setdefault("splits", {})[split] = entry
    write_json(out / MANIFEST, manifest)
    return entry


def _check_name(split: str) -> None:
    if not re.fullmatch(r"[\w-][\w.-]*", split):
        raise ConfigError(
            f"split {split!r}: write a plain name of letters, digits and ._- with --split"
        )


def _entry(
    records_path: Path,
    settings: PrepareSettings,
    records: list[Record],
    order: list[tuple[int, int]],
    tally: Tally,
    shards: list[ShardInfo],
) -> dict[str, Any]:
    """What the manifest says of a split."""
    samples = sum(shard.samples for shard in shards)
    entry = {
        "source": records_path.name.encode(errors="replace").decode(),
        "source_sha256": sha256(records_path),
        "settings": asdict(settings),
        "photos": len({record_id(records[index]) for index, _ in order} - tally.photos.keys()),
        "samples": samples,
        "samples_without_parts": tally.without_parts,
        "parts": sum(shard.parts for shard in shards),
        "skipped": tally.counts(),
        "licences": sorted({str(record["license"]) for record in records if "license" in record}),
        "shards": [asdict(shard) for shard in shards],
    }
    if samples == 0:
        raise DataError(f"{records_path}: no usable caption; left out: {entry['skipped']}")
    return entry


def is_complete(records_path: Path, out: Path, split: str, settings: PrepareSettings) -> bool:
    """Whether the split is already there, made from the same records by the same settings."""
    entry = ((read_manifest(out) or {}).get("splits") or {}).get(split)
    if not entry or entry.get("settings") != asdict(settings):
        return False
    return entry.get("source_sha256") == sha256(records_path) and all(
        (out / split / shard["file"]).is_file() for shard in entry["shards"]
    )


def _run_all(
    jobs: list[_Job], workers: int, tally: Tally, advance: Callable[[int], None]
) -> list[ShardInfo]:
    shards: dict[int, ShardInfo] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(workers, len(jobs))), mp_context=spawn) as pool:
        waiting = {pool.submit(_write, job): index for index, job in enumerate(jobs)}
        try:
            for future in as_completed(waiting):
                index = waiting[future]
                shards[index], partial = future.result()
                tally.add(partial)
                advance(len(jobs[index].work))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [shards[index] for index in sorted(shards) if shards[index].samples]


def _write(job: _Job) -> tuple[ShardInfo, Tally]:
    tally = Tally()
    info = write_shard(job.path, _samples(job, tally))
    if info.samples == 0:
        job.path.unlink()
    return info, tally


def _samples(job: _Job, tally: Tally) -> Iterator[Sample]:
    settings = job.settings
    for record, caption in job.work:
        image = _open(job.folder, record, tally)
        if image is None:
            continue
        size = record.get("orig_size") or image.size
        parts = tuple(
            Part(_encode(cut(image, corners), settings.part_side), text, name)
            for text, name, corners in parts_of(record, caption, size, tally)
        )
        if not parts and settings.require_parts:
            tally.captions["no usable box"] += 1
            continue
        tally.without_parts += not parts
        text = record["captions"][caption].strip()
        yield Sample(record_id(record), _encode(image, settings.side), text, parts)


def _encode(image: Image.Image, side: int) -> bytes:
    return encode_jpeg(resize(image, side, "letterbox"))


def _open(folder: Path, record: Record, tally: Tally) -> Image.Image | None:
    """The picture in the proportions of the true photo."""
    path = find_image(folder, record["image"])
    if path is None:
        tally.photos[record_id(record)] = "image is not a path below the records' folder"
        return None
    try:
        image = decode(path.read_bytes())
        return unsquash(image, image.size, record.get("orig_size"))
    except OSError:
        tally.photos[record_id(record)] = "image file missing"
    except ImageError:
        tally.photos[record_id(record)] = "image unreadable"
    return None


def _order(records: list[Record], seed: int, tally: Tally) -> list[tuple[int, int]]:
    """Every caption as (record, index), shuffled so that those of one photo lie apart."""
    order = []
    for number, record in enumerate(records):
        for index, text in enumerate(record["captions"]):
            if not isinstance(text, str) or not text.strip():
                tally.captions["empty or not a text"] += 1
            elif not is_text(text):
                tally.captions["caption is not valid text"] += 1
            else:
                order.append((number, index))
    random.Random(seed).shuffle(order)  # noqa: S311 - not for secrets
    return order


def _chunks(
    records: list[Record], order: list[tuple[int, int]]
) -> Iterator[tuple[tuple[Record, int], ...]]:
    """The captions of each shard."""
    for start in range(0, len(order), SHARD_SAMPLES):
        chunk = order[start : start + SHARD_SAMPLES]
        yield tuple((records[number], caption) for number, caption in chunk)


def _forget(out: Path, split: str, manifest: dict[str, Any]) -> None:
    """Take the split's shards off the disk, then the split out of the manifest."""
    clear(out / split, ".tar")
    if split in manifest.get("splits", {}):
        del manifest["splits"][split]
        write_json(out / MANIFEST, manifest)
