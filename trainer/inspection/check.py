"""Which shards are broken, in which way, and which samples of them."""

import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from core.bundle import sha256
from core.errors import DataError
from trainer.data.shards import key_and_kind
from trainer.data.tar import BLOCK, check_end, members
from trainer.inspection.claims import Job
from trainer.inspection.judge import faults_of
from trainer.inspection.pool import over

_EXAMPLES = 3
_OURS = ("child.", "parent", "numparents.")
_PHRASE = re.compile(r"parent\d{3,}\.txt")


@dataclass
class Found:
    """How often a fault was met in a shard, and where first."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What is wrong with a shard, by reason; nothing if it is sound."""

    path: Path
    samples: int = 0
    parts: int = 0
    faults: dict[str, Found] = field(default_factory=dict)

    def note(self, reason: str, where: str) -> None:
        """Count a fault."""
        found = self.faults.setdefault(reason, Found())
        found.count += 1
        if len(found.examples) < _EXAMPLES:
            found.examples.append(where)


def check(
    jobs: Sequence[Job], workers: int, advance: Callable[[int], None], *, decodes: bool
) -> list[Report]:
    """Check shards; a broken one ends nothing.

    Args:
        jobs: The shards, with what the manifest says of them.
        workers: Processes.
        advance: Called with the bytes of each shard when it is done.
        decodes: Whether every picture is decoded, which takes nearly all of the time.
    """
    reports: dict[int, Report] = {}
    for place, report in over(partial(check_shard, decodes=decodes), jobs, workers):
        reports[place] = report
        advance(size_of(jobs[place].path))
    return [reports[place] for place in range(len(jobs))]


def size_of(path: Path) -> int:
    """Bytes of a shard; 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0


def check_shard(job: Job, *, decodes: bool) -> Report:
    """All that is wrong with one shard."""
    report = Report(job.path)
    path, claim = job.path, job.claim
    if not path.is_file():
        report.note("missing", "the manifest names it")
        return report
    if claim is None and job.has_manifest:
        report.note("not in the manifest", "left over from an earlier preparation, perhaps")
    try:
        if claim and sha256(path) != claim.sha256:
            report.note("other bytes than in the manifest", "its sha256 differs")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _judge(data, report, decodes=decodes)
    except DataError as error:
        reason = "breaks off" if report.samples else "not a tar of samples"
        report.note(reason, str(error).removeprefix(f"{path}: "))
        return report
    except (OSError, ValueError) as error:  # of an empty file no memory can be mapped
        report.note("cannot be read", str(error))
        return report
    if not report.samples:
        report.note("no samples", "no member is called KEY.child.jpg")
    elif claim and (claim.samples, claim.parts) != (report.samples, report.parts):
        report.note(
            "other counts than in the manifest",
            f"{report.samples:,} samples and {report.parts:,} parts, not {claim.samples:,} and "
            f"{claim.parts:,}",
        )
    return report


def _judge(data: mmap.mmap, report: Report, *, decodes: bool) -> None:
    """Note what is wrong with the samples, as far as the shard is whole."""
    for key, held in _samples(data, report):
        if not any(kind.startswith(_OURS) for kind in held):
            report.note("members of no sample", f"{key}.{next(iter(held))}")
            continue
        report.samples += 1
        report.parts += sum(bool(_PHRASE.fullmatch(kind)) for kind in held)
        for reason, details in faults_of(held, decodes=decodes):
            report.note(reason, f"{key}: {details}")


def _samples(data: mmap.mmap, report: Report) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Key and members of each whole sample; what is wrong with headers and names is noted."""
    seen: set[str] = set()
    current = ""
    held: dict[str, bytes] = {}
    for name, start, size, _ in members(data, report.path):
        if not _is_intact(data[start - BLOCK : start]):
            report.note("damaged header", f"{name}: its checksum differs")
        if name.startswith("/") or ".." in name.split("/"):
            report.note("name leaves the folder", name)
        key, kind = key_and_kind(name)
        if key != current:
            if held:
                yield current, held
            if key in seen:
                report.note("key stands twice", key)
            seen.add(key)
            current, held = key, {}
        if kind in held:
            report.note("member stands twice", name)
        held[kind] = data[start : start + size]
    check_end(data, report.path)
    if held:
        yield current, held


def _is_intact(header: bytes) -> bool:
    """Whether the sum of a header's bytes, its own field as spaces, is what it says."""
    said = header[148:156]
    try:
        return sum(header) - sum(said) + 8 * 32 == int(said.strip(b"\0 "), 8)
    except ValueError:
        return False
