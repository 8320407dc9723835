"""What every format has in common: what is asked of it, and what it gives."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.evaluation.records import find_image
from trainer.prepare.records import Tally


@dataclass(frozen=True)
class GritRules:
    """Which boxes of GRIT are taken.

    Attributes:
        phrases: Noun chunks, referring expressions, or both.
        min_score: The detector's least score; the family of HyCoCLIP ignores it.
    """

    phrases: Literal["both", "nouns", "expressions"] = "both"
    min_score: float = 0.0


@dataclass(frozen=True)
class Request:
    """Where the data are, as the user said it.

    Attributes:
        place: A file, a folder, or a pattern of tars.
        split: Which part of the data set, and the name of what is written; "" if not said.
        images: Folder of the pictures, where they lie apart.
        captions: COCO's captions, for Visual Genome.
        grit: Which boxes of GRIT are taken.
    """

    place: str
    split: str = ""
    images: Path | None = None
    captions: tuple[Path, ...] = ()
    grit: GritRules = GritRules()

    @property
    def path(self) -> Path:
        """The place, where it is no pattern."""
        return Path(self.place)


Read = Callable[[Tally], Iterator[tuple[str, Any]]]
"""The records, unjudged, each with its place; what cannot become one is counted."""


@dataclass(frozen=True)
class Source:
    """A data set that was found.

    Attributes:
        format: Its name.
        split: Name of what will be written.
        files: What decides the records, by the names that the manifest gives them.
        images: Folder that every picture must lie in.
        read: The records; None for GRIT, whose tars hold them beside the pictures.
        tars: GRIT's.
        choices: What the user chose that decides the records.
        licence: Of the annotations or pictures, where the format has one.
    """

    format: str
    split: str
    files: Mapping[str, Sequence[Path]]
    images: Path
    read: Read | None = None
    tars: tuple[Path, ...] = ()
    grit: GritRules | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    licence: str | None = None


def shares(edges: Sequence[float], size: Sequence[float]) -> list[float]:
    """Left, top, right and bottom in pixels -> 0..1 of a picture's width and height.

    Truncation of what they are times the size gives the same whole pixels again, for which some
    are the next number above the quotient: 98 / 170 * 170 is a little less than 98.
    """
    found = []
    for axis, edge in enumerate(edges):
        side = size[axis % 2]
        share = edge / side
        is_less = int(share * side) < int(edge)
        found.append(math.nextafter(share, math.inf) if is_less else share)
    return found


def picture_below(folder: Path, *names: str) -> str:
    """The first of some names that is a file below a folder; where none is, the first."""
    for name in names:
        path = find_image(folder, name)
        with contextlib.suppress(OSError):  # a name that is too long is nowhere
            if path is not None and path.is_file():
                return name
    return names[0]
