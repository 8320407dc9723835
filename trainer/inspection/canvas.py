"""A canvas for PNG pictures: matplotlib (the extra `eval`) in the style of the reports."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.evaluation.report.canvas import STYLE
from trainer.storage import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 160

# Letters that the first does not have are taken from those of the others that are installed.
_FONTS = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji", "Symbola",
    "Arial Unicode MS", "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Yu Gothic",
    "WenQuanYi Zen Hei", "Segoe UI Emoji",
)  # fmt: skip


def write_png(path: Path, size: tuple[float, float], draw: Callable[["Figure"], None]) -> None:
    """Draw a figure and write it.

    Args:
        path: The file; its folder is made.
        size: Width and height in inches.
        draw: Draws it. Text is never read as mathematics; a letter that no font has is a box.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    installed = {font.name for font in fontManager.ttflist}
    rc: Any = {**STYLE, "font.family": [name for name in _FONTS if name in installed]}
    with mpl.rc_context(rc), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure = Figure(figsize=size, dpi=_DPI)
        FigureCanvasAgg(figure)
        draw(figure)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})
