"""Bytes to pixels: the one place that knows file types, modes, limits and the resize policies.

Everything here may be called from several threads at once; no state of Pillow is changed.
"""

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageCms,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from pydantic import Field

from core.config import Section
from core.errors import BrokenImage, ImageTooLarge, UnsupportedImage

Preprocess = Literal["retrieval", "classification", "letterbox"]
"""How an image becomes a square: squashed; short side and centre crop; or its longest side
padded with white, as the parts of processed-GRIT shards are."""

Pixels = npt.NDArray[np.uint8]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

ACCEPTED_TYPES = ("JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF")


class ImageSpec(Section):
    """The pixels a model was trained on."""

    side: int = Field(224, ge=8, le=4096, description="Height and width in pixels.")
    mean: tuple[float, float, float] = Field(
        IMAGENET_MEAN, description="Of red, green and blue in 0..1, subtracted."
    )
    std: tuple[float, float, float] = Field(
        IMAGENET_STD, description="Divisors of red, green and blue, after the mean."
    )
    interpolation: Literal["bicubic"] = "bicubic"


@dataclass(frozen=True)
class ImageLimits:
    """What one image may cost."""

    max_bytes: int = 20 * 2**20
    max_pixels: int = 50_000_000


_DEFAULT_LIMITS = ImageLimits()

# What Pillow's parsers raise on bytes that are not what they claim to be.
_BROKEN = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError,
    EOFError, RuntimeError, UserWarning, struct.error, zlib.error,
)  # fmt: skip
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112


def decode(
    data: bytes, limits: ImageLimits = _DEFAULT_LIMITS, side: int | None = None
) -> Image.Image:
    """The first frame of an image file: RGB, upright by its EXIF, transparency on white.

    Sixteen bits are scaled, not clipped, and an embedded colour profile is turned into sRGB.
    The limits are checked on the header, before anything is decoded.

    Args:
        data: A JPEG, PNG, WebP, GIF, BMP or TIFF file.
        limits: The most bytes and pixels that are accepted.
        side: The square the image will be resized to. A large JPEG is then decoded at a
            fraction of its size, never under twice this.

    Raises:
        ImageTooLarge: Over a limit.
        UnsupportedImage: Not one of the accepted types.
        BrokenImage: Truncated or undecodable.
    """
    if len(data) > limits.max_bytes:
        raise ImageTooLarge(f"image of {len(data):,} bytes: the limit is {limits.max_bytes:,}")
    image = _open(data, limits)
    try:
        if side is not None:
            image.draft(None, (2 * side, 2 * side))
        image.load()
        orientation = _orientation(image)
        decoded = _to_rgb(image)
    except _BOMB as error:
        raise ImageTooLarge(f"image over the limit of {limits.max_pixels:,} pixels") from error
    except _BROKEN as error:
        raise BrokenImage(f"{image.format} image cannot be decoded: {error}") from error
    turn = _UPRIGHT.get(orientation)
    return decoded if turn is None else decoded.transpose(turn)


def resize(image: Image.Image, side: int, preprocess: Preprocess) -> Pixels:
    """A square of pixels, ``(side, side, 3)``, from an RGB image by one of the policies.

    Bicubic, with a kernel that widens when the image shrinks.
    """
    width, height = image.size
    if width == height == side:
        return np.asarray(image)
    bicubic = Image.Resampling.BICUBIC
    if preprocess == "retrieval":
        return np.asarray(image.resize((side, side), bicubic))
    if preprocess == "classification":
        box = _centre(width, height, side)
        return np.asarray(image.resize((side, side), bicubic, box=box))
    left, top, across, down = letterbox_place(width, height, side)
    square = np.full((side, side, 3), 255, np.uint8)
    square[top : top + down, left : left + across] = np.asarray(
        image.resize((across, down), bicubic)
    )
    return square


def letterbox_place(width: int, height: int, side: int) -> tuple[int, int, int, int]:
    """Where an image lies in its letterboxed square: left, top, width and height in pixels."""
    scale = side / max(width, height)
    across, down = max(1, round(width * scale)), max(1, round(height * scale))
    return (side - across) // 2, (side - down) // 2, across, down


def normalise(pixels: Pixels, spec: ImageSpec) -> npt.NDArray[np.float32]:
    """What the image graph takes: ``(n, 3, side, side)`` float32, contiguous.

    Args:
        pixels: Squares, ``(n, side, side, 3)``, of 0..255.
        spec: The model's mean and standard deviation.
    """
    count, height, width, _ = pixels.shape
    out = np.empty((count, 3, height, width), np.float32)
    for channel, (mean, std) in enumerate(zip(spec.mean, spec.std, strict=True)):
        plane = out[:, channel]
        np.multiply(pixels[..., channel], np.float32(1 / (255 * std)), out=plane)
        plane -= np.float32(mean / std)
    return out


