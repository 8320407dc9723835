"""`hyper3 data check`: every way in which a shard can be broken is named, and sound ones are."""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from core.cli import build_app
from core.errors import DataError
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import encode_jpeg, write_shard
from trainer.inspection.check import Report, check
from trainer.inspection.claims import jobs_of

Members = list[tuple[str, bytes]]

JPEG = encode_jpeg(np.full((24, 24, 3), 90, np.uint8))


def members(key: str = "000") -> Members:
    """A sound sample of two parts, of which one is a crop and one a box."""
    about = {"photo": key, "names": ["dog", None], "boxes": [None, [0, 0.1, 0.5, 1]]}
    return [
        (f"{key}.json", json.dumps(about).encode()),
        (f"{key}.child.jpg", JPEG),
        (f"{key}.child.txt", "A dog and a café.".encode()),
        (f"{key}.numparents.txt", b"2"),
        (f"{key}.parent000.jpg", JPEG),
        (f"{key}.parent000.txt", b"a dog"),
        (f"{key}.parent001.txt", b"a cafe"),
    ]


def write_tar(path: Path, content: Members, layout: int = tarfile.GNU_FORMAT) -> None:
    with tarfile.open(path, "w", format=layout) as tar:
        for name, data in content:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1.5
            tar.addfile(entry, io.BytesIO(data))


def reports(*patterns: Path, decodes: bool = True) -> list[Report]:
    return check(
        jobs_of([str(pattern) for pattern in patterns]), 1, lambda _: None, decodes=decodes
    )


def faults(path: Path, *, decodes: bool = True) -> dict[str, int]:
    """How often each fault is met."""
    (report,) = reports(path, decodes=decodes)
    return {reason: found.count for reason, found in report.faults.items()}


def with_manifest(folder: Path, **changes: object) -> None:
    """Write two shards of a split and the manifest above them."""
    part = Part(JPEG, "a dog", None, (0.0, 0.0, 1.0, 0.5))
    infos = [
        write_shard(folder / f"{number:05d}.tar", [Sample("p", JPEG, "A dog.", (part,))])
        for number in range(2)
    ]
    shards = [asdict(info) for info in infos]
    shards[1] |= changes
    manifest = {"splits": {folder.name: {"shards": shards}}}
    (folder.parent / "manifest.json").write_text(json.dumps(manifest))


def changed(kind: str, content: bytes | None) -> Callable[[Members], Members]:
    """The sample with one member changed, or without it."""

    def change(sample: Members) -> Members:
        return [
            (name, data if name != f"000.{kind}" else content or b"")
            for name, data in sample
            if name != f"000.{kind}" or content is not None
        ]

    return change


def with_boxes(box: object) -> Callable[[Members], Members]:
    return changed("json", json.dumps({"boxes": [None, box]}).encode())


BROKEN: dict[str, tuple[str, Callable[[Members], Members]]] = {
    "the picture is missing": ("no picture", changed("child.jpg", None)),
    "the picture is cut short": ("undecodable picture", changed("child.jpg", JPEG[:-200])),
    "the picture is no picture": ("undecodable picture", changed("child.jpg", b"<html>")),
    "a crop is no picture": ("undecodable picture", changed("parent000.jpg", b"")),
    "the caption is missing": ("no caption", changed("child.txt", None)),
    "the caption is blank": ("empty caption", changed("child.txt", b" \n")),
    "the caption is Latin-1": ("text is not UTF-8", changed("child.txt", b"caf\xe9")),
    "a phrase is missing": ("no phrase", changed("parent000.txt", None)),
    "a phrase is blank": ("empty phrase", changed("parent001.txt", b"")),
    "a phrase is Latin-1": ("text is not UTF-8", changed("parent000.txt", b"caf\xe9")),
    "a crop is missing": ("no crop or box", changed("parent000.jpg", None)),
    "the number is missing": ("no numparents.txt", changed("numparents.txt", None)),
    "the number is a word": ("numparents.txt is no number", changed("numparents.txt", b"two")),
    "the number is wrong": ("numparents.txt and parts differ", changed("numparents.txt", b"3")),
    "the number is huge": (
        "numparents.txt and parts differ", changed("numparents.txt", b"9" * 30)),
    "the json is deep": ("broken json", changed("json", b"[" * 100_000)),
    "the json is cut": ("broken json", changed("json", b'{"names"')),
    "the json is a list": ("broken json", changed("json", b"[]")),
    "a name is missing": ("broken json", changed("json", b'{"names": ["dog"]}')),
    "a box has three corners": ("malformed box", with_boxes([0, 0, 1])),
    "a box is huge": ("malformed box", with_boxes([0, 0, 1, 10**400])),
    "a box is endless": ("malformed box", with_boxes([0, 0, float("nan"), 1])),
    "a name is half a letter": ("broken json", changed("json", b'{"names": ["\\ud800", null]}')),
    "a box is words": ("malformed box", with_boxes(["0", 0, 1, 1])),
    "a box is empty": ("empty box", with_boxes([0.5, 0, 0.5, 1])),
    "a box lies outside": ("box outside the picture", with_boxes([0, 0, 1, 1.25])),
    "a member stands twice": ("member stands twice", lambda sample: [*sample, sample[2]]),
    "a key comes again": ("key stands twice", lambda sample: [*sample, *members("001"), *sample]),
    "a name climbs": ("name leaves the folder", lambda _: members("../000")),
    "a name is absolute": ("name leaves the folder", lambda _: members("/tmp/000")),
    "a member is of another kind": ("members of no sample", lambda some: [*some, ("9.jpg", b"")]),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_each_fault_of_a_sample_is_named_and_no_other(tmp_path: Path, broken: str) -> None:
    reason, change = BROKEN[broken]
    write_tar(tmp_path / "a.tar", change(members()) + members("zzz"))
    assert set(faults(tmp_path / "a.tar")) == {reason}


@pytest.mark.parametrize("layout", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("folder", ["", "grit/", f"{90 * 'long'}/"[-150:]])
def test_shards_of_other_tools_are_sound(tmp_path: Path, layout: int, folder: str) -> None:
    content = [
        (f"{folder}{key}.{kind}", data)
        for key in ("000", "001")
        for kind, data in [
            ("child.jpg", JPEG), ("child.txt", b"A dog."), ("numparents.txt", b"1"),
            ("parent000.jpg", JPEG), ("parent000.txt", b"a dog"),
        ]
    ]  # fmt: skip
    write_tar(tmp_path / "a.tar", content, layout)
    (report,) = reports(tmp_path)
    assert (report.samples, report.parts, report.faults) == (2, 2, {})


def test_pictures_are_not_decoded_when_it_has_to_be_quick(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", changed("child.jpg", b"<html>")(members()))
    assert faults(tmp_path / "a.tar") == {"undecodable picture": 1}
    assert faults(tmp_path / "a.tar", decodes=False) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read"),
        (b"no tar" * 200, "not a tar of samples"),
        (bytes(2048), "no samples"),
    ],
)
def test_a_file_that_is_no_shard_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    assert faults(tmp_path / "a.tar") == {reason: 1}


def test_a_shard_that_breaks_off_is_named_and_its_whole_samples_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, changed("child.txt", b"")(members()) + members("001") + members("002"))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"002.child.txt")])
    (report,) = reports(path)
    assert (report.samples, set(report.faults)) == (2, {"breaks off", "empty caption"})
    path.write_bytes(whole.rstrip(b"\0") + bytes(100))
    assert "breaks off" in faults(path)


