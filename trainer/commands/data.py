"""`hyper3 data`: make or prepare what is trained on."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from core.cores import available_cores
from core.errors import ConfigError
from trainer.commands.inspect import app as inspect_app
from trainer.commands.prepare import prepare

if TYPE_CHECKING:
    from trainer.fetch.run import Fetched

app = typer.Typer(
    help="Make, prepare or fetch data, and look into shards.",
    no_args_is_help=True,
)


@app.command()
def scenes(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("data/scenes"),
    train: Annotated[int, typer.Option(min=1, help="Scenes to train on.")] = 50_000,
    val: Annotated[int, typer.Option(min=1, help="Scenes to watch while training.")] = 1_000,
    test: Annotated[int, typer.Option(min=1, help="Scenes of each of the three tests.")] = 500,
    side: Annotated[int, typer.Option(min=32, max=512, help="Pixels of a scene.")] = 64,
    part_side: Annotated[int, typer.Option(min=8, max=512, help="Pixels of a crop.")] = 64,
    seed: Annotated[int, typer.Option(help="Another seed, other scenes.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; all cores if not given.")
    ] = None,
) -> None:
    """Compose captioned scenes of emoji art: the demo data, made in about a minute."""
    from trainer.scenes.sheet import write_sheet  # noqa: PLC0415 - loads numpy and the art
    from trainer.scenes.write import (  # noqa: PLC0415
        SceneSettings,
        is_complete,
        write_scenes,
    )

    console = Console(highlight=False)
    settings = SceneSettings(train, val, test, side, part_side, seed)
    if is_complete(out, settings):
        console.print(f"{out} is up to date.")
        return
    with _progress(console) as progress:
        task = progress.add_task("scenes", total=train + val + 3 * test)
        manifest = write_scenes(
            out, settings, workers or available_cores(), lambda n: progress.advance(task, n)
        )
    write_sheet(out / "sheet.png", settings)
    for name, split in manifest["splits"].items():
        console.print(f"{name:>20}  {split['samples']:>7,} scenes  {split['parts']:>8,} things")
    things = manifest["things"]
    console.print(f"{things['trained']} things are trained, {things['held_out']} only ever tested.")
    console.print(f"A look at a dozen of them: {out / 'sheet.png'}")


app.command()(prepare)
app.add_typer(inspect_app)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Data sets, or one of your own.")
    ] = None,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="The file or folder with the data; downloaded if not given."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the pictures, where they lie apart.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of all data sets.")] = Path("data/eval"),
    force: Annotated[bool, typer.Option("--force", help="Make it again if it is there.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the data sets and stop.")] = False,
) -> None:
    """Fetch what `hyper3 eval` measures on: a folder with a manifest for each data set."""
    from trainer.fetch.listing import table  # noqa: PLC0415 - as above
    from trainer.fetch.run import Request  # noqa: PLC0415
    from trainer.fetch.run import fetch as fetch_one  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=not list_)
    if list_:
        console.print(table(root))
        return
    if not names:
        raise ConfigError("name a data set, as `hyper3 data fetch cifar10`; --list shows them all")
    for name in names:
        with _progress(console, is_transient=True) as progress:
            fetched = fetch_one(name, Request(source, images, root, force), _advance(progress))
        _report(console, name, fetched)


def _report(console: Console, name: str, fetched: "Fetched") -> None:
    """Say what is there now, and what the user should know of it."""
    if not fetched.is_new:
        console.print(f"{name} is up to date.")
    else:
        counts = fetched.manifest.counts if fetched.manifest else {}
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items()) or "there"
        console.print(f"{fetched.folder}: {said}", markup=False)
        if fetched.manifest:
            console.print(f"  licence: {fetched.manifest.licence}", markup=False)
    for remark in fetched.remarks:
        console.print(f"  note: {remark}", markup=False)


def _advance(progress: Progress) -> Callable[[str, int, int], None]:
    """A bar for each thing that is being done, the one before it ended."""
    tasks: dict[str, TaskID] = {}

    def advance(title: str, done: int, total: int) -> None:
        if title not in tasks:
            for task in tasks.values():
                progress.update(task, visible=False)
            tasks[title] = progress.add_task(title, total=None)
        progress.update(tasks[title], completed=done, total=total or None)

    return advance


def _progress(console: Console, *, is_transient: bool = False) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=is_transient,
    )
