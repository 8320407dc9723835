"""Photos to shards: the rules for parts, what is left out and why, and what is written."""

import errno
import gc
import io
import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds
from PIL import Image
from typer.testing import CliRunner

from core.cli import main
from core.errors import ConfigError, DataError, StorageError
from trainer.commands.data import app
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import read_manifest, write_shard
from trainer.prepare.records import Tally, parts_of, sound_record
from trainer.prepare.run import is_complete
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.find import find_source
from trainer.prepare.sources.source import GritRules, Request, Source
from trainer.storage import replacing

Run = Callable[..., dict[str, Any]]

SETTINGS = PrepareSettings(side=48, part_side=24)


def write_records(folder: Path, records: list[dict[str, Any]], name: str = "train") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_photo(path: Path, size: tuple[int, int] = (120, 90), colour: str = "red") -> None:
    Image.new("RGB", size, colour).save(path)


def read_shard(path: Path) -> list[dict[str, bytes]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset does not close its file
        samples = list(wds.WebDataset(str(path), shardshuffle=False))
        gc.collect()
    return samples


def pixels(jpeg: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(image)


def source_of(records: Path) -> Source:
    return find_source(Request(str(records)))


def record_with(boxes: list[dict[str, Any]]) -> dict[str, Any]:
    captions = ["one", "two"]
    record = sound_record({"image": "a.png", "captions": captions, "boxes": boxes}, "", Tally())
    assert record is not None
    return record


def box(phrase: str, xyxy: list[float], **more: Any) -> dict[str, Any]:
    return {"phrase": phrase, "xyxy": xyxy, **more}


def test_there_is_one_sample_per_caption_with_the_boxes_of_that_caption(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png")
    boxes = [
        box("first", [0, 0, 0.5, 1], caption=0, name="dog"),
        box("second", [0.5, 0, 1, 1], caption=1),
        box("both", [0, 0, 1, 1]),
    ]
    records = write_records(
        tmp_path, [{"id": "p", "image": "a.png", "captions": ["one", "two"], "boxes": boxes}]
    )
    run(records, tmp_path / "out")
    samples = {s["child.txt"].decode(): s for s in read_shard(tmp_path / "out/train/00000.tar")}
    one, two = (json.loads(samples[text]["json"]) for text in ("one", "two"))
    assert (one["photo"], one["names"]) == ("p", ["dog", None])
    assert (two["photo"], two["names"]) == ("p", [None, None])
    assert samples["one"]["parent000.txt"] == b"first"
    assert samples["one"]["parent001.txt"] == b"both"
    assert samples["two"]["parent000.txt"] == b"second"
    assert samples["two"]["numparents.txt"] == b"2"


def test_a_box_is_kept_when_its_area_in_the_original_is_over_1024_pixels() -> None:
    record = record_with([box("exactly", [0, 0, 0.32, 0.32]), box("over", [0, 0, 0.33, 0.32])])
    tally = Tally()
    kept = parts_of(record, 0, (100, 100), tally)
    assert [text for text, _, _ in kept] == ["over"]
    assert tally.counts() == {"boxes": {"area not over 1,024 px²": 1}}


def test_the_area_is_measured_in_the_original_and_not_in_the_stored_image(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png", (40, 40))
    record = {"image": "a.png", "captions": ["c"], "boxes": [box("b", [0, 0, 0.5, 0.5])]}
    small = run(write_records(tmp_path, [record], "small"), tmp_path / "out")
    large = run(
        write_records(tmp_path, [{**record, "orig_size": [400, 400]}], "large"), tmp_path / "out"
    )
    assert (small["parts"], large["parts"]) == (0, 1)


def test_a_text_seen_before_is_skipped_even_when_the_earlier_box_was_too_small() -> None:
    record = record_with([box("a dog", [0, 0, 0.1, 0.1]), box("a dog", [0, 0, 1, 1])])
    tally = Tally()
    assert parts_of(record, 0, (200, 200), tally) == []
    assert tally.counts() == {"boxes": {"area not over 1,024 px²": 1, "text seen before": 1}}


def test_the_same_text_in_another_caption_is_not_seen_before() -> None:
    record = record_with(
        [box("a dog", [0, 0, 1, 1], caption=0), box("a dog", [0, 0, 1, 1], caption=1)]
    )
    assert len(parts_of(record, 1, (200, 200), Tally())) == 1


def test_corners_outside_the_image_are_brought_to_its_edge() -> None:
    record = record_with([box("b", [-0.2, 0.1, 1.4, 2])])
    assert parts_of(record, 0, (100, 100), Tally())[0][2] == (0.0, 0.1, 1.0, 1.0)


def test_the_whole_and_its_parts_are_letterboxed_with_white_in_their_true_aspect(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png", (100, 100), "black")  # squashed: the photo is 2 : 1
    record = {
        "image": "a.png",
        "captions": ["c"],
        "orig_size": [800, 400],
        "boxes": [box("b", [0, 0, 0.25, 1])],  # 200 x 400 pixels of the original
    }
    run(write_records(tmp_path, [record]), tmp_path / "out")
    (sample,) = read_shard(tmp_path / "out/train/00000.tar")
    whole, part = pixels(sample["child.jpg"]), pixels(sample["parent000.jpg"])
    assert whole.shape == (48, 48, 3)
    assert part.shape == (24, 24, 3)
    dark_rows = np.flatnonzero((whole < 60).all((1, 2)))
    dark_columns = np.flatnonzero((part < 60).all((0, 2)))
    assert (dark_rows[0], dark_rows[-1]) == pytest.approx((12, 35), abs=1)
    assert (dark_columns[0], dark_columns[-1]) == pytest.approx((6, 17), abs=1)
    assert (whole[0] > 230).all()


def test_bad_records_boxes_and_images_are_left_out_and_counted(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "good.png")
    (tmp_path / "torn.png").write_bytes((tmp_path / "good.png").read_bytes()[:60])
    boxes = [
        box("fine", [0, 0, 1, 1]),
        box("", [0, 0, 1, 1]),
        box("three corners", [0, 0, 1]),
        box("flat", [0.5, 0, 0.5, 1]),
    ]
    records = write_records(
        tmp_path,
        [
            {"image": "good.png", "captions": ["yes", "  ", 7], "boxes": boxes},
            {"image": "torn.png", "captions": ["one", "two"]},
            {"image": "missing.png", "captions": ["one"]},
            {"captions": ["one"]},
            {"image": "good.png", "captions": []},
            {"image": "good.png", "captions": ["x"], "orig_size": [0, 5]},
        ],
    )
    entry = run(records, tmp_path / "out")
    assert (entry["samples"], entry["photos"], entry["parts"]) == (1, 1, 1)
    assert entry["skipped"] == {
        "photos": {
            "image file missing": 1,
            "image unreadable": 1,
            "orig_size is not [width, height]": 1,
            "record without an image": 1,
            "record without captions": 1,
        },
        "captions": {"empty or not a text": 2},
        "boxes": {"empty or outside the image": 1, "malformed": 2},
    }


def test_what_cannot_be_text_a_path_or_a_size_is_left_out_and_counted(
    tmp_path: Path, run: Run
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    write_photo(tmp_path / "outside.png")
    write_photo(folder / "good.png")
    boxes = [
        box("fine", [0, 0, 1, 1]),
        box("\ud800", [0, 0, 1, 1]),
        box("elsewhere", [0, 0, 1, 1], caption=3),
        box("endless", [0, 0, 1, 10**400]),
        box("a claim", [0, 0, 1, 1], caption=True),
        box("a fraction", [0, 0, 1, 1], caption=0.0),
    ]
    good: dict[str, Any] = {"image": "good.png", "captions": ["c"]}
    records = [
        good | {"captions": ["one", "\ud800 bad", "two"], "boxes": boxes},
        good | {"image": "a\0.png"},
        good | {"image": "../outside.png"},
        good | {"id": "flat", "orig_size": [1, 1_000_000]},
        good | {"license": "\udfff"},
    ]
    entry = run(write_records(folder, records), tmp_path / "out")
    assert (entry["samples"], entry["parts"]) == (2, 2)
    assert entry["skipped"] == {
        "photos": {
            "image, id or license is not valid text": 1,
            "image is not a path below the images' folder": 2,
            "orig_size is beyond 1:100": 1,
        },
        "captions": {"caption is not valid text": 1},
        "boxes": {"caption does not exist": 1, "malformed": 3, "phrase is not valid text": 1},
    }


def test_a_split_stays_until_the_new_one_is_whole(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    out = tmp_path / "out"
    records = write_records(tmp_path, [{"image": "a.png", "captions": ["one"]}])
    run(records, out)
    write_records(tmp_path, [{"image": "gone.png", "captions": ["two"]}])
    with pytest.raises(DataError, match="no usable caption"):
        run(records, out)
    (sample,) = read_shard(out / "train/00000.tar")
    assert sample["child.txt"] == b"one"
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "train"]


@pytest.mark.parametrize("split", ["../../evil", "a/b", ".hidden", "..", "manifest.json"])
def test_the_name_of_a_split_is_a_plain_one(tmp_path: Path, run: Run, split: str) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, [{"image": "a.png", "captions": ["one"]}])
    with pytest.raises(ConfigError, match=r"plain name|has this name"):
        run(records, tmp_path / "out", split=split)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("splits", ["[1]", '{"train": 1}'])
def test_a_manifest_with_wrong_splits_is_a_data_error(tmp_path: Path, splits: str) -> None:
    (tmp_path / "manifest.json").write_text(f'{{"splits": {splits}}}')
    with pytest.raises(DataError, match=r"manifest\.json: splits"):
        read_manifest(tmp_path)


def test_captions_without_parts_are_kept_and_counted_unless_parts_are_required(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png")
    boxes = [box("b", [0, 0, 1, 1], caption=0)]
    records = write_records(
        tmp_path, [{"image": "a.png", "captions": ["one", "two"], "boxes": boxes}]
    )
    kept = run(records, tmp_path / "kept")
    strict = run(records, tmp_path / "strict", require_parts=True)
    assert (kept["samples"], kept["samples_without_parts"]) == (2, 1)
    assert (strict["samples"], strict["skipped"]["captions"]) == (1, {"no usable box": 1})


def test_a_line_that_is_no_record_is_counted_and_the_first_is_named(
    tmp_path: Path, run: Run
) -> None:
    write_photo(tmp_path / "a.png")
    lines = [
        b'{"image": "a.png", "captions": ["fine"]}',
        b"",
        b'{"image": ',
        b"[1, 2]",
        b"[" * 100_000,
        b'{"image": "a.png", "captions": ["x"], "id": ' + b"1" * 5_000 + b"}",
        b"\xff\xfe",
    ]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(lines))
    entry = run(tmp_path / "train.jsonl", tmp_path / "out")
    assert entry["samples"] == 1
    assert entry["skipped"] == {"photos": {"line is not JSON": 4, "not a JSON object": 1}}
    assert entry["first_skipped"]["photos: line is not JSON"] == "line 3"


def test_a_mark_before_the_first_record_is_no_part_of_it(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    (tmp_path / "train.jsonl").write_bytes(b'\xef\xbb\xbf{"image": "a.png", "captions": ["fine"]}')
    assert run(tmp_path / "train.jsonl", tmp_path / "out")["samples"] == 1


def test_a_missing_file_of_records_is_a_data_error(tmp_path: Path, run: Run) -> None:
    with pytest.raises(DataError, match="no such file"):
        run(tmp_path / "none.jsonl", tmp_path / "out", format="jsonl")


def test_records_of_which_nothing_can_be_used_are_a_data_error(tmp_path: Path, run: Run) -> None:
    records = write_records(tmp_path, [{"image": "missing.png", "captions": ["one"]}])
    with pytest.raises(DataError) as caught:
        run(records, tmp_path / "out")
    first, *lines = str(caught.value).splitlines()
    assert first == f"{records}, with pictures in {tmp_path}: no usable caption; left out:"
    assert lines == [f"{1:>11} photos: image file missing (missing.png: missing.png)"]


def test_a_name_that_no_disk_can_have_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hyper3", "data", "prepare", "x" * 300, "--out", "out"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.replace("\n", "").endswith(f"{'x' * 300}: the name is too long")


def test_what_only_another_format_can_do_is_refused(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, [{"image": "a.png", "captions": ["one"]}])
    with pytest.raises(ConfigError, match="--captions is for visual-genome, and this is jsonl"):
        run(records, tmp_path / "out", captions=(tmp_path / "captions.json",))
    with pytest.raises(ConfigError, match="are for grit, and this is jsonl"):
        run(records, tmp_path / "out", grit=GritRules("nouns"))


def test_the_order_is_shuffled_and_the_same_for_any_number_of_workers(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.prepare.run.SHARD_SAMPLES", 7)
    write_photo(tmp_path / "a.png")
    records = write_records(
        tmp_path,
        [
            {"id": f"p{i}", "image": "a.png", "captions": [f"{i} {j}" for j in range(5)]}
            for i in range(8)
        ],
    )
    one, two = run(records, tmp_path / "one"), run(records, tmp_path / "two", workers=2)
    assert one == two
    assert len(one["shards"]) == 6
    photos = [
        json.loads(sample["json"])["photo"]
        for shard in one["shards"]
        for sample in read_shard(tmp_path / "one/train" / shard["file"])
    ]
    assert len(photos) == 40
    neighbours = sum(a == b for a, b in itertools.pairwise(photos))
    assert neighbours < 15  # 32 if the captions of a photo stayed together


def test_the_manifest_gathers_the_splits_of_a_folder(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    record = {"image": "a.png", "captions": ["one"], "license": "CC0"}
    for name in ("train", "val"):
        run(write_records(tmp_path, [record], name), tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert set(manifest["splits"]) == {"train", "val"}
    assert manifest["splits"]["val"]["licences"] == ["CC0"]


def test_a_split_is_complete_until_records_or_settings_change(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(tmp_path, [{"image": "a.png", "captions": ["one"]}])
    out = tmp_path / "out"
    assert not is_complete(source_of(records), out, SETTINGS)
    run(records, out)
    assert is_complete(source_of(records), out, SETTINGS)
    assert not is_complete(source_of(records), out, PrepareSettings(side=64, part_side=24))
    write_records(tmp_path, [{"image": "a.png", "captions": ["two"]}])
    assert not is_complete(source_of(records), out, SETTINGS)


def test_a_limit_counts_photos(tmp_path: Path, run: Run) -> None:
    write_photo(tmp_path / "a.png")
    records = write_records(
        tmp_path, [{"id": str(i), "image": "a.png", "captions": ["x", "y"]} for i in range(5)]
    )
    entry = run(records, tmp_path / "out", limit=2)
    assert (entry["photos"], entry["samples"]) == (2, 4)


def test_the_members_of_a_sample_stand_in_the_order_of_the_format(tmp_path: Path) -> None:
    parts = (Part(b"p0", "a dog", "dog"), Part(b"p1", "grass"))
    write_shard(tmp_path / "00000.tar", [Sample("id", b"whole", "A dog on grass.", parts)])
    (sample,) = read_shard(tmp_path / "00000.tar")
    members = [key for key in sample if not key.startswith("_")]
    assert members == [
        "json", "child.jpg", "child.txt", "numparents.txt",
        "parent000.jpg", "parent000.txt", "parent001.jpg", "parent001.txt",
    ]  # fmt: skip


def test_a_full_disk_is_a_storage_error_that_names_the_folder_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with (  # noqa: PT012 - the block stands for a write that fails half-way
        pytest.raises(StorageError, match=f"{tmp_path}.*disk is full"),
        replacing(tmp_path / "x") as path,
    ):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(ValueError, match="stop"), replacing(target) as path:  # noqa: PT012
        path.write_text("half")
        raise ValueError("stop")
    assert target.read_text() == "old"


def test_the_folder_of_the_photos_themselves_is_never_cleared(tmp_path: Path, run: Run) -> None:
    """Photos in X/test, records in X/test.jsonl, and --out X: the split would take their place."""
    (tmp_path / "test").mkdir()
    write_photo(tmp_path / "test" / "a.png")
    record = {"image": "test/a.png", "captions": ["a red card"]}
    records = write_records(tmp_path, [record], "test")
    with pytest.raises(DataError, match=r"test: holds a\.png.*--out"):
        run(records, tmp_path)
    assert (tmp_path / "test" / "a.png").exists()


def test_the_command_prints_what_was_written_and_what_was_left_out(tmp_path: Path) -> None:
    write_photo(tmp_path / "a.png")
    records = [
        {"image": "a.png", "captions": ["one", " "]},
        {"image": "gone.png", "captions": ["x"]},
    ]
    arguments = [str(write_records(tmp_path, records)), "--out", str(tmp_path / "out")]
    first = CliRunner().invoke(app, ["prepare", *arguments, "--crops", "boxes"])
    assert first.exit_code == 0, first.output
    assert "train: 1 samples of 1 photos, 0 parts; 1 samples have no part." in first.output
    printed = [" ".join(line.split()) for line in first.output.splitlines()]
    assert "1 photos: image file missing (gone.png: gone.png)" in printed
    assert all(len(line) <= 80 for line in first.output.splitlines() if str(tmp_path) not in line)
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest["splits"]["train"]["settings"]["side"] == 512
    again = CliRunner().invoke(app, ["prepare", *arguments, "--crops", "boxes"])
    assert "is up to date" in again.output
    anew = CliRunner().invoke(app, ["prepare", *arguments])
    assert manifest["splits"]["train"]["parts"] == 0
    assert "crops was boxes, is stored; part_side was 512, is 224; side was 512" in anew.output
    assert "train: 1 samples" in anew.output
