"""Shards to samples: what is found, in which order, and what a broken shard gives."""

import io
import logging
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.errors import DataError
from trainer.data.order import epoch_order
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import write_shard
from trainer.data.shards import find_addresses, find_shards, index_shards, read_sample


def plain(number: int, photo: str | None = None) -> Sample:
    parts = tuple(Part(b"crop", f"part {part}") for part in range(number % 3))
    return Sample(photo or f"photo/{number}", b"image", f"caption {number}", parts)


def test_folders_globs_braces_and_files_name_the_same_shards(shards: Path) -> None:
    expected = [shards / "00000.tar", shards / "00001.tar"]
    for pattern in (str(shards), f"{shards}/*.tar", f"{shards}/{{00000..00001}}.tar"):
        assert find_shards(pattern) == expected
    assert find_shards(str(expected[1])) == expected[1:]


def test_a_glob_of_folders_names_the_shards_of_each(tmp_path: Path) -> None:
    for folder in ("b/train", "a/train", "a/val", ".c/train"):
        write_shard(tmp_path / folder / "00000.tar", [plain(0)])
    expected = [tmp_path / "a/train/00000.tar", tmp_path / "b/train/00000.tar"]
    assert find_shards(f"{tmp_path}/*/train") == expected
    assert find_shards(f"{tmp_path}/*/train/*.tar") == expected
    assert find_shards(f"{tmp_path}/{{b,a}}/train") == expected[::-1]


def test_what_is_there_by_its_very_name_is_no_pattern(tmp_path: Path) -> None:
    tar = tmp_path / "ü [x] {0..1}*{" / "00000 {a,b}.tar"
    write_shard(tar, [plain(0)])
    assert find_shards(str(tar)) == [tar]
    assert find_shards(str(tar.parent)) == [tar]


def test_braces_may_be_longer_than_a_name_can_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such shard"):
        find_shards(f"{tmp_path}/{{{','.join(map(str, range(200)))}}}.tar")


def test_a_command_keeps_its_backslashes() -> None:
    command = r"pipe:sed 's/\./-/' {0..1}.tar"
    assert find_addresses(command) == [command.replace("{0..1}", digit) for digit in "01"]


def test_braces_that_are_not_closed_are_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="braces are"):
        find_shards(f"{tmp_path}/{{00000..00003.tar")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere-00003\.tar"):
        find_shards(f"{tmp_path}/nowhere-0000{{3..4}}.tar")
    with pytest.raises(DataError, match="no shards"):
        find_shards(str(tmp_path))


def test_every_sample_comes_back_as_it_was_written(tmp_path: Path) -> None:
    written = [plain(number) for number in range(7)]
    write_shard(tmp_path / "00000.tar", written)
    index = index_shards(find_shards(str(tmp_path)))
    assert len(index) == 7
    for number, expected in enumerate(written):
        found = read_sample(index, number)
        assert found == replace(expected, key=f"00000{number:06d}")


def test_shards_of_other_tools_are_read_whatever_the_order_of_members(tmp_path: Path) -> None:
    """As HyCoCLIP's preparation writes them: no json, and the standard library's headers."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for key in ("000", "001"):
            for kind, content in [
                ("parent000.txt", b"a dog"), ("child.jpg", b"i"), ("numparents.txt", b"1"),
                ("child.txt", b"dogs"), ("parent000.jpg", b"p"),
            ]:  # fmt: skip
                entry = tarfile.TarInfo(f"{key}.{kind}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    index = index_shards([tmp_path / "a.tar"])
    assert read_sample(index, 1).parts == (Part(b"p", "a dog"),)
    assert index.photo[0] != index.photo[1]


@pytest.mark.parametrize("layout", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("folder", ["", "./", "grit.v1/", f"{90 * 'long'}/"[-150:]])
def test_folders_and_long_names_within_a_shard_do_not_matter(
    tmp_path: Path, layout: int, folder: str
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=layout) as tar:
        for key in ("000", "001", "002"):
            for kind in ("child.txt", "child.jpg"):
                entry = tarfile.TarInfo(f"{folder}{key}.{kind}")
                entry.size, entry.mtime = 3, 1.5  # a fraction makes POSIX headers
                tar.addfile(entry, io.BytesIO(key.encode()))
    index = index_shards([tmp_path / "a.tar"])
    assert [read_sample(index, number).text for number in range(3)] == ["000", "001", "002"]


@pytest.mark.parametrize(
    "about",
    [
        b"[" * 100_000,
        b"[1]",
        b"null",
        b"{",
        b'{"names": 5}',
        b'{"names": [7, "a"]}',
        b"\xff",
        b'{"boxes": [[0, 0, 1, 1%s]]}' % (b"0" * 400),
        b'{"boxes": [[0, 0, NaN, 1]]}',
        b'{"names": ["\\ud800"]}',
    ],
)
def test_an_odd_json_costs_its_own_sample_alone(tmp_path: Path, about: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for key in ("000", "001"):
            members = {
                "json": about if key == "000" else b"{}",
                "child.txt": b"t",
                "child.jpg": b"i",
                "numparents.txt": b"1",
                "parent000.txt": b"a part",
                "parent000.jpg": b"p",
            }
            for kind, content in members.items():
                entry = tarfile.TarInfo(f"{key}.{kind}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    index = index_shards([tmp_path / "a.tar"])
    assert read_sample(index, 1).text == "t"
    with pytest.raises(DataError, match=r"a\.tar: sample 000"):
        read_sample(index, 0)


def test_a_file_that_is_no_tar_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.tar"
    for content in (b"", b"this is not a tar" * 100):
        wrong.write_bytes(content)
        with pytest.raises(DataError, match=r"wrong\.tar"):
            index_shards([wrong])


def test_a_shard_that_breaks_off_keeps_its_whole_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "torn.tar"
    write_shard(path, [plain(number) for number in range(6)])
    whole = index_shards([path])
    cut = int(whole.offset[4]) + 700  # within the fifth sample's first member
    path.write_bytes(path.read_bytes()[:cut])
    with caplog.at_level(logging.WARNING):
        index = index_shards([path])
    assert "torn.tar breaks off" in caplog.text
    assert [read_sample(index, number).text for number in range(len(index))] == [
        f"caption {number}" for number in range(4)
    ]


def test_a_sample_without_its_image_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        entry = tarfile.TarInfo("00042.child.txt")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(DataError, match=r"a\.tar: sample 00042: .*child\.jpg"):
        read_sample(index_shards([tmp_path / "a.tar"]), 0)


def test_an_epoch_visits_each_sample_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [plain(number) for number in range(40)])
    index = index_shards(find_shards(str(tmp_path)))
    first, again, second = (epoch_order(index, 8, 1, epoch) for epoch in (0, 0, 1))
    assert sorted(first.ravel()) == list(range(40))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_no_batch_holds_two_captions_of_a_photo(tmp_path: Path) -> None:
    rows = [plain(number, f"photo/{number % 13}") for number in range(13 * 5)]
    write_shard(tmp_path / "0.tar", rows)
    index = index_shards(find_shards(str(tmp_path)))
    order = epoch_order(index, 6, 0, 0)
    photos = index.photo[order]
    assert all(len(set(batch)) == 6 for batch in photos.tolist())
    assert len(set(order.ravel().tolist())) == order.size >= 13 * 5 - 12


def test_too_few_photos_for_a_batch_are_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [plain(number, "the only one") for number in range(9)])
    with pytest.raises(DataError, match=r"lower optim\.batch_size"):
        epoch_order(index_shards([tmp_path / "0.tar"]), 4, 0, 0)
