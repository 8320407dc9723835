"""A picture, a caption and boxes -> what a shard holds of them, in either layout.

``stored``: the whole and every part as squares of their own, letterboxed with white, which is
the layout of HyCoCLIP's processed GRIT (arXiv:2410.06912). ``boxes``: the whole in its own
proportions, and parts as boxes that are cut out when they are loaded.
"""

import io
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from core.errors import ImageError
from core.evaluation.pictures import unsquash
from core.image import decode, letterbox_place, resize
from trainer.data.sample import Corners, Part, Sample
from trainer.data.shard_writer import encode_jpeg
from trainer.prepare.records import Record, Tally, parts_of, whole_pixels

_JPEG = b"\xff\xd8\xff"
_DIGITS = 6  # of a box: a thousandth of a pixel
_MOST_BYTES = 3  # of a JPEG's pixel: a file with more carries something else
_MOST_SIDE = 5_000  # pixels: twice as much has no picture that is decoded
_MOST_STRETCH = 0.02  # that rounding to whole pixels explains


@dataclass(frozen=True)
class PrepareSettings:
    """What decides the bytes of a split, besides its source.

    Attributes:
        side: Height and width of a whole in pixels; with ``boxes``, its longest side at most.
        part_side: Height and width of a stored part.
        crops: The layout.
        seed: Of the order of the samples.
        limit: Most photos to read; None for all.
        require_parts: Leave out captions to which no usable box belongs, as GRIT does.
    """

    side: int = 224
    part_side: int = 224
    crops: Literal["stored", "boxes"] = "stored"
    seed: int = 0
    limit: int | None = None
    require_parts: bool = False


@dataclass(frozen=True)
class Picture:
    """A decoded picture in its true proportions.

    Attributes:
        image: The pixels, of a large JPEG maybe fewer than it has.
        size: Width and height in pixels of the original.
        file: The file, where it holds the same picture.
    """

    image: Image.Image
    size: tuple[int, int]
    file: bytes | None


def open_picture(record: Record, data: bytes, settings: PrepareSettings) -> Picture:
    """The picture of a record; one that was stored squashed is brought back to ``orig_size``.

    A JPEG is decoded at a fraction of its size where whole and parts still shrink by two.

    Raises:
        ImageError: It cannot be used; the message is the reason alone, of which there are few.
    """
    try:
        stored = decode(data, side=_least_side(record, settings))
        image = unsquash(stored, stored.size, record.get("orig_size"))
    except ImageError as error:
        raise ImageError("image unreadable") from error
    if record.get("true_size") and not _is_like(image.size, record["true_size"]):
        raise ImageError("image is not in the proportions of the photo that was annotated")
    size = record.get("true_size") or record.get("orig_size") or _size_of(data, image)
    return Picture(image, size, data if image is stored else None)


def make_sample(
    record: Record, caption: int, picture: Picture, settings: PrepareSettings, tally: Tally
) -> Sample | None:
    """One caption with its picture and parts; None, and counted, where it has no part but must.

    Args:
        record: A sound one.
        caption: Index of the caption.
        picture: The record's.
        settings: Sizes and layout.
        tally: Counts what is left out.
    """
    image = picture.image
    parts = parts_of(record, caption, picture.size, tally)
    if not parts and settings.require_parts:
        tally.skip("captions", "no usable box", record["id"])
        return None
    tally.without_parts += not parts
    text = record["captions"][caption].strip()
    if settings.crops == "boxes":
        whole = _in_proportion(picture, settings.side)
        cut = tuple(
            Part(None, phrase, name, _fraction(_crop_box(corners, image.size), image.size))
            for phrase, name, corners in parts
        )
        return Sample(record["id"], whole, text, cut)
    whole = _square(image, settings.side)
    return Sample(
        record["id"],
        whole,
        text,
        tuple(_stored_part(image, *part, settings) for part in parts),
    )


def _stored_part(
    image: Image.Image, phrase: str, name: str | None, corners: Corners, settings: PrepareSettings
) -> Part:
    """A crop, and where it lies in the letterboxed whole."""
    box = _crop_box(corners, image.size)
    left, top, across, down = letterbox_place(*image.size, settings.side)
    x0, y0, x1, y1 = _fraction(box, image.size)
    place = (
        round((left + x0 * across) / settings.side, _DIGITS),
        round((top + y0 * down) / settings.side, _DIGITS),
        round((left + x1 * across) / settings.side, _DIGITS),
        round((top + y1 * down) / settings.side, _DIGITS),
    )
    return Part(_square(image.crop(box), settings.part_side), phrase, name, place)


def _crop_box(corners: Corners, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Whole pixels of a picture that may be smaller than the original: at least one."""
    left, top, right, bottom = whole_pixels(corners, size)
    left, top = min(left, size[0] - 1), min(top, size[1] - 1)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _fraction(box: tuple[int, int, int, int], size: tuple[int, int]) -> Corners:
    left, top, right, bottom = (
        round(edge / size[axis % 2], _DIGITS) for axis, edge in enumerate(box)
    )
    return left, top, right, bottom


def _square(image: Image.Image, side: int) -> bytes:
    return encode_jpeg(resize(image, side, "letterbox"))


def _in_proportion(picture: Picture, side: int) -> bytes:
    """JPEG of a picture with its longest side at most ``side``; a file that is one stays."""
    image, file = picture.image, picture.file
    width, height = image.size
    longest = max(image.size)
    if longest > side:
        scale = side / longest
        smaller = max(1, round(width * scale)), max(1, round(height * scale))
        return encode_jpeg(np.asarray(image.resize(smaller, Image.Resampling.BICUBIC)))
    if file and file.startswith(_JPEG) and len(file) <= _MOST_BYTES * width * height:
        return file
    return encode_jpeg(np.asarray(image))


def _least_side(record: Record, settings: PrepareSettings) -> int | None:
    """The square that the smallest part would fill, were the whole one; None: every pixel."""
    if record.get("orig_size"):
        return None  # squashed, so that its pixels count for more one way than the other
    if settings.crops == "boxes":
        return settings.side
    sides = [float(settings.side)]
    for left, top, right, bottom in (box["xyxy"] for box in record["boxes"]):
        longest = max(right - left, bottom - top)
        sides.append(settings.part_side / longest if longest > 0 else math.inf)
    return math.ceil(max(sides)) if max(sides) < _MOST_SIDE else None


def _size_of(data: bytes, image: Image.Image) -> tuple[int, int]:
    """The size in pixels that a decoded picture has in its file, upright as it is."""
    if not data.startswith(_JPEG):
        return image.size
    with Image.open(io.BytesIO(data)) as header:
        width, height = header.size
    is_turned = (width < height) != (image.width < image.height)
    return (height, width) if is_turned else (width, height)


def _is_like(stored: tuple[int, int], true: list[float]) -> bool:
    """Whether a picture can be the true one, made smaller: img2dataset may pad or cut instead."""
    expected = stored[1] * true[0] / true[1]
    return abs(stored[0] - expected) <= 2 + _MOST_STRETCH * expected
