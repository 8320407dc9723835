"""Photos with captions and boxes: a JSONL file beside a folder of images.

One object a line: ``image`` (a path below the file's folder), and optionally ``id``,
``captions``, ``orig_size`` (width and height of the true photo, where the stored one was
squashed) and ``boxes``, each with ``phrase``, ``xyxy`` (normalised to 0..1, x right, y down),
``caption`` (index of the caption that mentions it) and ``name`` (of the thing inside).

For evaluation also: ``class`` (a name) or ``label`` (its index) of the one thing shown; ``labels``
(indices of all things shown); ``levels`` (captions from general to specific); ``kind``,
``positive`` and ``negative`` (a right caption against a wrong one); ``caption_ids``.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from core.errors import DataError

MAX_ASPECT = 100
"""The most that a photo may be longer than wide, or wider than long."""


def clip_box(xyxy: Sequence[float]) -> tuple[float, float, float, float]:
    """The part of a box, left, top, right and bottom, that lies inside the image, 0..1.

    Raises:
        ValueError: There is none.
    """
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in xyxy)
    if not (all(map(math.isfinite, xyxy)) and left < right and top < bottom):
        raise ValueError("has no area inside the image, or is not normalised to 0..1")
    return left, top, right, bottom


def check_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of a photo, as they are.

    Raises:
        ValueError: It is longer, or wider, than any photo.
    """
    if max(size) > MAX_ASPECT * min(size):
        raise ValueError(f"is beyond 1:{MAX_ASPECT}; write [width, height] of the photo")
    return size


class Box(BaseModel):
    """A part of an image, with its text."""

    model_config = ConfigDict(frozen=True)

    phrase: str
    xyxy: Annotated[tuple[float, float, float, float], AfterValidator(clip_box)]
    caption: int | None = Field(None, ge=0)
    name: str | None = None


class Record(BaseModel):
    """An image with what is said of it."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    id: str = ""
    image: Path
    captions: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()
    orig_size: Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(check_size)] | None = None
    class_: str | None = Field(None, alias="class")
    label: NonNegativeInt | None = None
    labels: tuple[NonNegativeInt, ...] | None = None
    levels: tuple[str, ...] = ()
    kind: str = ""
    positive: str = ""
    negative: str = ""
    caption_ids: tuple[int, ...] = ()


def read_records(file: Path, limit: int | None = None, folder: Path | None = None) -> list[Record]:
    """All records of a file, or the first ``limit``, their image paths made absolute.

    Args:
        file: JSONL.
        limit: How many at most.
        folder: Where the images are; None for the folder of the file.

    Raises:
        DataError: The file is missing or empty, or a line is wrong; the message names the line.
    """
    records = list(islice(iter_records(file, folder), limit))
    if not records:
        raise DataError(f"{file}: holds no records")
    return records


def check_texts(place: Path, records: Sequence[Record]) -> None:
    """Refuse blank texts: a service does not embed them, and no figure needs them.

    Raises:
        DataError: There is one; the message names the record.
    """
    for number, record in enumerate(records, 1):
        phrases = [box.phrase for box in record.boxes]
        pair = [record.positive, record.negative] if record.positive or record.negative else []
        if not all(map(str.strip, [*record.captions, *record.levels, *pair, *phrases])):
            raise DataError(
                f"{place}: record {number} ({record.id}): a blank caption, level or phrase, or a "
                "positive without its negative; leave it out"
            )


def iter_records(file: Path, folder: Path | None = None) -> Iterator[Record]:
    """The records of a file, one after the other; blank lines are passed over.

    Args:
        file: JSONL.
        folder: Where the images are; None for the folder of the file.

    Raises:
        DataError: As `read_records`.
    """
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield parse_record(line, folder or file.parent, where=f"{file}:{number}")
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror}; name a JSONL file of records"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error}") from error


def parse_record(line: str, folder: Path, where: str) -> Record:
    """One line as a record; its image must lie inside ``folder``.

    Raises:
        DataError: The line is not a record, or its image path leads out of the folder.
    """
    try:
        record = Record.model_validate_json(line)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'line'}: {fault['msg']}"
            for fault in error.errors()[:3]
        )
        raise DataError(f"{where}: {faults}") from error
    image = find_image(folder, str(record.image))
    if image is None:
        raise DataError(f"{where}: image {str(record.image)!r} leads out of {folder.resolve()}")
    for index, box in enumerate(record.boxes):
        if box.caption is not None and box.caption >= len(record.captions):
            raise DataError(
                f"{where}: boxes.{index}.caption is {box.caption}, but there are "
                f"{len(record.captions)} captions (they count from 0)"
            )
    return record.model_copy(update={"image": image, "id": record.id or str(record.image)})


def find_image(folder: Path, image: str) -> Path | None:
    """The absolute path of an image, or None where it leads out of the folder or is no path."""
    folder = folder.resolve()
    try:
        path = (folder / image).resolve()
    except (ValueError, OSError, RuntimeError):  # a NUL, lone surrogates, a loop of links
        return None
    return path if path.is_relative_to(folder) else None
