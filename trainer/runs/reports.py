"""The reports of a run, as far as they were written."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"

Report = Mapping[str, float]
"""Figures by name, finite ones alone."""


@dataclass(frozen=True)
class Reports:
    """Figures by split, then by step, the steps in order."""

    train: Mapping[int, Report]
    held_out: Mapping[int, Report]
    last_at: float | None  # when the last one was written, seconds since 1970

    @property
    def step(self) -> int:
        """Of the last report; 0 before the first."""
        return max([0, *self.train, *self.held_out])

    def series(self, name: str, *, is_held_out: bool = False) -> tuple[list[int], list[float]]:
        """Steps and values of a figure, where it was reported."""
        rows = self.held_out if is_held_out else self.train
        steps = [step for step, row in rows.items() if name in row]
        return steps, [rows[step][name] for step in steps]


def read_reports(folder: Path) -> Reports:
    """All reports of a run; none where it has not begun.

    A line that was cut off, or is being written, is passed over; of two for one step, as a run
    leaves that is still to take out those it takes again, the later holds.
    """
    splits: dict[str, dict[int, Report]] = {"train": {}, "val": {}}
    last_at = None
    try:
        text = (folder / METRICS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        row = _parsed(line)
        split, step = row.get("split"), row.get("step")
        if split in splits and isinstance(step, int):
            numbers = {name: float(value) for name, value in row.items() if _is_finite(value)}
            splits[split][step] = numbers
            last_at = numbers.get("time", last_at)
    ordered = {split: dict(sorted(rows.items())) for split, rows in splits.items()}
    return Reports(ordered["train"], ordered["val"], last_at)


def _parsed(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _is_finite(value: Any) -> bool:
    """Whether it is a figure; a null stands for one that was not finite."""
    return isinstance(value, int | float) and math.isfinite(value)
