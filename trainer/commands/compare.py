"""`hyper3 compare`."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT... [SECTION.KEY=VALUE]...",
            help="A comparison (hyper3 recipes lists those that ship), or recipes.",
        ),
    ] = None,
    *,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Trainings of each; the comparison's, or 1.")
    ] = None,
    on: Annotated[
        list[str] | None, typer.Option(help="What to measure on, as `hyper3 eval` takes it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of runs, results and report; comparisons/NAME.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="With whom others are compared; the first if not given.")
    ] = None,
    at_once: Annotated[
        int, typer.Option("--jobs", min=1, help="Trainings at a time; they share the cores.")
    ] = 1,
) -> None:
    """Train systems alike, from several seeds each, measure them, and test their differences.

    Run the same command again after an interruption, or with more seeds: what is trained and
    measured stays.
    """
    from trainer.compare.run import compare as run  # noqa: PLC0415 - loads torch

    run(what or [], seeds=seeds, on=on or [], out=out, baseline=baseline, at_once=at_once)
