"""The query hierarchy as an outline: a line for each query, under what is more general."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.evaluation.report.canvas import COLOURS
from core.evaluation.report.svg import INK
from core.queries import NO_PARENT, Query, QueryKind
from trainer.inspection.wrap import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = 0.17  # inches between lines of one text
GREY = "#6B7480"

_GAP = 0.085  # between queries
_INDENT = 0.3
_COLUMN = 0.0745  # of one letter, on average, where it is bold
_TAG = 1.0  # for the kind and the weight, on the right
_MOST_LINES = 5

NAMES: dict[QueryKind, str] = {
    "caption": "caption",
    "sentence": "sentence",
    "text_box": "box",
    "phrase": "phrase",
}
MARKS: dict[QueryKind, str] = {"caption": "o", "sentence": "D", "text_box": "s", "phrase": "^"}


@dataclass(frozen=True)
class Line:
    """A query of the outline; lengths are in inches from the tree's corner."""

    query: Query
    x: float
    y: float  # of the middle of its first line
    rows: tuple[str, ...]
    above: tuple[float, float] | None  # x and y of its parent


def outline(queries: Sequence[Query], across: float) -> tuple[list[Line], float]:
    """The lines, children below their parent, and the height of them all.

    Args:
        queries: Each after its parent.
        across: The width there is.
    """
    lines: dict[int, Line] = {}
    y = LINE / 2
    for number, depth in _in_order(queries):
        query = queries[number]
        x = 0.1 + depth * _INDENT
        rows = wrap(query.text, int((across - _TAG - x - 0.16) / _COLUMN), _MOST_LINES)
        parent = lines.get(query.parent)
        lines[number] = Line(query, x, y, tuple(rows), (parent.x, parent.y) if parent else None)
        y += len(rows) * LINE + _GAP
    return list(lines.values()), y


def _in_order(queries: Sequence[Query]) -> list[tuple[int, int]]:
    """Each query and its depth, depth first."""
    found: list[tuple[int, int]] = []

    def visit(parent: int, depth: int) -> None:
        for number, query in enumerate(queries):
            if query.parent == parent:
                found.append((number, depth))
                visit(number, depth + 1)

    visit(NO_PARENT, 0)
    return found


def draw(axes: "Axes", lines: Sequence[Line], left: float, top: float, across: float) -> None:
    """Draw an outline with its corner at (left, top)."""
    for line in lines:
        x, y = left + line.x, top + line.y
        if line.above:
            stem = left + line.above[0]
            path = [stem, stem, x], [top + line.above[1], y, y]
            axes.plot(*path, color="#B9C0C8", linewidth=1, zorder=1, solid_joinstyle="round")
        mark(axes, line.query, x, y)
        weight = "bold" if line.query.kind == "caption" else "normal"
        for number, row in enumerate(line.rows):
            axes.text(x + 0.15, y + number * LINE, row, fontsize=9, va="center",
                      fontweight=weight)  # fmt: skip
        tag = f"{NAMES[line.query.kind]} · {line.query.weight:g}"
        axes.text(left + across, y, tag, fontsize=7.5, va="center", ha="right", color=GREY)


def mark(axes: "Axes", query: Query, x: float, y: float) -> None:
    """What stands before a query: a shape for its kind, or the number of its box."""
    if query.source_part >= 0:
        chip(axes, query.source_part, x, y)
    else:
        colour = INK if query.kind in ("caption", "sentence") else GREY
        axes.plot(x, y, MARKS[query.kind], color=colour, markersize=5.5, zorder=2)


def chip(axes: "Axes", part: int, x: float, y: float, *, is_faint: bool = False) -> None:
    """The number of a part, from 1, on its colour."""
    axes.text(
        x, y, f"{part + 1}", fontsize=6.5, fontweight="bold", color="white", ha="center",
        va="center_baseline", zorder=5,
        bbox={"boxstyle": "square,pad=0.28", "linewidth": 0,
              "facecolor": GREY if is_faint else colour_of(part)},
    )  # fmt: skip


def colour_of(part: int) -> str:
    """The colour of a part's box, crop and query."""
    return COLOURS[part % (len(COLOURS) - 1)]  # the last is the grey of what is left out
