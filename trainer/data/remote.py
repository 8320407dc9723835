"""Shards that lie elsewhere: at http and https addresses, in object storage, behind a command.

The order of samples is a permutation of an index of headers, which a stream cannot have. So each
shard is fetched once, whole, into a folder, and is read there ever after::

    CACHE/lock                               held by the one process that fetches
          HOST-DIGEST/NAME.tar               a shard; the digest is of the folder it lies in
                      .NAME.tar.TAG.partial  one on its way; the tag is of its content
          pipe/DIGEST.tar                    what a command wrote
"""

import http.client
import os
import shutil
import subprocess
import threading
import urllib.error
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from core.errors import ConfigError, DataError, StorageError
from trainer.data.address import FORM, copy_of, digest, shown
from trainer.data.tar import check_tar
from trainer.downloads import CUT_OFF, Advance, Remote, ask, run_into, transfer
from trainer.storage import storage_errors

_COMMANDS = {
    "s3": ("aws", "s3", "cp", "--only-show-errors", "{url}", "-"),
    "gs": ("gcloud", "storage", "cat", "{url}"),
}
_AT_ONCE = 8  # downloads
_TRIES = 5  # in a row that bring nothing new
_WORTH_ANOTHER = frozenset({408, 425, 429, 500, 502, 503, 504})
_NO_COMMAND = (126, 127)  # statuses of the shell

T = TypeVar("T")


def fetch(addresses: Sequence[str], cache: Path, console: Console, pause_s: float = 1.0) -> None:
    """Fetch shards; whoever calls this holds the folder's lock.

    Each appears under its name when it is whole, and what was cut off is gone on with, also by
    the next process.

    Args:
        addresses: Of shards that are not in the folder yet.
        cache: The folder.
        console: Shown a progress bar.
        pause_s: Before a transfer that was cut off is tried again; doubled each time.

    Raises:
        DataError: A shard cannot be had, or is no tar.
        ConfigError: A command that fetches from object storage is not installed.
        StorageError: The disk cannot take them.
    """
    stop = threading.Event()
    with (
        storage_errors(cache),
        _bar(console) as bar,
        ThreadPoolExecutor(_AT_ONCE, "shards") as pool,
    ):
        task = bar.add_task("fetching shards", total=None, told="asking for their sizes")
        try:
            look = partial(_look, cache=cache, stop=stop, pause_s=pause_s)
            jobs = list(pool.map(look, addresses))
            _make_room(jobs, cache)
            sizes = [job.size for job in jobs if job.size is not None]
            total = sum(sizes) if len(sizes) == len(jobs) else None
            bar.update(task, total=total, told=f"0 of {len(jobs):,}")
            having = {job.address: _size(job.partial) for job in jobs}

            def tell(address: str, had: int, _: int | None) -> None:
                if stop.is_set():
                    raise _StoppedError
                having[address] = had
                bar.update(task, completed=sum(having.values()))

            running = [
                pool.submit(_get, job, partial(tell, job.address), stop, pause_s) for job in jobs
            ]
            for number, done in enumerate(as_completed(running), 1):
                done.result()
                bar.update(task, told=f"{number:,} of {len(jobs):,}")
        finally:
            stop.set()  # an error, or Ctrl-C: nobody need wait for the others
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Job:
    """A shard on its way."""

    address: str
    file: Path
    partial: Path
    size: int | None


class _CutShortError(http.client.HTTPException):
    """What came is no whole tar, and nobody had said how long it is."""


class _StoppedError(Exception):
    """Another shard has failed, or the user has had enough."""


def _look(address: str, cache: Path, stop: threading.Event, pause_s: float) -> _Job:
    """Ask what a server has, and remove what is left of another content."""
    file = copy_of(address, cache)
    found = Remote(None, "")
    if address.startswith("http"):
        found = _try(address, partial(ask, address), file, stop, pause_s)
    on_its_way = file.with_name(f".{file.name}.{digest(repr(found))}.partial")
    file.parent.mkdir(exist_ok=True)
    for old in file.parent.glob(f".{file.name}.*.partial"):
        if old != on_its_way:
            old.unlink()
    return _Job(address, file, on_its_way, found.size)


