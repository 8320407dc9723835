"""A canvas for PNG pictures: matplotlib (the extra `eval`) in the style of the reports."""

import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from core.evaluation.report.canvas import STYLE
from trainer.storage import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

_DPI = 160
_MISSING = re.compile(r"Glyph (\d+) .*missing")
_MOST_LETTERS = 8  # that are named

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
        draw: Draws it. Text is never read as mathematics; a letter that no font has is a box,
            and a warning is logged.

    Raises:
        ConfigError: The file is named as if it were of another kind.
        StorageError: The folder cannot be written, or the disk is full.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    if path.suffix.lower() not in ("", ".png"):
        raise ConfigError(f"{path}: a PNG is written; name a file that ends in .png")
    installed = {font.name for font in fontManager.ttflist}
    rc: Any = {**STYLE, "font.family": [name for name in _FONTS if name in installed]}
    with mpl.rc_context(rc), warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "Glyph .* missing", UserWarning)
        figure = Figure(figsize=size, dpi=_DPI)
        FigureCanvasAgg(figure)
        draw(figure)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", metadata={"Software": None})
    _tell(path, caught)


def _tell(path: Path, caught: list[warnings.WarningMessage]) -> None:
    """Log which letters no font has, once; give all other warnings on."""
    letters: dict[str, None] = {}
    for each in caught:
        if found := _MISSING.match(str(each.message)):
            letters[chr(int(found[1]))] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if letters:
        log.warning(
            "%s: no font that is installed has %s%s: drawn as boxes; install Noto Sans CJK, say",
            path,
            " ".join([*letters][:_MOST_LETTERS]),
            f" and {len(letters) - _MOST_LETTERS:,} more" if len(letters) > _MOST_LETTERS else "",
        )
