"""`hyper3 data scan`: counts of parts are those of the shards, and broken shards end nothing."""

import csv
import io
import json
import tarfile
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from core.cli import build_app
from core.errors import DataError
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import write_shard
from trainer.data.shards import index_shards, read_sample
from trainer.inspection.scan import PUBLISHED, Scan, scan
from trainer.inspection.scan_files import write


def of(parts: int, photo: str) -> Sample:
    return Sample(photo, b"image", "A text.", tuple(Part(b"crop", "a part") for _ in range(parts)))


def scanned(*paths: Path, workers: int = 1) -> Scan:
    return scan(list(paths), workers, lambda _: None)


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def test_parts_and_photos_are_counted_over_all_shards(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [of(0, "a"), of(1, "b"), of(3, "a")])
    write_shard(tmp_path / "1.tar", [of(1, "a"), of(20, "c")])
    for workers in (1, 2):
        found = scanned(tmp_path / "0.tar", tmp_path / "1.tar", workers=workers)
        assert found == Scan(2, 3, {0: 1, 1: 2, 3: 1, 20: 1}, {})


def test_the_figures_are_those_of_the_papers_section(tmp_path: Path) -> None:
    """Worked out by hand: 1, 1, 2 and 6 parts."""
    write_shard(
        tmp_path / "0.tar", [of(parts, f"{place}") for place, parts in enumerate((1, 1, 2, 6))]
    )
    figures = scanned(tmp_path / "0.tar").figures()
    assert PUBLISHED.keys() <= figures.keys()
    assert (figures["samples"], figures["parts"], figures["photos"]) == (4, 10, 4)
    assert figures["parts of a sample, mean"] == 2.5
    assert figures["parts of a sample, most"] == 6
    assert figures["with one part"] == 0.5
    assert figures["with at most two"] == 0.75
    assert figures["cap 1, parts kept"] == 0.4
    assert figures["cap 2, parts kept"] == 0.6
    assert figures["cap 5, parts kept"] == 0.9
    assert figures["cap 5, samples whole"] == 0.75
    assert figures["cap 6, parts kept"] == figures["cap 6, samples whole"] == 1


def test_shards_without_a_json_are_counted_whatever_the_order_of_members(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "a.tar",
        {
            "grit/0.parent000.jpg": b"", "grit/0.numparents.txt": b"1\n", "grit/0.child.jpg": b"",
            "grit/0.parent000.txt": b"", "grit/1.parent001.txt": b"", "grit/1.parent000.txt": b"",
            "grit/1.child.jpg": b"", "grit/1.numparents.txt": b"2",
            "grit/2.child.jpg": b"", "grit/2.child.txt": b"no number: no parts, as in training",
        },
    )  # fmt: skip
    assert scanned(tmp_path / "a.tar") == Scan(1, 3, {0: 1, 1: 1, 2: 1}, {})


def test_broken_shards_are_named_and_their_whole_samples_count(tmp_path: Path) -> None:
    paths = [
        tmp_path / f"{name}.tar" for name in ("cut", "empty", "foreign", "sound", "text", "word")
    ]
    cut, empty, foreign, sound, text, word = paths
    for path in (cut, sound):
        write_shard(path, [of(1, "a"), of(2, "b"), of(3, "c")])
    whole = cut.read_bytes()
    cut.write_bytes(whole[: whole.index(b"cut000002.child.txt")])
    empty.write_bytes(b"")
    text.write_text("not a tar" * 99)
    write_tar(foreign, {"0.jpg": b"", "0.txt": b""})
    parts = {"1.parent000.txt": b"", "1.parent001.txt": b""}
    write_tar(word, {"0.numparents.txt": b"two", "1.numparents.txt": b"2"} | parts)
    found = scanned(*paths)
    assert found.histogram == {1: 2, 2: 3, 3: 1}
    assert list(found.broken) == [str(path) for path in (cut, empty, foreign, text, word)]
    assert found.broken[str(cut)] == "breaks off: the end of the archive is missing"
    assert found.broken[str(text)] == "not a tar of samples: no tar header at byte 0"
    assert "no samples" in found.broken[str(foreign)]
    assert "not a number" in found.broken[str(word)]


