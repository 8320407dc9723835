"""Official archives, laid out in little as their authors do, against torchvision's readers."""

import importlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets as tv
from PIL import Image

from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.catalogue import Archive, catalogue
from trainer.fetch.listed import LAYOUTS
from trainer.fetch.run import Fetched, Request, fetch, fetch_entry


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(stream, "JPEG")
    return stream.getvalue()


JPEG = _jpeg()


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(JPEG)
    return path


def lines(path: Path, *text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in text))


def get(name: str, source: Path, tmp_path: Path, **more: Any) -> Fetched:
    return fetch(name, Request(source, root=tmp_path / "eval", **more), silent)


def opened(fetched: Fetched) -> tuple[list[str], list[int], list[int]]:
    """The pictures of the test in the order of their names, their labels, and those to train on."""
    dataset = open_dataset(fetched.folder)
    train = dataset.train.labels().tolist() if dataset.train else []
    labelled = zip(dataset.records, dataset.labels().tolist(), strict=True)
    named = sorted((str(record.image), label) for record, label in labelled)
    return [name for name, _ in named], [label for _, label in named], train


def same_as_torchvision(fetched: Fetched, peer: Any) -> None:
    """Same pictures, classes and labels as torchvision reads from the same files."""
    pictures, labels, _ = opened(fetched)
    there = peer._image_files if hasattr(peer, "_image_files") else peer._images
    theirs = dict(zip(map(str, there), peer._labels, strict=True))
    assert dict(zip(pictures, labels, strict=True)) == theirs
    assert fetched.manifest
    names = fetched.manifest.classes["data set"]
    assert names == tuple(name.replace("_", " ").replace("/", " ") for name in peer.classes)


def food101(root: Path) -> None:
    for split, number in (("test", 1), ("train", 2)):
        names = [f"dish_{label:03d}" for label in range(101)]
        listed = {name: [f"{name}/{number}"] for name in names}
        lines(root / "food-101/meta" / f"{split}.json", json.dumps(listed))
        for name in names:
            picture(root / "food-101/images" / name / f"{number}.jpg")


def aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b/data"
    names = ["F/A-18", "737-300", *(f"Plane {label}" for label in range(98))]
    lines(data / "variants.txt", *names)
    for split, first in (("test", 0), ("trainval", 500)):
        numbered = [(f"{first + label:07d}", name) for label, name in enumerate(names)]
        lines(data / f"images_variant_{split}.txt", *(f"{n} {name}" for n, name in numbered))
        for number, _ in numbered:
            picture(data / "images" / f"{number}.jpg")


def pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    for split, first in (("test", 1), ("trainval", 50)):
        names = [f"great_dog{label:02d}_{first + label}" for label in range(37)]
        rows = [f"{name} {label + 1} 1 1" for label, name in enumerate(names)]
        lines(base / "annotations" / f"{split}.txt", *rows)
        for name in names:
            picture(base / "images" / f"{name}.jpg")


def dtd(root: Path) -> None:
    base = root / "dtd/dtd"
    for split in ("test", "train", "val"):
        names = [f"texture{label:02d}" for label in range(47)]
        named = [f"{name}/{name}_{split}.jpg" for name in names]
        lines(base / "labels" / f"{split}1.txt", *named)
        for name in named:
            picture(base / "images" / name)


def sun397(root: Path) -> None:
    base = root / "SUN397"
    names = [f"/a/place{label:03d}" for label in range(396)] + ["/a/apartment_building/outdoor"]
    lines(base / "ClassName.txt", *names)
    lines(base / "Partitions/Testing_01.txt", *(f"{name}/sun_a.jpg" for name in names))
    lines(base / "Partitions/Training_01.txt", f"{names[3]}/sun_b.jpg")
    for name in names:
        picture(base / name.strip("/") / "sun_a.jpg")


@pytest.mark.parametrize(
    ("make", "peer", "train"),
    [
        (food101, lambda root: tv.Food101(root, "test"), 101),
        (aircraft, lambda root: tv.FGVCAircraft(root, "test"), 100),
        (pets, lambda root: tv.OxfordIIITPet(root, "test"), 37),
        (dtd, lambda root: tv.DTD(root, "test"), 94),
        (sun397, tv.SUN397, 1),
    ],
    ids=["food101", "aircraft", "pets", "dtd", "sun397"],
)
def test_an_official_archive_is_read_as_torchvision_reads_it(
    tmp_path: Path, make: Any, peer: Any, train: int
) -> None:
    name, root = make.__name__, tmp_path / "raw"
    make(root)
    theirs = peer(root)  # before there is a picture of SUN397 that its test does not hold
    picture(root / "SUN397/a/place003/sun_b.jpg")
    fetched = get(name, root, tmp_path)
    same_as_torchvision(fetched, theirs)
    assert len(opened(fetched)[2]) == train
    assert fetched.manifest
    assert fetched.manifest.prompts == name


