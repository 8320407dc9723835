"""Official archives: downloaded, checked and unpacked."""

import hashlib
import http.client
import shutil
import tarfile
import urllib.error
import zipfile
import zlib
from pathlib import Path

from core.errors import DataError
from trainer.downloads import transfer
from trainer.fetch.catalogue import Archive, Entry
from trainer.fetch.draft import Advance
from trainer.storage import storage_errors

DOWNLOADS = "downloads"
_MB = 1_000_000
_TAR = (".tar", ".tar.gz", ".tgz")


def download(name: str, entry: Entry, root: Path, advance: Advance) -> Path:
    """The folder with all that a data set's archives hold, downloaded if it is not there.

    An archive that was cut off is gone on with; an unpacked folder is there whole or not at all.

    Raises:
        DataError: An archive cannot be had, or is not the one that was published.
        StorageError: The disk cannot take it.
    """
    folder = root / DOWNLOADS / name
    if folder.is_dir():
        return folder
    new = folder.with_name(f".{name}.partial")
    with storage_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        remedy = f"get it from {entry.where}, unpack it, and name its folder with --from"
        files = [_get(archive, folder.parent, remedy, advance) for archive in entry.archives]
        shutil.rmtree(new, ignore_errors=True)
        try:
            for archive, file in zip(entry.archives, files, strict=True):
                base = new / archive.into
                unpack(file, base, advance)
                for inner in archive.inner:
                    unpack(base / inner, (base / inner).parent, advance)
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        for file in files:
            file.unlink()
    return folder


def unpack(file: Path, folder: Path, advance: Advance) -> None:
    """Unpack a tar or a zip, or copy a file that is neither, into a folder.

    Raises:
        DataError: It is broken, or a path in it leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if file.name.endswith(_TAR):
            size = file.stat().st_size
            with file.open("rb") as stream, tarfile.open(fileobj=stream) as tar:
                for member in tar:
                    tar.extract(member, folder, filter="data")
                    advance(f"unpacking {file.name}, MB", stream.tell() // _MB, size // _MB)
        elif file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                for number, item in enumerate(members, 1):
                    archive.extract(item, folder)
                    advance(f"unpacking {file.name}", number, len(members))
        else:
            shutil.copy(file, folder)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{file}: cannot be unpacked: {error}; delete it and run again") from error


def _get(archive: Archive, folder: Path, remedy: str, advance: Advance) -> Path:
    """The downloaded archive, its checksum compared."""
    file = folder / archive.url.rpartition("/")[2]
    if not file.is_file():
        partial = file.with_name(f"{file.name}.partial")
        try:
            title = f"downloading {file.name}, MB"
            transfer(
                archive.url,
                partial,
                lambda had, total: advance(title, had // _MB, (total or 0) // _MB),
            )
        except urllib.error.HTTPError as error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                partial.unlink()  # it is longer than what the server has
            raise DataError(f"{archive.url}: {error.code} {error.reason}; {remedy}") from error
        except urllib.error.URLError as error:
            raise DataError(
                f"{archive.url}: cannot be reached: {error.reason}; {remedy}"
            ) from error
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise DataError(
                f"{archive.url}: the download was cut off ({error}); run the same command again, "
                "and it goes on from there"
            ) from error
        partial.replace(file)
    if archive.md5:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, _md5).hexdigest()
        if digest != archive.md5:
            file.unlink()
            raise DataError(
                f"{archive.url}: its md5 is {digest}, where {archive.md5} was published; run the "
                f"same command again, or {remedy}"
            )
    return file


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)
