"""Tars of img2dataset, as they come: whole, with dead links, torn, and hostile."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import ConfigError, DataError
from trainer.data.sample import Sample
from trainer.prepare.sources.source import GritRules

Run = Callable[..., dict[str, Any]]
Read = Callable[[Path], list[Sample]]

CAPTION = "a dog chases a red ball on wet sand"
DOG, BALL, SAND = [0, 5], [13, 23], [27, 35]  # start and end of "a dog", "a red ball", "wet sand"


def jpeg(size: tuple[int, int] = (160, 120), kind: str = "JPEG") -> bytes:
    """A picture whose every place has a colour of its own."""
    down, across = np.mgrid[0 : size[1], 0 : size[0]]
    pixels = np.stack([across * 255 / size[0], down * 255 / size[1], across * 0 + 90], -1)
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, kind, quality=95)
    return buffer.getvalue()


def about(**more: Any) -> dict[str, Any]:
    """The JSON that img2dataset writes of GRIT's columns."""
    return {
        "caption": CAPTION,
        "noun_chunks": [[*DOG, 0.1, 0.1, 0.6, 0.7, 0.9], [*BALL, 0.5, 0.5, 0.9, 0.9, 0.8]],
        "ref_exps": [[0, 35, 0.1, 0.1, 0.9, 0.9, 0.7]],
        "status": "success",
        "error_message": None,
        "original_width": 160,
        "original_height": 120,
    } | more


