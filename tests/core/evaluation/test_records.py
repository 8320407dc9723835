from pathlib import Path

import pytest
from PIL import Image

from core.errors import BrokenImage, DataError, ImageTooLarge
from core.evaluation.names import read_names
from core.evaluation.pictures import Picture, crop, unsquash
from core.evaluation.records import Box, read_records


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "JSON"),
        ("{}", "image"),
        ('{"image": "../secret.png"}', "leads out"),
        ('{"image": "a\\u0000.png"}', "leads out"),
        ('{"image": "a.png", "captions": "one"}', "captions"),
        ('{"image": "a.png", "orig_size": [1, 1000000]}', "1:100"),
        ('{"image": "a.png", "boxes": [{"phrase": "x", "xyxy": [0.5, 0, 0.5, 1]}]}', "no area"),
        ('{"image": "a.png", "boxes": [{"phrase": "x", "xyxy": [0, 0, 1, 1], "caption": 0}]}',
         "caption is 0"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(line: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(f'{{"image": "a.png"}}\n\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError, match=rf"records\.jsonl:3: .*{reason}"):
        read_records(file)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_records(tmp_path / "none.jsonl")
    file = tmp_path / "records.jsonl"
    file.write_text('{"image": "a.png"}', encoding="utf-8")
    (record,) = read_records(file)
    with pytest.raises(DataError, match=r"a\.png: cannot be read"):
        Picture(record.image, "a.png").square(8)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    with pytest.raises(BrokenImage, match=r"a\.png: "):
        Picture(record.image, "a.png").square(8)


def test_a_box_of_a_squashed_photo_gets_its_proportions_back() -> None:
    stored = Image.new("RGB", (160, 160))
    box = Box(phrase="x", xyxy=(0.25, 0.0, 0.75, 0.5))
    assert crop(stored, box.xyxy, (320, 160)).size == (160, 80)
    assert crop(stored, box.xyxy, (160, 320)).size == (80, 160)
    assert crop(stored, box.xyxy, None).size == (80, 80)
    with pytest.raises(ImageTooLarge, match="orig_size"):
        unsquash(Image.new("RGB", (1, 10_000)), (1, 10_000), (100, 1))
    sliver = Box(phrase="x", xyxy=(0.999, 0.999, 1.0, 1.0))
    assert crop(stored, sliver.xyxy, None).size == (1, 1)


def test_names_are_a_list_or_an_object(tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    file.write_text('[{"name": "owl", "group": "bird", "kingdom": "animal"}]', encoding="utf-8")
    names = read_names(file)
    assert names.links()["group and name"] == [("bird", "owl")]
    file.write_text('{"trained": [{"name": "owl"}], "held_out": []}', encoding="utf-8")
    assert read_names(file).levels() == {"names": ["owl"]}
    for wrong in ('{"train": []}', "[]", "{"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(DataError, match=r"names\.json"):
            read_names(file)


@pytest.mark.parametrize(
    ("original", "expected"), [((500, 375), (213, 160)), ((375, 500), (160, 213))]
)
def test_a_squashed_image_gets_the_aspect_of_its_original_back(
    original: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert unsquash(Image.new("RGB", (160, 160)), (160, 160), original).size == expected


def test_an_image_that_was_only_scaled_is_left_alone() -> None:
    image = Image.new("RGB", (256, 169))
    assert unsquash(image, image.size, (640, 422)) is image
