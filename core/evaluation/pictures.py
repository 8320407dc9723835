"""Pictures of a data set, and the squares of pixels that a model takes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from PIL import Image

from core.cores import available_cores
from core.errors import DataError, ImageError, ImageTooLarge
from core.image import ImageLimits, Pixels, Preprocess, decode, resize

_MAX_PIXELS = ImageLimits().max_pixels
_AHEAD = 4  # squares that wait for each thread


@dataclass(frozen=True)
class Picture:
    """A picture that is not read yet, or a part of one."""

    file: Path
    name: str
    """As the data set names it."""
    preprocess: Preprocess = "retrieval"
    """How it becomes a square; a part is letterboxed, as shards are."""
    box: tuple[float, float, float, float] | None = None
    """The part: left, top, right, bottom in 0..1 of the stored picture."""
    orig_size: tuple[int, int] | None = None
    """Width and height of the true photo, where the stored one was squashed."""

    @property
    def is_plain(self) -> bool:
        """Whether its file and ``preprocess`` say all: whoever gets both makes the same square."""
        return self.box is None and (self.orig_size is None or self.preprocess == "retrieval")

    def read(self) -> bytes:
        """The bytes of its file.

        Raises:
            DataError: It cannot be read.
        """
        try:
            if self.file.exists() and not self.file.is_file():  # a pipe would never end
                raise DataError(f"{self.file}: cannot be read: not a file")
            return self.file.read_bytes()
        except OSError as error:
            raise DataError(f"{self.file}: cannot be read: {error.strerror}") from error

    def square(self, side: int) -> Pixels:
        """Its pixels, ``(side, side, 3)`` of 0..255.

        Raises:
            DataError: The file is missing.
            ImageError: It cannot be decoded.
        """
        try:
            if self.box is None:
                image = decode(self.read(), side=side)
                if self.preprocess != "retrieval":
                    image = unsquash(image, image.size, self.orig_size)
                return resize(image, side, self.preprocess)
            part = crop(decode(self.read()), self.box, self.orig_size)
            return resize(part, side, "letterbox")
        except ImageError as error:
            raise type(error)(f"{self.file}: {error}") from error


def squares(pictures: Sequence[Picture], side: int) -> Iterator[Pixels | DataError | ImageError]:
    """The pixels of each picture or why it has none, in order, read ahead by all cores."""

    def read(picture: Picture) -> Pixels | DataError | ImageError:
        try:
            return picture.square(side)
        except (DataError, ImageError) as error:
            return error

    threads = available_cores()
    with ThreadPoolExecutor(threads, "pictures") as pool:
        waiting = iter(pictures)
        reading = [pool.submit(read, picture) for picture in islice(waiting, threads * _AHEAD)]
        while reading:
            done = reading.pop(0)
            reading += [pool.submit(read, picture) for picture in islice(waiting, 1)]
            yield done.result()


def crop(
    image: Image.Image,
    box: tuple[float, float, float, float],
    orig_size: tuple[int, int] | None,
) -> Image.Image:
    """A box cut out, in the proportions of the true photo; no side loses pixels.

    Args:
        image: As it is stored, maybe squashed.
        box: Left, top, right and bottom in 0..1.
        orig_size: Width and height of the true photo, None where the stored one is true.
    """
    left, top, right, bottom = box
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
