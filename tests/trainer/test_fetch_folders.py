"""Folders per class: which folder is which class, what they are called, and who is tested."""

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import DataError
from core.evaluation.dataset import open_dataset
from trainer.fetch.catalogue import TREE, Archive, Entry, catalogue
from trainer.fetch.class_names import same_name, tidy, variants
from trainer.fetch.folder import add_tree
from trainer.fetch.image_folder import FOLDERS
from trainer.fetch.run import Fetched, Request, fetch, fetch_entry, with_tree


def _jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(stream, "JPEG")
    return stream.getvalue()


JPEG = _jpeg()


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def pictures(folder: Path, names: list[str], count: int = 1) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number}.jpg").write_bytes(JPEG)
    return folder


def get(name: str, source: Path | None, tmp_path: Path, **more: Any) -> Fetched:
    return fetch(name, Request(source, root=tmp_path / "eval", **more), silent)


def official_folders(name: str) -> list[str]:
    return FOLDERS[name].split()


def folders_of(fetched: Fetched) -> list[str]:
    """The folder that each label's pictures lie in, in the order of the labels."""
    dataset = open_dataset(fetched.folder)
    labelled = zip(dataset.labels().tolist(), dataset.records, strict=True)
    named = {(label, record.image.parent.name) for label, record in labelled}
    assert [label for label, _ in sorted(named)] == list(range(len(named)))
    return [name for _, name in sorted(named)]


def classes_of(fetched: Fetched, variant: str = "data set") -> tuple[str, ...]:
    assert fetched.manifest
    return fetched.manifest.classes[variant]


def test_its_own_splits_are_taken(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        pictures(tmp_path / "own" / split, ["a", "b"], count)
    fetched = get("own", tmp_path / "own", tmp_path)
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 2, "train": 10, "classes": 2}
    assert fetched.manifest.split == "folder test"
    dataset = open_dataset(fetched.folder)
    assert dataset.train
    assert sorted(dataset.train.labels().tolist()) == [0] * 5 + [1] * 5


def test_the_validation_pictures_are_tested_where_there_is_no_test(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("val", 2)):
        pictures(tmp_path / "own" / split, ["a", "b"], count)
    fetched = get("own", tmp_path / "own", tmp_path)
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 4, "train": 6, "classes": 2}


def test_links_to_pictures_elsewhere_are_followed(tmp_path: Path) -> None:
    store = pictures(tmp_path / "store", ["x"], count=2)
    for name in ("a", "b"):
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / "0.jpg").symlink_to(store / "x" / f"{'ab'.index(name)}.jpg")
    dataset = open_dataset(get("own", tmp_path / "own", tmp_path).folder)
    assert [record.image.parent.name for record in dataset.records] == ["x", "x"]


def test_numbered_folders_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    source = pictures(tmp_path / "flowers", [str(number) for number in range(1, 103)])
    fetched = get("flowers102", source, tmp_path)
    assert folders_of(fetched) == [str(number) for number in range(1, 103)]
    assert classes_of(fetched)[:2] == ("pink primrose", "hard-leaved pocket orchid")


def test_named_folders_are_matched_however_they_are_spelt(tmp_path: Path) -> None:
    from torchvision.datasets import Flowers102  # noqa: PLC0415 - loads torch

    names = [name.title().replace(" ", "_") for name in Flowers102.classes]
    assert folders_of(get("flowers102", pictures(tmp_path / "f", names), tmp_path)) == names


def test_folders_that_do_not_fit_are_named_on_both_sides(tmp_path: Path) -> None:
    names = official_folders("eurosat")
    source = pictures(tmp_path / "e", ["Woods" if name == "Forest" else name for name in names])
    with pytest.raises(DataError, match=r"without a folder: Forest; without a class: Woods"):
        get("eurosat", source, tmp_path)


