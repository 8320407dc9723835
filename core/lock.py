"""The lock that keeps a second process out of a folder, and ends with its holder."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from core.errors import StorageError

_LOCK = "lock"


def take_lock(folder: Path, wait: Callable[[str], None] | None = None) -> IO[str]:
    """The folder's lock, held until it is closed; the folder is made if it is not there.

    Args:
        folder: What is locked.
        wait: Told the id of the process that holds the lock; then it is waited for. Without
            this, a lock that is held is an error.

    Raises:
        StorageError: The folder cannot be used, or another process holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("a+", encoding="ascii")
    except OSError as error:
        raise StorageError(f"{folder}: cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        if wait is None:
            lock.close()
            raise StorageError(
                f"{folder} is in use by another process ({owner}): stop it, or choose another "
                "folder"
            ) from error
        wait(owner)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        lock.truncate(0)
        lock.write(f"{os.getpid()}")
        lock.flush()
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error.strerror}") from error
    return lock


def holder_of(folder: Path) -> str:
    """The id of the process that holds the folder's lock; nothing where none does."""
    try:
        with (folder / _LOCK).open(encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or "unknown"
    except OSError:  # not there yet
        return ""
    return ""
