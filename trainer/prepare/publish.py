"""The place of a prepared split: its folder, and its entry in the manifest beside it."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from core.errors import ConfigError, DataError
from trainer.data.shard_writer import MANIFEST, is_ours, read_manifest
from trainer.prepare.sources.source import Source
from trainer.storage import check_ours, clear, write_json


def check_place(out: Path, source: Source) -> None:
    """Make sure that a split can be written under its name, and replaces nothing but its like.

    Raises:
        ConfigError: The split's name is not a plain one.
        DataError: The split would take the place of what was not written here.
    """
    split = source.split
    if not re.fullmatch(r"[\w-][\w.-]*", split):
        raise ConfigError(
            f"split {split!r}: write a plain name of letters, digits and ._- with --split"
        )
    if split.casefold() == MANIFEST:
        raise ConfigError(
            f"split {split!r}: the list of the splits has this name; write another with --split"
        )
    _check_free(out / split, source)


def entry_in(out: Path, split: str) -> dict[str, Any] | None:
    """What the manifest says of a split that is there."""
    entry = ((read_manifest(out) or {}).get("splits") or {}).get(split)
    return entry if isinstance(entry, dict) else None


def publish(shards: Path, out: Path, split: str, entry: dict[str, Any]) -> None:
    """Put the shards of a finished split in its place; killed at any point, this is done again.

    Another split of the folder may be published at the same time by another process, which waits.
    """
    with _alone(out / f".{MANIFEST}.lock"):
        if shards.is_dir():
            clear(out / split, ".tar")
        manifest = read_manifest(out) or {}
        splits = manifest.setdefault("splits", {})
        if shards.is_dir():
            if splits.pop(split, None):
                write_json(out / MANIFEST, manifest)
            shards.rename(out / split)
        splits[split] = entry
        manifest.setdefault("source", "photos with captions and boxes")
        write_json(out / MANIFEST, manifest)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process is within; the lock's file goes when it is left."""
    while True:
        with lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(lock, file):  # removed by the process that was waited for
                continue
            try:
                yield
            finally:
                lock.unlink()
            return


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _check_free(folder: Path, source: Source) -> None:
    """Make sure that what a split would replace was written here: raw data are tars as well."""
    for tar in source.tars:
        if tar.resolve().is_relative_to(folder.resolve()):
            raise DataError(
                f"{tar}: is read from {folder}, which would be written; name another --out or "
                "--split, or a SOURCE without it"
            )
    check_ours(folder, ".tar")
    for tar in sorted(folder.glob("*.tar")):
        if not is_ours(tar):
            raise DataError(
                f"{tar}: was not written by this command and would be lost; name another --out or "
                "--split"
            )
