"""The plots of a report. Models are told apart by colour, and by marker or stroke."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.evaluation.report.canvas import COLOURS, MARKERS, STROKES, WIDTH, drawn, legend, short
from core.evaluation.report.document import Plot
from core.evaluation.report.svg import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Series:
    """A line of points of a model."""

    model: int
    """Its place among the models: its colour."""
    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """Bounds of intervals of y."""


@dataclass(frozen=True)
class Histogram:
    """How many there are between edges."""

    name: str
    edges: Sequence[float]
    counts: Sequence[float]


@dataclass(frozen=True)
class Prompts:
    """What a model reaches with each template, and with whole sets of them."""

    model: int
    name: str
    values: Sequence[float]
    sets: Mapping[str, float]
    """By name of the set, with its templates averaged."""


@dataclass(frozen=True)
class Axis:
    """How an axis is read."""

    label: str
    ticks: Sequence[float] | None = None
    """Where it is labelled; None for what fits."""
    names: Sequence[str] | None = None
    """What stands there in place of the numbers."""
    is_log: bool = False
    top: float | None = None
    """It goes from 0 to here; None for what is drawn."""


def curves(
    name: str,
    caption: str,
    panels: Mapping[str, Sequence[Series]],
    axes: tuple[Axis, Axis],
    *,
    columns: int = 2,
    has_diagonal: bool = False,
) -> Plot:
    """Lines over one another, a panel each title.

    Args:
        name: Of the file.
        caption: Under it.
        panels: Lines by title.
        axes: Of x and y.
        columns: Panels in a row.
        has_diagonal: Whether x = y is drawn, and panels are squares.
    """
    rows = -(-len(panels) // columns)

    def draw(figure: "Figure") -> None:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=axes[1].top is not None)
        for place in grid.flat[len(panels) :]:
            place.set_axis_off()
        for place, (title, members) in zip(grid.flat, panels.items(), strict=False):
            place.set_title(short(title, 60 // columns))
            if has_diagonal:
                place.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=":")
                place.set_aspect("equal")
            for series in members:
                _line(place, series)
            _set_up(place, axes)
        for place in grid[:, 0]:
            place.set_ylabel(axes[1].label)
        legend(figure, grid.flat[0], most)

    most = max(len(members) for members in panels.values())
    height = WIDTH / columns + 0.25 if has_diagonal else 2.7
    return drawn(name, caption, height * rows + 0.5 + 0.1 * most, draw)


def _set_up(place: "Axes", axes: tuple[Axis, Axis]) -> None:
    across, upward = axes
    place.set_xlabel(across.label)
    if across.is_log:
        place.set_xscale("log")
    if across.ticks is not None:
        names = across.names or [f"{tick:g}" for tick in across.ticks]
        place.set_xticks(list(across.ticks), names)
        place.minorticks_off()
    if across.top is not None:
        place.set_xlim(0, across.top)
    if upward.top is not None:
        place.set_ylim(0, upward.top)


def _line(axes: "Axes", series: Series) -> None:
    colour = COLOURS[series.model % len(COLOURS)]
    axes.plot(
        series.x,
        series.y,
        color=colour,
        linestyle=STROKES[series.model % len(STROKES)],
        marker=MARKERS[series.model % len(MARKERS)],
        markersize=4,
        label=short(series.name),
    )
    if series.low is not None and series.high is not None:
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)


def histograms(
    name: str, caption: str, panels: Mapping[str, Sequence[Histogram]], label: str
) -> Plot:
    """Outlines of histograms as shares, a panel below the other each model, on one axis of x."""

    def draw(figure: "Figure") -> None:
        rows = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (title, members) in zip(rows, panels.items(), strict=True):
            axes.set_title(short(title, 70))
            for index, member in enumerate(members):
                total = max(1.0, float(np.sum(member.counts)))
                axes.stairs(
                    np.asarray(member.counts) / total * 100,
                    member.edges,
                    color=COLOURS[index % len(COLOURS)],
                    linestyle=STROKES[index % len(STROKES)],
                    linewidth=1.6,
                    label=short(member.name),
                )
            axes.set_ylabel("%")
            axes.set_ylim(bottom=0)
        rows[-1].set_xlabel(label)
        legend(figure, rows[0], len(members))

    most = max(len(members) for members in panels.values())
    return drawn(name, caption, 1.9 * len(panels) + 0.6 + 0.16 * most, draw)


def bars(name: str, caption: str, groups: Sequence[Histogram], labels: tuple[str, str]) -> Plot:
    """Counts of whole numbers as shares, data sets side by side; the edges are the numbers."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an extra

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        width = 0.8 / len(groups)
        for index, group in enumerate(groups):
            total = max(1.0, float(np.sum(group.counts)))
            axes.bar(
                np.asarray(group.edges) + (index - (len(groups) - 1) / 2) * width,
                np.asarray(group.counts) / total * 100,
                width,
                color=COLOURS[index % len(COLOURS)],
                label=short(group.name),
            )
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend(figure, axes, len(groups))

    return drawn(name, caption, 3.0 + 0.2 * len(groups), draw)


def prompt_dots(name: str, caption: str, rows: Sequence[Prompts], label: str) -> Plot:
    """A dot each template, and a mark each set; a row each data set and model."""

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        sets = list(dict.fromkeys(title for row in rows for title in row.sets))
        for place, row in enumerate(rows):
            colour = COLOURS[row.model % len(COLOURS)]
            spread = np.linspace(-0.22, 0.22, len(row.values)) if len(row.values) > 1 else [0.0]
            axes.scatter(row.values, place + np.asarray(spread), s=14, color=colour, alpha=0.55,
                         linewidths=0, label="one template" if place == 0 else None)  # fmt: skip
            for title, value in row.sets.items():
                axes.scatter(
                    [value], [place], s=90, marker=MARKERS[1 + sets.index(title) % 7],
                    facecolors=PAPER, edgecolors=colour, linewidths=1.8, zorder=3,
                )  # fmt: skip
        for index, title in enumerate(sets):
            axes.scatter([], [], s=90, marker=MARKERS[1 + index % 7], facecolors=PAPER,
                         edgecolors=INK, linewidths=1.8, label=short(title))  # fmt: skip
        axes.set_yticks(range(len(rows)), [short(row.name, 34) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(label)
        legend(figure, axes, len(sets) + 1)

    return drawn(name, caption, 1.4 + 0.45 * len(rows), draw)


def ranked(
    name: str, caption: str, labels: Sequence[str], values: Sequence[Series], label: str
) -> Plot:
    """A row each label, a mark each model; x of a series are values, y the rows."""

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for series in values:
            axes.scatter(
                series.x,
                series.y,
                s=22,
                color=COLOURS[series.model % len(COLOURS)],
                marker=MARKERS[series.model % len(MARKERS)],
                label=short(series.name),
            )
        axes.set_yticks(range(len(labels)), [short(text, 30) for text in labels], fontsize=8)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlabel(label)
        legend(figure, axes, len(values))

    return drawn(name, caption, 1.2 + 0.17 * len(labels) + 0.2 * len(values), draw)
