"""`hyper3 data scan`, `show` and `check`: looking into shards."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from core.cores import available_cores

if TYPE_CHECKING:
    from trainer.inspection.scan import Scan

app = typer.Typer()

_SHARDS_OF_A_WORKER = 32  # a process takes as long to start as it needs to scan these

Shards = Annotated[
    list[str],
    typer.Argument(metavar="SHARDS", help="A folder, a tar, a glob or {00000..00099}.tar."),
]


@app.command()
def scan(
    shards: Shards,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for scan.json, scan.csv and the plot scan.png.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; as many as pay off if not given.")
    ] = None,
) -> None:
    """Count the parts of all samples, and what a cap on them keeps; no picture is read."""
    from trainer.data.shards import find_shards  # noqa: PLC0415 - loads numpy
    from trainer.inspection.scan import scan as count  # noqa: PLC0415

    if out:
        import_module("matplotlib")  # that it is missing is said now, not after an hour

        from trainer.inspection.scan_files import write  # noqa: PLC0415
    console = Console(highlight=False)
    paths = [path for pattern in shards for path in find_shards(pattern)]
    some = workers or min(available_cores(), 1 + len(paths) // _SHARDS_OF_A_WORKER)
    with _progress(console) as progress:
        task = progress.add_task("scan", total=len(paths), said="")
        samples = 0

        def advance(more: int) -> None:
            nonlocal samples
            samples += more
            progress.update(task, advance=1, said=f"{samples:,} samples")

        found = count(paths, some, advance)
    _say(console, found)
    if out:
        written = write(out, found)
        console.print("written: " + ", ".join(map(str, written)), markup=False, soft_wrap=True)


def _say(console: Console, found: "Scan") -> None:
    from trainer.inspection.scan import CAPS, PUBLISHED  # noqa: PLC0415 - loads numpy

    figures = found.figures()
    table = _table(("figure", "here", "the paper's GRIT"))
    for name, value in figures.items():
        if not name.startswith("cap "):
            table.add_row(name, _shown(name, value), _shown(name, PUBLISHED.get(name)))
    console.print(table)
    if figures["parts"]:
        table = _table(("most parts", "parts kept", "in GRIT", "samples whole", "in GRIT"))
        for cap in CAPS:
            names = (f"cap {cap}, parts kept", f"cap {cap}, samples whole")
            cells = [_shown(name, of.get(name)) for name in names for of in (figures, PUBLISHED)]
            table.add_row(f"{cap}", *cells)
        console.print(table)
    table = _table(("parts", "samples", "share"))
    table.columns[0].justify = "right"
    table.add_column("")
    most = max(found.histogram.values())
    for parts, count in found.histogram.items():
        share, bar = count / figures["samples"], "█" * round(30 * count / most)
        table.add_row(f"{parts}", f"{count:,}", f"{share:.2%}", bar)
    console.print(table)
    for shard, why in found.broken.items():
        console.print(f"broken: {shard}: {why}", style="red", markup=False, soft_wrap=True)
    if found.broken:
        console.print(
            f"{_many(len(found.broken), 'shard')} of {found.shards:,} broken; "
            "`hyper3 data check` says more"
        )


@app.command()
def show(
    shards: Shards,
    *,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("samples.png"),
    count: Annotated[int, typer.Option(min=1, max=64, help="Random samples to draw.")] = 4,
    sample: Annotated[
        list[str] | None,
        typer.Option(help="This one instead: its key, or its place from 0. Can be repeated."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Draw what its training takes of a sample.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other samples.")] = 0,
) -> None:
    """Draw samples: the whole with its boxes, the crops, and the query hierarchy."""
    import numpy as np  # noqa: PLC0415 - heavy, as what follows

    from trainer.config import load_recipe  # noqa: PLC0415
    from trainer.data.shards import find_shards  # noqa: PLC0415
    from trainer.inspection.page import write_page  # noqa: PLC0415
    from trainer.inspection.panel import panel_of  # noqa: PLC0415
    from trainer.inspection.samples import named, some_of  # noqa: PLC0415
    from trainer.sections import DataSection  # noqa: PLC0415

    console = Console(highlight=False)
    paths = [path for pattern in shards for path in find_shards(pattern)]
    options = load_recipe(recipe).needed if recipe else DataSection(train=shards[0])
    rng = np.random.default_rng(seed)
    found = named(paths, sample) if sample else some_of(paths, count, rng)
    panels = [panel_of(each, options, rng) for each in found]
    write_page(out, panels)
    console.print(f"{out}: {_many(len(panels), 'sample')}", markup=False, soft_wrap=True)
    for panel in panels:
        for fault in panel.faults:
            console.print(f"  {panel.title}: {fault}", style="red", markup=False, soft_wrap=True)


@app.command()
def check(
    shards: Shards,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Decode no picture.")] = False,
    json: Annotated[Path | None, typer.Option(help="File for all that is found.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; all cores if not given.")
    ] = None,
) -> None:
    """Find broken shards and samples; the exit status is 1 when there are any.

    Compared are the manifest, where there is one, the tar's structure, every text, box and
    picture. A folder may also be a whole data set with its manifest.
    """
    from trainer.inspection.check import check as look  # noqa: PLC0415 - loads numpy
    from trainer.inspection.check import size_of  # noqa: PLC0415
    from trainer.inspection.claims import jobs_of  # noqa: PLC0415
    from trainer.inspection.reports import as_json, by_reason, by_shard  # noqa: PLC0415
    from trainer.storage import write_json  # noqa: PLC0415

    console = Console(highlight=False)
    jobs = jobs_of(shards)
    with _progress(console) as progress:
        task = progress.add_task("check", total=sum(size_of(job.path) for job in jobs), said="")
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            done += 1
            progress.update(task, advance=size, said=f"{done:,} of {len(jobs):,} shards")

        reports = look(jobs, workers or available_cores(), advance, decodes=not quick)
    if json:
        write_json(json, as_json(reports))
    samples = sum(report.samples for report in reports)
    broken = [report for report in reports if report.faults]
    held = f"{_many(len(reports), 'shard')} with {_many(samples, 'sample')}"
    if not broken:
        console.print(f"{held}: all sound" + (" (pictures were not decoded)" if quick else ""))
        return
    console.print(by_shard(broken), markup=False, soft_wrap=True)
    console.print(by_reason(broken))
    console.print(f"{held}: faults in {_many(len(broken), 'shard')}")
    raise typer.Exit(1)


def _table(header: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in header:
        table.add_column(heading, justify="right" if table.columns else "left")
    return table


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if name.endswith("mean") else f"{value:.2%}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