def write_tar(path: Path, samples: dict[str, dict[str, Any]]) -> Path:
    """A tar with members in the order they are given; values are bytes or become JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key, members in samples.items():
            for kind, content in members.items():
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                member = tarfile.TarInfo(f"{key}.{kind}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def whole(**more: Any) -> dict[str, Any]:
    return {"jpg": jpeg(), "json": about(**more), "txt": CAPTION.encode()}


def phrases(sample: Sample) -> list[str]:
    return [part.text for part in sample.parts]


def test_noun_chunks_come_before_referring_expressions(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_tar(tmp_path / "raw/00000.tar", {"000000000": whole()})
    entry = run(tmp_path / "raw", tmp_path / "out")
    (sample,) = read(tmp_path / "out/train")
    assert sample.text == CAPTION
    assert phrases(sample) == ["a dog", "a red ball", CAPTION]
    assert entry["format"] == "grit"
    assert (entry["photos"], entry["parts"]) == (1, 3)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (GritRules(phrases="nouns"), ["a dog", "a red ball"]),
        (GritRules(phrases="expressions"), [CAPTION]),
        (GritRules(min_score=0.85), ["a dog"]),
    ],
)
def test_boxes_can_be_chosen_by_kind_and_score(
    tmp_path: Path, run: Run, read: Read, rules: GritRules, expected: list[str]
) -> None:
    write_tar(tmp_path / "raw/00000.tar", {"0": whole()})
    entry = run(tmp_path / "raw", tmp_path / "out", grit=rules)
    assert phrases(read(tmp_path / "out/train")[0]) == expected
    assert entry["settings"]["min_score"] == rules.min_score


def test_lists_may_be_strings_of_json(tmp_path: Path, run: Run, read: Read) -> None:
    found = about()
    strings = {key: json.dumps(found[key]) for key in ("noun_chunks", "ref_exps")}
    write_tar(tmp_path / "raw/00000.tar", {"0": whole(**strings)})
    run(tmp_path / "raw", tmp_path / "out")
    assert phrases(read(tmp_path / "out/train")[0]) == ["a dog", "a red ball", CAPTION]


def test_the_rules_of_the_family_decide_which_boxes_are_parts(
    tmp_path: Path, run: Run, read: Read
) -> None:
    noun_chunks = [
        [*DOG, 0.0, 0.0, 0.1, 0.1, 0.9],  # 16 x 12 pixels
        [*BALL, 0.0, 0.0, 0.2, 0.2669, 0.9],  # 32 x 32 by truncation: not over 1,024
        [*SAND, 0.0, 0.0, 0.2, 0.275, 0.9],  # 32 x 33
    ]
    ref_exps = [[*DOG, 0.0, 0.0, 1.0, 1.0, 0.9], [*SAND, 0.0, 0.0, 1.0, 1.0, 0.9]]
    write_tar(tmp_path / "raw/00000.tar", {"0": whole(noun_chunks=noun_chunks, ref_exps=ref_exps)})
    entry = run(tmp_path / "raw", tmp_path / "out")
    assert phrases(read(tmp_path / "out/train")[0]) == ["wet sand"]
    assert entry["skipped"] == {
        "boxes": {"area not over 1,024 px²": 2, "text seen before": 2},
    }


def test_the_area_is_that_in_the_original_picture(tmp_path: Path, run: Run) -> None:
    small = {"noun_chunks": [[*DOG, 0.0, 0.0, 0.1, 0.1, 0.9]], "ref_exps": []}
    write_tar(
        tmp_path / "raw/00000.tar",
        {
            "stored": whole(**small),
            "larger": whole(**small, original_width=640, original_height=480),
        },
    )
    entry = run(tmp_path / "raw", tmp_path / "out", require_parts=True)
    assert (entry["samples"], entry["parts"]) == (1, 1)
    assert entry["first_skipped"]["boxes: area not over 1,024 px²"] == "00000/stored"


def test_samples_without_a_part_are_dropped_unless_all_are_wanted(tmp_path: Path, run: Run) -> None:
    bare = whole(noun_chunks=[], ref_exps=[])
    write_tar(tmp_path / "raw/00000.tar", {"0": whole(), "1": bare})
    dropped = run(tmp_path / "raw", tmp_path / "a", require_parts=True)
    kept = run(tmp_path / "raw", tmp_path / "b", require_parts=False)
    assert (dropped["samples"], dropped["skipped"]["captions"]) == (1, {"no usable box": 1})
    assert (kept["samples"], kept["samples_without_parts"]) == (2, 1)


def test_every_tar_becomes_a_shard_of_five_digits(tmp_path: Path, run: Run, read: Read) -> None:
    for name in ("b", "a"):
        write_tar(tmp_path / f"raw/{name}.tar", {f"{name}{i}": whole() for i in range(3)})
    entry = run(tmp_path / "raw", tmp_path / "out", workers=2)
    assert [shard["file"] for shard in entry["shards"]] == ["00000.tar", "00001.tar"]
    assert [item["file"] for item in entry["inputs"]] == ["raw/a.tar", "raw/b.tar"]
    assert all(len(item["sha256"]) == 64 for item in entry["inputs"])
    assert len({sample.photo for sample in read(tmp_path / "out/train")}) == 6


def test_tars_of_one_name_in_two_folders_are_two(tmp_path: Path, run: Run, read: Read) -> None:
    for folder in ("one", "two"):
        write_tar(tmp_path / folder / "00000.tar", {"000000000": whole()})
    run(f"{tmp_path}/{{one,two}}/00000.tar", tmp_path / "out")
    photos = [sample.photo for sample in read(tmp_path / "out/train")]
    assert photos == ["00000/000000000", "00001/000000000"]


@pytest.mark.parametrize("key", ["000000000", "00000000000"])
def test_raw_tars_are_never_replaced_by_what_is_made_of_them(
    tmp_path: Path, run: Run, key: str
) -> None:
    """Tars in X/train and --out X: the split would take their place."""
    write_tar(tmp_path / "train/00000.tar", {key: whole()})
    before = (tmp_path / "train/00000.tar").read_bytes()
    with pytest.raises(DataError, match=r"00000\.tar: is read from .*--out"):
        run(tmp_path / "train", tmp_path)
    write_tar(tmp_path / "other/00000.tar", {"000000000": whole()})
    with pytest.raises(DataError, match=r"00000\.tar: was not written .*--out"):
        run(tmp_path / "other", tmp_path)
    assert (tmp_path / "train/00000.tar").read_bytes() == before
    run(tmp_path / "train", tmp_path, split="mine")
    run(tmp_path / "train", tmp_path, split="mine", limit=1)  # what was written here is replaced


def test_a_limit_counts_samples_across_tars(tmp_path: Path, run: Run) -> None:
    for number in range(3):
        write_tar(tmp_path / f"raw/{number:05d}.tar", {f"{number}{i}": whole() for i in range(2)})
    entry = run(tmp_path / "raw", tmp_path / "out", limit=3)
    assert [shard["samples"] for shard in entry["shards"]] == [2, 1]


def test_what_is_broken_is_counted_and_spoils_nothing_else(
    tmp_path: Path, run: Run, read: Read
) -> None:
    flat = [[*DOG, 0.5, 0.1, 0.5, 0.9, 0.9], [*BALL, 1.2, 0.1, 1.5, 0.9, 0.9]]
    odd: list[Any] = [
        [*SAND, 0.0, 0.0, float("nan"), 1.0, 0.9],
        [*SAND, 0.0, 0.0, 1e300, 1.0, 0.9],
        [30, 20, 0.0, 0.0, 1.0, 1.0, 0.9],
        [90, 99, 0.0, 0.0, 1.0, 1.0, 0.9],
        [-5, -1, 0.0, 0.0, 1.0, 1.0, 0.9],
        "box",
        [0, 1],
        None,
    ]
    write_tar(
        tmp_path / "raw/00000.tar",
        {
            "first": whole(),
            "torn": whole() | {"jpg": jpeg()[:300]},
            "text": whole() | {"jpg": b"<html>404</html>"},
            "dead": {"json": about(status="failed_to_download", error_message="HTTP 404")},
            "gone": {"json": about()},
            "alone": {"jpg": jpeg()},
            "unjson": whole() | {"json": b'{"caption": '},
            "list": whole() | {"json": b"[1]"},
            "deep": whole() | {"json": b'{"caption": "x", "noun_chunks": ' + b"[" * 100_000},
            "digits": whole() | {"json": b'{"caption": ' + b"9" * 5_000 + b"}"},
            "silent": whole(caption="  "),
            "number": whole(caption=7),
            "halves": whole(caption="\ud800 dog"),
            "flat": whole(noun_chunks=flat + odd),
            "unlisted": whole(noun_chunks={"a": 1}, ref_exps="[[0, 5,"),
            "bordered": whole(original_width=120, original_height=160),
            "last": whole(),
        },
    )
    entry = run(tmp_path / "raw", tmp_path / "out", require_parts=True)
    assert [sample.photo for sample in read(tmp_path / "out/train")] == [
        "00000/first", "00000/flat", "00000/last",
    ]  # fmt: skip
    assert entry["skipped"] == {
        "boxes": {"empty or outside the image": 2, "malformed": 10},
        "captions": {
            "caption is not valid text": 1,
            "empty or not a text": 2,
            "no usable box": 1,
        },
        "photos": {
            "JSON cannot be read": 4,
            "dead link": 1,
            "image is not in the proportions of the photo that was annotated": 1,
            "image unreadable": 2,
            "no JSON in the tar": 1,
            "picture is not in the tar": 1,
        },
    }


def test_dead_links_are_counted_from_the_statistics_beside_the_tar(
    tmp_path: Path, run: Run
) -> None:
    dead = {"json": about(status="failed_to_download", error_message="timed out")}
    write_tar(tmp_path / "raw/00000.tar", {"0": whole(), "1": dead})
    write_tar(tmp_path / "raw/00001.tar", {"2": whole()})
    stats = {"count": 12, "successes": 1, "failed_to_download": 10, "failed_to_resize": 1}
    (tmp_path / "raw/00000_stats.json").write_text(json.dumps(stats))
    (tmp_path / "raw/00001_stats.json").write_text("[" * 100_000)
    (tmp_path / "raw/00000.parquet").write_bytes(b"PAR1")
    entry = run(tmp_path / "raw", tmp_path / "out")
    assert entry["skipped"]["photos"] == {"dead link": 10, "picture could not be resized": 1}


def test_members_may_stand_in_any_order_and_pictures_be_of_other_types(
    tmp_path: Path, run: Run, read: Read
) -> None:
    write_tar(
        tmp_path / "raw/00000.tar",
        {
            "0": {"txt": CAPTION.encode(), "json": about(), "jpg": jpeg()},
            "1": {"json": about(), "png": jpeg(kind="PNG")},
            "2": {"webp": jpeg(kind="WebP"), "json": about(caption=None), "txt": CAPTION.encode()},
        },
    )
    run(tmp_path / "raw", tmp_path / "out")
    assert [len(sample.parts) for sample in read(tmp_path / "out/train")] == [3, 3, 3]


def test_a_tar_that_breaks_off_is_used_up_to_there(tmp_path: Path, run: Run, read: Read) -> None:
    path = write_tar(tmp_path / "raw/00000.tar", {str(i): whole() for i in range(3)})
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-3]
    path.write_bytes(path.read_bytes()[: last.offset_data + 100])
    (tmp_path / "raw/00001.tar").write_bytes(b"")
    (tmp_path / "raw/00002.tar").write_bytes(b"<html>not a tar</html>" * 100)
    write_tar(tmp_path / "raw/00003.tar", {"3": whole()})
    entry = run(tmp_path / "raw", tmp_path / "out")
    assert [shard["file"] for shard in entry["shards"]] == ["00000.tar", "00003.tar"]
    assert entry["skipped"]["shards"] == {
        "breaks off, or is no tar; read up to there": 2,
        "cannot be read, or empty": 1,
    }
    assert len(read(tmp_path / "out/train")) == 3


def test_names_links_and_sizes_in_a_tar_reach_nothing_outside(
    tmp_path: Path, run: Run, read: Read
) -> None:
    path = tmp_path / "raw/00000.tar"
    write_tar(path, {"../../etc/passwd": whole(), "/root/0": whole()})
    with tarfile.open(path, "a") as tar:
        for name, kind in (("1.jpg", tarfile.SYMTYPE), ("2.jpg", tarfile.LNKTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "/etc/passwd"
            tar.addfile(link)
            data = json.dumps(about()).encode()
            member = tarfile.TarInfo(f"{name[0]}.json")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        data = jpeg()
        member = tarfile.TarInfo("x" * 300 + "/" + "y" * 5_000 + ".jpg")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    before = sorted(tmp_path.rglob("*"))
    entry = run(tmp_path / "raw", tmp_path / "out")
    assert entry["samples"] == 2
    assert entry["skipped"]["photos"] == {
        "no JSON in the tar": 1,
        "picture is not in the tar": 2,
    }
    made = {item.relative_to(tmp_path).parts[0] for item in tmp_path.rglob("*")}
    assert made == {"raw", "out"}
    assert set(before) < set(tmp_path.rglob("*"))
    assert all(len(sample.photo) < 300 for sample in read(tmp_path / "out/train"))


def test_a_header_that_claims_more_than_there_is_ends_the_tar(tmp_path: Path, run: Run) -> None:
    path = write_tar(tmp_path / "raw/00000.tar", {"0": whole()})
    bomb = tarfile.TarInfo("bomb.jpg")
    bomb.size = 8**11 - 1
    with path.open("r+b") as file:
        file.seek(-tarfile.RECORDSIZE, 2)
        at = path.read_bytes().rstrip(b"\0").__len__()
        file.seek(-(-at // 512) * 512)
        file.write(bomb.tobuf())
    entry = run(tmp_path / "raw", tmp_path / "out")
    assert entry["samples"] == 1
    assert entry["skipped"]["shards"] == {"breaks off, or is no tar; read up to there": 1}


def test_no_tars_are_a_data_error(tmp_path: Path, run: Run) -> None:
    with pytest.raises(DataError, match="no shards"):
        run(tmp_path, tmp_path / "out", format="grit")


def test_what_a_folder_is_not_is_told_with_all_that_it_could_be(tmp_path: Path, run: Run) -> None:
    with pytest.raises(DataError, match=r"(?s)nothing here.*img2dataset.*COCO.*Visual Genome"):
        run(tmp_path, tmp_path / "out")
    with pytest.raises(DataError, match="is not there"):
        run(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ConfigError, match="there is jsonl, grit"):
        run(tmp_path, tmp_path / "out", format="laion")
