"""A canvas for plots: matplotlib (the extra `eval`) without any state of its own, as SVG."""

import io
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from core.evaluation.report.document import Plot, plain
from core.evaluation.report.svg import GRID, INK, PAPER, inline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
"""Told apart by the colour-blind (M. Okabe and K. Ito, "Color Universal Design", 2008)."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STROKES = ("-", "--", "-.", ":")

WIDTH = 7.0  # inches, 504 units of the SVG

_LEGEND_LETTERS = 84  # that fit into the width

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}
"""Of every plot of the project."""


def can_plot() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def drawn(name: str, caption: str, height: float, draw: Callable[["Figure"], None]) -> Plot:
    """A plot.

    Args:
        name: Of its file, without the ending.
        caption: Under it.
        height: In inches; the width is `WIDTH`.
        draw: Draws it. Text is never read as mathematics.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    stream = io.StringIO()
    rc: Any = {**STYLE, "svg.hashsalt": name}  # ids that are the same in every run
    with mpl.rc_context(rc), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the reader's font may
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        FigureCanvasSVG(figure)
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(name, caption, inline(stream.getvalue()))


def legend(figure: "Figure", axes: "Axes", entries: int) -> None:
    """A legend below everything, if there is more than one entry."""
    handles, labels = axes.get_legend_handles_labels()
    if entries > 1:
        longest = max(map(len, labels))
        columns = max(1, min(4, _LEGEND_LETTERS // (longest + 8)))
        figure.legend(handles, labels, loc="outside lower left", ncols=columns)


def short(text: str, most: int = 44) -> str:
    """Text that fits beside an axis."""
    text = plain(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
