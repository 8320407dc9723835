"""`hyper3 eval` and `hyper3 report`."""

import re
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core.errors import ConfigError
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Encoder, open_encoder
from core.evaluation.listing import heading, how_to_get, list_tasks, remarks, result_table
from core.evaluation.report.command import report_command
from core.evaluation.result import write_figures
from core.evaluation.run import Done, run_jobs
from core.evaluation.suites import Job, plan
from core.evaluation.task import Options
from core.image import Preprocess
from core.prompts import prompt_sets, read_prompt_sets

app = typer.Typer()
app.command("report")(report_command)

_WHAT = "Suites (table2 .. table6, paper, beyond), tasks, data sets, or JSONL files; see --list."


@app.command("eval")
def eval_command(
    target: Annotated[
        str | None,
        typer.Argument(help="A checkpoint, a run, a bundle, http://HOST:PORT or open_clip:NAME."),
    ] = None,
    what: Annotated[list[str] | None, typer.Argument(help=_WHAT, show_default="paper")] = None,
    *,
    root: Annotated[Path, typer.Option(help="Where `hyper3 data fetch` put the data sets.")] = Path(
        "data/eval"
    ),
    out: Annotated[Path, typer.Option(help="Results go to OUT/MODEL.")] = Path("results"),
    preprocess: Annotated[
        Preprocess | None,
        typer.Option(help="How whole pictures become squares, in place of each task's own."),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help='A shipped set, as cifar10, or TOML: mine = ["a photo of a {}."]'),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="JSON of things to name, for a file without names.json.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the figures to this one file.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Where a file's pictures are, if not beside it.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="Take the first records alone.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32, help="Of what is drawn: negatives, resampling.")
    ] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Embed and measure also what was measured before.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show suites, tasks and which data are there.")
    ] = False,
) -> None:
    """Measure a model: the tables of the paper, or all that your own records allow.

    Every result is written as soon as it is done, and not measured again while nothing that
    determines it has changed: run the same command again after an interruption.
    """
    console = Console(highlight=False)
    if listed:
        list_tasks(console, root)
        return
    if target is None:
        raise ConfigError("name what to measure: `hyper3 eval TARGET [WHAT]...`")
    opened = partial(open_dataset, limit=limit, names=names, images=images)
    jobs = plan(what or ["paper"], root, opened)
    options = Options(preprocess, _prompts(prompts) if prompts else None, seed)
    done, folder = _measure(open_encoder(target), jobs, options, opened, out, console, again=again)
    if json_file is not None:
        write_figures(json_file, [outcome.result for outcome in done if outcome.result is not None])
    _conclude(console, done, folder)


def _measure(
    encoder: Encoder,
    jobs: list[Job],
    options: Options,
    opened: Callable[[Path], Dataset],
    out: Path,
    console: Console,
    *,
    again: bool,
) -> tuple[list[Done], Path]:
    """Do the jobs, show each as it ends; returns what became of them, and the results' folder."""
    folder = out / folder_name(encoder)
    done = []
    with _progress() as progress:
        embedder = Embedder(encoder, folder / "embeddings", progress, time.time() if again else 0.0)
        for outcome in run_jobs(jobs, embedder, options, folder, opened, again=again):
            _show(progress.console, console, outcome, encoder)
            done.append(outcome)
    return done, folder


def _prompts(given: str) -> dict[str, tuple[str, ...]]:
    shipped = prompt_sets()
    if given in shipped:
        return {given: shipped[given]}
    file = Path(given)
    if not file.suffix:
        raise ConfigError(
            f"--prompts {given}: neither a shipped set ({', '.join(shipped)}) nor a TOML file"
        )
    return read_prompt_sets(file)


def folder_name(encoder: Encoder) -> str:
    """A folder's name for the results of an encoder: its own name and its fingerprint's start."""
    name = re.sub(r"[^\w.-]+", "-", encoder.name).strip("-.")
    return f"{name or 'model'}-{encoder.fingerprint[:8]}"


def _show(errors: Console, console: Console, done: Done, encoder: Encoder) -> None:
    if done.result is not None:
        console.print(
            heading(done.result, encoder.name, is_kept=done.state == "kept"), soft_wrap=True
        )
        console.print(result_table(done.result))
        for remark in remarks(done.result):
            console.print(remark, markup=False, soft_wrap=True)
        if done.result.left_out:
            console.print(
                f"left out: {len(done.result.left_out):,} pictures cannot be read; the first: "
                f"{done.result.left_out[0]}",
                markup=False,
                soft_wrap=True,
            )
    elif done.state == "failed":
        errors.print(f"{done.job.task}: {done.message}", markup=False, soft_wrap=True)


def _conclude(console: Console, done: list[Done], folder: Path) -> None:
    """Say what was skipped and where the results are.

    Raises:
        ConfigError: Nothing at all could be measured, or a task failed.
    """
    missing = [outcome for outcome in done if outcome.state == "missing"]
    if missing:
        console.print(f"skipped, for want of data: {len(missing)} tasks")
        for name in dict.fromkeys(outcome.job.data for outcome in missing):
            console.print(f"  {name:<14} {how_to_get(name)}", markup=False, soft_wrap=True)
    finished = [outcome for outcome in done if outcome.result is not None]
    failed = [outcome.job.task for outcome in done if outcome.state == "failed"]
    if finished:
        command = shlex.join(["hyper3", "report", str(folder)])
        console.print(f"results: {folder} · `{command}`", markup=False, soft_wrap=True)
    if failed:
        raise ConfigError(
            f"{len(failed)} of {len(done)} tasks failed: {', '.join(failed)}; the reasons are above"
        )
    if not finished:
        raise ConfigError("nothing was measured: the data of no task are there")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:>9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