def _open(data: bytes, limits: ImageLimits) -> ImageFile.ImageFile:
    """Read the header alone.

    The parsers are called directly: `Image.open` would check for bombs by a warning, which
    cannot be silenced for one thread alone.
    """
    if data[:4] == b"GIF8":
        _check_size(*_gif_extent(data), limits)
    parser = _parser(data)
    try:
        image = parser(io.BytesIO(data))
    except _BOMB as error:
        raise ImageTooLarge(f"image over the limit of {limits.max_pixels:,} pixels") from error
    except _BROKEN as error:
        raise BrokenImage(f"image cannot be decoded: {error}") from error
    _check_size(*image.size, limits)
    return image


def _parser(data: bytes) -> Callable[[io.BytesIO], ImageFile.ImageFile]:
    """The parser for the type that the first bytes say."""
    head = data[:12]
    if head.startswith(b"\xff\xd8\xff"):
        return JpegImagePlugin.JpegImageFile
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PngImagePlugin.PngImageFile
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WebPImagePlugin.WebPImageFile
    if head.startswith((b"GIF87a", b"GIF89a")):
        return GifImagePlugin.GifImageFile
    if head.startswith(b"BM"):
        return BmpImagePlugin.BmpImageFile
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return TiffImagePlugin.TiffImageFile
    what = "empty file" if not data else "not an image of an accepted type"
    raise UnsupportedImage(f"{what}: send one of {', '.join(ACCEPTED_TYPES)}")


def _check_size(width: int, height: int, limits: ImageLimits) -> None:
    if width * height > limits.max_pixels:
        raise ImageTooLarge(
            f"image of {width:,} x {height:,} pixels: the limit is {limits.max_pixels:,}"
        )


def _gif_extent(data: bytes) -> tuple[int, int]:
    """The canvas of a GIF, stretched by its first frame; Pillow would warn of a large one."""
    if len(data) < 13:
        return 0, 0
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    while at + 9 < len(data) and data[at] == 0x21:  # an extension: its kind, then sub-blocks
        at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    if at + 9 <= len(data) and data[at] == 0x2C:
        left, top, frame_width, frame_height = struct.unpack_from("<4H", data, at + 1)
        return max(width, left + frame_width), max(height, top + frame_height)
    return width, height


def _orientation(image: ImageFile.ImageFile) -> int:
    """The EXIF orientation, 1 where there is none or it cannot be read."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _BROKEN:
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return _from_wide(image)
    profile = image.info.get("icc_profile")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        rgba = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(rgba, mask=rgba.getchannel("A"))
        return _to_srgb(white, profile)
    if image.mode == "P":
        return _to_srgb(image.convert("RGB"), profile)
    return _to_srgb(image, profile)


def _to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """RGB of the standard colour space; a profile that cannot be read or applied is left out."""
    if profile and image.mode in ("RGB", "CMYK", "L"):
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            if "sRGB" not in (source.profile.profile_description or ""):
                target = ImageCms.createProfile("sRGB")
                turned = ImageCms.profileToProfile(image, source, target, outputMode="RGB")
                if turned is not None:
                    return turned
        except (ImageCms.PyCMSError, OSError):
            pass
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_wide(image: Image.Image) -> Image.Image:
    """Grey images of 16 or 32 bits, or of floats, scaled to eight."""
    values: npt.NDArray[Any] = np.asarray(image)
    if image.mode.startswith("I;16"):
        full = 65_535.0
    else:  # nothing in the file says what white is: the narrowest format that holds the peak
        values = np.nan_to_num(values.astype(np.float64))
        ranges = (1.0, 255.0, 65_535.0) if image.mode == "F" else (255.0, 65_535.0)
        peak = float(values.max(initial=0))
        full = next((top for top in ranges if peak <= top), peak)
    grey = np.clip(values * (255.0 / full) + 0.5, 0, 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _centre(width: int, height: int, side: int) -> tuple[float, float, float, float]:
    """The part of an image that stays when its short side becomes ``side`` and the centre is cut.

    Resampling that box alone gives the same pixels, without those of the rest of a long strip.
    """
    short = min(width, height)
    across, down = side * width // short, side * height // short
    left, top = round((across - side) / 2), round((down - side) / 2)
    step_x, step_y = width / across, height / down
    return (
        left * step_x,
        top * step_y,
        min((left + side) * step_x, width),
        min((top + side) * step_y, height),
    )
