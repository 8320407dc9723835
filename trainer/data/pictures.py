"""The pictures of a sample as squares of pixels."""

import functools
from collections.abc import Sequence

from PIL import Image

from core.errors import ImageError
from core.image import Pixels, decode, resize
from trainer.data.sample import Part, Sample, cut
from trainer.sections import DataSection

WHOLE = -1
"""The place among a sample's parts that stands for its whole picture."""

_ALL = (0.0, 0.0, 1.0, 1.0)


def pictures(sample: Sample, parts: Sequence[Part], options: DataSection) -> list[Pixels]:
    """Squares, ``(side, side, 3)``, of the whole and of some of its parts.

    Raises:
        ImageError: One of them cannot be decoded.
    """
    side, fit = options.side, options.fit
    cuts = any(part.jpeg is None for part in parts)  # boxes need the whole's every pixel
    whole = decode(sample.jpeg, side=None if cuts else side)
    found = [resize(whole, side, fit)]
    for part in parts:
        picture = decode(part.jpeg, side=side) if part.jpeg else cut(whole, part.box or _ALL)
        found.append(resize(picture, side, fit))
    return found


def apart(sample: Sample, places: Sequence[int], options: DataSection) -> list[Pixels | str]:
    """Pictures of a sample, `WHOLE` or parts by place, each by itself: or why it has none."""
    full = functools.cache(lambda: decode(sample.jpeg))  # boxes need the whole's every pixel

    def picture(place: int) -> Image.Image:
        part = None if place == WHOLE else sample.parts[place]
        if part and not part.jpeg:
            return cut(full(), part.box or _ALL)
        return decode((part and part.jpeg) or sample.jpeg, side=options.side)

    found: list[Pixels | str] = []
    for place in places:
        try:
            found.append(resize(picture(place), options.side, options.fit))
        except ImageError as error:
            found.append(str(error))
    return found
