"""Files that are whole or not there."""

import os
from contextlib import suppress
from pathlib import Path

from core.errors import StorageError


def write_whole(file: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part.

    Raises:
        StorageError: It cannot be written; the message says why.
    """
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise StorageError(
            f"{file}: cannot be written: {reason}; free some space, or name another folder"
        ) from error