@pytest.mark.parametrize("said", [b"3", b"1" + b"0" * 26, b"2\n"])
def test_more_parts_than_there_are_break_the_sample_as_in_training(
    tmp_path: Path, said: bytes
) -> None:
    members = {"child.jpg": b"", "child.txt": b"t"}
    several = {
        "parent000.txt": b"",
        "parent001.txt": b"",
        "parent000.jpg": b"",
        "parent001.jpg": b"",
    }
    if said == b"2\n":  # the number fits, the places do not
        del several["parent001.txt"]
        several["parent002.txt"] = b""
    broken = members | {"numparents.txt": said} | several
    sound = members | {"numparents.txt": b"0"}
    content = {"0": broken, "1": sound}
    path = tmp_path / "a.tar"
    write_tar(
        path, {f"{key}.{kind}": data for key, of in content.items() for kind, data in of.items()}
    )
    found = scanned(path)
    assert found.histogram == {0: 1}
    assert found.broken[str(path)].startswith("sample 0: numparents.txt says")
    index = index_shards([path])
    with pytest.raises(DataError, match="sample 0: missing"):
        read_sample(index, 0)


def test_a_shard_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [of(1, "a"), of(2, "b")])
    (tmp_path / "link").symlink_to(tmp_path)
    assert scanned(tmp_path / "0.tar", tmp_path / "link" / "0.tar") == Scan(1, 2, {1: 1, 2: 1}, {})


def test_photos_are_those_of_their_data_set_whose_splits_may_share_them(tmp_path: Path) -> None:
    paths = [tmp_path / name / "0.tar" for name in ("a/train", "a/val", "b/train", "c", "d")]
    for path in paths:
        write_shard(path, [of(1, "0/7"), of(1, "0/7")])
    for name in "ab":
        (tmp_path / name / "manifest.json").write_text("{}")
    assert scanned(*paths).photos == 4
    index = index_shards(paths)
    assert index.photo.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_a_photo_whose_id_is_half_a_letter_is_a_photo_all_the_same(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [of(1, "\ud800"), of(1, "\ud800"), of(1, "a")])
    assert scanned(tmp_path / "0.tar") == Scan(1, 2, {1: 3}, {})


def test_nothing_but_broken_shards_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.tar: .*none has a sample"):
        scanned(tmp_path / "a.tar")


def test_files_hold_the_figures_the_histogram_and_a_plot(tmp_path: Path) -> None:
    found = Scan(1, 7, {0: 2, 1: 4, 2: 1, 40: 1}, {})
    paths = write(tmp_path / "out", found)
    assert [path.name for path in paths] == ["scan.json", "scan.csv", "scan.png"]
    assert json.loads(paths[0].read_text())["figures"] == found.figures()
    with paths[1].open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["0", "2"], ["1", "4"], ["2", "1"], ["40", "1"]]
    with Image.open(paths[2]) as picture:
        assert picture.size[0] > 1_000


def test_samples_without_any_part_are_scanned_too(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [of(0, "a")])
    found = scanned(tmp_path / "0.tar")
    assert found.figures() == {"shards": 1, "samples": 1, "photos": 1, "parts": 0}
    assert len(write(tmp_path / "out", found)) == 2


def test_the_command_prints_figures_beside_the_papers(shards: Path) -> None:
    (shards / "00002.tar").write_bytes(b"")
    result = CliRunner().invoke(build_app(), ["data", "scan", f"{shards}/*.tar"])
    assert result.exit_code == 0, result.output
    assert "13,149,251" in result.output
    assert "00002.tar: cannot be read" in result.output
    assert "1 shard of 3 broken" in result.output


def test_a_data_sets_folder_is_answered_with_those_of_its_splits(shards: Path) -> None:
    result = CliRunner().invoke(build_app(), ["data", "scan", str(shards.parent)])
    assert isinstance(result.exception, DataError)
    assert f"name one of {shards}" in str(result.exception)
