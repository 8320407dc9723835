"""Scenes -> a prepared data set: shards to train on, and records with pictures to test on."""

import hashlib
import json
import multiprocessing
import random
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from core.bundle import sha256
from core.errors import DataError
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import MANIFEST, encode_jpeg, read_manifest, write_shard
from trainer.scenes import art, captions
from trainer.scenes.art import Sprite, Thing
from trainer.scenes.compose import Plan, Scene, compose, draw_plan
from trainer.scenes.records import corners, crop, record_of
from trainer.storage import clear, replacing, storage_errors, write_json
from trainer.workers import follow_parent

SHARD_SAMPLES = 2_000
_FOLDS = 20  # one twentieth of all plans is kept for val, one for the tests
_FOLD_OF = {"val": 0, "test": 1, "test_unseen_style": 1}
_SOURCE = "scenes composed of emoji art"
_TESTS = ("test", "test_unseen_style", "test_unseen_things")


@dataclass(frozen=True)
class SceneSettings:
    """What decides every byte of the data set, besides the art.

    Attributes:
        train: Number of scenes to train on.
        val: Number of scenes to watch while training.
        test: Number of scenes of each test.
        side: Height and width of a scene in pixels.
        part_side: The same for the crop of one thing.
        seed: Any whole number.
    """

    train: int = 50_000
    val: int = 1_000
    test: int = 500
    side: int = 64
    part_side: int = 64
    seed: int = 0


@dataclass(frozen=True)
class _Job:
    """One shard, or one whole test split."""

    split: str
    index: int
    scenes: int


def write_scenes(
    out: Path, settings: SceneSettings, workers: int, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Write the data set; the same settings give the same bytes for any number of workers.

    Args:
        out: The folder; what an earlier run with other settings left there is replaced.
        settings: Sizes and seed.
        workers: Number of processes.
        advance: Called with the number of scenes that were just finished.

    Returns:
        The manifest, which is also written, last, as ``manifest.json``.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    with storage_errors(out):
        _clear(out)
    jobs = _jobs(settings)
    results: dict[_Job, dict[str, Any]] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), spawn, follow_parent) as pool:
        waiting = {pool.submit(_run, out, settings, job): job for job in jobs}
        try:
            for future in as_completed(waiting):
                job = waiting[future]
                results[job] = future.result()
                advance(job.scenes)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    write_json(out / "names.json", names())
    manifest = _manifest(settings, [(job, results[job]) for job in jobs])
    write_json(out / MANIFEST, manifest)
    return manifest


def is_complete(out: Path, settings: SceneSettings) -> bool:
    """Whether the folder already holds what these settings would write."""
    manifest = read_manifest(out)
    if manifest is None or manifest.get("settings") != _fingerprint(settings):
        return False
    splits = manifest["splits"]
    present = [out / name / shard["file"] for name in splits for shard in splits[name]["shards"]]
    present += [out / f"{name}.jsonl" for name in _TESTS]
    return all(path.is_file() for path in [*present, out / "names.json", out / "sheet.png"])


def names() -> dict[str, list[dict[str, str]]]:
    """The things that are trained and those held out, each with its group and kingdom."""
    trained, held_out = art.split_things(art.catalogue())
    return {
        key: [{"name": t.name, "group": t.group, "kingdom": t.kingdom} for t in things]
        for key, things in (("trained", trained), ("held_out", held_out))
    }


def scenes_of(
    settings: SceneSettings, split: str, index: int
) -> Iterator[tuple[random.Random, Scene]]:
    """The endless stream of scenes of one shard, each with the generator that describes it.

    A scene belongs to a split by a hash of what it shows (things, counts and background), so
    none that is tested was ever trained on.
    """
    rng = random.Random(f"{settings.seed}/{split}/{index}")  # noqa: S311 - not for secrets
    style = "openmoji" if split == "test_unseen_style" else "twemoji"
    sprites = _sprites(style)
    trained, held_out = art.split_things(art.catalogue())
    pool = held_out if split == "test_unseen_things" else trained
    while True:
        plan = _draw_plan(rng, split, pool, sprites)
        yield rng, compose(rng, plan, sprites, settings.side)


def fold_of(plan: Plan) -> int:
    """Which of the folds a plan falls in, the same on every machine."""
    return zlib.crc32(plan.key.encode()) % _FOLDS


def _draw_plan(
    rng: random.Random, split: str, pool: tuple[Thing, ...], sprites: dict[str, Sprite]
) -> Plan:
    while True:
        plan = draw_plan(rng, pool, sprites)
        fold = fold_of(plan)
        wanted = _FOLD_OF.get(split)
        if split == "test_unseen_things" or fold == wanted:
            return plan
        if wanted is None and fold not in _FOLD_OF.values():
            return plan


