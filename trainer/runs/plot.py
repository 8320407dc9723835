"""The curves of runs as a picture, or as a page."""

import os
from collections.abc import Sequence
from pathlib import Path

from core.errors import ConfigError
from core.evaluation.report.canvas import drawn
from core.evaluation.report.document import Document, Section, Text
from core.evaluation.report.html import render_html
from core.evaluation.report.svg import alone
from trainer.inspection.canvas import write_png
from trainer.runs.curves import Panel, panels
from trainer.runs.drawing import Drawing
from trainer.runs.named import Run, read_runs
from trainer.storage import replacing

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
    runs = read_runs(folders)
    _write(file, runs, panels(runs))
    return file


def _beside(folders: Sequence[Path]) -> Path:
    if len(folders) == 1:
        return folders[0]
    return Path(os.path.relpath(os.path.commonpath([folder.resolve() for folder in folders])))


def _write(file: Path, runs: Sequence[Run], found: Sequence[Panel]) -> None:
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    if file.suffix == ".png":
        columns = 2 if len(found) <= 4 else 3
        drawing = Drawing(title, runs, found, columns)
        write_png(file, (drawing.width, drawing.height), drawing.draw)
        return
    drawing = Drawing(title, runs, found, 2)
    plot = drawn("runs", _CAPTION, drawing.height, drawing.draw)
    told = "; ".join(f"{run.name} at step {run.reports.step:,}" for run in runs)
    page = Document(f"Training: {title}", (Section("Curves", (Text(f"{told}."), plot)),))
    text = render_html(page) if file.suffix == ".html" else alone(plot.svg)
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
