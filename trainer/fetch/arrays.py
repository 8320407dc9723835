"""Data sets that come as arrays of pixels: CIFAR and STL-10. Their pictures are written as PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from core.errors import DataError
from trainer.fetch.class_names import tidy, variants
from trainer.fetch.draft import Draft, Job, Row
from trainer.fetch.given import read_lines
from trainer.fetch.image_folder import read_image_folder

Pixels = npt.NDArray[np.uint8]  # (n, height, width, 3)
Split = tuple[Pixels, Sequence[int]]

_BINARY = {
    "cifar10": ("cifar-10-batches-bin", "batches.meta.txt", ("test_batch.bin",),
                tuple(f"data_batch_{number}.bin" for number in range(1, 6)), 1),
    "cifar100": ("cifar-100-binary", "fine_label_names.txt", ("test.bin",), ("train.bin",), 2),
}  # fmt: skip
"""Folder, file of names, files of test and of train, bytes of labels before each picture."""


def read_cifar(job: Job) -> Draft:
    """CIFAR from its binary archive, from the pickles that torchvision keeps, or from folders.

    Raises:
        DataError: It is none of these, or a file is torn.
    """
    folder, names, tests, trains, label_bytes = _BINARY[job.name]
    base = _base(job.source, folder, names)
    if base:
        classes = read_lines(base / names)
        splits = [
            _joined([_read_binary(base / file, label_bytes, len(classes)) for file in files])
            for files in (tests, trains)
        ]
        return _draft(job, classes, *splits)

    from torchvision.datasets import CIFAR10, CIFAR100  # noqa: PLC0415 - torch comes with it

    kind = CIFAR10 if job.name == "cifar10" else CIFAR100
    root = job.source.parent if job.source.name == kind.base_folder else job.source
    if (root / kind.base_folder).is_dir():
        return read_pickled(job, kind, root)
    return read_image_folder(job)


def read_pickled(job: Job, kind: Any, root: Path) -> Draft:
    """CIFAR as torchvision keeps it, by torchvision's class.

    Raises:
        DataError: A file is not the official one.
    """
    try:
        # A pickle runs code as it is read. torchvision compares the md5 of every batch with the
        # official one before it unpickles any; so only what Toronto published is ever run.
        test, train = (kind(root, train=is_train) for is_train in (False, True))
    except RuntimeError as error:
        raise DataError(
            f"{root / kind.base_folder}: not the official files by their md5, and pickles of "
            f"others are not read; unpack the binary version ({job.entry.where})"
        ) from error
    return _draft(job, test.classes, (test.data, test.targets), (train.data, train.targets))


def read_stl10(job: Job) -> Draft:
    """STL-10 from its binary archive, or from folders.

    Raises:
        DataError: It is neither, or a file is torn.
    """
    base = _base(job.source, "stl10_binary", "class_names.txt")
    if base is None:
        return read_image_folder(job)
    classes = read_lines(base / "class_names.txt")
    splits = []
    for split in ("test", "train"):
        labels = _read_bytes(base / f"{split}_y.bin")
        _check_labels(base / f"{split}_y.bin", labels, 1, len(classes))
        values = _read_bytes(base / f"{split}_X.bin")
        if len(values) != len(labels) * 3 * 96 * 96:
            raise DataError(
                f"{base}: {split}_X.bin holds {len(values):,} bytes, which are not "
                f"{len(labels):,} pictures; unpack the archive again"
            )
        # by channel, then column, then row
        pixels = values.reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
        splits.append((pixels, [int(label) - 1 for label in labels]))
    return _draft(job, classes, *splits)


def _base(source: Path, folder: str, marker: str) -> Path | None:
    return next((place for place in (source, source / folder) if (place / marker).is_file()), None)


def _read_binary(file: Path, label_bytes: int, classes: int) -> Split:
    """The rows of a CIFAR file: labels (the finest last), then 32 x 32 bytes a channel."""
    values, width = _read_bytes(file), label_bytes + 3 * 32 * 32
    if not len(values) or len(values) % width:
        raise DataError(
            f"{file}: {len(values):,} bytes are not rows of {width:,}; unpack the archive again"
        )
    rows = values.reshape(-1, width)
    pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = rows[:, label_bytes - 1]
    _check_labels(file, labels, 0, classes - 1)
    return pixels, labels.tolist()


def _check_labels(file: Path, labels: npt.NDArray[np.uint8], lowest: int, highest: int) -> None:
    wrong = np.flatnonzero((labels < lowest) | (labels > highest))
    if len(wrong):
        raise DataError(
            f"{file}: picture {wrong[0] + 1:,} has label {labels[wrong[0]]}, where labels go from "
            f"{lowest} to {highest}; unpack the archive again"
        )


def _read_bytes(file: Path) -> npt.NDArray[np.uint8]:
    try:
        return np.fromfile(file, np.uint8)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; unpack it again") from error


def _joined(parts: Sequence[Split]) -> Split:
    labels = [label for _, part in parts for label in part]
    return np.concatenate([pixels for pixels, _ in parts]), labels


def _draft(job: Job, classes: Sequence[str], test: Split, train: Split) -> Draft:
    if len(classes) != job.entry.classes:
        raise DataError(
            f"{job.source}: names {len(classes):,} classes, but {job.entry.title} has "
            f"{job.entry.classes:,}; unpack the archive again"
        )
    total = len(test[1]) + len(train[1])
    return Draft(
        _write_pictures(job, "test", test, total, 0),
        _write_pictures(job, "train", train, total, len(test[1])),
        variants(job.name, [tidy(name) for name in classes], "the official archive"),
    )


def _write_pictures(job: Job, split: str, content: Split, total: int, before: int) -> list[Row]:
    folder = job.out / "images" / split
    folder.mkdir(parents=True)
    rows: list[Row] = []
    for number, (pixels, label) in enumerate(zip(*content, strict=True)):
        file = folder / f"{number:05d}.png"
        Image.fromarray(np.ascontiguousarray(pixels)).save(file)
        rows.append({"image": file, "label": int(label)})
        if number % 100 == 0:
            job.advance("writing pictures", before + number, total)
    return rows
