import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import DataError
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.pictures import Picture

Write = Callable[..., Path]

ROWS = [
    {"image": "a.png", "label": 0, "labels": [0, 1]},
    {"image": "b.png", "label": 1, "labels": []},
]


@pytest.fixture
def prepared(tmp_path: Path) -> Write:
    """Writes a prepared folder whose pictures lie elsewhere."""

    def write(rows: list[dict[str, Any]] = ROWS, **changes: Any) -> Path:
        folder, images = tmp_path / "prepared", tmp_path / "photos"
        for path in (folder, images):
            path.mkdir(exist_ok=True)
        for name in ("a.png", "b.png"):
            Image.new("RGB", (8, 8)).save(images / name)
        manifest = {
            "name": "paint",
            "families": ["classification", "multilabel"],
            "title": "Paint",
            "split": "test",
            "source": "made up",
            "licence": "none",
            "images": str(images),
            "counts": {"pictures": 2},
            "classes": {"ours": ["red", "green"], "theirs": ["rouge", "vert"]},
        }
        (folder / "manifest.json").write_text(json.dumps(manifest | changes), encoding="utf-8")
        lines = "\n".join(map(json.dumps, rows))
        (folder / "test.jsonl").write_text(lines, encoding="utf-8")
        return folder

    return write


def test_a_prepared_folder_names_pictures_where_they_are(prepared: Write, tmp_path: Path) -> None:
    data = open_dataset(prepared())
    assert (data.name, data.families) == ("paint", ("classification", "multilabel"))
    assert data.labels().tolist() == [0, 1]
    assert data.positives().tolist() == [[True, True], [False, False]]
    (first, second) = data.pictures("retrieval")
    assert (first.name, first.file) == ("a.png", tmp_path / "photos" / "a.png")
    assert second.square(4).shape == (4, 4, 3)
    assert data.train is None
    assert len(open_dataset(prepared(), limit=1).records) == 1


def test_the_digest_follows_what_determines_results(prepared: Write) -> None:
    digests = {
        open_dataset(prepared(**changes)).digest
        for changes in ({}, {"prompts": "cifar10"}, {"rows": ROWS[::-1]})
    }
    assert len(digests) == 3
    assert open_dataset(prepared()).digest in digests


def test_a_training_split_is_read_from_beside(prepared: Write) -> None:
    folder = prepared()
    (folder / "train.jsonl").write_text('{"image": "b.png", "label": 1}', encoding="utf-8")
    train = open_dataset(folder).train
    assert isinstance(train, Dataset)
    assert (train.split, train.labels().tolist()) == ("train", [1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"classes": {"ours": ["red", "green"], "theirs": ["rouge"]}}, "ours 2, theirs 1"),
        ({"nodes": ["n1"]}, "nodes 1"),
        ({"families": ["painting"]}, r"families\.0"),
        ({"licence": None}, "licence"),
        ({"rows": [{"image": "../secret.png", "label": 0}]}, r"test\.jsonl:1: .*leads out of"),
    ],
)
def test_a_folder_that_does_not_fit_together_is_refused(
    prepared: Write, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        open_dataset(prepared(**changes))


def test_labels_beyond_the_classes_name_the_record(prepared: Write) -> None:
    rows: list[dict[str, Any]] = [{"image": "a.png", "label": 2, "labels": [5]}]
    data = open_dataset(prepared(rows))
    with pytest.raises(DataError, match=r"record 1 \(.*a\.png\): class 2 is not one of the 2"):
        data.labels()
    with pytest.raises(DataError, match=r"record 1 \(.*a\.png\): labels \[5\] go beyond"):
        data.positives()


def test_classes_of_a_bare_file_are_its_categories_or_those_that_occur(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    file = tmp_path / "test.jsonl"
    rows = [{"image": "a.png", "class": name} for name in ("owl", "cat", "owl")]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    data = open_dataset(file)
    assert data.families == ("classification",)
    assert data.classes == {"as given": ("cat", "owl")}
    assert data.labels().tolist() == [1, 0, 1]
    first = open_dataset(file, limit=1)
    assert (len(first.records), first.classes) == (1, {"as given": ("cat", "owl")})
    (tmp_path / "categories.json").write_text('["owl", "dog", "cat"]', encoding="utf-8")
    assert open_dataset(file).labels().tolist() == [0, 2, 0]
    (tmp_path / "categories.json").write_text('{"owl": 0}', encoding="utf-8")
    with pytest.raises(DataError, match=r"categories\.json: must be a list"):
        open_dataset(file)


@pytest.mark.parametrize(
    "fields",
    [
        {"captions": ["red", " "]},
        {"levels": ["", "red"]},
        {"positive": "red", "negative": ""},
        {"boxes": [{"phrase": "\n", "xyxy": [0, 0, 1, 1]}]},
    ],
)
def test_a_blank_text_is_named(fields: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    rows = [{"image": "a.png", "captions": ["red"]}, {"image": "b.png", **fields}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(DataError, match=r"test\.jsonl: record 2 \(.*b\.png\): a blank"):
        open_dataset(file)


def test_a_file_of_which_nothing_can_be_measured_says_what_its_records_have(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text('\ufeff{"image": "a.png", "caption": ["red"]}', encoding="utf-8")
    with pytest.raises(DataError, match="its records have image, caption; write captions"):
        open_dataset(file)


def test_a_fetched_file_that_was_changed_is_named(prepared: Write) -> None:
    folder = prepared()
    digest = hashlib.sha256((folder / "test.jsonl").read_bytes()).hexdigest()
    folder = prepared(sha256={"test.jsonl": digest})
    assert len(open_dataset(folder).records) == 2
    prepared(ROWS[:1], sha256={"test.jsonl": digest})
    with pytest.raises(DataError, match=r"test\.jsonl: is not the file that was fetched"):
        open_dataset(folder)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.png"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match=r"a\.png: cannot be read: not a file"):
        Picture(pipe, "a.png").square(8)
