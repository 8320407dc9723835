"""What a shard holds of one caption: its picture, and the parts that belong to it.

A part is stored as a picture of its own, as HyCoCLIP has it, or as a box of the whole, which is
cut out when it is loaded.
"""

import math
from dataclasses import dataclass

from PIL import Image

Corners = tuple[float, float, float, float]
"""Left, top, right and bottom of a box, in 0..1 of the picture that it lies in."""


@dataclass(frozen=True)
class Part:
    """One box: its crop or its place, its phrase, and the name of the thing where one is known."""

    jpeg: bytes | None  # the crop; None where it is to be cut out of the whole
    text: str
    name: str | None = None
    box: Corners | None = None  # in the picture of the whole as it is stored, where known


@dataclass(frozen=True)
class Sample:
    """One caption with its picture and parts, still encoded; captions of one photo share its id."""

    photo: str
    jpeg: bytes
    text: str
    parts: tuple[Part, ...]
    key: str = ""  # within its shard; whoever writes shards numbers them


_SLACK = 0.01  # of a pixel: shards hold boxes rounded to six digits


def cut(image: Image.Image, box: Corners) -> Image.Image:
    """The box of a picture, to whole pixels outwards; one that was on whole pixels stays there."""
    left, top = (math.floor(c * s + _SLACK) for c, s in zip(box[:2], image.size, strict=True))
    right, bottom = (math.ceil(c * s - _SLACK) for c, s in zip(box[2:], image.size, strict=True))
    return image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
