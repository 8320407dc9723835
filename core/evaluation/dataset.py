"""Data sets to measure on: a prepared folder, or a bare file of records."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from core.errors import DataError
from core.evaluation.manifest import MANIFEST, RECORDS, TRAIN, DatasetManifest, Family
from core.evaluation.names import Names, read_names
from core.evaluation.pictures import Picture
from core.evaluation.records import Record, check_texts, read_records
from core.image import Preprocess


@dataclass(frozen=True)
class Dataset:
    """Records with what is known of them."""

    name: str
    """`cifar10`; of a bare file its folder's and its own name, `flickr8k_entities-test`."""
    title: str
    split: str
    folder: Path
    """Where it lies."""
    images: Path
    """The folder that pictures are named in."""
    records: tuple[Record, ...]
    digest: str
    """sha256 of all that determines results, except the pictures themselves (`state`)."""
    families: tuple[Family, ...]
    classes: Mapping[str, tuple[str, ...]]
    """Class names by variant, the default first; empty where there are no classes."""
    prompts: str
    """Name of the official prompt set, or ""."""
    nodes: tuple[str, ...] = ()
    tree: Path | None = None
    positives_file: Path | None = None
    names: Names | None = None
    """Things that boxes hold, with their groups and kingdoms."""
    notes: str = ""
    classes_origin: Mapping[str, str] = field(default_factory=dict)
    """Where each variant of the names came from."""
    limit: int | None = None
    """How many records were asked for, where not all."""
    is_bare: bool = False
    """Whether it is a file that nobody prepared."""

    def picture(self, record: Record, preprocess: Preprocess) -> Picture:
        """The picture of a record."""
        name = str(record.image.relative_to(self.images))
        return Picture(record.image, name, preprocess, orig_size=record.orig_size)

    def pictures(self, preprocess: Preprocess) -> list[Picture]:
        """One picture a record."""
        return [self.picture(record, preprocess) for record in self.records]

    def state(self) -> str:
        """sha256 over the pictures' names, sizes and times of change.

        Another where one is changed, missing, or back again.
        """
        lines = []
        for image in dict.fromkeys(record.image for record in self.records):
            try:
                found = image.stat()
            except OSError:
                size, changed = -1, -1
            else:
                size, changed = found.st_size, found.st_mtime_ns
            lines.append([str(image.relative_to(self.images)), size, changed])
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()

    def labels(self) -> npt.NDArray[np.intp]:
        """The class of each record, ``(n,)``.

        Raises:
            DataError: A record has none, or it is beyond the class names.
        """
        names = next(iter(self.classes.values()), ())
        index = {name: row for row, name in enumerate(names)}
        found = []
        for number, record in enumerate(self.records, 1):
            label = record.label if record.label is not None else index.get(record.class_ or "", -1)
            if not 0 <= label < len(names):
                given = record.class_ if record.label is None else record.label
                raise DataError(
                    f"{self.folder}: record {number} ({record.id}): class {given!r} is not one of "
                    f"the {len(names):,} that are named"
                )
            found.append(label)
        return np.array(found, np.intp)

    def positives(self) -> npt.NDArray[np.bool_]:
        """Which classes each picture has, ``(n, classes)``, by ``labels``.

        Raises:
            DataError: A label is beyond the class names.
        """
        count = len(next(iter(self.classes.values()), ()))
        positives = np.zeros((len(self.records), count), bool)
        for row, record in enumerate(self.records):
            labels = list(record.labels or ())
            if any(not 0 <= label < count for label in labels):
                raise DataError(
                    f"{self.folder}: record {row + 1} ({record.id}): labels {labels} go beyond "
                    f"the {count:,} classes that are named (they count from 0)"
                )
            positives[row, labels] = True
        return positives

    @cached_property
    def train(self) -> "Dataset | None":
        """The training split beside it, for a linear probe; None if there is none."""
        file = self.folder / TRAIN
        if not file.is_file():
            return None
        records = tuple(read_records(file, folder=self.images))
        digest = _digest([file])
        return replace(self, split="train", records=records, digest=digest)


def open_dataset(
    path: Path,
    limit: int | None = None,
    names: Path | None = None,
    images: Path | None = None,
) -> Dataset:
    """A prepared folder, or a JSONL file of records.

    Args:
        path: A folder with ``manifest.json``, or the file.
        limit: Take the first records alone.
        names: JSON of the things to name; by default ``names.json`` beside a file.
        images: The folder that a bare file names pictures in; by default its own.

    Raises:
        DataError: It is missing or wrong; the message says where.
    """
    if (path / MANIFEST).is_file():
        return _open_folder(path, limit, names)
    if path.is_dir():
        raise DataError(
            f"{path}: no {MANIFEST} there; name a folder that `hyper3 data fetch` made, or a JSONL "
            "file of records"
        )
    return _open_file(path, limit, names, images)


