"""Files that are written whole or not at all, and advice where a disk cannot take them."""

import contextlib
import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.errors import DataError, StorageError

_FULL = "free some space and run the same command again, or name another folder"
_FAULTS = {
    errno.ENOSPC: f"the disk is full; {_FULL}",
    errno.EDQUOT: f"your disk quota is used up; {_FULL}",
    errno.ENOENT: "the folder cannot be made there; name another folder",
    errno.EROFS: "the disk can only be read; name another folder",
    errno.EACCES: "permission denied; name a folder that you may write",
    errno.EPERM: "permission denied; name a folder that you may write",
    errno.ENOTDIR: "a file stands where a folder is needed; name another folder",
    errno.EISDIR: "a folder stands where a file is needed; name another folder",
    errno.EEXIST: "a file stands where a folder is needed; name another folder",
    errno.EIO: "the disk reports a fault; name a folder on another disk",
}


@contextlib.contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system says of a folder that cannot be used into advice.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    try:
        yield
    except OSError as error:
        remedy = _FAULTS.get(error.errno or 0)
        if remedy is None:
            raise
        raise StorageError(f"{folder}: cannot be written: {remedy}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block succeeds.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with storage_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON for people to read; an interrupted write leaves the old file.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


def clear(folder: Path, suffix: str) -> None:
    """Remove a folder that holds only files of one kind, as an earlier run left it.

    Raises:
        DataError: It holds something else too, which is not ours to remove.
    """
    check_ours(folder, suffix)
    if folder.is_dir():
        shutil.rmtree(folder)


def check_ours(folder: Path, suffix: str) -> None:
    """Make sure that a folder, if it is there, holds only files that `clear` may remove.

    Raises:
        DataError: It holds something else too, or is a link or a file.
    """
    if folder.is_symlink():
        raise DataError(
            f"{folder}: is a link, which would have to be replaced; remove it, and make "
            f"{folder.parent} the link if the data shall lie elsewhere"
        )
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: a file stands where a folder would be written; name another")
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() or path.suffix not in (suffix, ".partial"):
            raise DataError(
                f"{folder}: holds {path.name}, which was not written by this command and would "
                "be lost; name another --out"
            )