def test_the_folder_of_an_archive_itself_may_be_named(tmp_path: Path) -> None:
    food101(tmp_path / "raw")
    for source in (tmp_path / "raw/food-101", tmp_path / "raw/food-101/images"):
        assert get("food101", source, tmp_path, force=True).manifest.counts["test"] == 101  # type: ignore[union-attr]


def test_birds_are_split_by_their_own_list(tmp_path: Path) -> None:
    base = tmp_path / "CUB_200_2011"
    numbers = range(1, 201)
    lines(base / "classes.txt", *(f"{n} {n:03d}.Black_footed_Bird{n}" for n in numbers))
    names = {2 * n - odd: f"{n:03d}.Bird/b_{odd}.jpg" for n in numbers for odd in (0, 1)}
    lines(base / "images.txt", *(f"{key} {name}" for key, name in names.items()))
    lines(base / "image_class_labels.txt", *(f"{key} {(key + 1) // 2}" for key in names))
    lines(base / "train_test_split.txt", *(f"{key} {key % 2}" for key in names))
    for name in names.values():
        picture(base / "images" / name)
    fetched = get("cub2011", base / "images", tmp_path)
    pictures, labels, train = opened(fetched)
    assert labels == train == list(range(200))
    assert all(name.endswith("_0.jpg") for name in pictures)
    assert fetched.manifest
    assert fetched.manifest.classes["data set"][0] == "Black footed Bird1"


def test_matlab_lists_are_read_with_scipy_or_ask_for_it(tmp_path: Path) -> None:
    base = tmp_path / "raw/flowers-102"
    picture(base / "jpg/image_00001.jpg")
    try:
        scipy_io = importlib.import_module("scipy.io")
    except ModuleNotFoundError:
        (base / "imagelabels.mat").touch()
        with pytest.raises(ConfigError, match="pip install scipy"):
            get("flowers102", tmp_path / "raw", tmp_path)
        return
    scipy_io.savemat(base / "imagelabels.mat", {"labels": np.array([[77, 1, 2]])})
    splits = {"tstid": [[1, 3]], "trnid": [[2, 2]], "valid": [[3, 3]]}
    scipy_io.savemat(base / "setid.mat", splits)
    for number in (2, 3):
        picture(base / f"jpg/image_{number:05d}.jpg")
    fetched = get("flowers102", tmp_path / "raw", tmp_path)
    assert opened(fetched)[1:] == ([76, 1], [0, 0, 1, 1])
    assert fetched.manifest
    assert fetched.manifest.classes["data set"][76] == "passion flower"


def test_cars_are_read_from_the_devkit(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    base = tmp_path / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    names = np.array([f"Car {label} 2012" for label in range(196)], object)
    scipy_io.savemat(base / "devkit/cars_meta.mat", {"class_names": names})
    kind = [("class", object), ("fname", object)]
    for file, folder in (
        ("cars_test_annos_withlabels", "cars_test"),
        ("devkit/cars_train_annos", "cars_train"),
    ):
        rows = np.array([(7, "00001.jpg"), (196, "00002.jpg")], kind)
        scipy_io.savemat(base / f"{file}.mat", {"annotations": rows})
        for number in (1, 2):
            picture(base / folder / f"{number:05d}.jpg")
    fetched = get("cars", base, tmp_path)
    assert opened(fetched)[1:] == ([6, 195], [6, 195])
    same = tv.StanfordCars(tmp_path, "test")
    assert [label for _, label in same._samples] == [6, 195]


def test_a_list_with_too_few_classes_is_refused_with_both_numbers(tmp_path: Path) -> None:
    food101(tmp_path)
    file = tmp_path / "food-101/meta/test.json"
    listed = json.loads(file.read_text())
    lines(file, json.dumps(dict(list(listed.items())[:100])))
    with pytest.raises(DataError, match=r"lists 100 classes, but Food-101 has 101"):
        get("food101", tmp_path, tmp_path)


def test_the_partitions_of_sun397_must_be_there(tmp_path: Path) -> None:
    sun397(tmp_path)
    for file in (tmp_path / "SUN397/Partitions").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"Partitions\.zip"):
        get("sun397", tmp_path, tmp_path)


def test_every_layout_belongs_to_a_known_data_set() -> None:
    assert LAYOUTS.keys() <= catalogue().keys()


def test_pictures_of_an_archive_stay_where_they_were_unpacked(tmp_path: Path, server: str) -> None:
    food101(tmp_path / "raw")
    file = tmp_path / "www" / "food-101.tar"
    with tarfile.open(file, "w") as tar:
        tar.add(tmp_path / "raw/food-101", "food-101")
    archive = Archive(url=f"{server}/{file.name}")
    entry = catalogue()["food101"].model_copy(update={"archives": (archive,)})
    fetched = fetch_entry("food101", entry, Request(root=tmp_path / "eval"), silent)
    assert fetched.manifest
    assert fetched.manifest.images == "../downloads/food101/food-101/images"
    (tmp_path / "eval").rename(tmp_path / "moved")  # paths within it are relative
    dataset = open_dataset(tmp_path / "moved/food101")
    assert all(record.image.is_file() for record in dataset.records)
