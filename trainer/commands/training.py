"""Training, exporting, and lists of what can be trained."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from trainer.commands.compare import compare
from trainer.commands.data import app as data_app
from trainer.commands.runs import app as runs_app

app = typer.Typer()
app.add_typer(data_app, name="data")
app.add_typer(runs_app, name="runs")
app.command()(compare)


@app.command()
def train(
    recipe: Annotated[
        Path, typer.Argument(help="A TOML recipe, or the bare name of one that ships with us.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="SECTION.KEY=VALUE", help="As optim.peak_lr=1e-4."),
    ] = None,
) -> None:
    """Train a model, or go on where a stopped run of the same recipe left off."""
    from trainer.allocator import is_hyper3, keep_freed_memory  # noqa: PLC0415

    if is_hyper3():
        keep_freed_memory()
    from rich.console import Console  # noqa: PLC0415 - torch comes with the next lines

    from trainer.config import load_recipe  # noqa: PLC0415
    from trainer.run import train as run  # noqa: PLC0415

    run(load_recipe(recipe, overrides), Console(highlight=False))


@app.command()
def recipes(
    name: Annotated[
        Path | None, typer.Argument(help="Show every key of this one, a file or a bare name.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="SECTION.KEY=VALUE", help="As `hyper3 train` takes them."),
    ] = None,
) -> None:
    """List the recipes that ship with us, or show all that one of them decides."""
    from rich.console import Console  # noqa: PLC0415

    from trainer.compare.plan import COMPARISONS  # noqa: PLC0415
    from trainer.config import RECIPES, load_recipe  # noqa: PLC0415

    console = Console(highlight=False, markup=False)
    if name:
        console.print_json(load_recipe(name, overrides).model_dump_json())
        return
    large = [path for path in RECIPES.glob("*.toml") if not path.stem.endswith("-smoke")]
    console.print(_described("recipe", large))
    console.print(_described("comparison", COMPARISONS.glob("*.toml")))
    console.print(
        "hyper3 train NAME trains a recipe, hyper3 compare NAME those of a comparison.\n"
        "NAME-smoke is a recipe's twin in little, a few steps on\n"
        "  hyper3 data scenes --out data/smoke --train 256 --val 64 --test 16"
    )


def _described(kind: str, paths: Iterable[Path]) -> Table:
    """Files by name, with what their first lines say of them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind, no_wrap=True)  # a name that is cut off is of no use
    table.add_column("what it is")
    for path in sorted(paths, key=lambda path: path.stem):
        described = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        table.add_row(path.stem, described)
    return table


@app.command()
def export(
    *,
    checkpoint: Annotated[Path, typer.Argument(help="A run, RUN/best, or a checkpoint.")],
    out: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    force: Annotated[bool, typer.Option(help="Replace a bundle that is there.")] = False,
) -> None:
    """Export a checkpoint as a bundle: two ONNX graphs, checked against the model."""
    from rich.console import Console  # noqa: PLC0415

    from trainer.checkpoint import find  # noqa: PLC0415
    from trainer.export import export as write  # noqa: PLC0415

    console = Console(highlight=False)
    found = find(checkpoint)
    manifest = write(found, out, force=force)
    parity = manifest.parity
    console.print(
        f"{out}: {manifest.name} at step {manifest.step:,}, curvature {manifest.curvature:.3g}, "
        f"{manifest.dim} dimensions, fingerprint {manifest.fingerprint[:12]}\n"
        f"parity with PyTorch over {parity.samples} images: worst error of a coordinate "
        f"{parity.worst_error:.1e}, mean {parity.mean_error:.1e}, "
        f"nearest image agrees for {parity.rank_agreement:.1%} of texts"
    )