def _jobs(settings: SceneSettings) -> list[_Job]:
    jobs = [_Job(split, 0, settings.test) for split in _TESTS]
    for split, total in (("val", settings.val), ("train", settings.train)):
        for index, start in enumerate(range(0, total, SHARD_SAMPLES)):
            jobs.append(_Job(split, index, min(SHARD_SAMPLES, total - start)))
    return jobs


def _run(out: Path, settings: SceneSettings, job: _Job) -> dict[str, Any]:
    if job.split in _TESTS:
        return _write_test(out, settings, job)
    path = out / job.split / f"{job.index:05d}.tar"
    return asdict(write_shard(path, _samples(settings, job)))


def _samples(settings: SceneSettings, job: _Job) -> Iterator[Sample]:
    stream = scenes_of(settings, job.split, job.index)
    is_exact = job.split != "train"
    for number in range(job.scenes):
        rng, scene = next(stream)
        text = captions.caption(rng, scene, is_exact=is_exact)
        parts = [
            Part(
                crop(scene, box, settings.part_side),
                phrase,
                group.thing.name,
                corners(box, settings.side),
            )
            for group in scene.groups
            for box, phrase in zip(
                group.boxes,
                captions.phrases(rng, group, settings.side, is_exact=is_exact),
                strict=True,
            )
        ]
        rng.shuffle(parts)
        photo = f"scenes/{job.split}/{job.index:05d}{number:06d}"
        yield Sample(photo, encode_jpeg(scene.pixels), text, tuple(parts))


def _write_test(out: Path, settings: SceneSettings, job: _Job) -> dict[str, Any]:
    """Scenes that differ in what they show and in their captions, as JSONL and PNG."""
    seen: set[str] = set()
    records: list[dict[str, Any]] = []
    for rng, scene in scenes_of(settings, job.split, 0):
        if len(records) == job.scenes:
            break
        counts = tuple((group.thing, len(group.boxes)) for group in scene.groups)
        key = Plan(counts, scene.backdrop).key
        text = captions.caption(rng, scene, is_exact=True)
        if key in seen or text in seen:
            continue
        seen |= {key, text}
        image = f"{job.split}/{len(records):05d}.png"
        with replacing(out / image) as temporary:
            Image.fromarray(scene.pixels).save(temporary, "PNG")
        records.append(record_of(rng, scene, image, text))
    path = out / f"{job.split}.jsonl"
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    boxes = sum(len(record["boxes"]) for record in records)
    return {"file": path.name, "samples": len(records), "parts": boxes, "sha256": sha256(path)}


@cache
def _sprites(style: str) -> dict[str, Sprite]:
    return {thing.name: art.load_sprite(thing, style) for thing in art.catalogue()}


def _fingerprint(settings: SceneSettings) -> dict[str, Any]:
    """The settings, and a digest of the program and word list that make something of them."""
    sources = [
        item for item in files(__package__).iterdir() if item.name.endswith((".py", ".toml"))
    ]
    digest = hashlib.sha256()
    for source in sorted(sources, key=lambda item: item.name):
        digest.update(source.read_bytes())
    return {**asdict(settings), "program": digest.hexdigest()[:16]}


def _manifest(
    settings: SceneSettings, results: list[tuple[_Job, dict[str, Any]]]
) -> dict[str, Any]:
    splits: dict[str, Any] = {}
    for job, result in results:
        split = splits.setdefault(job.split, {"samples": 0, "parts": 0, "shards": []})
        split["samples"] += result["samples"]
        split["parts"] += result["parts"]
        if job.split in _TESTS:
            split["sha256"] = result["sha256"]
        else:
            split["shards"].append(result)
    return {
        "source": _SOURCE,
        "settings": _fingerprint(settings),
        "things": {key: len(value) for key, value in names().items()},
        "splits": splits,
        "skipped": {},
        "attribution": [art.TWEMOJI_CREDIT, art.OPENMOJI_CREDIT],
    }


def _clear(out: Path) -> None:
    """Take away what an earlier run left; a manifest without settings says what is going on.

    Raises:
        DataError: The folder holds what this command did not write.
    """
    manifest = read_manifest(out)
    if (manifest or {}).get("source") != _SOURCE and out.is_dir() and any(out.iterdir()):
        raise DataError(f"{out}: holds something that is no scenes; name another --out")
    write_json(out / MANIFEST, {"source": _SOURCE, "settings": None})
    for name in ("names.json", "sheet.png", *(f"{test}.jsonl" for test in _TESTS)):
        (out / name).unlink(missing_ok=True)
    for name in ("train", "val", *_TESTS):
        clear(out / name, ".png" if name in _TESTS else ".tar")
