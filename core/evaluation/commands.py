"""`hyper3 eval`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core.evaluation.encoder import open_encoder
from core.evaluation.names import Names, read_names
from core.evaluation.records import read_records
from core.evaluation.report import Report, render, write_json
from core.evaluation.suite import evaluate
from core.image import Preprocess

app = typer.Typer()


@app.command("eval")
def eval_command(
    target: Annotated[str, typer.Argument(help="A checkpoint, a run's folder or a bundle.")],
    *,
    data: Annotated[Path, typer.Option(help="JSONL of images with captions and boxes.")],
    names: Annotated[
        Path | None,
        typer.Option(help="JSON of the things to name; default: names.json beside the data."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures to this file.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take the first records alone.")] = None,
    preprocess: Annotated[
        Preprocess, typer.Option(help="How whole images become squares.")
    ] = "retrieval",
) -> None:
    """Measure a model: retrieval, naming of parts, radii and entailments, beside chance."""
    records = read_records(data, limit)
    things = _find_names(data, names)
    encoder = open_encoder(target)
    with _progress() as progress:
        measures, left_out = evaluate(encoder, records, things, preprocess, progress)
    report = Report(encoder.name, str(data), measures, len(left_out))
    console = Console(highlight=False)
    console.print(render(report))
    if left_out:
        console.print(
            f"left out: {len(left_out):,} of {len(records):,} images cannot be read; "
            f"the first: {left_out[0]}",
            markup=False,
            soft_wrap=True,
        )
    if json_file is not None:
        write_json(report, json_file)


def _find_names(data: Path, names: Path | None) -> Names | None:
    if names is not None:
        return read_names(names)
    beside = data.with_name("names.json")
    return read_names(beside) if beside.is_file() else None


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:>9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
