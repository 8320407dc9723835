"""A report as files."""

from pathlib import Path

from core.errors import StorageError
from core.evaluation.report.build import Report
from core.evaluation.report.html import render_html
from core.evaluation.report.markdown import render_markdown
from core.evaluation.report.svg import alone


def write_report(folder: Path, report: Report) -> dict[str, Path]:
    """Write ``report.html``, ``report.md`` with ``plots/*.svg``, and ``report.csv``.

    Returns:
        Where each is, by what it is.

    Raises:
        StorageError: The folder cannot be written.
    """
    plots = folder / "plots"
    contents = {
        "page": (folder / "report.html", render_html(report.document)),
        "Markdown": (folder / "report.md", render_markdown(report.document)),
        "table": (folder / "report.csv", report.spreadsheet),
    }
    try:
        plots.mkdir(parents=True, exist_ok=True)
        for plot in report.document.plots():
            (plots / f"{plot.name}.svg").write_text(alone(plot.svg), encoding="utf-8")
        for file, text in contents.values():
            file.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error.strerror}") from error
    return {what: file for what, (file, _) in contents.items()}
