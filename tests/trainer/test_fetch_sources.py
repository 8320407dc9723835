"""What people name with `--from`: the wrong folder, files that changed, and files with faults."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.run import Fetched, Request, fetch


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(stream, "JPEG")
    return stream.getvalue()


JPEG = _jpeg()
HEADER = "id,captions,image_url\n"
CHAIN = '0,"animal => dog",http://x/val2014/a.jpg\n'


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def pictures(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(JPEG)
    return folder


def write(file: Path, content: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def get(name: str, source: Path, tmp_path: Path, images: Path | None = None) -> Fetched:
    return fetch(name, Request(source, images, tmp_path / "eval"), silent)


def cifar10(base: Path, label: int = 0) -> Path:
    """The binary archive with a picture a file; the test's has ``label``."""
    write(base / "batches.meta.txt", "".join(f"thing {number}\n" for number in range(10)))
    pixels = bytes(3072)
    for number in range(1, 6):
        write(base / f"data_batch_{number}.bin", b"\0" + pixels)
    write(base / "test_batch.bin", bytes([label]) + pixels)
    return base


def food101(base: Path) -> Path:
    names = [f"dish_{number:03d}" for number in range(101)]
    for split in ("test", "train"):
        write(base / f"meta/{split}.json", json.dumps({name: [f"{name}/1"] for name in names}))
    pictures(base / "images", *(f"{name}/1.jpg" for name in names))
    return base


def test_an_archive_beside_the_folder_that_was_named_is_left_alone(tmp_path: Path) -> None:
    cifar10(tmp_path / "f/cifar-10-batches-bin")
    (tmp_path / "f/cifar-10-batches-py").mkdir()
    own = pictures(tmp_path / "f/own", *(f"{number}/a.jpg" for number in range(10)))
    fetched = get("cifar10", own, tmp_path)
    assert fetched.manifest
    assert fetched.manifest.source == str(own)
    assert {record.image.name for record in open_dataset(fetched.folder).records} == {"a.jpg"}
    base = food101(tmp_path / "food-101")
    with pytest.raises(DataError, match="holds neither the files of Food-101"):
        get("food101", base / "meta", tmp_path)


def test_the_folder_of_an_archives_pictures_stands_for_the_archive(tmp_path: Path) -> None:
    base = food101(tmp_path / "food-101")
    fetched = get("food101", base / "images", tmp_path)
    assert fetched.manifest
    assert fetched.manifest.source == str(base)
    assert fetched.manifest.counts["train"] == 101
    assert not get("food101", base / "images", tmp_path).is_new
    assert not get("food101", base, tmp_path).is_new


def test_a_name_that_is_nearly_a_known_one_is_pointed_out(tmp_path: Path) -> None:
    own = pictures(tmp_path / "own", "a/1.jpg", "b/1.jpg")
    assert "did you mean cifar10" in get("cifar-10", own, tmp_path).remarks[0]
    assert "did you mean food101" in get("Food_101", own, tmp_path).remarks[0]
    assert get("my-birds", own, tmp_path).remarks == ()
    with pytest.raises(ConfigError, match="did you mean cifar100 or cifar10"):
        fetch("cifar-100", Request(root=tmp_path), silent)


def test_a_mark_before_the_text_is_no_part_of_it(tmp_path: Path) -> None:
    images = pictures(tmp_path / "val2014", "a.jpg")
    table = write(tmp_path / "hierarcaps_test.csv", b"\xef\xbb\xbf" + (HEADER + CHAIN).encode())
    (record,) = open_dataset(get("hierarcaps", table, tmp_path, images).folder).records
    assert record.id == "0"
    photo = {"filename": "a.jpg", "split": "test", "sentences": [{"raw": "A.", "sentid": 1}]}
    content = json.dumps({"images": [photo]}).encode()
    file = write(tmp_path / "dataset_flickr30k.json", b"\xef\xbb\xbf" + content)
    (record,) = open_dataset(get("flickr30k", file, tmp_path, images).folder).records
    assert record.captions == ("A.",)


