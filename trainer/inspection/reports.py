"""What a check found, for people and for programs."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from core.evaluation.report.document import plain
from trainer.inspection.check import Report

_MOST_ROWS = 40


def by_shard(broken: Sequence[Report]) -> Table:
    """A row each shard and reason, with the first example; the first `_MOST_ROWS` of them."""
    rows = [(report, reason, found) for report in broken for reason, found in report.faults.items()]
    table = _table()
    table.add_column("shard", overflow="fold")
    table.add_column("fault")
    table.add_column("count", justify="right")
    table.add_column("the first", overflow="fold")
    for report, reason, found in rows[:_MOST_ROWS]:
        example = escape(plain(found.examples[0]))
        table.add_row(escape(str(report.path)), reason, f"{found.count:,}", example)
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS:,} more rows; --json FILE has them all"
    return table


def by_reason(broken: Sequence[Report]) -> Table:
    """A row each reason."""
    reasons = dict.fromkeys(reason for report in broken for reason in report.faults)
    table = _table()
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


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
