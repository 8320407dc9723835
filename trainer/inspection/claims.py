"""Which shards are to be checked, and what the manifest says of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import DataError
from trainer.data.shard_writer import MANIFEST, read_manifest
from trainer.data.shards import distinct, find_shards


@dataclass(frozen=True)
class Claim:
    """What the manifest says of a shard."""

    samples: int
    parts: int
    sha256: str


@dataclass(frozen=True)
class Job:
    """A shard to check; without a claim, whether there is a manifest that should have one."""

    path: Path
    claim: Claim | None
    has_manifest: bool


def jobs_of(patterns: Sequence[str]) -> list[Job]:
    """The shards that are there or should be.

    Args:
        patterns: Folders of shards, or of a whole data set with its manifest; tars, globs or
            braces. Of a folder, the shards that its manifest names beyond those it holds are
            looked for too. A shard that is named twice is one.

    Raises:
        DataError: There are no shards, or a manifest cannot be read.
    """
    jobs: list[Job] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            for folder in _folders(path):
                claims = _claims(folder)
                names = {tar.name for tar in folder.glob("*.tar")} | (claims or {}).keys()
                jobs += [_job(folder / name, claims) for name in sorted(names)]
        else:
            jobs += [_job(tar, _claims(tar.parent)) for tar in find_shards(pattern)]
    if not jobs:
        raise DataError(f"{patterns[0]}: no shards (*.tar) here, and no {MANIFEST} that names any")
    by_path = {job.path: job for job in jobs}
    return [by_path[path] for path in distinct(job.path for job in jobs)]


def _folders(folder: Path) -> list[Path]:
    """The folder, or those of its splits where it holds a whole data set."""
    if any(folder.glob("*.tar")):
        return [folder]
    splits = (read_manifest(folder) or {}).get("splits", {})
    return [folder / name for name, split in splits.items() if split.get("shards")] or [folder]


def _job(path: Path, claims: dict[str, Claim] | None) -> Job:
    return Job(path, (claims or {}).get(path.name), claims is not None)


def _claims(folder: Path) -> dict[str, Claim] | None:
    """By file, of a split's folder; None where no manifest speaks of it."""
    folder = folder.resolve()
    splits: dict[str, Any] = (read_manifest(folder.parent) or {}).get("splits", {})
    if folder.name not in splits:
        return None
    try:
        return {
            Path(shard["file"]).name: Claim(shard["samples"], shard["parts"], shard["sha256"])
            for shard in splits[folder.name]["shards"]
        }
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder.parent / MANIFEST}: split {folder.name}: a shard has no {error}; delete it "
            "and prepare again"
        ) from error
