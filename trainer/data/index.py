"""A recipe's shards, fetched and indexed where that has not been done before."""

import hashlib
import logging
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core.errors import ConfigError
from core.lock import take_lock
from trainer.data.address import absent, shown
from trainer.data.remote import fetch
from trainer.data.shards import (
    ShardIndex,
    find_addresses,
    find_shards,
    index_shards,
    warn_of_torn,
)
from trainer.storage import replacing

log = logging.getLogger(__name__)


def open_shards(
    pattern: str, cache: Path | None, console: Console, held: Callable[[], None] = lambda: None
) -> ShardIndex:
    """Where every sample of some shards lies; those at addresses are fetched first.

    With a folder to keep things in, headers are read once, and a second process waits while the
    first one fetches and reads.

    Args:
        pattern: A recipe's ``data.train`` or ``data.val``.
        cache: Its ``data.cache``.
        console: Shown progress.
        held: Called once this process has the folder to itself, or does not need it so.

    Raises:
        ConfigError: Shards lie elsewhere and there is no folder, or a command is not installed.
        DataError: A shard is missing, cannot be had or is no tar.
        StorageError: The folder cannot be written, or its disk cannot hold what is missing.
    """
    addresses = find_addresses(pattern)
    if cache is None:
        if addresses:
            raise ConfigError(
                f"{shown(addresses[0])}: shards that lie elsewhere are fetched once; name a folder "
                "for them, data.cache=FOLDER"
            )
        held()
        return _read(find_shards(pattern), console)
    index = _known(pattern, addresses, cache)
    if index is not None:
        held()
        return index
    with closing(take_lock(cache, lambda owner: _say_waiting(console, cache, owner))):
        held()
        index = _known(pattern, addresses, cache)
        if index is None:
            if missing := absent(addresses, cache):
                fetch(missing, cache, console)
            index = _read(find_shards(pattern, cache), console)
            _keep(index, cache)
    return index


def _known(pattern: str, addresses: list[str], cache: Path) -> ShardIndex | None:
    """The index, where all shards are there and their headers have been read before."""
    if absent(addresses, cache):
        return None
    shards = find_shards(pattern, cache)
    file = _file(shards, cache)
    if not file.exists():
        return None
    try:
        with file.open("rb") as stream, np.load(stream) as kept:
            shard, offset, size, photo = (kept[name] for name in _COLUMNS)
            torn = tuple(kept["torn"].tolist())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        log.warning("index unreadable %s: %s; headers are read anew", file, error)
        return None
    index = ShardIndex(tuple(shards), shard, offset, size, photo, torn)
    warn_of_torn(index)
    return index


_COLUMNS = ("shard", "offset", "size", "photo")


def _keep(index: ShardIndex, cache: Path) -> None:
    columns = {name: getattr(index, name) for name in _COLUMNS}
    with (
        replacing(_file(list(index.shards), cache)) as temporary,
        temporary.open("wb") as out,
    ):
        np.savez(out, **columns, torn=np.array(index.torn, np.str_))


def _file(shards: list[Path], cache: Path) -> Path:
    """Where the index of these shards is kept: another place once one of them has changed."""
    digest = hashlib.sha256()
    for path in shards:
        status = path.stat()
        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"  # a copy may keep the first
        digest.update(f"{path.resolve()}\n{status.st_size} {times}\n".encode())
    return cache / f"index-{digest.hexdigest()[:16]}.npz"


def _read(shards: list[Path], console: Console) -> ShardIndex:
    with Progress(
        TextColumn("[bold]reading headers of shards"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=len(shards))
        return index_shards(shards, lambda done: bar.update(task, completed=done))


def _say_waiting(console: Console, folder: Path, owner: str) -> None:
    console.print(
        f"{escape(str(folder))}: process {owner} is filling it; waiting until it has done so"
    )
