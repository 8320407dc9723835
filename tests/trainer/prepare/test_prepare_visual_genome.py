"""Visual Genome in its official files, whole and broken."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from trainer.data.sample import Sample
from trainer.prepare.sources.visual_genome import tell

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]


def region(phrase: Any, x: Any, y: Any, width: Any, height: Any) -> dict[str, Any]:
    box = {"x": x, "y": y, "width": width, "height": height}
    return {"region_id": 1, "image_id": 1, "phrase": phrase} | box


REGIONS = [
    region("a red clock on a pole", 0, 0, 60, 100),
    region("The clock is red.", 5, 5, 50, 90),  # on the same thing
    region("cars parked along the street", 100, 40, 100, 60),
    region("sky", 80, 0, 120, 40),
]


def image(number: int, **more: Any) -> dict[str, Any]:
    url = f"https://example.org/VG_100K_2/{number}.jpg"
    size = {"width": 200, "height": 100}
    return {"image_id": number, "url": url, "coco_id": None, "flickr_id": None} | size | more


def write_genome(folder: Path, regions: list[Any], images: list[Any]) -> Path:
    (folder / "VG_100K_2").mkdir(parents=True, exist_ok=True)
    (folder / "region_descriptions.json").write_text(json.dumps(regions))
    (folder / "image_data.json").write_text(json.dumps(images))
    for number in range(1, 10):
        Image.new("RGB", (200, 100), "teal").save(folder / f"VG_100K_2/{number}.jpg")
    return folder


def test_regions_are_parts_and_the_largest_of_them_tell_the_picture(
    tmp_path: Path, run: Run, read: Read
) -> None:
    folder = write_genome(tmp_path / "vg", [{"id": 1, "regions": REGIONS}], [image(1)])
    entry = run(folder, tmp_path / "out")
    (sample,) = read(tmp_path / "out/train")
    assert sample.text == "A red clock on a pole. Cars parked along the street. Sky."
    assert [part.text for part in sample.parts] == [found["phrase"] for found in REGIONS]
    assert (entry["format"], entry["parts"]) == ("visual-genome", 4)
    assert entry["settings"]["captions"] == "told from regions"


def test_a_region_is_cut_at_its_very_pixels(tmp_path: Path, run: Run, read: Read) -> None:
    regions = [region(f"{x}", x, x, 40, 40) for x in range(100)]
    sizes = image(1, width=170, height=255)
    folder = write_genome(tmp_path / "vg", [{"id": 1, "regions": regions}], [sizes])
    Image.new("RGB", (170, 255), "teal").save(folder / "VG_100K_2/1.jpg")
    run(folder, tmp_path / "out", side=512, crops="boxes")
    (sample,) = read(tmp_path / "out/train")
    for part in sample.parts:
        corner = int(part.text)
        expected = (corner / 170, corner / 255, (corner + 40) / 170, (corner + 40) / 255)
        assert part.box == pytest.approx(expected, abs=1e-6)


def test_a_caption_tells_at_most_five_regions_and_no_text_twice() -> None:
    apart = [(f"thing {i}", (i * 10.0, 0.0, i * 10.0 + 10, 10.0)) for i in range(8)]
    assert tell(apart) == "Thing 0. Thing 1. Thing 2. Thing 3. Thing 4."
    assert tell([("a  dog ", (0, 0, 9, 9)), ("A dog.", (20, 0, 29, 9))]) == "A dog."
    assert tell([("point", (3, 3, 3, 3)), (" . ", (0, 0, 9, 9))]) == ""


def test_given_captions_of_coco_those_stand_for_the_picture(
    tmp_path: Path, run: Run, read: Read
) -> None:
    folder = write_genome(
        tmp_path / "vg",
        [{"id": 1, "regions": REGIONS}, {"id": 2, "regions": REGIONS}],
        [image(1, coco_id=42), image(2)],
    )
    notes = [{"id": 1, "image_id": 42, "caption": "A clock by the road."}, {"caption": "none's"}]
    file = tmp_path / "captions_train2014.json"
    file.write_text(json.dumps({"images": [{"id": 42}], "annotations": notes}))
    entry = run(folder, tmp_path / "out", captions=(file,))
    (sample,) = read(tmp_path / "out/train")
    assert sample.text == "A clock by the road."
    assert entry["skipped"] == {
        "captions": {"of no photo": 1},
        "photos": {"no caption of COCO": 1},
    }
    assert "captions_train2014.json" in [item["file"] for item in entry["inputs"]]


def test_what_is_broken_is_counted_and_spoils_nothing_else(
    tmp_path: Path, run: Run, read: Read
) -> None:
    odd = [
        region("tiny", 0, 0, 5, 5),
        region("flat", 0, 0, 0, 50),
        region("outside", 900, 0, 50, 50),
        region("reaches out", -50, -50, 400, 400),
        region("endless", 0, 0, 10**400, 50),
        region("no number", 0, 0, float("nan"), 50),
        region("  ", 0, 0, 100, 100),
        region(None, 0, 0, 100, 100),
        region("\ud800", 0, 0, 100, 100),
        "region",
    ]
    regions: list[Any] = [
        {"id": 1, "regions": REGIONS},
        {"id": 2, "regions": odd},
        {"id": 3, "regions": []},
        {"id": 4, "regions": REGIONS},
        {"id": 5, "regions": REGIONS},
        {"id": 99, "regions": REGIONS},
        {"id": "../../etc/passwd", "regions": REGIONS},
        {"id": [1], "regions": REGIONS},
        {"id": 6, "regions": "none"},
        {"id": 7, "regions": REGIONS},
        "picture",
    ]
    images = [image(number) for number in range(1, 7)]
    images += [image(7, width=None), {"image_id": None}]
    folder = write_genome(tmp_path / "vg", regions, images)
    torn = folder / "VG_100K_2/4.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    (folder / "VG_100K_2/5.jpg").unlink()
    (folder / "VG_100K_2/5.jpg").symlink_to("/etc/passwd")
    entry = run(folder, tmp_path / "out")
    found = {sample.photo: sample for sample in read(tmp_path / "out/train")}
    assert set(found) == {"visual-genome/1", "visual-genome/2"}
    assert [part.text for part in found["visual-genome/2"].parts] == ["reaches out"]
    assert entry["skipped"] == {
        "boxes": {
            "area not over 1,024 px²": 1,
            "empty or outside the image": 2,
            "malformed": 5,
            "phrase is not valid text": 1,
        },
        "captions": {"empty or not a text": 2},
        "photos": {
            "image is not a path below the images' folder": 1,
            "image unreadable": 1,
            "not in image_data.json": 4,
            "without width and height": 1,
        },
    }
