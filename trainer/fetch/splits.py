"""Splits of data sets that have no official one, the same on every machine."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.fetch.draft import Row


def by_hash(rows: Sequence[Row], folder: Path) -> list[Row]:
    """Rows in the order of the sha256 of their picture's path, which is the same everywhere."""
    return sorted(rows, key=lambda row: _hash(Path(row["image"]).relative_to(folder)))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.as_posix().encode()).hexdigest()


def _split_eurosat(rows: Sequence[Row], folder: Path) -> tuple[list[Row], list[Row]]:
    drawn = by_hash(rows, folder)
    train, test = len(rows) * 10 // 27, len(rows) * 15 // 27
    return drawn[train:test], drawn[:train]


def _split_resisc45(rows: Sequence[Row], folder: Path) -> tuple[list[Row], list[Row]]:
    drawn = by_hash(rows, folder)
    train = len(rows) // 5
    return drawn[train:], drawn[:train]


def _split_caltech101(rows: Sequence[Row], folder: Path) -> tuple[list[Row], list[Row]]:
    test: list[Row] = []
    train: list[Row] = []
    for label in dict.fromkeys(row["label"] for row in rows):
        drawn = by_hash([row for row in rows if row["label"] == label], folder)
        train += drawn[:30]
        test += drawn[30:]
    return test, train


SPLITS: dict[str, Callable[[Sequence[Row], Path], tuple[list[Row], list[Row]]]] = {
    "caltech101": _split_caltech101,
    "eurosat": _split_eurosat,
    "resisc45": _split_resisc45,
}
"""Data sets without an official split: all rows and their folder -> test and training rows."""
