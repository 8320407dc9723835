"""What passes between the readers of data sets and the writer of their folders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.fetch.catalogue import Entry

Advance = Callable[[str, int, int], None]
"""Told of progress: what is being done, how much of it is done, and of how much (0: unknown)."""

Row = dict[str, Any]
"""A line of `test.jsonl`; its ``image`` is an absolute path until it is written."""


@dataclass(frozen=True)
class Job:
    """One data set to read."""

    name: str
    entry: Entry
    source: Path
    """The file or folder to read."""
    images: Path | None
    """Where its pictures are, if not beside it."""
    out: Path
    """The new folder, empty; a reader writes pictures here that are in no file of their own."""
    advance: Advance


@dataclass(frozen=True)
class Classes:
    """The names of the classes by variant, the default first, and where each came from."""

    names: Mapping[str, tuple[str, ...]]
    origin: Mapping[str, str]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A data set that was read, before it is written."""

    test: list[Row]
    train: list[Row] = field(default_factory=list)
    classes: Classes = Classes({}, {})
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else there is, beside records and classes."""
    nodes: tuple[str, ...] = ()
    split: str = ""
    """What was taken, where that is not the official split."""
    positives: bytes = b""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
