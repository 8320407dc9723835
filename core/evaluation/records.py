"""Photos with captions and boxes: a JSONL file beside a folder of images.

One object a line: ``image`` (a path below the file's folder), and optionally ``id``,
``captions``, ``orig_size`` (width and height of the true photo, where the stored one was
squashed) and ``boxes``, each with ``phrase``, ``xyxy`` (normalised to 0..1, x right, y down),
``caption`` (index of the caption that mentions it) and ``name`` (of the thing inside).
"""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from PIL import Image
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from core.errors import DataError, ImageError, ImageTooLarge
from core.image import ImageLimits, decode

MAX_ASPECT = 100
"""The most that a photo may be longer than wide, or wider than long."""

_MAX_PIXELS = ImageLimits().max_pixels


def _check_box(xyxy: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in xyxy)
    if not (all(map(math.isfinite, xyxy)) and left < right and top < bottom):
        raise ValueError("has no area inside the image, or is not normalised to 0..1")
    return left, top, right, bottom


def _check_size(size: tuple[int, int]) -> tuple[int, int]:
    if max(size) > MAX_ASPECT * min(size):
        raise ValueError(f"is beyond 1:{MAX_ASPECT}; write [width, height] of the photo")
    return size


class Box(BaseModel):
    """A part of an image, with its text."""

    model_config = ConfigDict(frozen=True)

    phrase: str
    xyxy: Annotated[tuple[float, float, float, float], AfterValidator(_check_box)]
    caption: int | None = Field(None, ge=0)
    name: str | None = None


class Record(BaseModel):
    """An image with what is said of it."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    image: Path
    captions: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()
    orig_size: Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_check_size)] | None = None


def read_records(file: Path, limit: int | None = None) -> list[Record]:
    """All records of a file, or the first ``limit``, their image paths made absolute.

    Raises:
        DataError: The file is missing or empty, or a line is wrong; the message names the line.
    """
    records = list(islice(iter_records(file), limit))
    if not records:
        raise DataError(f"{file}: holds no records")
    return records


def iter_records(file: Path, folder: Path | None = None) -> Iterator[Record]:
    """The records of a file, one after the other; blank lines are passed over.

    Args:
        file: JSONL.
        folder: Where the images are; None for the folder of the file.

    Raises:
        DataError: As `read_records`.
    """
    try:
        with file.open(encoding="utf-8") as lines:
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


def load_image(record: Record, side: int | None = None) -> Image.Image:
    """The picture of a record, as it is stored.

    Args:
        record: Whose picture.
        side: As for `core.image.decode`: a large picture may then come at a fraction of its
            size. Leave it out where boxes are to be cut from it.

    Raises:
        DataError: The file is missing.
        ImageError: It cannot be decoded; the message names the file.
    """
    try:
        return decode(record.image.read_bytes(), side=side)
    except OSError as error:
        raise DataError(f"{record.image}: cannot be read: {error.strerror}") from error
    except ImageError as error:
        raise type(error)(f"{record.image}: {error}") from error


def crop(image: Image.Image, box: Box, orig_size: tuple[int, int] | None) -> Image.Image:
    """A box cut out, in the proportions of the true photo; no side loses pixels.

    Args:
        image: As it is stored, maybe squashed.
        box: What to cut out.
        orig_size: Width and height of the true photo, None where the stored one is true.
    """
    left, top, right, bottom = box.xyxy
    x = min(round(left * image.width), image.width - 1)
    y = min(round(top * image.height), image.height - 1)
    corner = max(round(right * image.width), x + 1), max(round(bottom * image.height), y + 1)
    return unsquash(image.crop((x, y, *corner)), image.size, orig_size)


def unsquash(
    image: Image.Image, stored_size: tuple[int, int], orig_size: tuple[int, int] | None
) -> Image.Image:
    """A picture, or a piece of one, stretched back to the proportions of the true photo.

    Raises:
        ImageTooLarge: It would have more pixels than `core.image.decode` accepts.
    """
    if orig_size is None:
        return image
    stretch = (orig_size[0] / orig_size[1]) / (stored_size[0] / stored_size[1])
    width, height = image.size
    if stretch > 1:
        width = round(width * stretch)
    else:
        height = round(height / stretch)
    if (width, height) == image.size:
        return image
    if width * height > _MAX_PIXELS:
        raise ImageTooLarge(
            f"image of {stored_size[0]:,} x {stored_size[1]:,} pixels: stretched to the "
            f"proportions of orig_size {list(orig_size)} it would have over {_MAX_PIXELS:,} pixels"
        )
    return image.resize((width, height), Image.Resampling.BICUBIC)
