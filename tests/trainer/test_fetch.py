"""The command, and how a prepared folder is written: whole, once, over nobody's files."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from core.cli import build_app
from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.manifest import MANIFEST
from trainer.fetch.catalogue import catalogue, command
from trainer.fetch.run import Fetched, Request, fetch
from trainer.fetch.tree import TREE_SHA256

DOCS = Path(__file__).parents[2] / "docs" / "data-sets.md"


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


def test_a_folder_per_class_is_a_data_set_of_ones_own(tmp_path: Path) -> None:
    source = pictures(tmp_path / "pets", ["tabby_cat", "dog"], count=2)
    fetched = get("my-pets", source, tmp_path)
    dataset = open_dataset(fetched.folder)
    assert classes_of(fetched) == ("dog", "tabby cat")
    assert folders_of(fetched) == ["dog", "tabby_cat"]
    assert source / "tabby_cat/1.jpg" in {record.image for record in dataset.records}
    assert dataset.train is None
    assert fetched.manifest
    assert fetched.manifest.images == str(source)  # used where they are, never copied
    assert {file.name for file in fetched.folder.iterdir()} == {"test.jsonl", MANIFEST}


def test_the_digest_is_the_same_wherever_the_pictures_lie(tmp_path: Path) -> None:
    pictures(tmp_path / "here/own", ["a", "b"])
    pictures(tmp_path / "there/mine", ["a", "b"])
    first = open_dataset(get("own", tmp_path / "here/own", tmp_path).folder)
    second = open_dataset(get("own", tmp_path / "there/mine", tmp_path).folder)
    assert first.images != second.images
    assert first.digest == second.digest


def test_the_first_records_are_of_many_classes(tmp_path: Path) -> None:
    fetched = get("own", pictures(tmp_path / "own", list("abcdefgh"), count=20), tmp_path)
    first = open_dataset(fetched.folder, limit=20)
    assert len({*first.labels().tolist()}) >= 6


def test_another_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("a b\n")
    with pytest.raises(DataError, match=TREE_SHA256[:12]):
        get("imagenet-tree", tmp_path / "tree.txt", tmp_path)


def test_a_second_fetch_finds_it_up_to_date(tmp_path: Path) -> None:
    source = pictures(tmp_path / "own", ["a", "b"])
    first = get("own", source, tmp_path)
    assert first.is_new
    assert not get("own", source, tmp_path).is_new
    assert not get("own", None, tmp_path).is_new
    with pytest.raises(ConfigError, match="hyper3 data fetch own --from FOLDER"):
        get("own", None, tmp_path, force=True)


def test_what_was_altered_moved_or_asked_for_is_made_again(tmp_path: Path) -> None:
    source = pictures(tmp_path / "own", ["a", "b"])
    folder = get("own", source, tmp_path).folder
    assert get("own", source, tmp_path, force=True).is_new
    (folder / "test.jsonl").write_text('{"image": "a/0.jpg", "label": 0}\n')
    assert get("own", source, tmp_path).is_new
    moved = source.rename(tmp_path / "moved")
    assert get("own", moved, tmp_path).is_new
    assert len(open_dataset(folder).records) == 2


def test_a_fetch_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    source = pictures(tmp_path / "own", ["a", "b"])
    folder = get("own", source, tmp_path).folder
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(DataError, match="nor a folder per class"):
        get("own", pictures(tmp_path / "empty", ["a"], count=0), tmp_path)
    assert (folder / MANIFEST).read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["own"]


def test_a_folder_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "eval/own").mkdir(parents=True)
    (tmp_path / "eval/own/thesis.txt").write_text("precious")
    with pytest.raises(DataError, match="was not written by this command"):
        get("own", pictures(tmp_path / "raw", ["a"]), tmp_path)
    assert (tmp_path / "eval/own/thesis.txt").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    source = pictures(tmp_path / "own", ["a", "b"])
    source.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        get("own", source, tmp_path)


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("cifr10", Request(), "did you mean cifar10"),
        ("imagenet", Request(), "hyper3 data fetch imagenet --from VAL_FOLDER"),
        ("cifar10", Request(Path("/"), Path("/")), "drop --images"),
        ("../out", Request(Path("/")), "letters, digits, - and _"),
    ],
)
def test_a_request_that_cannot_be_met_says_what_to_type(
    tmp_path: Path, name: str, request_: Request, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fetch(name, Request(request_.source, request_.images, tmp_path), silent)


def test_a_path_that_is_not_there_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder; --from takes food-101"):
        get("food101", tmp_path / "none", tmp_path)


def test_an_archive_in_place_of_a_folder_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "food-101.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match="unpack it first"):
        get("food101", tmp_path / "food-101.tar.gz", tmp_path)


def test_the_command_makes_a_folder_and_then_finds_it(tmp_path: Path) -> None:
    source = pictures(tmp_path / "own", ["a", "b"])
    arguments = ["data", "fetch", "own", "--from", str(source), "--root", str(tmp_path / "eval")]
    first, second = (CliRunner().invoke(build_app(), arguments) for _ in range(2))
    assert "2 test, 2 classes" in first.output
    assert "own is up to date." in second.output


def test_the_list_says_what_is_there(tmp_path: Path) -> None:
    get("own", pictures(tmp_path / "raw", ["a"]), tmp_path)
    (tmp_path / "eval/own").rename(tmp_path / "eval/cifar10")
    arguments = ["data", "fetch", "--list", "--root", str(tmp_path / "eval")]
    output = CliRunner().invoke(build_app(), arguments).output
    (row,) = [line for line in output.splitlines() if line.strip().startswith("cifar10 ")]
    assert row.split()[:3] == ["cifar10", "classification", "1"]
    assert all(name in output for name in catalogue())


def test_every_data_set_is_in_the_documentation_with_its_command() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `"): line for line in text.splitlines() if "|" in line}
    for name, entry in catalogue().items():
        assert entry.needs in rows[name], name
        assert not entry.test or f" {entry.test:,} p" in rows[name], name  # pictures, pairs
        assert f"| {entry.size_gb:g} GB |" in rows[name], name
        assert entry.licence.partition(" (")[0] in rows[name], name
        assert command(name).startswith(f"hyper3 data fetch {name}")
