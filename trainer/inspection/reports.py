"""What a check found, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from core.evaluation.report.document import plain
from trainer.inspection.check import Report

_MOST_SHARDS = 20


def by_shard(broken: Sequence[Report]) -> str:
    """Each shard with its faults, how often they were met, and the first of each."""
    lines = []
    for report in broken[:_MOST_SHARDS]:
        lines.append(plain(str(report.path)))
        for reason, found in report.faults.items():
            lines.append(f"  {found.count:>7,}  {reason}: {plain(found.examples[0])}")
    if len(broken) > _MOST_SHARDS:
        lines.append(f"and {len(broken) - _MOST_SHARDS:,} more shards; --json FILE has them all")
    return "\n".join(lines)


def by_reason(broken: Sequence[Report]) -> Table:
    """A row each reason."""
    reasons = dict.fromkeys(reason for report in broken for reason in report.faults)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("fault")
    table.add_column("shards", justify="right")
    table.add_column("count", justify="right")
    for reason in reasons:
        found = [report.faults[reason] for report in broken if reason in report.faults]
        table.add_row(reason, f"{len(found):,}", f"{sum(each.count for each in found):,}")
    return table


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """All of it."""
    return {
        "shards": len(reports),
        "samples": sum(report.samples for report in reports),
        "parts": sum(report.parts for report in reports),
        "is_sound": not any(report.faults for report in reports),
        "faults": [
            {"shard": str(report.path), "fault": reason, "count": found.count,
             "examples": found.examples}
            for report in reports
            for reason, found in report.faults.items()
        ],
    }  # fmt: skip