@pytest.mark.parametrize(
    ("name", "file"),
    [("hierarcaps", "hierarcaps_test.csv"), ("flickr30k", "dataset_flickr30k.json")],
)
def test_what_is_not_utf8_names_its_line(tmp_path: Path, name: str, file: str) -> None:
    given = write(tmp_path / file, HEADER.encode() + CHAIN.encode() + b"1,caf\xe9 => dog,x\n")
    with pytest.raises(DataError, match=rf"{file}:3: not UTF-8 text"):
        get(name, given, tmp_path)


def test_a_missing_picture_is_named_where_it_is_looked_for(tmp_path: Path) -> None:
    table = write(tmp_path / "hierarcaps_test.csv", HEADER + CHAIN)
    images = tmp_path / "coco/val2014"
    images.mkdir(parents=True)
    for given in (images, images.parent):
        with pytest.raises(DataError, match=r"1 of 1 .*\(\S+/coco/val2014/a\.jpg\)"):
            get("hierarcaps", table, tmp_path, given)


def test_a_label_that_is_no_class_names_the_file_it_is_in(tmp_path: Path) -> None:
    base = cifar10(tmp_path / "cifar-10-batches-bin", label=77)
    said = r"cifar-10-batches-bin/test_batch\.bin: picture 1 has label 77, .* 0 to 9"
    with pytest.raises(DataError, match=said):
        get("cifar10", base, tmp_path)
    base = tmp_path / "stl10_binary"
    write(base / "class_names.txt", "".join(f"thing{number}\n" for number in range(10)))
    for split in ("test", "train"):
        write(base / f"{split}_X.bin", np.zeros(3 * 96 * 96, np.uint8).tobytes())
        write(base / f"{split}_y.bin", bytes([0]))
    with pytest.raises(DataError, match=r"test_y\.bin: picture 1 has label 0, .* 1 to 10"):
        get("stl10", base, tmp_path)
    base = tmp_path / "pets"
    lines = [f"breed_{number}_1 {number}\n" for number in (*range(1, 37), 99)]
    for split in ("test", "trainval"):
        write(base / f"annotations/{split}.txt", "".join(lines))
    pictures(base / "images", *(f"{line.split()[0]}.jpg" for line in lines))
    with pytest.raises(DataError, match=r"pets: \S+breed_99_1\.jpg has label 98, but .* 37"):
        get("pets", base, tmp_path)


def test_a_class_without_pictures_is_named(tmp_path: Path) -> None:
    own = pictures(tmp_path / "own", *(f"{name}/1.jpg" for name in "abcde"))
    write(own / "f/notes.txt", "to be taken")
    with pytest.raises(DataError, match="own: no pictures in f;"):
        get("own", own, tmp_path)


def sugarcrepe(folder: Path) -> Path:
    pair = {"filename": "3.jpg", "caption": "Right.", "negative_caption": "Wrong."}
    for kind in ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att",
                 "swap_obj"):  # fmt: skip
        write(folder / f"{kind}.json", json.dumps({"0": pair}))
    pictures(folder, "val2017/3.jpg")
    return folder


def test_a_part_of_sugarcrepe_is_told_from_the_whole(tmp_path: Path) -> None:
    fetched = get("sugarcrepe", sugarcrepe(tmp_path / "data"), tmp_path)
    assert "SugarCrepe has 7,512 records, and here are 7" in fetched.remarks[0]


def test_a_source_that_changed_where_it_is_is_fetched_anew(tmp_path: Path) -> None:
    images = pictures(tmp_path / "val2014", "a.jpg", "b.jpg")
    table = write(tmp_path / "hierarcaps_test.csv", HEADER + CHAIN)
    assert get("hierarcaps", table, tmp_path, images).is_new
    assert not get("hierarcaps", table, tmp_path, images).is_new
    write(table, HEADER + CHAIN + '1,"animal => cat",http://x/b.jpg\n')
    again: Any = get("hierarcaps", table, tmp_path, images)
    assert (again.is_new, again.manifest.counts["test"]) == (True, 2)
    folder = sugarcrepe(tmp_path)  # the folder of what is fetched lies in that of the source
    assert get("sugarcrepe", folder, tmp_path).is_new
    assert not get("sugarcrepe", folder, tmp_path).is_new
    own = pictures(tmp_path / "own", "a/1.jpg", "b/1.jpg")
    assert get("own", own, tmp_path).is_new
    pictures(own, "b/2.jpg")
    assert get("own", own, tmp_path).is_new
    assert not get("own", own, tmp_path).is_new
