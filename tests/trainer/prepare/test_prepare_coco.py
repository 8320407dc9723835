"""COCO's captions and instances in their official files, whole and broken."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import ConfigError, DataError
from trainer.data.sample import Sample

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]

CATEGORIES = [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]


def caption(number: int, text: Any) -> dict[str, Any]:
    return {"id": number * 10, "image_id": number, "caption": text}


def thing(number: int, category: int, bbox: Any, **more: Any) -> dict[str, Any]:
    segmentation = [[0.0, 0.0, 9.5, 9.5, 0.0, 9.5]]
    return {
        "id": number,
        "image_id": number,
        "category_id": category,
        "bbox": bbox,
        "iscrowd": 0,
        "segmentation": segmentation,
    } | more


def photo(number: int, **more: Any) -> dict[str, Any]:
    name = f"{number:012d}.jpg"
    return {"id": number, "file_name": name, "width": 200, "height": 100, "license": 4} | more


def write_coco(
    folder: Path,
    photos: list[Any],
    captions: list[Any],
    things: list[Any],
    split: str = "train2017",
) -> Path:
    """The folder as it is unpacked, with a picture for every photo that is not named missing."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    (folder / split).mkdir(exist_ok=True)
    common = {"info": {"year": 2017}, "licenses": [{"id": 4, "name": "Attribution License"}]}
    said = common | {"images": photos, "annotations": captions}
    shown = common | {"images": photos, "annotations": things, "categories": CATEGORIES}
    (folder / f"annotations/captions_{split}.json").write_text(json.dumps(said))
    (folder / f"annotations/instances_{split}.json").write_text(json.dumps(shown))
    for number in range(1, 20):
        Image.new("RGB", (200, 100), "teal").save(folder / split / f"{number:012d}.jpg")
    return folder


def test_a_photo_has_its_captions_and_the_largest_object_of_each_category(
    tmp_path: Path, run: Run, read: Read
) -> None:
    things = [
        thing(1, 18, [0, 0, 40, 40]),
        thing(1, 1, [10.5, 20, 60, 80]),
        thing(1, 18, [100, 0, 100, 100]),
    ]
    captions = [caption(1, f"caption {i}\n") for i in range(5)]
    write_coco(tmp_path / "coco", [photo(1)], captions, things)
    entry = run(tmp_path / "coco", tmp_path / "out", split="train")
    samples = read(tmp_path / "out/train")
    assert sorted(sample.text for sample in samples) == [f"caption {i}" for i in range(5)]
    assert {sample.photo for sample in samples} == {"coco/1"}
    for sample in samples:
        assert [(part.text, part.name) for part in sample.parts] == [
            ("dog", "dog"),
            ("person", "person"),
        ]
        assert sample.parts[0].box == pytest.approx((0.5, 0.25, 1.0, 0.75))  # letterboxed
    assert entry["skipped"] == {"boxes": {"text seen before": 5}}
    assert "Attribution License" in entry["licences"]
    assert [item["file"] for item in entry["inputs"]] == [
        "captions_train2017.json",
        "instances_train2017.json",
    ]


def test_what_is_broken_is_counted_and_spoils_nothing_else(tmp_path: Path, run: Run) -> None:
    numbers = range(1, 10)
    photos: list[Any] = [photo(number) for number in numbers]
    photos[1]["file_name"] = "gone.jpg"
    photos[3]["file_name"] = "../../../etc/passwd"
    photos[4]["file_name"] = "/etc/passwd"
    del photos[5]["file_name"]
    photos[6] |= {"width": None}
    photos[7] |= {"width": 10**400}
    photos[8]["file_name"] = "x" * 300
    photos.append(photo(10, width=1e-310))  # of which every pixel is endlessly far
    photos.append("a photo")
    captions: list[Any] = [caption(number, "a dog") for number in (*numbers, 10)]
    captions += [caption(1, "  "), caption(1, None), caption(1, "\ud800"), caption(77, "whose?")]
    captions += ["text", {"caption": "of none"}]
    things: list[Any] = [
        thing(1, 18, [0, 0, 100, 100]),
        thing(1, 99, [0, 0, 100, 100]),
        thing(1, 1, [0, 0, 5, 5]),
        thing(1, 1, [0, 0, 100, 100], iscrowd=1),
        thing(1, 1, [0, 0, 100]),
        thing(1, 1, [0, 0, float("nan"), 50]),
        thing(1, 1, [0, 0, 10**400, 50]),
        thing(77, 1, [0, 0, 100, 100]),
        thing(7, 1, [0, 0, 100, 100]),
        thing(10, 1, [0, 0, 100, 100]),
        "an object",
    ]
    folder = write_coco(tmp_path / "coco", photos, captions, things)
    torn = folder / "train2017" / f"{3:012d}.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    entry = run(folder, tmp_path / "out")
    assert (entry["samples"], entry["parts"]) == (4, 1)  # photos 1, 7, 8 and 10
    assert entry["skipped"] == {
        "boxes": {
            "area not over 1,024 px²": 1,
            "category does not exist": 1,
            "crowd": 1,
            "malformed": 3,
            "of no photo": 2,
            "photo without width and height": 2,
        },
        "captions": {
            "caption is not valid text": 1,
            "empty or not a text": 2,
            "of no photo": 3,
        },
        "photos": {
            "image file missing": 3,
            "image is not a path below the images' folder": 1,
            "image unreadable": 1,
            "no file_name": 1,
        },
    }


