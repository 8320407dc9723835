"""Captions, objects, chains and pairs, from small files in the layout of their authors."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.run import Fetched, Request, fetch

VOC_XML = "<annotation><filename>{}.jpg</filename>{}</annotation>"
CSV = "id,captions,image_url\n"


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), "red").save(path)


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def get(name: str, tmp_path: Path, source: Path, images: Path | None = None) -> Fetched:
    return fetch(name, Request(source, images, tmp_path / "eval"), silent)


def sentence(number: int, text: str) -> dict[str, Any]:
    return {"raw": text, "sentid": number, "tokens": text.lower().split(), "imgid": 0}


def karpathy(folder: Path) -> Path:
    """Two test photos of COCO, the second with six captions, and one to train on."""
    photos = [
        {
            "filepath": "val2014",
            "filename": f"COCO_val2014_{number:012d}.jpg",
            "cocoid": number,
            "split": "train" if number == 9 else "test",
            "sentences": [sentence(number * 10 + i, f"Photo {number}, {i}.") for i in range(count)],
        }
        for number, count in ((7, 5), (8, 6), (9, 5))
    ]
    for photo in photos[:2]:
        picture(folder / "val2014" / str(photo["filename"]))
    return write(folder / "dataset_coco.json", {"images": photos, "dataset": "coco"})


@pytest.mark.parametrize("images", [".", "val2014"])
def test_karpathys_test_photos_keep_every_caption_and_id(tmp_path: Path, images: str) -> None:
    file = karpathy(tmp_path / "coco")
    fetched = get("coco-karpathy", tmp_path, file, tmp_path / "coco" / images)
    first, second = open_dataset(fetched.folder).records
    assert (first.id, len(first.captions), len(second.captions)) == ("7", 5, 6)
    assert first.captions[0] == "Photo 7, 0."
    assert first.caption_ids == (70, 71, 72, 73, 74)
    assert first.image == tmp_path / "coco/val2014/COCO_val2014_000000000007.jpg"
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 2, "captions": 11}
    assert fetched.manifest.families == ("retrieval",)


def test_what_is_written_does_not_depend_on_how_the_pictures_are_named(tmp_path: Path) -> None:
    file = karpathy(tmp_path / "coco")
    first = get("coco-karpathy", tmp_path, file, tmp_path / "coco")
    records = (first.folder / "test.jsonl").read_bytes()
    again = fetch(
        "coco-karpathy",
        Request(file, tmp_path / "coco/val2014", tmp_path / "eval", force=True),
        silent,
    )
    assert (again.folder / "test.jsonl").read_bytes() == records


def test_missing_pictures_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    file = karpathy(tmp_path / "coco")
    (tmp_path / "coco/val2014/COCO_val2014_000000000008.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 2 pictures .*000008\.jpg\); name with --images"):
        get("coco-karpathy", tmp_path, file)
    assert not (tmp_path / "eval/coco-karpathy").exists()


def test_flickr30k_takes_its_raw_captions(tmp_path: Path) -> None:
    photos = [
        {"filename": "12.jpg", "split": "test", "sentences": [sentence(1, "A Man.")]},
        {"filename": "13.jpg", "split": "val", "sentences": [sentence(2, "A dog.")]},
    ]
    file = write(tmp_path / "dataset_flickr30k.json", {"images": photos})
    picture(tmp_path / "flickr30k-images/12.jpg")
    for images in (tmp_path, tmp_path / "flickr30k-images"):
        (record,) = open_dataset(get("flickr30k", tmp_path, file, images).folder).records
        assert (record.id, record.captions) == ("12", ("A Man.",))


def test_broken_json_names_its_line_and_a_strange_file_its_key(tmp_path: Path) -> None:
    file = write(tmp_path / "dataset_coco.json", '{"images":\n[}')
    with pytest.raises(DataError, match=r"dataset_coco\.json:2: not JSON"):
        get("coco-karpathy", tmp_path, file)
    write(file, {"annotations": []})
    with pytest.raises(DataError, match=r"no 'images' \(it has annotations\)"):
        get("coco-karpathy", tmp_path, file)
    write(file, {"images": [{"split": "test", "filename": "a.jpg", "filepath": "x"}]})
    with pytest.raises(DataError, match=r"images\[0\]: no 'sentences'"):
        get("coco-karpathy", tmp_path, file)


def eccv(folder: Path, captions: dict[str, list[int]]) -> None:
    write(folder / "eccv_image_to_caption.json", {"7": [70, 80]})
    write(folder / "eccv_caption_to_image.json", captions)


def test_eccv_caption_writes_its_judgements_and_five_captions_a_photo(tmp_path: Path) -> None:
    file = karpathy(tmp_path / "coco")
    with pytest.raises(ConfigError, match="pip install --no-deps eccv-caption"):
        get("eccv-caption", tmp_path, file)
    eccv(tmp_path / "coco", {"70": [7, 8]})
    dataset = open_dataset(get("eccv-caption", tmp_path, file).folder)
    assert dataset.positives_file
    assert json.loads(dataset.positives_file.read_bytes()) == {
        "image_to_text": {"7": [70, 80]},
        "text_to_image": {"70": [7, 8]},
    }
    assert [len(record.caption_ids) for record in dataset.records] == [5, 5]


def test_judgements_of_other_photos_are_refused(tmp_path: Path) -> None:
    file = karpathy(tmp_path / "coco")
    eccv(tmp_path / "coco", {"1": [7]})
    with pytest.raises(DataError, match=r"1 of 1 ids are not in Karpathy's test split \(1\)"):
        get("eccv-caption", tmp_path, file)


def coco_photos(folder: Path) -> list[dict[str, Any]]:
    for number in (3, 5):
        picture(folder / f"val2017/{number:012d}.jpg")
    return [{"id": number, "file_name": f"{number:012d}.jpg"} for number in (5, 3)]


def test_coco_captions_are_gathered_by_photo(tmp_path: Path) -> None:
    notes = [
        {"id": 11, "image_id": 3, "caption": "Three."},
        {"id": 12, "image_id": 5, "caption": "Five."},
        {"id": 13, "image_id": 3, "caption": "Three again."},
    ]
    content = {"images": coco_photos(tmp_path), "annotations": notes}
    file = write(tmp_path / "annotations/captions_val2017.json", content)
    for images in (None, tmp_path / "val2017"):
        five, three = open_dataset(get("coco-val2017", tmp_path, file, images).folder).records
        assert (five.id, five.captions) == ("5", ("Five.",))
        assert (three.captions, three.caption_ids) == (("Three.", "Three again."), (11, 13))


def instances(folder: Path, count: int = 80) -> Path:
    """COCO's categories have gaps in their ids and come in no order."""
    content = {
        "images": coco_photos(folder),
        "categories": [{"id": 2 * n + 1, "name": f"thing {n}"} for n in reversed(range(count))],
        "annotations": [
            {"image_id": 3, "category_id": 5},
            {"image_id": 3, "category_id": 1},
            {"image_id": 3, "category_id": 5},
        ],
    }
    return write(folder / "instances_val2017.json", content)


