"""The items of a service in SQLite: the only source of truth.

One thread writes, and commits what has gathered in one transaction with the disk told to sync;
only then is a write acknowledged, and only then do its listeners (the index) hear of it, in the
order of the commits.
"""

import logging
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from core.errors import FingerprintMismatch, Hyper3Error, NotFound, StorageError
from core.lock import take_lock

log = logging.getLogger(__name__)

Space = npt.NDArray[np.float32]
Kind = Literal["image", "text", "vector"]

_DATABASE = "items.sqlite3"
_FORMAT = "1"
_WRITES_PER_COMMIT = 256
_ROWS_PER_READ = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    metadata TEXT NOT NULL,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    text TEXT,
    image BLOB
);
"""


@dataclass(frozen=True)
class Item:
    """One stored thing."""

    id: str
    kind: Kind
    space: Space
    """Space coordinates ``(dim,)``; the time follows from them."""
    metadata: str
    """A JSON object."""
    text: str | None = None
    image: bytes | None = None


@dataclass(frozen=True)
class Put:
    """Items to insert, or to replace where their id is there; all ids differ."""

    items: Sequence[Item]


@dataclass(frozen=True)
class Delete:
    """An item to take out."""

    id: str


Change = Put | Delete


class Store:
    """An open data folder; any number of threads may call it at once.

    Args:
        folder: Made if it is not there.
        fingerprint: Of the model whose vectors it holds.
        dim: Of the space.
        on_commit: Told every change once it is durable, by the writing thread.

    Raises:
        StorageError: The folder cannot be used, or another process uses it.
        FingerprintMismatch: It holds the vectors of another model.
    """

    def __init__(
        self, folder: Path, fingerprint: str, dim: int, on_commit: Callable[[Change], None]
    ) -> None:
        self._folder, self._dim, self._on_commit = folder, dim, on_commit
        self._lock = take_lock(folder)
        self._connections: list[sqlite3.Connection] = []
        self._idle: list[sqlite3.Connection] = []
        self._queue: queue.SimpleQueue[tuple[Change, Future[int]] | None] = queue.SimpleQueue()
        try:
            self._prepare(fingerprint)
        except sqlite3.Error as error:
            self._release()
            raise _trouble(folder, error) from error
        except Hyper3Error:
            self._release()
            raise
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="store", daemon=True)
        self._thread.start()

    def put(self, items: Sequence[Item]) -> None:
        """Insert or replace items; of two with one id the later wins. On return they are durable.

        Raises:
            StorageError: The disk is full or broken; nothing of this call was stored.
        """
        self._submit(Put(list({item.id: item for item in items}.values())))

    def delete(self, id_: str) -> None:
        """Take an item out. On return that is durable.

        Raises:
            NotFound: There is none.
            StorageError: The disk is full or broken.
        """
        if not self._submit(Delete(id_)):
            raise NotFound(f"no item {id_!r}")

    def get(self, id_: str) -> Item:
        """One item.

        Raises:
            NotFound: There is none.
        """
        query = "SELECT id, kind, vector, metadata, text, image FROM items WHERE id = ?"
        rows = self._read(query, (id_,)) if is_unicode(id_) else []
        if not rows:
            raise NotFound(f"no item {id_!r}")
        id_, kind, vector, metadata, text, image = rows[0]
        return Item(id_, kind, np.frombuffer(vector, np.float32), metadata, text, image)

    def metadata(self, ids: Sequence[str]) -> dict[str, str]:
        """The metadata (JSON) of those ids that are there."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), 500):  # a statement takes some thousand values
            some = ids[start : start + 500]
            marks = ",".join("?" * len(some))
            query = f"SELECT id, metadata FROM items WHERE id IN ({marks})"  # noqa: S608  # marks
            found.update(self._read(query, tuple(some)))
        return found

    def page(self, after: str, limit: int) -> list[tuple[str, Kind, str]]:
        """Id, kind and metadata of the items whose id follows ``after``, in the order of ids."""
        return self._read(
            "SELECT id, kind, metadata FROM items WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )

    def vectors(self) -> Iterator[tuple[list[str], Space]]:
        """All ids and space coordinates ``(n, dim)``, in batches.

        Raises:
            StorageError: A vector is not what was written.
        """
        query = (
            "SELECT id, vector, checksum, sequence FROM items WHERE sequence > ? "
            "ORDER BY sequence LIMIT ?"
        )
        last = 0
        while rows := self._read(query, (last, _ROWS_PER_READ)):
            last = rows[-1][3]
            for id_, vector, checksum, _ in rows:
                if len(vector) != 4 * self._dim or zlib.crc32(vector) != checksum:
                    raise StorageError(
                        f"{self._folder / _DATABASE}: the vector of item {id_!r} is damaged; "
                        "restore the data folder from a copy"
                    )
            space = np.frombuffer(b"".join(row[1] for row in rows), np.float32)
            yield [row[0] for row in rows], space.reshape(len(rows), self._dim)

    def close(self) -> None:
        """Commit what was submitted, and let another process use the folder."""
        self._queue.put(None)
        self._thread.join()
        self._release()

    def _submit(self, change: Change) -> int:
        """Rows that the change touched, once it is durable."""
        done: Future[int] = Future()
        self._queue.put((change, done))
        return done.result()

    def _read(self, query: str, values: tuple[object, ...]) -> list[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _trouble(self._folder, error) from error
        finally:
            self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._folder / _DATABASE, isolation_level=None, check_same_thread=False, timeout=30
        )
        self._connections.append(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self, fingerprint: str) -> None:
        connection = self._connect()
        connection.executescript(_SCHEMA)
        about = {"format": _FORMAT, "fingerprint": fingerprint, "dim": str(self._dim)}
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", about.items())
        stored = dict(connection.execute("SELECT key, value FROM about"))
        if stored["format"] != _FORMAT:
            raise StorageError(
                f"{self._folder} was written in format {stored['format']} and this service reads "
                f"{_FORMAT}: use the version that wrote it"
            )
        if stored != about:
            raise FingerprintMismatch(
                f"{self._folder} holds vectors of the model {stored['fingerprint']}, and the "
                f"bundle is {fingerprint}: serve the bundle they were made with, or choose "
                "another --data folder and index again"
            )

    def _write(self) -> None:
        connection = self._connect()
        while (first := self._queue.get()) is not None:
            group = [first]
            while len(group) < _WRITES_PER_COMMIT and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._queue.put(None)  # closing: the outer loop ends after this group
                    break
                group.append(following)
            self._commit(connection, group)

    def _commit(
        self, connection: sqlite3.Connection, group: list[tuple[Change, Future[int]]]
    ) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            touched = [_apply(connection, change) for change, _ in group]
            connection.execute("COMMIT")
            for change, _ in group:
                self._on_commit(change)
        except Exception as error:  # the outermost loop of this thread: the waiting must hear
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not isinstance(error, sqlite3.Error):
                self.failure = error
            log.exception("write failed")
            for _, done in group:
                done.set_exception(_trouble(self._folder, error))
            return
        for (_, done), count in zip(group, touched, strict=True):
            done.set_result(count)

    def _release(self) -> None:
        for connection in self._connections:
            connection.close()
        self._lock.close()


def is_unicode(text: str) -> bool:
    """Whether text can be stored: half of a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _apply(connection: sqlite3.Connection, change: Change) -> int:
    if isinstance(change, Delete):
        return connection.execute("DELETE FROM items WHERE id = ?", (change.id,)).rowcount
    rows = [
        (item.id, item.kind, item.metadata, vector, zlib.crc32(vector), item.text, item.image)
        for item in change.items
        for vector in (item.space.astype(np.float32).tobytes(),)
    ]
    connection.executemany(
        "INSERT OR REPLACE INTO items (id, kind, metadata, vector, checksum, text, image) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    return len(rows)


def _trouble(folder: Path, error: BaseException) -> StorageError:
    return StorageError(f"{folder}: {error}; nothing that was acknowledged is lost")
