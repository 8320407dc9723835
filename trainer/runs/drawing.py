"""Panels of curves, drawn by matplotlib (the extra `eval`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.evaluation.report.canvas import COLOURS, STROKES, short
from trainer.runs.curves import Line, Panel
from trainer.runs.named import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_PANEL = 4.2, 2.55  # inches of a picture's panel
_LEGEND_ROW = 0.22  # inches
_LETTERS, _NAME = 52, 32  # of the legend's names, below a panel and in all
_NOTE = "across: steps; lines: training, smoothed where they tremble; dots: held-out data"


@dataclass(frozen=True)
class Drawing:
    """Panels in a grid, and a legend of the runs below."""

    title: str
    runs: Sequence[Run]
    panels: Sequence[Panel]
    columns: int

    @property
    def rows(self) -> int:
        """Of panels."""
        return -(-len(self.panels) // self.columns)

    @property
    def legend_rows(self) -> int:
        """Of so many columns of names as fit; none where there is one run."""
        longest = max(len(short(label, _NAME)) for label in self.labels)
        fitting = max(1, self.columns * _LETTERS // (longest + 6))
        return -(-len(self.labels) // fitting) if len(self.labels) > 1 else 0

    @property
    def labels(self) -> dict[str, tuple[int, int]]:
        """Of the legend, with colour and stroke."""
        return {run.label: run.look for run in self.runs}

    @property
    def width(self) -> float:
        """In inches."""
        return self.columns * _PANEL[0]

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
        columns = -(-len(self.labels) // self.legend_rows)
        figure.legend(handles=_handles(self.labels), loc="outside lower left", ncols=columns,
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
    if line.is_faint:
        axes.plot(line.steps, line.values, color=_colour(line.colour), alpha=0.25, linewidth=0.7)
        return
    axes.plot(
        line.steps, line.values, color=_colour(line.colour), label=line.name or None,
        linewidth=1.6, linestyle="" if line.is_dotted else _stroke(line.stroke),
        marker="o" if line.is_dotted else "", markersize=3.5,
    )  # fmt: skip


def _handles(labels: Mapping[str, tuple[int, int]]) -> "list[Line2D]":
    from matplotlib.lines import Line2D  # noqa: PLC0415 - an extra

    return [
        Line2D([], [], color=_colour(colour), linestyle=_stroke(stroke), linewidth=2,
               label=short(label, _NAME))
        for label, (colour, stroke) in labels.items()
    ]  # fmt: skip


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _stroke(number: int) -> Any:  # one of matplotlib's own literals
    return STROKES[number % len(STROKES)]