def test_coco_objects_are_labels_in_the_order_of_the_category_ids(tmp_path: Path) -> None:
    fetched = get("coco-objects", tmp_path, instances(tmp_path), tmp_path / "val2017")
    dataset = open_dataset(fetched.folder)
    assert [record.labels for record in dataset.records] == [(), (0, 2)]
    assert dataset.classes["COCO"][2] == "thing 2"
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 2, "classes": 80, "without labels": 1}


def test_another_number_of_categories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="79 categories, but COCO objects, val2017 has 80"):
        get("coco-objects", tmp_path, instances(tmp_path, 79))


def voc(folder: Path) -> Path:
    base = folder / "VOCdevkit/VOC2007"
    things = {"000001": ["pottedplant", "dog", "dog"], "000002": ["tvmonitor"]}
    for name, shown in things.items():
        text = "".join(f"<object><name>{n}</name><difficult>1</difficult></object>" for n in shown)
        write(base / "Annotations" / f"{name}.xml", VOC_XML.format(name, text))
        picture(base / "JPEGImages" / f"{name}.jpg")
    write(base / "ImageSets/Main/test.txt", "000001\n")
    return base


@pytest.mark.parametrize("place", ["", "VOCdevkit", "VOCdevkit/VOC2007"])
def test_voc_labels_every_object_under_both_spellings(tmp_path: Path, place: str) -> None:
    voc(tmp_path)
    dataset = open_dataset(get("voc2007", tmp_path, tmp_path / place).folder)
    (record,) = dataset.records
    assert [dataset.classes["spaced"][n] for n in record.labels or ()] == ["dog", "potted plant"]
    assert list(dataset.classes) == ["spaced", "raw tokens"]
    assert dataset.classes["raw tokens"][19] == "tvmonitor"