def test_a_number_of_folders_that_does_not_fit_is_told(tmp_path: Path) -> None:
    source = pictures(tmp_path / "birds", ["001.Crow", "002.Owl"])
    with pytest.raises(DataError, match=r"2 folders .*001\.Crow, 002\.Owl.* has 200 classes"):
        get("cub2011", source, tmp_path)


def test_bird_folders_lose_their_numbers(tmp_path: Path) -> None:
    source = pictures(tmp_path / "b", [f"{n:03d}.Black_footed_Bird{n}" for n in range(1, 201)])
    assert classes_of(get("cub2011", source, tmp_path))[1] == "Black footed Bird2"


def test_eurosat_is_split_by_hash_into_parts_of_27(tmp_path: Path) -> None:
    source = pictures(tmp_path / "eurosat/2750", official_folders("eurosat"), count=27)
    fetched = get("eurosat", tmp_path, tmp_path)
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 50, "train": 100, "classes": 10}
    dataset = open_dataset(fetched.folder)
    assert dataset.train
    assert not {r.image for r in dataset.records} & {r.image for r in dataset.train.records}
    moved = source.rename(tmp_path / "elsewhere")  # the split is of names below the folder alone
    again = open_dataset(get("eurosat", moved, tmp_path).folder)
    assert [r.image.name for r in again.records] == [r.image.name for r in dataset.records]


def test_caltech101_keeps_thirty_of_a_class_to_train_on(tmp_path: Path) -> None:
    names = official_folders("caltech101")
    pictures(tmp_path / "caltech-101/101_ObjectCategories", names, count=31)
    fetched = get("caltech101", tmp_path, tmp_path)
    dataset = open_dataset(fetched.folder)
    assert folders_of(fetched) == names
    assert len(dataset.records) == 102
    assert dataset.train
    assert len(dataset.train.records) == 30 * 102
    assert len(names) == 102


def test_resisc45_as_somebody_split_it_says_so(tmp_path: Path) -> None:
    names = [f"place_{number:02d}" for number in range(45)]
    fetched = get("resisc45", pictures(tmp_path / "all", names, count=5), tmp_path)
    assert fetched.manifest
    assert fetched.manifest.counts == {"test": 180, "train": 45, "classes": 45}
    assert fetched.manifest.split == "80% by hash"
    pictures(tmp_path / "mine/test", names)
    fetched = get("resisc45", tmp_path / "mine", tmp_path)
    assert fetched.manifest
    assert fetched.manifest.split == "folder test"
    assert "as given: folder test" in fetched.manifest.notes


def test_countries_are_in_the_order_of_their_codes(tmp_path: Path) -> None:
    letters = "ABCDEFGHIJKLMNO"
    codes = sorted(a + b for a in letters for b in letters)[:211]
    for split in ("test", "train", "valid"):
        pictures(tmp_path / "country211" / split, codes)
    fetched = get("country211", tmp_path, tmp_path)
    assert folders_of(fetched) == codes
    assert fetched.manifest
    assert fetched.manifest.counts["train"] == 422
    assert classes_of(fetched) == tuple(codes)


def wnids() -> list[str]:
    from timm.data.imagenet_info import ImageNetInfo  # noqa: PLC0415 - loads torch

    known: Any = ImageNetInfo()
    return sorted(known.label_names())


def imagenet(source: Path, tmp_path: Path, *, force: bool = False) -> Fetched:
    """ImageNet alone, as `fetch` makes it before it looks for the tree."""
    request = Request(source, root=tmp_path / "eval", force=force)
    return fetch_entry("imagenet", catalogue()["imagenet"], request, silent)


def test_imagenet_has_both_lists_of_names_and_its_nodes(tmp_path: Path) -> None:
    nodes = wnids()
    fetched = imagenet(pictures(tmp_path / "in/val", nodes), tmp_path)
    assert fetched.manifest
    assert list(fetched.manifest.classes) == ["open_clip", "torchvision"]
    assert "362 of 1,000 names differ" in fetched.manifest.notes
    assert fetched.manifest.nodes == tuple(nodes)
    assert folders_of(fetched) == nodes


