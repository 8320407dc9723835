"""`hyper3 runs`: what there is, and how it went."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class _ListIsMeant(TyperGroup):
    """Without the name of a command, it is `list`: `hyper3 runs`, `hyper3 runs FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] != ["--help"] and not set(args[:1]) & set(self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListIsMeant, help="List runs, or plot their curves. `hyper3 runs` alone lists them."
)


@app.command("list")
def list_(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Of a run, or with runs in it; else runs and comparisons/*/runs."),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="All that is known, as JSON.")] = False,
) -> None:
    """What each run has come to, the one that told something last first."""
    from rich.console import Console  # noqa: PLC0415

    from trainer.runs.find import runs_below  # noqa: PLC0415
    from trainer.runs.listing import as_json, as_tables, list_runs  # noqa: PLC0415

    console = Console(highlight=False)
    found = list_runs(runs_below(folder))
    if json:
        console.print(as_json(found), markup=False, soft_wrap=True)
        return
    for table in as_tables(found):
        console.print(table)
    for run in found:
        if run.state == "failed":
            console.print(f"{run.folder} failed: {run.why}", style="red", markup=False)
    console.print(
        "R@1: text to image, held out, the last and the best; per s: samples. "
        "`hyper3 runs plot RUN...` draws curves."
    )


@app.command()
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or with runs in them.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="A .png, .svg or .html file; plot.png beside the runs, or in the one."),
    ] = None,
) -> None:
    """Draw losses, recalls, radii, curvature, learning rates and speed, runs over one another."""
    from rich.console import Console  # noqa: PLC0415

    from trainer.runs.find import named_runs  # noqa: PLC0415
    from trainer.runs.plot import plot_runs  # noqa: PLC0415

    found = named_runs(runs)
    file = plot_runs(found, out)
    Console(highlight=False).print(
        f"{len(found)} run{'' if len(found) == 1 else 's'} -> {file}", markup=False
    )
