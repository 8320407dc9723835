"""Samples as a picture: the whole with its boxes, the crops, and the query hierarchy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.evaluation.report.svg import INK
from core.queries import WEIGHTS, Query
from trainer.inspection.canvas import write_png
from trainer.inspection.panel import Crop, Panel
from trainer.inspection.tree import (
    GREY,
    LINE,
    NAMES,
    Line,
    chip,
    colour_of,
    draw,
    mark,
    outline,
)
from trainer.inspection.wrap import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches, from left to right: margin, whole, crops, tree, margin.
_WIDTH, _MARGIN, _GUTTER = 11.4, 0.25, 0.25
_WHOLE = 2.45
_CROP, _PER_ROW, _BETWEEN = 0.92, 3, 0.12
_CROPS = _PER_ROW * (_CROP + _BETWEEN)
_TREE = _WIDTH - 2 * _MARGIN - 2 * _GUTTER - _WHOLE - _CROPS

_TITLE, _FOOT, _LEGEND = 0.3, 0.3, 0.3
_CHIP = 0.17  # of a number on its colour
_FAULT_COLUMNS, _PHRASE_COLUMNS = 140, 16
_RED = "#B3261E"


@dataclass(frozen=True)
class _Laid:
    """A panel with the places of what it shows, in inches from its corner."""

    panel: Panel
    faults: list[str]
    lines: list[Line]
    tree: float
    """The height of the tree."""
    content: float
    """Where pictures and tree begin."""
    height: float


def write_page(path: Path, panels: Sequence[Panel]) -> None:
    """Draw panels below one another and write them as PNG.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    laid = [_lay(panel) for panel in panels]
    height = _MARGIN + sum(each.height + _FOOT for each in laid) + _LEGEND

    def draw_all(figure: "Figure") -> None:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_autoscale_on(False)
        axes.set_xlim(0, _WIDTH)
        axes.set_ylim(height, 0)
        top = _MARGIN
        for number, each in enumerate(laid):
            if number:
                axes.plot(
                    [_MARGIN, _WIDTH - _MARGIN], [top - _FOOT / 2] * 2, color="#D5DAE0", lw=0.8
                )
            _draw_panel(axes, each, top)
            top += each.height + _FOOT
        has_dotted = any(not crop.is_taken for panel in panels for crop in panel.crops)
        _legend(axes, height - _LEGEND, has_dotted=has_dotted)

    write_png(path, (_WIDTH, height), draw_all)