def _make_room(jobs: Sequence[_Job], cache: Path) -> None:
    """Make sure that the disk holds what is known to be coming.

    Raises:
        StorageError: It does not.
    """
    need = sum((job.size or 0) - (_size(job.partial) if job.size else 0) for job in jobs)
    free = shutil.disk_usage(cache).free
    if need > free:
        raise StorageError(
            f"{cache}: the {len(jobs):,} shards that are not there yet take {decimal(need)}, and "
            f"{decimal(free)} are free there: make room, or name a folder on another disk in "
            "data.cache"
        )


def _get(job: _Job, advance: Advance, stop: threading.Event, pause_s: float) -> None:
    """One shard, from its first missing byte to its name."""

    def once() -> None:
        _bring(job, advance)
        _check(job)

    _try(job.address, once, job.partial, stop, pause_s)
    with job.partial.open("rb+") as file:
        os.fsync(file.fileno())  # whoever finds the name finds it whole, after any crash
    job.partial.replace(job.file)


def _bring(job: _Job, advance: Advance) -> None:
    """What is missing of a shard, in one transfer."""
    if not job.address.startswith("http"):
        try:
            run_into(_command(job.address), job.partial, advance)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{job.address}: the command {error.filename} is not installed; install it, or "
                'give another as "pipe:COMMAND"'
            ) from error
        return
    if job.size is None or _size(job.partial) > job.size:
        job.partial.unlink(missing_ok=True)  # it may be whole, and then there is no rest
    if job.size is None or _size(job.partial) != job.size:
        transfer(job.address, job.partial, advance)
    had = _size(job.partial)
    if job.size not in {None, had}:
        job.partial.unlink()
        raise http.client.HTTPException(f"{had:,} bytes came, not the {job.size:,} announced")


def _check(job: _Job) -> None:
    """Make sure that a tar has come, and all of it where nobody said how long it is.

    Raises:
        DataError: It is something else, and is removed.
        _CutShortError: So it is, but it may only have been cut off.
    """
    try:
        check_tar(job.partial, to_the_end=job.size is None)
    except DataError as error:
        job.partial.unlink()
        why = f"what came is no whole tar: {error}; look whether the address is right"
        if job.size is None and job.address.startswith("http"):
            raise _CutShortError(why) from error
        raise DataError(shown(f"{job.address}: {why}")) from error


def _try(
    address: str, once: Callable[[], T], partial_file: Path, stop: threading.Event, pause_s: float
) -> T:
    """The result of what a network may fail, tried again while that may help.

    Raises:
        DataError: It fails for good, or some times in a row without bringing anything new.
    """
    tries, most = 0, _size(partial_file)
    while True:
        try:
            return once()
        except CUT_OFF as error:
            has = _size(partial_file)
            tries, most = 1 if has > most else tries + 1, max(has, most)
            if tries == _TRIES or _is_final(error) or stop.wait(pause_s * 2 ** (tries - 1)):
                raise DataError(shown(f"{address}: {_why(error)}")) from error


def _is_final(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code not in _WORTH_ANOTHER
    if isinstance(error, http.client.InvalidURL):
        return True
    return isinstance(error, subprocess.CalledProcessError) and error.returncode in _NO_COMMAND


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}; look whether the address is right"
    if isinstance(error, urllib.error.URLError):
        return f"cannot be reached: {error.reason}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"the command ended with status {error.returncode}: {error.stderr}"
    if isinstance(error, http.client.InvalidURL):
        return f"it, or what it redirects to, is not an address ({error}); {FORM}"
    if isinstance(error, _CutShortError):
        return str(error)
    return (
        f"the transfer was cut off, {_TRIES} times in a row ({error}); run the same command again, "
        "and it goes on from there"
    )


def _command(address: str) -> str | list[str]:
    """What brings a shard that no HTTP does: the author's own line, or the store's program."""
    if address.startswith("pipe:"):
        return address.removeprefix("pipe:")
    return [word.format(url=address) for word in _COMMANDS[address.partition(":")[0]]]


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
        console=console,
    )