def test_an_empty_box_or_one_outside_is_counted(tmp_path: Path, run: Run) -> None:
    things = [thing(1, 1, [20, 20, 0, 50]), thing(1, 18, [300, 20, 50, 50])]
    write_coco(tmp_path / "coco", [photo(1)], [caption(1, "nothing")], things)
    entry = run(tmp_path / "coco", tmp_path / "out")
    assert entry["skipped"] == {"boxes": {"empty or outside the image": 2}}


def test_the_split_must_be_clear(tmp_path: Path, run: Run) -> None:
    for split in ("train2017", "val2017", "train2014"):
        arguments = [photo(1)], [caption(1, "a dog")], [thing(1, 18, [0, 0, 100, 100])]
        write_coco(tmp_path / "coco", *arguments, split=split)
    with pytest.raises(ConfigError, match=r"which split\?.*train2014, train2017, val2017"):
        run(tmp_path / "coco", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"split 'train'\?"):
        run(tmp_path / "coco", tmp_path / "out", split="train")
    assert run(tmp_path / "coco", tmp_path / "out", split="val")["samples"] == 1
    assert run(tmp_path / "coco", tmp_path / "out", split="train2014")["samples"] == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        "val",
        "train2014",
    }


def test_pictures_may_lie_apart_and_flat(tmp_path: Path, run: Run) -> None:
    arguments = [photo(1)], [caption(1, "a dog")], [thing(1, 18, [0, 0, 100, 100])]
    folder = write_coco(tmp_path / "coco", *arguments)
    (folder / "train2017").rename(tmp_path / "pictures")
    assert run(folder, tmp_path / "out", images=tmp_path / "pictures")["samples"] == 1


def test_an_annotation_file_that_is_cut_off_is_a_data_error(tmp_path: Path, run: Run) -> None:
    arguments = [photo(1)], [caption(1, "a dog")], [thing(1, 18, [0, 0, 100, 100])]
    folder = write_coco(tmp_path / "coco", *arguments)
    file = folder / "annotations/instances_train2017.json"
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match=r"instances_train2017\.json: not JSON from letter"):
        run(folder, tmp_path / "out")
    file.unlink()
    with pytest.raises(DataError, match=r"instances_train2017\.json: is not there"):
        run(folder, tmp_path / "out")


def test_an_object_is_cut_at_its_very_pixels(tmp_path: Path, run: Run, read: Read) -> None:
    names = [{"id": x, "name": f"{x}"} for x in range(100)]
    things = [thing(1, x, [x + 0.25, x, 40, 40]) for x in range(100)]
    sizes = photo(1, width=170, height=255)
    folder = write_coco(tmp_path / "coco", [sizes], [caption(1, "one")], things)
    file = folder / "annotations/instances_train2017.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"categories": names}))
    Image.new("RGB", (170, 255), "teal").save(folder / "train2017/000000000001.jpg")
    run(folder, tmp_path / "out", side=512, crops="boxes")
    (sample,) = read(tmp_path / "out/train2017")
    for part in sample.parts:
        corner = int(part.text)
        expected = (corner / 170, corner / 255, (corner + 40) / 170, (corner + 40) / 255)
        assert part.box == pytest.approx(expected, abs=1e-6)
