import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from core.errors import BrokenImage, ImageError, ImageTooLarge, UnsupportedImage
from core.image import ImageLimits, ImageSpec, Preprocess, decode, normalise, resize

COLOURS = np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8)
PHOTO = Image.fromarray(np.kron(COLOURS, np.ones((16, 16, 1), np.uint8)))  # 64 x 48


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    image = decode(data)
    assert image.mode == "RGB"
    return np.asarray(image).astype(np.int64)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_lossless_files_come_back_as_they_were(kind: str) -> None:
    assert np.array_equal(pixels(encoded(PHOTO, kind)), np.asarray(PHOTO))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_files_come_back_nearly(kind: str) -> None:
    assert np.abs(pixels(encoded(PHOTO, kind, quality=95)) - np.asarray(PHOTO)).mean() < 8


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize(
    ("orientation", "stored"),
    [
        (3, Image.Transpose.ROTATE_180),
        (5, Image.Transpose.TRANSPOSE),
        (6, Image.Transpose.ROTATE_90),
        (8, Image.Transpose.ROTATE_270),
    ],
)
def test_a_photo_taken_sideways_stands_upright(
    kind: str, orientation: int, stored: Image.Transpose
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = pixels(encoded(PHOTO.transpose(stored), kind, exif=exif))
    assert upright.shape == (48, 64, 3)
    assert np.abs(upright - np.asarray(PHOTO)).mean() < 12


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_every_mode_becomes_the_colours_it_means(mode: str) -> None:
    image = PHOTO.convert(mode)
    shown = np.asarray(image.convert("RGB")).astype(np.int64)
    assert np.array_equal(pixels(encoded(image, "TIFF")), shown)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind: str) -> None:
    grey = np.asarray(PHOTO.convert("L"))
    wide = Image.fromarray(grey.astype(np.uint16) * 257)
    assert np.array_equal(pixels(encoded(wide, kind))[..., 0], grey)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_shows_white(mode: str) -> None:
    clear = Image.new(mode, (4, 4), (0,) * len(mode))
    assert pixels(encoded(clear, "PNG")).min() == 255


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_palette_entry_shows_white(kind: str) -> None:
    image = Image.new("P", (4, 4))
    image.putpalette([255, 0, 0])
    assert pixels(encoded(image, kind, transparency=0)).min() == 255


def test_an_animation_shows_its_first_frame() -> None:
    frames = encoded(PHOTO, "GIF", save_all=True, append_images=[Image.new("RGB", PHOTO.size)])
    assert np.array_equal(pixels(frames), np.asarray(PHOTO))


def test_a_colour_profile_is_turned_into_srgb() -> None:
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert np.array_equal(pixels(encoded(PHOTO, "PNG", icc_profile=lab)), np.asarray(PHOTO))
    assert np.array_equal(pixels(encoded(PHOTO, "PNG", icc_profile=b"junk")), np.asarray(PHOTO))


def test_a_large_jpeg_is_decoded_small_but_not_too_small() -> None:
    photo = encoded(PHOTO.resize((1600, 1200)), "JPEG")
    assert decode(photo).size == (1600, 1200)
    assert decode(photo, side=100).size == (400, 300)


def test_what_is_no_accepted_image_is_unsupported() -> None:
    for data in (b"", b"hello", b"%PDF-1.7", encoded(PHOTO, "PPM"), b"<svg/>"):
        with pytest.raises(UnsupportedImage, match="JPEG, PNG"):
            decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_truncated_file_is_broken(kind: str) -> None:
    data = encoded(PHOTO, kind)
    with pytest.raises(BrokenImage):
        decode(data[: len(data) * 2 // 3])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_no_damage_raises_anything_else_than_an_image_error(kind: str) -> None:
    whole = encoded(PHOTO.resize((32, 24)), kind)
    random = np.random.default_rng(0)
    for _ in range(150):
        data = bytearray(whole)
        for place in random.integers(0, len(data), 6):
            data[place] = random.integers(0, 256)
        try:
            decode(bytes(data))
        except ImageError as error:
            assert str(error)  # noqa: PT017  # most damage is found, some is not


def test_bombs_are_refused_by_their_header() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + checksum
    png += struct.pack(">I", 0) + b"IDAT"
    gif = (
        b"GIF89a"
        + struct.pack("<HHBBB", 9, 9, 0, 0, 0)
        + b","
        + struct.pack("<4HB", 9_000, 9_000, 2_000, 2_000, 0)
    )
    for bomb in (png, gif):
        with pytest.raises(ImageTooLarge, match="50,000,000"):
            decode(bomb)


def test_limits_are_stated() -> None:
    data = encoded(PHOTO, "PNG")
    with pytest.raises(ImageTooLarge, match="limit is 10"):
        decode(data, ImageLimits(max_bytes=10))
    with pytest.raises(ImageTooLarge, match="64 x 48 pixels: the limit is 100"):
        decode(data, ImageLimits(max_pixels=100))


@pytest.mark.parametrize("preprocess", ["retrieval", "classification", "letterbox"])
@pytest.mark.parametrize("size", [(64, 48), (1, 1), (50_000, 1), (1, 3_000)])
def test_every_policy_makes_a_square(preprocess: Preprocess, size: tuple[int, int]) -> None:
    square = resize(Image.new("RGB", size, "red"), 32, preprocess)
    assert square.shape == (32, 32, 3)
    assert square.dtype == np.uint8


def test_a_letterbox_keeps_the_proportions_and_pads_with_white() -> None:
    square = resize(Image.new("RGB", (64, 32)), 32, "letterbox")
    assert square[8:24].max() == 0
    assert square[:8].min() == square[24:].min() == 255


def test_the_centre_crop_is_that_of_resizing_first() -> None:
    photo = PHOTO.resize((333, 500))
    first = photo.resize((32, 48), Image.Resampling.BICUBIC).crop((0, 8, 32, 40))
    assert np.array_equal(resize(photo, 32, "classification"), np.asarray(first))


def test_pixels_are_normalised_per_channel() -> None:
    spec = ImageSpec(side=8)
    squares = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    expected = (squares / 255 - spec.mean) / spec.std
    got = normalise(squares, spec)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    assert got == pytest.approx(expected.transpose(0, 3, 1, 2), abs=1e-6)