def test_all_annotations_of_voc_are_taken_where_that_is_asked(tmp_path: Path) -> None:
    dataset = open_dataset(get("voc2007-all", tmp_path, voc(tmp_path)).folder)
    assert [record.id for record in dataset.records] == ["000001", "000002"]


def test_a_broken_annotation_of_voc_is_named(tmp_path: Path) -> None:
    base = voc(tmp_path)
    write(base / "Annotations/000001.xml", "<annotation>\n<object>")
    with pytest.raises(DataError, match=r"000001\.xml:2: not XML"):
        get("voc2007", tmp_path, base)
    text = "<object><name>unicorn</name></object>"
    write(base / "Annotations/000001.xml", VOC_XML.format("000001", text))
    with pytest.raises(DataError, match="'unicorn' is not one of VOC's 20 classes"):
        get("voc2007", tmp_path, base)
    with pytest.raises(DataError, match="no folder Annotations"):
        get("voc2007", tmp_path, base / "JPEGImages")


@pytest.mark.parametrize("images", ["coco", "coco/val2014"])
def test_chains_find_their_pictures_by_the_name_in_the_address(tmp_path: Path, images: str) -> None:
    row = '0,"thing, => animal => dog","http://images.cocodataset.org/val2014/a_7.jpg"\n'
    file = write(tmp_path / "hierarcaps_test.csv", CSV + row)
    picture(tmp_path / "coco/val2014/a_7.jpg")
    fetched = get("hierarcaps", tmp_path, file, tmp_path / images)
    (record,) = open_dataset(fetched.folder).records
    assert (record.id, record.levels) == ("0", ("thing,", "animal", "dog"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,captions\n0,a => b\n", "no column 'image_url'"),
        (
            CSV + "0,a => b,http://x/a.jpg\n1,alone,http://x/b.jpg\n",
            "csv:3: 'alone' is not a chain",
        ),
        (CSV + "0,a => b\n", "csv:2: nothing in column 'image_url'"),
        (CSV + '0,"a => b,http://x/a.jpg\n', "csv:2: not CSV"),
        (CSV, "holds no records"),
    ],
)
def test_a_wrong_table_of_chains_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "hierarcaps_test.csv", text)
    picture(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=message):
        get("hierarcaps", tmp_path, file, tmp_path)


def sugarcrepe(folder: Path) -> Path:
    adds, replaces = ("add_att", "add_obj"), ("replace_att", "replace_obj", "replace_rel")
    for kind in (*adds, *replaces, "swap_att", "swap_obj"):
        pair = {"filename": "000000000003.jpg", "caption": "Right.", "negative_caption": "Wrong."}
        write(folder / f"{kind}.json", {"0": pair, "4": pair})
    coco_photos(folder)
    return folder


def test_sugarcrepe_pairs_are_told_apart_by_kind(tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path / "data")
    for source in (tmp_path, folder):
        fetched = get("sugarcrepe", tmp_path, source, folder / "val2017")
        records = open_dataset(fetched.folder).records
        assert [r.id for r in records[:3]] == ["add_att/0", "add_att/4", "add_obj/0"]
        assert (records[0].positive, records[0].negative) == ("Right.", "Wrong.")
        assert fetched.manifest
        assert fetched.manifest.counts["swap_obj"] == 2


def test_a_missing_file_or_key_of_sugarcrepe_is_named(tmp_path: Path) -> None:
    folder = sugarcrepe(tmp_path)
    write(folder / "swap_obj.json", {"0": {"filename": "000000000003.jpg", "caption": "Right."}})
    with pytest.raises(DataError, match=r"swap_obj\.json: 0: no 'negative_caption'"):
        get("sugarcrepe", tmp_path, folder)
    (folder / "swap_obj.json").unlink()
    with pytest.raises(DataError, match=r"no swap_obj\.json"):
        get("sugarcrepe", tmp_path, folder)
