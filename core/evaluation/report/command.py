"""`hyper3 report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from core.errors import ConfigError, DataError
from core.evaluation.report.build import build
from core.evaluation.report.compare import Baseline
from core.evaluation.report.models import Model, read_models
from core.evaluation.report.write import write_report


def report_command(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Results of models, as `hyper3 eval` wrote them: OUT/MODEL, or OUT."),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("report"),
    baseline: Annotated[
        Path | None,
        typer.Option(help="Results of one more model, to which differences are taken and tested."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws of the paired tests.")] = 0,
) -> None:
    """Write tables and plots of results, beside what was published: Markdown, CSV and HTML."""
    console = Console(highlight=False)
    models, broken = read_models([*folders, *([baseline] if baseline else [])])
    base = Baseline(_model_of(models, baseline, broken), seed) if baseline else None
    with console.status("comparing and drawing"):
        found = build(models, base, broken)
        files = write_report(out, found)
    for model in models:
        figures = sum(len(result.measures) for result in model.results.values())
        said = f"{model.name}: {figures:,} figures of {len(model.results)} tasks"
        console.print(said, markup=False, soft_wrap=True)
    for caution in found.cautions:
        console.print(f"note: {caution}", markup=False, soft_wrap=True)
    for what, file in files.items():
        console.print(f"{what:>9}  {file}", markup=False, soft_wrap=True)
    if found.without_plots:
        console.print(
            "no plots, for want of matplotlib: pip install '.[eval]' in a checkout",
            markup=False,
            soft_wrap=True,
        )


def _model_of(models: Sequence[Model], folder: Path, broken: Sequence[str]) -> Model:
    """The model of a folder, or the only one in it."""
    place = folder.resolve()
    found = [model for model in models if model.folder == place]
    found = found or [model for model in models if model.folder.parent == place]
    if not found:
        raise DataError("; ".join(why for why in broken if why.startswith(f"{place}/")))
    if len(found) > 1:
        below = ", ".join(model.folder.name for model in found)
        raise ConfigError(f"{folder}: a baseline is one model; name one of {below}")
    return found[0]
