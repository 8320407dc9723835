"""What was measured, as a table and as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from core.errors import StorageError


@dataclass(frozen=True)
class Measure:
    """One figure."""

    group: str
    name: str
    value: float
    chance: float | None
    """What guessing reaches; None where the figure is a length, not a share."""
    count: int
    """How many queries, crops or pairs it is the mean of."""


@dataclass(frozen=True)
class Report:
    """The figures of one model on one data set."""

    encoder: str
    data: str
    measures: tuple[Measure, ...]
    left_out: int = 0
    """Images that could not be read."""


def render(report: Report) -> Table:
    """A table of shares in percent beside chance, and of lengths as they are."""
    table = Table(title=f"{report.encoder} on {report.data}", title_justify="left")
    table.add_column("measure")
    for heading in ("value", "chance", "of"):
        table.add_column(heading, justify="right")
    group = None
    for measure in report.measures:
        if measure.group != group:
            group = measure.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        share = measure.chance is not None
        table.add_row(
            f"  {measure.name}",
            f"{measure.value:.1%}" if share else f"{measure.value:.3f}",
            f"{measure.chance:.1%}" if share else "",
            f"{measure.count:,}",
        )
    return table


def write_json(report: Report, file: Path) -> None:
    """Write ``{encoder, data, left_out, measures: {group: {name: {value, chance, count}}}}``.

    Raises:
        StorageError: The file cannot be written.
    """
    groups: dict[str, dict[str, dict[str, float | int | None]]] = {}
    for measure in report.measures:
        groups.setdefault(measure.group, {})[measure.name] = {
            "value": measure.value,
            "chance": measure.chance,
            "count": measure.count,
        }
    whole = {
        "encoder": report.encoder,
        "data": report.data,
        "left_out": report.left_out,
        "measures": groups,
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{file}: cannot be written: {error.strerror}") from error
