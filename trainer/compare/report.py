"""The table of a comparison: on the console, and as a page, Markdown, CSV and plots."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as ConsoleTable
from rich.text import Text as ConsoleText

from core.evaluation.report.build import Report
from core.evaluation.report.canvas import COLOURS, WIDTH, can_plot, drawn, short
from core.evaluation.report.document import (
    Block,
    Cautions,
    Document,
    Plot,
    Row,
    Section,
    Table,
    Text,
    Tone,
    words,
)
from core.evaluation.report.figures import is_percent, number, signed
from core.evaluation.report.spreadsheet import guarded
from core.evaluation.report.svg import INK
from trainer.compare.figures import Cell, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_SURE = 0.05
_STYLES: dict[Tone, str] = {"better sure": "bold green", "worse sure": "bold red"}
_NAME_WIDTH = 9  # of a column's heading on the console; longer ones break at hyphens
_COLUMNS = 3  # panels of the plot in a row

LEGEND = (
    "Means over seeds ± their standard deviation, shares in percent; then the difference to the "
    "baseline, * where p < 0.05 in a test over seeds and the same pictures, corrected for the "
    "number of systems"
)
_METHOD = (
    f"{LEGEND} (Holm), not for the number of figures. Where the baseline has no such figure, as a "
    "Euclidean model has no cones, the first system that has it stands in for it."
)


@dataclass(frozen=True)
class Compared:
    """All that is told of a comparison."""

    title: str
    systems: tuple[str, ...]
    baseline: str
    seeds: int
    figures: tuple[Figure, ...]
    trained: tuple[tuple[str, ...], ...]
    """A row of words for each system: what `HEADINGS` names."""
    remarks: tuple[str, ...]


HEADINGS = (
    "system",
    "objective",
    "steps",
    "trained parameters",
    "samples/s",
    "signs of ill health",
)


def console_tables(found: Compared) -> Iterator[tuple[str, ConsoleTable]]:
    """A heading and a table for each group of figures, systems beside one another."""
    groups = dict.fromkeys(figure.key[:2] for figure in found.figures)
    for task, group in groups:
        figures = [figure for figure in found.figures if figure.key[:2] == (task, group)]
        table = ConsoleTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("")
        for name in found.systems:
            heading = "\n".join(wrap(name, _NAME_WIDTH, break_long_words=False))
            table.add_column(heading, justify="right", overflow="fold")
        for figure in figures:
            cells = [figure.cells.get(name) for name in found.systems]
            table.add_row(_label(figure), *(_console_cell(figure, cell) for cell in cells))
        yield f"{task} · {group} (against {figures[0].baseline})", table


def _console_cell(figure: Figure, cell: Cell | None) -> ConsoleText:
    if cell is None:
        return ConsoleText("-", style="dim")
    text = ConsoleText(_mean(figure, cell).replace(" ± ", "±"))
    if cell.difference is not None:
        tone = _tone(figure, cell)
        text.append(f"\n{_signed(figure, cell)}", style=_STYLES.get(tone) or "dim")
    return text


def build(found: Compared) -> Report:
    """The comparison as a report that `write_report` takes."""
    glance: list[Block] = [Text(_METHOD)]
    if found.remarks:
        glance.append(Cautions(found.remarks))
    glance.append(words(HEADINGS, found.trained))
    sections = [Section("What was trained", tuple(glance))]
    for task in dict.fromkeys(figure.key[0] for figure in found.figures):
        figures = [figure for figure in found.figures if figure.key[0] == task]
        blocks: list[Block] = [_table(found, figures)]
        if can_plot():
            blocks.append(_plot(found, task, figures))
        blocks += [Text("Differences to the baseline", is_heading=True), _tests(found, figures)]
        sections.append(Section(task, tuple(blocks)))
    document = Document(found.title, tuple(sections))
    return Report(document, _csv(found), found.remarks, without_plots=not can_plot())


def _table(found: Compared, figures: Sequence[Figure]) -> Table:
    rows, group = [], None
    for figure in figures:
        if figure.key[1] != group:
            group = figure.key[1]
            rows.append(Row((group,), is_heading=True))
        cells = [figure.cells.get(name) for name in found.systems]
        rows.append(
            Row(
                (_label(figure), *(_cell(figure, cell) for cell in cells)),
                tones=("", *(_tone(figure, cell) if cell else "" for cell in cells)),
            )
        )
    return Table(("", *_header(found)), tuple(rows))


def _header(found: Compared) -> list[str]:
    return [f"{name} (baseline)" if name == found.baseline else name for name in found.systems]


def _cell(figure: Figure, cell: Cell | None) -> str:
    if cell is None:
        return ""
    return _mean(figure, cell) + (f" ({_signed(figure, cell)})" if cell.difference else "")


def _tests(found: Compared, figures: Sequence[Figure]) -> Table:
    """Every difference with its interval and p."""
    having = {name for figure in figures for name, cell in figure.cells.items() if cell.difference}
    others = [name for name in found.systems if name in having]
    rows = []
    for figure in figures:
        cells = [figure.cells.get(name) for name in others]
        rows.append(
            Row(
                (
                    f"{figure.key[1]}: {_label(figure)} (to {figure.baseline})",
                    *(_test(figure, cell) for cell in cells),
                ),
                tones=("", *(_tone(figure, cell) if cell else "" for cell in cells)),
            )
        )
    return Table(("", *others), tuple(rows))


def _test(figure: Figure, cell: Cell | None) -> str:
    if cell is None or cell.difference is None:
        return ""
    pair, measure = cell.difference, figure.measure
    p = f"p={pair.p:.3f}" if pair.p >= 0.001 else "p<0.001"
    low, high = signed(measure, pair.low), signed(measure, pair.high)
    return f"{signed(measure, pair.delta)} [{low}, {high}] {p}"


def _label(figure: Figure) -> str:
    return f"{figure.key[2]}{' ↓' if figure.measure.is_lower_better else ''}"


def _mean(figure: Figure, cell: Cell) -> str:
    text = number(figure.measure, cell.mean)
    if math.isnan(cell.spread):
        return text
    return f"{text} ± {number(figure.measure, cell.spread)}"


def _signed(figure: Figure, cell: Cell) -> str:
    if cell.difference is None:
        return ""
    star = "*" if cell.difference.p < _SURE else ""
    return f"{signed(figure.measure, cell.difference.delta)}{star}"


def _tone(figure: Figure, cell: Cell) -> Tone:
    """Of a difference that is more than chance; others are not to be read as one."""
    pair = cell.difference
    if pair is None or pair.p >= _SURE:
        return ""
    is_better = (pair.delta < 0) == figure.measure.is_lower_better
    return "better sure" if is_better else "worse sure"


def _plot(found: Compared, task: str, figures: Sequence[Figure]) -> Plot:
    """A panel each figure: a dot each seed, a bar at the mean, a line at the baseline's."""

    def draw(canvas: "Canvas") -> None:
        rows = -(-len(figures) // _COLUMNS)
        grid = canvas.subplots(rows, _COLUMNS, squeeze=False, sharey=True)
        for axes in grid.flat[len(figures) :]:
            axes.set_axis_off()
        for axes, figure in zip(grid.flat, figures, strict=False):
            scale = 100 if is_percent(figure.measure) else 1
            group = "\n".join(wrap(figure.key[1], 36)[:2])  # of two groups the ends may differ
            axes.set_title(f"{group}\n{_label(figure)}", fontsize=8)
            base = figure.cells[figure.baseline]
            axes.axvline(scale * base.mean, color=INK, linewidth=0.8, linestyle=":")
            for place, name in enumerate(found.systems):
                cell = figure.cells.get(name)
                if cell is None:
                    continue
                colour = COLOURS[place % len(COLOURS)]
                values = [scale * value for value in cell.values.values()]
                axes.scatter(values, [place] * len(values), s=18, color=colour, alpha=0.6,
                             linewidths=0)  # fmt: skip
                axes.scatter([scale * cell.mean], [place], s=120, marker="|", color=colour)
            axes.set_yticks(range(len(found.systems)), [short(n, 22) for n in found.systems])
            axes.set_ylim(len(found.systems) - 0.5, -0.5)
            axes.tick_params(labelsize=8)

    rows = -(-len(figures) // _COLUMNS)
    height = rows * (0.9 + 0.21 * len(found.systems)) + 0.3
    caption = (
        f"{task}: a dot for each of {found.seeds} seeds, a bar at their mean; the dotted line is "
        f"the mean of {figures[0].baseline}. Shares in percent."
    )
    return drawn(task.replace("/", "-"), caption, min(height, 3 * WIDTH), draw)


def _csv(found: Compared) -> str:
    """A row for each figure of a system: every seed's value, mean, spread and difference."""
    stream = io.StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow(
        ["task", "group", "figure", "system", "mean", "sd", "delta", "low", "high", "p",
         *(f"seed {number}" for number in range(found.seeds))]
    )  # fmt: skip
    for figure in found.figures:
        for name, cell in figure.cells.items():
            pair = cell.difference
            of_pair = [pair.delta, pair.low, pair.high, pair.p] if pair else [""] * 4
            spread = "" if math.isnan(cell.spread) else cell.spread
            values = [cell.values.get(number, "") for number in range(found.seeds)]
            said = [guarded(text) for text in (*figure.key, name)]
            out.writerow([*said, cell.mean, spread, *of_pair, *values])
    return stream.getvalue()
