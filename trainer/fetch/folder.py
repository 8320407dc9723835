"""Drafts -> prepared folders, whole or not at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from core.bundle import sha256
from core.errors import DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.manifest import MANIFEST, RECORDS, TRAIN, DatasetManifest
from core.prompts import prompt_sets
from trainer.fetch.draft import Advance, Draft, Job, Row
from trainer.fetch.image_folder import PICTURES
from trainer.fetch.splits import by_hash
from trainer.storage import storage_errors, write_json

TREE_FILE = "imagenet_isa.txt"
POSITIVES_FILE = "positives.json"


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder`` that takes its place when the block succeeds.

    Raises:
        DataError: What stands there is not ours to replace.
        StorageError: The disk cannot take it.
    """
    new, old = (folder.with_name(f".{folder.name}.{kind}") for kind in ("partial", "old"))
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise DataError(
            f"{folder}: was not written by this command and would be lost; name another --root"
        )
    try:
        with storage_errors(folder.parent):
            for left_over in (new, old):
                shutil.rmtree(left_over, ignore_errors=True)
            new.mkdir(parents=True)
            yield new
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
    finally:
        for left_over in (new, old):
            shutil.rmtree(left_over, ignore_errors=True)


def read_manifest(folder: Path) -> DatasetManifest | None:
    """The manifest of a prepared folder; None if there is none that can be read."""
    try:
        return DatasetManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None


def is_whole(folder: Path, manifest: DatasetManifest) -> bool:
    """Whether the files of a folder are those its manifest was written for."""
    files = all(
        (folder / name).is_file() and sha256(folder / name) == digest
        for name, digest in manifest.sha256.items()
    )
    return files and (folder / manifest.images).is_dir()


def write_folder(job: Job, draft: Draft, source: str, state: str, *, base: Path) -> DatasetManifest:
    """Write a draft into ``job.out``, and read it back.

    Args:
        job: What was asked for.
        draft: What was read.
        source: An address, or the path of what was read.
        state: Of that path, `state_of`; "" of an address.
        base: Pictures below it are named relative to the folder, so that it can be moved.

    Raises:
        DataError: There are no records, pictures are missing, or what was written is wrong.
    """
    _check_labels(job, draft)
    _check_pictures(job, [*draft.test, *draft.train])
    images = _images_folder([*draft.test, *draft.train])
    # Lists go class by class; mixed, the first N that --limit takes are of all classes.
    test = by_hash(draft.test, images) if "classification" in job.entry.families else draft.test
    rows = {RECORDS: test, TRAIN: draft.train}
    for name, lines in rows.items():
        if lines:
            _write_rows(job.out / name, lines, images)
    if draft.positives:
        (job.out / POSITIVES_FILE).write_bytes(draft.positives)
    manifest = DatasetManifest(
        name=job.name,
        families=job.entry.families,
        title=job.entry.title,
        split=draft.split or job.entry.split,
        source=source,
        source_state=state,
        licence=job.entry.licence,
        images=os.path.relpath(images, job.out) if images.is_relative_to(base) else str(images),
        counts=_counts(draft),
        classes=dict(draft.classes.names),
        classes_origin=dict(draft.classes.origin),
        prompts=job.name if job.name in prompt_sets() else "",
        nodes=draft.nodes,
        positives=POSITIVES_FILE if draft.positives else "",
        notes=" ".join(filter(None, (job.entry.notes, *draft.classes.notes, *draft.notes))),
        sha256={file.name: sha256(file) for file in sorted(job.out.iterdir()) if file.is_file()},
    )
    write_json(job.out / MANIFEST, manifest.model_dump(mode="json"))
    _read_back(job.out, job.advance)
    return manifest


def state_of(source: Path, root: Path) -> str:
    """sha256 over what of a file or a folder determines the records that are made of it.

    Of pictures that is the name, of all others also the size and the time of change. What lies
    below ``root`` is ours, and left out.
    """
    lines = [_file_state(source, source.parent)] if source.is_file() else []
    for where, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if Path(where, name) != root)
        lines += [_file_state(Path(where, name), source) for name in sorted(names)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def add_tree(folder: Path, content: bytes) -> bool:
    """Give a prepared folder of ImageNet its tree, if it is there and has none."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.tree or not manifest.nodes:
        return False
    (folder / TREE_FILE).write_bytes(content)
    digests = {**manifest.sha256, TREE_FILE: sha256(folder / TREE_FILE)}
    with_tree = manifest.model_copy(update={"tree": TREE_FILE, "sha256": digests})
    write_json(folder / MANIFEST, with_tree.model_dump(mode="json"))
    return True


def _check_pictures(job: Job, rows: Sequence[Row]) -> None:
    if not rows:
        raise DataError(f"{job.source}: holds no records of {job.name}; check --from")
    missing = []
    for done, row in enumerate(rows):
        if not os.path.isfile(row["image"]):  # noqa: PTH113 - a million of them for ImageNet
            missing.append(str(row["image"]))
        if done % 1000 == 0:
            job.advance("looking for pictures", done, len(rows))
    if missing:
        remedy = (
            f"name with --images {job.entry.images}"
            if job.entry.images
            else "unpack the archive again, and name its folder with --from"
        )
        more = ", ..." if len(missing) > 3 else ""
        raise DataError(
            f"{job.name}: {len(missing):,} of {len(rows):,} pictures are missing "
            f"({', '.join(missing[:3])}{more}); {remedy}"
        )


def _check_labels(job: Job, draft: Draft) -> None:
    classes = len(next(iter(draft.classes.names.values()), ()))
    for row in [*draft.test, *draft.train]:
        if not 0 <= row.get("label", 0) < max(1, classes):
            raise DataError(
                f"{job.source}: {row['image']} has label {row['label']}, but there are "
                f"{classes:,} classes, counted from 0; get its lists again"
            )


def _file_state(file: Path, folder: Path) -> str:
    name = str(file.relative_to(folder))
    if name.lower().endswith(PICTURES):
        return name
    found = file.lstat()
    return f"{name} {found.st_size} {found.st_mtime_ns}"


def _images_folder(rows: Sequence[Row]) -> Path:
    """The innermost folder that all pictures lie in, once links are followed.

    However the user came to the pictures, they get the same names below it.
    """
    for row in rows:
        row["image"] = os.path.realpath(row["image"])
    return Path(os.path.commonpath({os.path.dirname(row["image"]) for row in rows}))  # noqa: PTH120


def _write_rows(file: Path, rows: Sequence[Row], images: Path) -> None:
    outer = len(str(images)) + 1
    with file.open("w", encoding="utf-8") as lines:
        for row in rows:
            named = row | {"image": row["image"][outer:]}
            lines.write(json.dumps(named, ensure_ascii=False) + "\n")


def _counts(draft: Draft) -> dict[str, int]:
    counts = {"test": len(draft.test)}
    if draft.train:
        counts["train"] = len(draft.train)
    if draft.classes.names:
        counts["classes"] = len(next(iter(draft.classes.names.values())))
    return counts | dict(draft.counts)


def _read_back(folder: Path, advance: Advance) -> None:
    advance("checking", 0, 0)
    dataset = open_dataset(folder)
    for part in filter(None, (dataset, dataset.train)):
        if "classification" in part.families:
            part.labels()
        if "multilabel" in part.families:
            part.positives()
