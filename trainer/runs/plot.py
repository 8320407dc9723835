"""The curves of runs as a picture, or as a page."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConfigError, DataError
from core.evaluation.report.canvas import COLOURS, STROKES, drawn, short
from core.evaluation.report.document import Document, Section, Text
from core.evaluation.report.html import render_html
from core.evaluation.report.svg import alone
from trainer.inspection.canvas import write_png
from trainer.runs.curves import Line, Panel, Run, panels
from trainer.runs.reports import METRICS, read_reports
from trainer.storage import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_PANEL = 4.2, 2.55  # inches of a picture's panel
_LEGEND_ROW = 0.22  # inches
_LETTERS, _NAME = 52, 32  # of the legend's names, below a panel and in all
_NOTE = "across: steps; lines: training, smoothed where they tremble; dots: held-out data"
_CAPTION = "Losses of different systems are sums of different terms."


def plot_runs(folders: Sequence[Path], out: Path | None) -> Path:
    """Draw the curves of runs and write them.

    Args:
        folders: Of the runs.
        out: A ``.png``, ``.svg`` or ``.html`` file; None for ``plot.png`` in the run, or in the
            folder that holds them all.

    Returns:
        The file.

    Raises:
        ConfigError: The file has another ending.
        DataError: No run has told anything yet.
        StorageError: The file cannot be written.
    """
    file = out or _beside(folders) / "plot.png"
    if file.suffix not in {".png", ".svg", ".html"}:
        raise ConfigError(f"--out {file}: give a name that ends in .png, .svg or .html")
    reports = [read_reports(folder) for folder in folders]
    runs = [
        Run(name, found)
        for name, found in zip(names(folders), reports, strict=True)
        if found.last_at is not None
    ]
    if not runs:
        raise DataError(
            f"{', '.join(map(str, folders[:3]))}: no report yet; a run writes {METRICS} as it "
            "trains, every run.log_every steps"
        )
    _write(file, runs, panels(runs))
    return file


def names(folders: Sequence[Path]) -> list[str]:
    """What tells runs apart: their paths without the parts that all have in common."""
    paths = [folder.resolve().parts for folder in folders]
    if len(paths) == 1:
        return ["/".join(paths[0][-2:])]
    own = [path[_alike(paths) :] for path in paths]
    tail = min(_alike([path[::-1] for path in own]), min(map(len, own)) - 1)
    return ["/".join(path[: len(path) - tail]) for path in own]


def _alike(paths: Sequence[Sequence[str]]) -> int:
    """How many parts at the beginning all have in common."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _beside(folders: Sequence[Path]) -> Path:
    if len(folders) == 1:
        return folders[0]
    return Path(os.path.relpath(os.path.commonpath([folder.resolve() for folder in folders])))


def _write(file: Path, runs: Sequence[Run], found: Sequence[Panel]) -> None:
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    if file.suffix == ".png":
        columns = 2 if len(found) <= 4 else 3
        drawing = _Drawing(title, runs, found, columns)
        write_png(file, (columns * _PANEL[0], drawing.height), drawing.draw)
        return
    drawing = _Drawing(title, runs, found, 2)
    plot = drawn("runs", _CAPTION, drawing.height, drawing.draw)
    told = "; ".join(f"{run.name} at step {run.reports.step:,}" for run in runs)
    page = Document(f"Training: {title}", (Section("Curves", (Text(f"{told}."), plot)),))
    text = render_html(page) if file.suffix == ".html" else alone(plot.svg)
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Drawing:
    """Panels in a grid, and a legend of the runs below."""

    title: str
    runs: Sequence[Run]
    panels: Sequence[Panel]
    columns: int

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)

    @property
    def legend_rows(self) -> int:
        """Of so many columns of names as fit; none where there is one run."""
        longest = max(len(short(run.name, _NAME)) for run in self.runs)
        fitting = max(1, self.columns * _LETTERS // (longest + 6))
        return -(-len(self.runs) // fitting) if len(self.runs) > 1 else 0

    @property
    def height(self) -> float:
        """In inches."""
        return self.rows * _PANEL[1] + (self.legend_rows + 3) * _LEGEND_ROW

    def draw(self, figure: "Figure") -> None:
        """All of it."""
        figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08, wspace=0.03, hspace=0.03)
        grid = figure.subplots(self.rows, self.columns, squeeze=False)
        for axes in grid.flat[len(self.panels) :]:
            axes.set_axis_off()
        last = max(step for panel in self.panels for line in panel.lines for step in line.steps)
        for axes, panel in zip(grid.flat, self.panels, strict=False):
            _draw_panel(axes, panel)
            axes.set_xlim(-0.02 * last, 1.02 * last)
        figure.suptitle(self.title, x=0.012, ha="left", fontsize=12, fontweight="bold")
        if not self.legend_rows:
            figure.supxlabel(_NOTE, x=0.012, ha="left", fontsize=9)
            return
        columns = -(-len(self.runs) // self.legend_rows)
        figure.legend(handles=_handles(self.runs), loc="outside lower left", ncols=columns,
                      title=_NOTE, title_fontsize=9, alignment="left")  # fmt: skip


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415 - an extra

    axes.set_title(panel.title)
    for line in panel.lines:
        _draw_line(axes, line)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if panel.has_names:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.28 * (high - low))  # where nothing is drawn
        axes.legend(fontsize=7.5, ncols=3, loc="upper left", columnspacing=1, handlelength=1.6)


def _draw_line(axes: "Axes", line: Line) -> None:
    colour, stroke = COLOURS[line.colour % len(COLOURS)], STROKES[line.stroke % len(STROKES)]
    if line.is_faint:
        axes.plot(line.steps, line.values, color=colour, alpha=0.25, linewidth=0.7)
        return
    axes.plot(
        line.steps, line.values, color=colour, label=line.name or None, linewidth=1.6,
        marker="o" if line.is_dotted else "", markersize=3.5,
        linestyle="" if line.is_dotted else stroke,
    )  # fmt: skip


def _handles(runs: Sequence[Run]) -> "list[Line2D]":
    """Every run with its colour and stroke."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    return [
        Line2D([], [], color=COLOURS[number % len(COLOURS)], linewidth=2,
               linestyle=STROKES[number // len(COLOURS) % len(STROKES)],
               label=short(run.name, _NAME))
        for number, run in enumerate(runs)
    ]  # fmt: skip
