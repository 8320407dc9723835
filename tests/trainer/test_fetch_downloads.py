"""Downloads from a server of our own: checked, gone on with, unpacked, and nothing left half."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from core.errors import DataError
from trainer.fetch.archives import download, unpack
from trainer.fetch.catalogue import Archive, catalogue


def silent(title: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def packed(file: Path, content: dict[str, bytes]) -> str:
    """Write a ``.tar.gz`` or ``.zip``; its md5."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(file, "w:gz") as tar:
            for name, data in content.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return hashlib.md5(file.read_bytes()).hexdigest()


def test_archives_are_downloaded_checked_unpacked_and_removed(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"set/one.txt": b"1"})
    packed(tmp_path / "in.tar.gz", {"three.txt": b"3"})
    packed(tmp_path / "www/b.zip", {"in/in.tar.gz": (tmp_path / "in.tar.gz").read_bytes()})
    (tmp_path / "www/labels.mat").write_bytes(b"4")
    entry = catalogue()["pets"].model_copy(
        update={
            "archives": (
                Archive(url=f"{server}/a.tar.gz", md5=digest),
                Archive(url=f"{server}/b.zip", into="more", inner=("in/in.tar.gz",)),
                Archive(url=f"{server}/labels.mat"),
            )
        }
    )
    seen: list[tuple[str, int, int]] = []
    folder = download("pets", entry, tmp_path, lambda *told: seen.append(told))
    found = {str(file.relative_to(folder)) for file in folder.rglob("*.*") if file.is_file()}
    assert found == {"set/one.txt", "more/in/in.tar.gz", "more/in/three.txt", "labels.mat"}
    assert [file.name for file in folder.parent.iterdir()] == ["pets"]
    assert {"downloading a.tar.gz, MB", "unpacking b.zip"} <= {title for title, _, _ in seen}
    (tmp_path / "www/a.tar.gz").unlink()
    assert download("pets", entry, tmp_path, silent) == folder  # nothing is asked for again


def test_a_download_that_was_cut_off_goes_on(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"one.bin": bytes(5000)})
    whole = (tmp_path / "www/a.tar.gz").read_bytes()
    entry = catalogue()["pets"].model_copy(
        update={"archives": (Archive(url=f"{server}/a.tar.gz", md5=digest),)}
    )
    partial_file = tmp_path / "downloads/a.tar.gz.partial"
    partial_file.parent.mkdir()
    partial_file.write_bytes(whole[:20])
    (tmp_path / "www/a.tar.gz").write_bytes(bytes(20) + whole[20:])  # only the rest is right there
    folder = download("pets", entry, tmp_path, silent)
    assert (folder / "one.bin").stat().st_size == 5000
    assert not partial_file.exists()


def test_a_partial_file_that_is_too_long_is_thrown_away(tmp_path: Path, server: str) -> None:
    digest = packed(tmp_path / "www/a.tar.gz", {"one.txt": b"1"})
    whole = (tmp_path / "www/a.tar.gz").read_bytes()
    entry = catalogue()["pets"].model_copy(
        update={"archives": (Archive(url=f"{server}/a.tar.gz", md5=digest),)}
    )
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads/a.tar.gz.partial").write_bytes(whole)
    with pytest.raises(DataError, match="416"):
        download("pets", entry, tmp_path, silent)
    assert (download("pets", entry, tmp_path, silent) / "one.txt").read_text() == "1"


def test_an_archive_with_another_checksum_is_refused_and_removed(
    tmp_path: Path, server: str
) -> None:
    packed(tmp_path / "www/a.tar.gz", {"one.txt": b"1"})
    archive = Archive(url=f"{server}/a.tar.gz", md5="0" * 32)
    entry = catalogue()["pets"].model_copy(update={"archives": (archive,)})
    with pytest.raises(DataError, match="0" * 32):
        download("pets", entry, tmp_path, silent)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_an_address_that_is_gone_says_where_else_to_look(tmp_path: Path, server: str) -> None:
    entry = catalogue()["pets"].model_copy(update={"archives": (Archive(url=f"{server}/no.zip"),)})
    with pytest.raises(DataError, match=r"404 .*get it from https://www\.robots.*--from"):
        download("pets", entry, tmp_path, silent)


def test_a_path_that_leads_out_of_an_archive_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "bad.tar.gz", {"../out.txt": b"1"})
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "bad.tar.gz", tmp_path / "in", silent)
    assert not (tmp_path / "out.txt").exists()
