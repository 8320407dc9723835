"""Stored crops and boxes: both layouts show the same parts, and say where they lie."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from core.image import letterbox_place, resize
from trainer.data.sample import Sample, cut
from trainer.prepare.sources.source import shares

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]

BOX = [0.25, 0.5, 0.75, 0.875]


def write_photo(path: Path, size: tuple[int, int]) -> None:
    """A smooth picture whose every place has a colour of its own."""
    down, across = np.mgrid[0 : size[1], 0 : size[0]]
    pixels = np.stack([across * 255 / size[0], down * 255 / size[1], across * 0 + 90], -1)
    Image.fromarray(pixels.astype(np.uint8)).save(path, quality=95)


def write_record(folder: Path, **more: Any) -> Path:
    boxes = [{"phrase": "a part", "xyxy": BOX}]
    record = {"image": "a.jpg", "captions": ["a whole"], "boxes": boxes} | more
    (folder / "train.jsonl").write_text(json.dumps(record))
    return folder / "train.jsonl"


def opened(jpeg: bytes | None) -> Image.Image:
    assert jpeg is not None
    return Image.open(io.BytesIO(jpeg)).convert("RGB")


def apart(one: Image.Image | npt.NDArray[np.uint8], two: Image.Image) -> float:
    """The mean difference of two pictures' pixels, of 255."""
    return float(np.abs(np.asarray(one, float) - np.asarray(two, float)).mean())


@pytest.mark.parametrize("size", [(320, 200), (200, 320), (256, 256), (500, 90)])
def test_the_box_of_a_stored_part_lies_where_the_part_is_in_the_letterboxed_whole(
    tmp_path: Path, run: Run, read: Read, size: tuple[int, int]
) -> None:
    write_photo(tmp_path / "a.jpg", size)
    run(write_record(tmp_path), tmp_path / "out", side=256, part_side=128)
    (sample,) = read(tmp_path / "out/train")
    (part,) = sample.parts
    assert part.box is not None
    again = cut(opened(sample.jpeg), part.box)
    stored = opened(part.jpeg)
    left, top, across, down = letterbox_place(*again.size, 128)
    inner = stored.crop((left, top, left + across, top + down))
    assert apart(again.resize(inner.size), inner) < 6
    assert apart(Image.new("RGB", inner.size, "white"), inner) > 60  # which would see a wrong box


def test_the_box_of_a_squashed_photo_lies_where_the_part_is(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "a.jpg", (160, 160))
    record = write_record(tmp_path, orig_size=[500, 375])
    run(record, tmp_path / "out", side=256, part_side=128)
    (sample,) = read(tmp_path / "out/train")
    assert sample.parts[0].box == pytest.approx((0.25, 0.5, 0.75, 0.78), abs=0.01)
    run(record, tmp_path / "boxes", side=256, crops="boxes")
    (sample,) = read(tmp_path / "boxes/train")
    assert opened(sample.jpeg).size == (213, 160)
    assert sample.parts[0].box == pytest.approx(BOX, abs=0.01)


def test_both_layouts_show_the_same_parts(tmp_path: Path, run: Run, read: Read) -> None:
    write_photo(tmp_path / "a.jpg", (320, 200))
    record = write_record(tmp_path)
    run(record, tmp_path / "stored", side=128, part_side=96)
    run(record, tmp_path / "boxes", side=512, crops="boxes")
    (stored,), (boxes,) = read(tmp_path / "stored/train"), read(tmp_path / "boxes/train")
    assert boxes.parts[0].jpeg is None
    assert (boxes.parts[0].text, boxes.text) == (stored.parts[0].text, stored.text)
    assert boxes.parts[0].box is not None
    at_load = resize(cut(opened(boxes.jpeg), boxes.parts[0].box), 96, "letterbox")
    assert apart(at_load, opened(stored.parts[0].jpeg)) < 3


def test_with_boxes_a_whole_keeps_its_proportions_and_shrinks_to_the_side(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "a.jpg", (640, 400))
    run(write_record(tmp_path), tmp_path / "out", side=320, crops="boxes")
    assert opened(read(tmp_path / "out/train")[0].jpeg).size == (320, 200)


def test_with_boxes_a_jpeg_that_is_small_enough_stays_as_it_is(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "a.jpg", (320, 200))
    file = (tmp_path / "a.jpg").read_bytes()
    run(write_record(tmp_path), tmp_path / "out", side=320, crops="boxes")
    assert read(tmp_path / "out/train")[0].jpeg == file


