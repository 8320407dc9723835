"""A command that is repeated: what is up to date, what is made anew, and what is in the way."""

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import DataError
from trainer.data.sample import Sample
from trainer.data.shard_writer import read_manifest, write_shard
from trainer.prepare.plan import differences, plan_of
from trainer.prepare.publish import publish
from trainer.prepare.run import is_complete
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.find import find_source
from trainer.prepare.sources.source import Request

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]

SETTINGS = PrepareSettings(side=48, part_side=24)


def write_photo(path: Path, colour: str = "red") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (60, 40), colour).save(path)


def write_records(folder: Path, *images: str, name: str = "train.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": image, "image": image, "captions": ["c"]}) for image in images]
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def is_up_to_date(place: Path, out: Path, **more: Any) -> bool:
    return is_complete(find_source(Request(str(place), **more)), out, SETTINGS)


def reds(samples: list[Sample], tmp_path: Path) -> list[bool]:
    """Whether each picture is red rather than blue."""
    found = []
    for sample in samples:
        (tmp_path / "one.jpg").write_bytes(sample.jpeg)
        with Image.open(tmp_path / "one.jpg") as picture:
            red, _, blue = np.asarray(picture.convert("RGB"))[24, 24].tolist()
        found.append(red > blue)
    return found


@pytest.mark.parametrize("torn", [None, b"half"])
def test_a_picture_that_arrives_later_is_taken_by_the_same_command(
    tmp_path: Path, run: Run, torn: bytes | None
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    write_photo(photos / "a.png")
    records = write_records(photos, "a.png", "sub/b.png")
    if torn:
        (photos / "sub").mkdir()
        (photos / "sub/b.png").write_bytes(torn)
    assert run(records, out)["samples"] == 1
    assert is_up_to_date(records, out)
    write_photo(photos / "sub/b.png")
    assert not is_up_to_date(records, out)
    said: list[str] = []
    entry = run(records, out, say=said.append)
    assert (entry["samples"], entry["skipped"]) == (2, {})
    assert said == [
        f"pictures in {photos} have come, gone or changed: what no longer fits is made anew"
    ]
    assert is_up_to_date(records, out)


def test_a_picture_that_is_replaced_or_gone_is_seen(tmp_path: Path, run: Run) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    write_photo(photos / "a.png")
    write_photo(photos / "b.png")
    records = write_records(photos, "a.png", "b.png")
    run(records, out)
    state = (photos / "a.png").stat()
    os.utime(photos / "a.png", ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert not is_up_to_date(records, out)
    run(records, out)
    assert is_up_to_date(records, out)
    (photos / "b.png").unlink()
    assert not is_up_to_date(records, out)


def test_a_file_beside_the_pictures_changes_nothing(tmp_path: Path, run: Run) -> None:
    photos = tmp_path / "photos"
    write_photo(photos / "a.png")
    records = write_records(photos, "a.png")
    run(records, photos)  # the data set itself lies there too
    write_photo(photos / "other.png")
    assert is_up_to_date(records, photos)


def test_a_run_that_goes_on_mixes_no_old_and_new_pictures(
    tmp_path: Path, run: Run, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out"
    names = [f"{number}.png" for number in range(4)]
    for name in names:
        write_photo(photos / name)
    records = write_records(photos, *names)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainer.prepare.run.SHARD_SAMPLES", 2)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.prepare.run._entry", stop)  # both shards are finished
        with pytest.raises(KeyboardInterrupt):
            run(records, out)
    for name in names:
        write_photo(photos / name, "blue")
    said: list[str] = []
    run(records, out, say=said.append)
    assert reds(read(out / "train"), tmp_path) == [False] * 4
    assert "pictures in" in said[0]


def test_captions_of_one_name_in_two_folders_are_both_watched(tmp_path: Path) -> None:
    folder = tmp_path / "vg"
    write_records(folder, name="region_descriptions.json")
    write_records(folder, name="image_data.json")
    captions = [write_records(tmp_path / name, name="captions.json") for name in "ab"]
    request = Request(str(folder), captions=tuple(captions))
    for file in captions:
        before = plan_of(find_source(request), SETTINGS)
        file.write_text(f"changed {file}")
        changes = differences(before, plan_of(find_source(request), SETTINGS))
        assert changes == ["captions.json has changed"]


def test_tars_of_one_name_in_folders_of_one_name_are_all_watched(tmp_path: Path) -> None:
    tars = [tmp_path / f"{place}/raw/00000.tar" for place in "ab"]
    for tar in tars:
        tar.parent.mkdir(parents=True)
        tar.write_bytes(b"1")
    request = Request(f"{tmp_path}/*/raw/*.tar")
    for tar in tars:
        before = plan_of(find_source(request), SETTINGS)
        tar.write_bytes(tar.read_bytes() + b"2")
        changes = differences(before, plan_of(find_source(request), SETTINGS))
        assert changes == ["raw/00000.tar has changed"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_split_that_is_a_link_is_refused_before_any_work(
    tmp_path: Path, run: Run, is_there: bool
) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, "a.png")
    disk, out = tmp_path / "disk", tmp_path / "out"
    out.mkdir()
    if is_there:
        disk.mkdir()
    (out / "train").symlink_to(disk)
    with pytest.raises(DataError, match=f"train: is a link.*make {out} the link"):
        run(records, out)
    assert [path.name for path in out.iterdir()] == ["train"]


def test_the_folder_of_a_data_set_may_be_a_link(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, "a.png")
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    for side in (48, 64):
        run(records, tmp_path / "out", side=side)
    assert (tmp_path / "disk/train/00000.tar").is_file()


def test_a_file_where_the_split_would_be_is_refused_before_any_work(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, "a.png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/train").write_text("mine")
    with pytest.raises(DataError, match="train: a file stands where"):
        run(records, tmp_path / "out")
    assert not (tmp_path / "out/.train.partial").exists()


def put(out: Path, split: str) -> None:
    publish(out / f".{split}.partial", out, split, {"shards": []})


def test_splits_that_are_published_at_once_all_stay_in_the_manifest(tmp_path: Path) -> None:
    splits = [f"split{number}" for number in range(12)]
    for split in splits:
        write_shard(tmp_path / f".{split}.partial/00000.tar", [Sample("p", b"", "c", ())])
    fork = multiprocessing.get_context("fork")
    several = [fork.Process(target=put, args=(tmp_path, split)) for split in splits]
    for one in several:
        one.start()
    for one in several:
        one.join()
        assert one.exitcode == 0
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert sorted(manifest["splits"]) == sorted(splits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", *sorted(splits)]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_named_and_leaves_nothing(tmp_path: Path, run: Run, content: str) -> None:
    records = tmp_path / "train.jsonl"
    records.write_text(content)
    with pytest.raises(DataError, match=f"{records}.*: empty: not one photo"):
        run(records, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]


def test_a_file_with_letters_of_patterns_in_its_path_is_found(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "ü [x] {0..1}"
    write_photo(folder / "a.png")
    records = write_records(folder, "a.png", name="träin.jsonl")
    assert run(records, tmp_path / "out*[b]")["format"] == "jsonl"
    write_shard(folder / "0.tar", [Sample("p", b"", "c", ())])
    assert find_source(Request(str(folder / "0.tar"))).tars == (folder / "0.tar",)
    assert find_source(Request(str(folder))).tars == (folder / "0.tar",)
