"""What each run has come to: a table, or JSON."""

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from core.lock import holder_of
from trainer.runs.find import RECIPE
from trainer.runs.reports import Reports, read_reports

RECALL = "recall/text_to_image@1"
"""The held-out figure of the list."""

State = Literal["running", "complete", "stopped", "failed", "killed"]

_STYLES: dict[State, str] = {"running": "bold green", "failed": "bold red", "killed": "yellow"}
_RECENT = 20  # reports of which a speed is the median
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True)
class Listed:
    """A run as the list shows it; None for what it has not told."""

    folder: str
    name: str
    system: str  # the kind of its objective
    state: State
    why: str | None  # it failed
    step: int
    last_step: int | None
    loss: float | None  # of the last training report
    held_out_loss: float | None
    recall: float | None  # the last of `RECALL`, 0 to 100
    best_recall: float | None
    best_step: int | None
    samples_per_second: float | None
    told_at: float | None  # seconds since 1970
    bytes: int


def list_runs(folders: Sequence[Path]) -> list[Listed]:
    """The runs in these folders, the one that told something last first."""
    found = [_listed(folder) for folder in folders]
    return sorted(found, key=lambda run: run.told_at or 0, reverse=True)


def _listed(folder: Path) -> Listed:
    recipe, summary = _json(folder / RECIPE), _json(folder / "summary.json")
    reports = read_reports(folder)
    last_step = _last_step(recipe)
    steps, recalls = reports.series(RECALL, is_held_out=True)
    best = max(range(len(recalls)), key=recalls.__getitem__, default=None)
    speeds = reports.series("speed/samples_per_second")[1][-_RECENT:]
    return Listed(
        folder=str(folder),
        name=str(recipe.get("name", folder.name)),
        system=str(_at(recipe, "objective", "kind") or ""),
        state=_state(folder, reports, last_step, summary),
        why=summary.get("failed"),
        step=reports.step,
        last_step=last_step,
        loss=_last(reports, "loss", is_held_out=False),
        held_out_loss=_last(reports, "loss", is_held_out=True),
        recall=_last(reports, RECALL, is_held_out=True),
        best_recall=None if best is None else recalls[best],
        best_step=None if best is None else steps[best],
        samples_per_second=statistics.median(speeds) if speeds else None,
        told_at=reports.last_at or _changed(folder / RECIPE),
        bytes=_size(folder),
    )


def _state(folder: Path, reports: Reports, last_step: int | None, summary: dict[str, Any]) -> State:
    """Whether it is at its end, and if not, why it does not go on.

    A run that ends by itself leaves a summary, and removes that of an earlier start when it
    begins: without one, a run that has told something did not end by itself.
    """
    if holder_of(folder):
        return "running"
    if summary.get("failed"):
        return "failed"
    if last_step is not None and reports.step >= last_step:
        written = (folder / "checkpoints" / f"{last_step:08d}").is_dir()
        return "complete" if summary or written else "killed"
    return "stopped" if summary or not reports.step else "killed"


def _last_step(recipe: dict[str, Any]) -> int | None:
    """Where the run ends, as `Recipe.last_step` has it."""
    steps = [_at(recipe, "optim", "steps"), _at(recipe, "run", "stop_at")]
    return min((step for step in steps if isinstance(step, int)), default=None)


def _last(reports: Reports, name: str, *, is_held_out: bool) -> float | None:
    values = reports.series(name, is_held_out=is_held_out)[1]
    return values[-1] if values else None


def _at(values: dict[str, Any], section: str, key: str) -> Any:
    found = values.get(section)
    return found.get(key) if isinstance(found, dict) else None


def _json(file: Path) -> dict[str, Any]:
    """What a file holds; nothing where it is not there or not whole."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _changed(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _size(folder: Path) -> int:
    """Bytes of all files; those that a running one removes meanwhile do not count."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - fast
            except OSError:
                continue
    return total


def as_json(runs: Sequence[Listed]) -> str:
    """The list for programs."""
    return json.dumps([asdict(run) for run in runs], indent=1, ensure_ascii=False)


def as_tables(runs: Sequence[Listed]) -> Iterator[Table]:
    """The list for people: a table for each folder that runs stand in, in the order given."""
    placed = [(*_placed(Path(run.folder)), run) for run in runs]
    for place in dict.fromkeys(place for place, _, _ in placed):
        yield _table(place, [(name, run) for head, name, run in placed if head == place])


def _placed(folder: Path) -> tuple[str, str]:
    """The folder of runs, and the run's own name in it, which may have several parts."""
    parts = folder.parts
    head = len(parts) - parts[::-1].index("runs") if "runs" in parts[:-1] else len(parts) - 1
    return str(Path(*parts[:head])), str(Path(*parts[head:]))


def _table(place: str, runs: Sequence[tuple[str, Listed]]) -> Table:
    title = Text(place, "bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, title=title, title_justify="left")
    for heading in ("run", "system", "state"):
        table.add_column(heading, overflow="fold")
    for heading in ("step", "loss", "R@1", "best", "per s", "age", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    now = time.time()
    for name, run in runs:
        of = f"/{_steps(run.last_step)}" if run.last_step and run.step != run.last_step else ""
        table.add_row(
            Text(name),
            Text(run.system),
            Text(run.state, _STYLES.get(run.state, "")),
            f"{_steps(run.step)}{of}",
            _number(run.loss, "#.4g"),
            _number(run.recall, ".1f"),
            _number(run.best_recall, ".1f"),
            _number(run.samples_per_second, ",.0f"),
            "" if run.told_at is None else _duration(now - run.told_at),
            _bytes(run.bytes),
        )
    return table


def _steps(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.4g}k"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _duration(seconds: float) -> str:
    seconds = max(seconds, 0)
    size, unit = next(pair for pair in _UNITS if seconds >= 2 * pair[0] or pair[0] == 1)
    return f"{seconds / size:.0f}{unit}"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