def test_a_jpeg_that_carries_something_else_or_is_none_is_written_anew(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_photo(tmp_path / "a.jpg", (32, 20))
    with (tmp_path / "a.jpg").open("ab") as file:
        file.write(b"x" * 10_000)
    run(write_record(tmp_path), tmp_path / "out", side=320, crops="boxes")
    assert len(read(tmp_path / "out/train")[0].jpeg) < 5_000
    write_photo(tmp_path / "b.png", (320, 200))
    run(write_record(tmp_path, image="b.png"), tmp_path / "out", side=320, crops="boxes")
    assert read(tmp_path / "out/train")[0].jpeg.startswith(b"\xff\xd8\xff")


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_jpeg_is_decoded_smaller_and_gives_the_same_parts(
    tmp_path: Path, run: Run, read: Read, turned: bool
) -> None:
    write_photo(tmp_path / "a.jpg", (900, 600))
    image = Image.open(tmp_path / "a.jpg")
    image.save(tmp_path / "b.png")
    if turned:
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(tmp_path / "a.jpg", quality=95, exif=exif)
        image.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "b.png")
    boxes = [
        {"phrase": "a part", "xyxy": BOX},
        {"phrase": "over", "xyxy": [0.1, 0.1, 0.14, 0.16]},
        {"phrase": "under", "xyxy": [0.1, 0.1, 0.12, 0.14]},
    ]
    for name in ("a.jpg", "b.png"):
        record = write_record(tmp_path, image=name, boxes=boxes)
        entry = run(record, tmp_path / f"{name}-out", side=48, part_side=4)
        assert entry["parts"] == 2
    (small,), (full,) = (read(tmp_path / f"{name}-out/train") for name in ("a.jpg", "b.png"))
    assert apart(opened(small.jpeg), opened(full.jpeg)) < 3
    for one, two in zip(small.parts, full.parts, strict=True):
        assert apart(opened(one.jpeg), opened(two.jpeg)) < 6
        assert one.box == pytest.approx(two.box, abs=0.02)


def test_a_crop_is_cut_at_whole_pixels_by_truncation(tmp_path: Path, run: Run, read: Read) -> None:
    pixels = np.zeros((100, 100, 3), np.uint8)
    pixels[20:60, 30:70] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    boxes = [{"phrase": "white", "xyxy": [0.3099, 0.2099, 0.7099, 0.6099]}]
    record = write_record(tmp_path, image="a.png", boxes=boxes)
    run(record, tmp_path / "out", side=100, part_side=40)
    part = np.asarray(opened(read(tmp_path / "out/train")[0].parts[0].jpeg), int)
    assert part.min() > 200  # pixels 31..69 and 21..59; to the outside, one edge would be dark


@given(sides=st.tuples(st.integers(1, 5_000), st.integers(1, 5_000)), data=st.data())
def test_pixels_as_shares_of_a_picture_are_the_same_pixels_again(
    sides: tuple[int, int], data: st.DataObject
) -> None:
    edges = [data.draw(st.floats(0, side) | st.integers(0, side)) for side in sides * 2]
    again = [int(share * side) for share, side in zip(shares(edges, sides), sides * 2, strict=True)]
    assert again == [int(edge) for edge in edges]


@pytest.mark.parametrize("size", [(255, 170), (427, 333), (170, 512)])
def test_a_part_that_is_cut_when_it_is_loaded_has_the_pixels_of_its_stored_crop(
    tmp_path: Path, run: Run, read: Read, size: tuple[int, int]
) -> None:
    write_photo(tmp_path / "a.jpg", size)
    boxes = [
        {"phrase": f"{left}", "xyxy": shares((left, left, left + 49, left + 64), size)}
        for left in range(1, 100)
    ]
    run(write_record(tmp_path, boxes=boxes), tmp_path / "out", side=512, crops="boxes")
    (sample,) = read(tmp_path / "out/train")
    assert len(sample.parts) == len(boxes)
    whole = opened(sample.jpeg)
    for part in sample.parts:
        assert part.box is not None
        left = int(part.text)
        expected = whole.crop((left, left, left + 49, left + 64))
        assert cut(whole, part.box).tobytes() == expected.tobytes(), part