def _open_folder(path: Path, limit: int | None, names: Path | None) -> Dataset:
    file = path / MANIFEST
    try:
        manifest = DatasetManifest.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise DataError(
            f"{file}: {where}: {fault['msg']}; run `hyper3 data fetch` again"
        ) from error
    images = (path / manifest.images).resolve()
    _check_classes(file, manifest)
    records = tuple(read_records(path / RECORDS, limit, images))
    check_texts(path / RECORDS, records)
    tree = path / manifest.tree if manifest.tree else None
    positives = path / manifest.positives if manifest.positives else None
    _check_hashes(path, manifest)
    files = [path / RECORDS, *filter(None, (tree, positives, names))]
    determining = manifest.model_dump_json(
        include={"families", "split", "classes", "prompts", "nodes"}
    )  # not where it came from and where its pictures lie: these differ between machines
    return Dataset(
        name=manifest.name,
        title=manifest.title,
        split=manifest.split,
        folder=path,
        images=images,
        records=records,
        digest=_digest(files, determining),
        families=manifest.families,
        classes=manifest.classes,
        prompts=manifest.prompts,
        nodes=manifest.nodes,
        tree=tree,
        positives_file=positives,
        names=read_names(names) if names else None,
        notes=manifest.notes,
        limit=limit,
        classes_origin=manifest.classes_origin,
    )


def _check_hashes(path: Path, manifest: DatasetManifest) -> None:
    for name, digest in manifest.sha256.items():
        if _sha256(path / name).hex() != digest:
            raise DataError(
                f"{path / name}: is not the file that was fetched; run "
                f"`hyper3 data fetch {manifest.name} --force` again"
            )


def _check_classes(file: Path, manifest: DatasetManifest) -> None:
    counts = {variant: len(names) for variant, names in manifest.classes.items()}
    if manifest.nodes:
        counts["nodes"] = len(manifest.nodes)
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{variant} {count:,}" for variant, count in counts.items())
        raise DataError(f"{file}: the class names differ in number: {said}; fetch it again")


def _open_file(file: Path, limit: int | None, names: Path | None, images: Path | None) -> Dataset:
    folder = (images or file.parent).resolve()
    records = tuple(read_records(file, folder=folder))
    families = families_of(records[:limit])
    if not families:
        raise DataError(
            f"{file}: nothing to measure: its records have {', '.join(_keys(file))}; write "
            "captions, class or label, labels, levels, positive and negative, or boxes"
        )
    check_texts(file, records)
    beside = file.with_name("names.json")
    things = names or (beside if beside.is_file() else None)
    classes = _classes_beside(file, records)
    files = [file, *([things] if things else [])]
    return Dataset(
        name=f"{file.resolve().parent.name}-{file.stem}",
        title=str(file),
        split=file.stem,
        folder=file.parent,
        images=folder,
        records=records[:limit],
        digest=_digest(files, json.dumps(list(classes))),
        families=families,
        classes={"as given": classes} if classes else {},
        prompts="",
        names=read_names(things) if things else None,
        limit=limit,
        is_bare=True,
    )


def _keys(file: Path) -> list[str]:
    """The fields of the first record."""
    with file.open(encoding="utf-8-sig") as lines:
        return list(json.loads(next(line for line in lines if line.strip())))


def families_of(records: Sequence[Record]) -> tuple[Family, ...]:
    """What records allow to be measured, in the order in which it is done."""
    has: dict[Family, bool] = {
        "retrieval": any(record.captions for record in records),
        "classification": any(r.label is not None or r.class_ for r in records),
        "multilabel": any(record.labels is not None for record in records),
        "chains": any(record.levels for record in records),
        "pairs": any(record.positive for record in records),
        "structure": any(record.boxes or record.captions for record in records),
    }
    return tuple(family for family, possible in has.items() if possible)


def _classes_beside(file: Path, records: Sequence[Record]) -> tuple[str, ...]:
    """Names of the classes: ``categories.json`` (a list) beside the file, or those that occur."""
    categories = file.with_name("categories.json")
    if categories.is_file():
        try:
            names = json.loads(categories.read_bytes())
        except ValueError as error:
            raise DataError(f"{categories}: not JSON: {error}") from error
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise DataError(f"{categories}: must be a list of the names of the classes")
        return tuple(names)
    return tuple(sorted({record.class_ for record in records if record.class_}))


def _digest(files: Sequence[Path], *more: str) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(_sha256(file))
    for text in more:
        digest.update(text.encode())
    return digest.hexdigest()


def _sha256(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