def test_a_header_whose_sum_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, members())
    path.write_bytes(path.read_bytes().replace(b"000.child.txt\0", b"000.child.txu\0"))
    assert "damaged header" in faults(path)


def test_shards_are_compared_with_the_manifest_above(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    with_manifest(folder)
    assert [report.faults for report in reports(tmp_path)] == [{}, {}]
    write_tar(folder / "00001.tar", members())
    write_tar(folder / "00002.tar", members())
    (folder / "00000.tar").unlink()
    assert [list(report.faults) for report in reports(folder)] == [
        ["missing"],
        ["other bytes than in the manifest", "other counts than in the manifest"],
        ["not in the manifest"],
    ]


def test_a_shard_that_is_named_alone_is_compared_too(tmp_path: Path) -> None:
    with_manifest(tmp_path / "train", sha256="0" * 64)
    assert faults(tmp_path / "train" / "00001.tar") == {"other bytes than in the manifest": 1}


def test_a_shard_that_is_named_twice_is_checked_once(tmp_path: Path) -> None:
    folder = tmp_path / "train"
    with_manifest(folder)
    found = reports(folder, folder / "00001.tar", tmp_path)
    assert [(report.path.name, report.faults) for report in found] == [
        ("00000.tar", {}),
        ("00001.tar", {}),
    ]


def test_all_shards_of_a_split_may_be_missing(tmp_path: Path) -> None:
    with_manifest(tmp_path / "train")
    for path in (tmp_path / "train").glob("*.tar"):
        path.unlink()
    assert [list(report.faults) for report in reports(tmp_path)] == [["missing"], ["missing"]]


def test_a_manifest_that_lacks_a_hash_is_named(tmp_path: Path) -> None:
    with_manifest(tmp_path / "train")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace("sha256", "md5"))
    with pytest.raises(DataError, match=r"manifest\.json: split train: .*'sha256'"):
        reports(tmp_path)


def test_a_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no shards"):
        reports(tmp_path)


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", changed("child.txt", b"")(members()))
    jobs = jobs_of([str(tmp_path)])
    alone, together = (check(jobs, n, lambda _: None, decodes=True) for n in (1, 2))
    assert alone == together


def test_the_command_says_what_is_sound_and_ends_with_0(shards: Path) -> None:
    result = CliRunner().invoke(build_app(), ["data", "check", str(shards), "--workers", "1"])
    assert result.exit_code == 0
    assert "2 shards with 24 samples: all sound" in result.output


def test_the_command_says_what_is_broken_and_ends_with_1(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", changed("child.txt", b"caf\xe9")(members()))
    found = tmp_path / "found.json"
    words = ["data", "check", str(tmp_path / "a.tar"), "--json", str(found)]
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 1
    assert "text is not UTF-8" in result.output
    written = json.loads(found.read_text())
    assert not written["is_sound"]
    assert written["faults"] == [
        {
            "shard": str(tmp_path / "a.tar"), "fault": "text is not UTF-8", "count": 1,
            "examples": ["000: child.txt, byte 3"],
        }
    ]  # fmt: skip