def tree_at(url: str) -> Entry:
    return catalogue()[TREE].model_copy(update={"archives": (Archive(url=url),)})


def test_imagenet_gets_the_tree_over_its_classes(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pictures(tmp_path / "val", wnids())
    file = tmp_path / "www" / "imagenet_isa.txt"
    tree = tree_at(f"{server}/{file.name}")
    file.write_text("animal n01440764\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr("trainer.fetch.tree.TREE_SHA256", digest)
    fetched = with_tree(imagenet(source, tmp_path), tree, silent)
    assert open_dataset(fetched.folder).tree
    assert fetched.manifest
    assert fetched.manifest.tree
    file.unlink()  # the next time it is below --root
    again = imagenet(source, tmp_path, force=True)
    assert open_dataset(again.folder).tree is None
    assert with_tree(again, tree, silent).remarks == again.remarks
    assert open_dataset(again.folder).tree


def test_imagenet_without_a_tree_says_what_cannot_be_measured(tmp_path: Path, server: str) -> None:
    fetched = imagenet(pictures(tmp_path / "val", wnids()), tmp_path)
    fetched = with_tree(fetched, tree_at(f"{server}/none.txt"), silent)
    assert fetched.is_new
    assert open_dataset(fetched.folder).tree is None
    said = r"TIE, LCA and Jaccard .* `hyper3 data fetch imagenet-tree --from FILE`"
    assert any(re.search(said, remark) for remark in fetched.remarks)


def test_a_tree_that_comes_later_is_added(tmp_path: Path) -> None:
    source = pictures(tmp_path / "val", wnids())
    fetched = imagenet(source, tmp_path)
    assert add_tree(fetched.folder, b"animal n01440764\n")
    assert not add_tree(fetched.folder, b"animal n01440764\n")
    dataset = open_dataset(fetched.folder)
    assert dataset.tree
    assert dataset.tree.read_text() == "animal n01440764\n"
    assert not imagenet(source, tmp_path).is_new


def test_imagenet_in_one_folder_or_with_a_strange_wnid_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat/ILSVRC2012_val_00000001.JPEG").write_bytes(JPEG)
    with pytest.raises(DataError, match="nor a folder per class"):
        get("imagenet", tmp_path / "flat", tmp_path)
    source = pictures(tmp_path / "val", [*wnids()[1:], "n99999999"])
    with pytest.raises(DataError, match=r"folder: n01440764; not a wnid of ImageNet-1k: n99999999"):
        get("imagenet", source, tmp_path)


def test_names_are_read_out_of_folder_names() -> None:
    assert tidy("001.Black_footed_Albatross") == "Black footed Albatross"
    assert tidy("apartment_building/outdoor") == "apartment building outdoor"
    assert tidy("707-320") == "707-320"
    assert same_name("Colt's_Foot") == same_name("colt's foot")


def test_published_names_come_first_where_the_package_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [f"class {number}" for number in range(10)]
    lacking = variants("eurosat", own, "here")
    if "clip-benchmark" not in lacking.names:
        assert "pip install --no-deps clip-benchmark" in lacking.warnings[0]
    published = ["class 0", *(f"published {number}" for number in range(1, 10))]
    package = tmp_path / "clip_benchmark"
    (package / "datasets").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "datasets/en_classnames.json").write_text(json.dumps({"eurosat": published}))
    monkeypatch.syspath_prepend(tmp_path)
    found = variants("eurosat", own, "here")
    assert list(found.names) == ["clip-benchmark", "data set"]
    assert found.names["clip-benchmark"] == tuple(published)
    assert found.notes == ("9 of 10 names differ between the two variants.",)
    assert list(variants("eurosat", published, "here").names) == ["data set"]
