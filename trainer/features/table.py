"""Rows of half precision under keys, on disk: appended to, never changed.

Values are written before keys, so that a row with a key is whole whatever happened to the writer;
what it left behind the last of these is cut off by the next.
"""

import contextlib
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

import numpy as np
import numpy.typing as npt

from trainer.storage import storage_errors

KEY_BYTES = 16

Keys = npt.NDArray[np.bytes_]
"""Digests, ``S16``: numpy sorts and finds them as they are."""

Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Table:
    """Rows of half precision under keys, on disk."""

    folder: Path
    name: str
    shape: tuple[int, ...]  # of a row

    @property
    def row_bytes(self) -> int:
        """Bytes of a row with its key."""
        return 2 * int(np.prod(self.shape)) + KEY_BYTES

    def keys(self) -> Keys:
        """The keys of all whole rows."""
        try:
            found = self.file("keys").read_bytes()
            rows = self.file("f16").stat().st_size // (self.row_bytes - KEY_BYTES)
        except FileNotFoundError:
            return np.empty(0, f"S{KEY_BYTES}")
        count = min(len(found) // KEY_BYTES, rows)
        return np.frombuffer(found, f"S{KEY_BYTES}", count)

    def find(self, keys: Keys) -> npt.NDArray[np.int64]:
        """The row of each key, or -1."""
        stored = self.keys()
        if not len(stored):
            return np.full(len(keys), -1)
        order = np.argsort(stored, kind="stable")
        place = np.minimum(np.searchsorted(stored, keys, sorter=order), len(stored) - 1)
        rows = order[place]
        return np.where(stored[rows] == keys, rows, -1)

    def values(self, rows: int) -> Half:
        """The first rows, ``(rows, *shape)``, still in the file."""
        return _mapped(self.file("f16"), (rows, *self.shape))

    def file(self, suffix: str) -> Path:
        """Where keys or values are."""
        return self.folder / f"{self.name}.{suffix}"


@dataclass
class Writer:
    """Appends to a table; what is not committed when the process ends is cut off later.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """

    table: Table
    _files: dict[str, IO[bytes]] = field(default_factory=dict)
    _keys: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Self:
        rows = len(self.table.keys())
        with storage_errors(self.table.folder):
            self.table.folder.mkdir(parents=True, exist_ok=True)
            for suffix, size in (("f16", self.table.row_bytes - KEY_BYTES), ("keys", KEY_BYTES)):
                self._files[suffix] = file = self.table.file(suffix).open("ab")
                file.truncate(rows * size)
        return self

    def append(self, keys: Sequence[bytes], values: Half) -> None:
        """Write rows."""
        with storage_errors(self.table.folder):
            self._files["f16"].write(np.ascontiguousarray(values).data)
        self._keys += keys

    def commit(self) -> None:
        """Make sure that all rows so far outlast whatever happens."""
        with storage_errors(self.table.folder):
            for suffix, content in (("f16", b""), ("keys", b"".join(self._keys))):
                file = self._files[suffix]
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._keys.clear()

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # of a full disk, which has been told already
                file.close()


def key_at(keys: Keys, place: int) -> bytes:
    """One key in full: numpy leaves out zeros at its end."""
    return bytes(keys[place]).ljust(KEY_BYTES, b"\0")


@functools.lru_cache(maxsize=64)
def _mapped(file: Path, shape: tuple[int, ...]) -> Half:
    return np.asarray(np.memmap(file, np.float16, "r", shape=shape))