def _lay(panel: Panel) -> _Laid:
    faults = [
        row for fault in panel.faults for row in wrap(f"left out: {fault}", _FAULT_COLUMNS, 2)
    ]
    lines, tree = outline(panel.queries, _TREE)
    tree += LINE if panel.beyond else 0
    content = _TITLE + len(faults) * LINE
    whole = 0.0
    if panel.whole:
        whole = _WHOLE * panel.whole.height / max(panel.whole.size)
    rows = -(-len(panel.crops) // _PER_ROW)
    crops = rows * _row_height()
    height = content + (max(whole, crops, tree) if panel.whole or panel.queries else 0.0)
    return _Laid(panel, faults, lines, tree, content, height)


def _row_height() -> float:
    return _CROP + 2 * LINE * 0.85 + _BETWEEN


def _draw_panel(axes: "Axes", laid: _Laid, top: float) -> None:
    panel = laid.panel
    title = wrap(panel.title, _FAULT_COLUMNS, 1)[0]
    axes.text(_MARGIN, top, title, fontsize=8.5, color=GREY, va="top")
    for number, fault in enumerate(laid.faults):
        y = top + _TITLE + (number - 0.25) * LINE
        axes.text(_MARGIN, y, fault, fontsize=8.5, color=_RED, va="center")
    top += laid.content
    _draw_whole(axes, panel, top)
    left = _MARGIN + _WHOLE + _GUTTER
    for number, crop in enumerate(panel.crops):
        row, column = divmod(number, _PER_ROW)
        _draw_crop(
            axes, number, crop, left + column * (_CROP + _BETWEEN), top + row * _row_height()
        )
    left += _CROPS + _GUTTER
    draw(axes, laid.lines, left, top, _TREE)
    if panel.beyond:
        said = f"and {panel.beyond} more beyond the limit of {len(panel.queries)} queries"
        axes.text(left + 0.25, top + laid.tree - LINE, said, fontsize=8, va="center", color=GREY)


def _draw_whole(axes: "Axes", panel: Panel, top: float) -> None:
    """The picture with its boxes."""
    if panel.whole is None:
        return
    scale = _WHOLE / max(panel.whole.size)
    width, height = (side * scale for side in panel.whole.size)
    left = _MARGIN + (_WHOLE - width) / 2
    place = (left, left + width, top + height, top)
    axes.imshow(panel.whole, extent=place, aspect="auto", interpolation="lanczos", zorder=2)
    _frame(axes, (left, top, width, height), "#B9C0C8", 0.6)
    chips: list[tuple[float, float]] = []
    for number, crop in enumerate(panel.crops):
        if crop.box is None:
            continue
        x0, y0, x1, y1 = crop.box
        x, y = left + x0 * width, top + y0 * height
        box = (x, y, (x1 - x0) * width, (y1 - y0) * height)
        _frame(axes, box, "white", 3.2)
        _frame(axes, box, _colour(number, crop), 1.8, is_dotted=not crop.is_taken)
        chip(
            axes,
            number,
            *_free(x + 0.07, y + 0.07, left + width, chips),
            is_faint=not crop.is_taken,
        )


def _free(
    x: float, y: float, right: float, taken: list[tuple[float, float]]
) -> tuple[float, float]:
    """The first place from (x, y) on, row by row, that no chip takes; it is taken then."""
    start = x
    while any(abs(x - other) < _CHIP and abs(y - below) < _CHIP for other, below in taken):
        x += 1.02 * _CHIP
        if x > right:
            x, y = start, y + 1.02 * _CHIP
    taken.append((x, y))
    return x, y


def _draw_crop(axes: "Axes", number: int, crop: Crop, left: float, top: float) -> None:
    if crop.pixels is None:
        axes.text(left + _CROP / 2, top + _CROP / 2, "no picture", fontsize=7.5, color=_RED,
                  ha="center", va="center")  # fmt: skip
    else:
        place = (left, left + _CROP, top + _CROP, top)
        axes.imshow(crop.pixels, extent=place, aspect="auto", interpolation="lanczos", zorder=2,
                    alpha=1.0 if crop.is_taken else 0.4)  # fmt: skip
    _frame(axes, (left, top, _CROP, _CROP), _colour(number, crop), 1.6, is_dotted=not crop.is_taken)
    chip(axes, number, left + 0.07, top + 0.07, is_faint=not crop.is_taken)
    for row, text in enumerate(wrap(crop.text, _PHRASE_COLUMNS, 2)):
        axes.text(left, top + _CROP + 0.1 + row * LINE * 0.85, text, fontsize=7, va="center",
                  color=INK if crop.is_taken else GREY)  # fmt: skip


def _frame(
    axes: "Axes",
    box: tuple[float, float, float, float],
    colour: str,
    stroke: float,
    *,
    is_dotted: bool = False,
) -> None:
    """A frame from left, top, width and height."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - an extra

    left, top, width, height = box
    axes.add_patch(
        Rectangle((left, top), width, height, fill=False, edgecolor=colour, linewidth=stroke,
                  linestyle=":" if is_dotted else "-", zorder=4)
    )  # fmt: skip


def _colour(number: int, crop: Crop) -> str:
    return colour_of(number) if crop.is_taken else GREY


def _legend(axes: "Axes", y: float, *, has_dotted: bool) -> None:
    """What the marks stand for."""
    about = {
        "caption": "caption, the root: no loss of its own",
        "sentence": f"sentence, weight {WEIGHTS['sentence']:g}",
        "text_box": f"text of a box, {WEIGHTS['text_box']:g}",
        "phrase": f"phrase of the caption, {WEIGHTS['phrase']:g}",
    }
    x = _MARGIN + 0.1
    for kind in NAMES:
        mark(axes, Query("", kind, -1, WEIGHTS[kind], 0 if kind == "text_box" else -1), x, y)
        axes.text(x + 0.15, y, about[kind], fontsize=8, va="center", color=GREY)
        x += 0.5 + 0.058 * len(about[kind])
    if has_dotted:
        said = "dotted: not among the parts of this visit"
        axes.text(x, y, said, fontsize=8, va="center", color=GREY)
