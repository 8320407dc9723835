"""A comparison from its words to its table."""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core.errors import ConfigError, DataError, Hyper3Error
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import open_encoder
from core.evaluation.listing import how_to_get
from core.evaluation.report.write import write_report
from core.evaluation.result import Result
from core.evaluation.run import run_jobs
from core.evaluation.suites import Job
from core.evaluation.suites import plan as plan_tasks
from core.evaluation.task import Options
from core.lock import take_lock
from trainer.compare import plan as plans
from trainer.compare.figures import Figure, collect, headlines
from trainer.compare.plan import Plan, Planned
from trainer.compare.report import LEGEND, Compared, build, console_tables
from trainer.compare.train import train_all
from trainer.data.shards import find_addresses, find_shards

_ROOT = Path("data/eval")  # where `hyper3 data fetch` puts data sets
_MEASURED = dict[str, dict[int, list[Result]]]


def compare(
    what: Sequence[str],
    *,
    seeds: int | None,
    on: Sequence[str],
    out: Path | None,
    baseline: str | None,
    at_once: int,
) -> None:
    """Train, measure, test and tell.

    Args:
        what: A comparison or recipes, and overrides.
        seeds: Trainings of each; None for the comparison's own number.
        on: What to measure on; the comparison's own if empty.
        out: Folder of runs, results and report; None for one of its name.
        baseline: With whom others are compared; None for the comparison's, or the first.
        at_once: Trainings that run together.

    Raises:
        ConfigError: A word means nothing, or a training failed; what could be is compared.
        DataError: Data that are needed are not there; nothing was trained.
        StorageError: The folder cannot be written, or another comparison runs in it.
    """
    console = Console(highlight=False)
    plan = plans.read_plan(what)
    folder = out or Path("comparisons") / plan.name
    number = seeds or plan.seeds
    with _told_how_to_get(plan):
        tasks = _tasks(on or plan.on)
    # A run is known by the base that it continues, however the folder is spelt.
    planned = plans.runs(plan, folder.resolve(), number)
    names = plans.rows(planned)
    base = _baseline(baseline or plan.baseline or names[0], names)
    with _told_how_to_get(plan):
        _look_for_shards(planned)
    console.print(_opening(planned, number, folder), markup=False, soft_wrap=True)
    with closing(take_lock(folder)), _sigterm_as_interrupt(), _progress(console) as progress:
        results, faults = _results(planned, names, at_once, tasks, progress)
        if not results:
            raise ConfigError(f"nothing could be compared, {len(faults)} failed: {faults[0]}")
        task = progress.add_task("tests", total=headlines(results))
        figures = collect(results, base, 0, lambda: progress.advance(task))
    having = tuple(name for name in names if name in results)
    told = tuple(_told(name, planned) for name in having)
    remarks = tuple(faults + _few(number) + _unequal(planned, having) + _untested(figures))
    found = Compared(_title(plan), having, base, number, tuple(figures), told, remarks)
    files = write_report(folder / "report", build(found))
    for heading, table in console_tables(found):
        console.print(f"\n[bold]{escape(heading)}[/]", soft_wrap=True)
        console.print(table)
    console.print(LEGEND)
    for remark in remarks:
        console.print(f"note: {remark}", markup=False, soft_wrap=True)
    for kind, file in files.items():
        console.print(f"{kind:>9}  {file}", markup=False, soft_wrap=True)
    if faults:
        raise ConfigError(f"{len(faults)} of {len(planned)} failed; the table is of the others")


def _look_for_shards(planned: Sequence[Planned]) -> None:
    """Raises DataError where shards are missing; those that lie elsewhere are fetched later."""
    for data in dict.fromkeys((one.recipe.data.train, one.recipe.data.val) for one in planned):
        for pattern in filter(None, data):
            if not find_addresses(pattern):
                find_shards(pattern)


@contextmanager
def _told_how_to_get(plan: Plan) -> Iterator[None]:
    """Adds what a comparison says of its data to what is not there of them."""
    try:
        yield
    except DataError as error:
        raise DataError(
            f"{error}; {plan.name} needs {plan.needs}" if plan.needs else f"{error}"
        ) from error


def _tasks(words: Sequence[str]) -> list[Job]:
    """What is measured; all of it must be there before anything is trained."""
    if not words:
        raise ConfigError(
            "say what to measure on: --on retrieval/data/scenes/test.jsonl, a data set or a suite"
        )
    jobs = plan_tasks(words, _ROOT, open_dataset)
    lacking = [job for job in jobs if job.is_missing or job.fault]
    if lacking:
        faults = (job.fault or f"{job.path}: not there: {how_to_get(job.data)}" for job in lacking)
        raise DataError("; ".join(dict.fromkeys(faults)))
    return jobs


def _baseline(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise ConfigError(f"--baseline {name}: not one of {', '.join(names)}")
    return name


def _opening(planned: Sequence[Planned], seeds: int, folder: Path) -> str:
    names = list(dict.fromkeys(one.contender.name for one in planned))
    steps = sum(one.recipe.last_step for one in planned)
    of_seeds = f"{seeds} seeds each" if seeds > 1 else "one seed"
    return f"{len(names)} recipes, {of_seeds}, {steps:,} steps in all -> {folder}"


def _results(
    planned: Sequence[Planned],
    names: Sequence[str],
    at_once: int,
    tasks: Sequence[Job],
    progress: Progress,
) -> tuple[_MEASURED, list[str]]:
    """What was measured of each system and seed, and what failed."""
    found: _MEASURED = {}
    faults: list[str] = []
    with closing(train_all(planned, at_once, progress)) as trainings:
        for trained in trainings:
            one = trained.planned
            fault = trained.fault
            if not fault and one.contender.name in names:
                try:
                    found.setdefault(one.contender.name, {})[one.seed] = _measure(
                        one, tasks, progress
                    )
                except Hyper3Error as error:
                    fault = str(error)
            if fault:
                faults.append(f"{one.title}: {fault}")
                progress.console.print(f"[yellow]{escape(faults[-1])}[/]", soft_wrap=True)
    order = {name: found[name] for name in names if found.get(name)}
    return {name: dict(sorted(of_seeds.items())) for name, of_seeds in order.items()}, faults


def _measure(one: Planned, tasks: Sequence[Job], progress: Progress) -> list[Result]:
    folder = one.folder.parent.parent.parent / "results" / one.contender.name / one.folder.name
    embedder = Embedder(open_encoder(str(one.folder)), folder / "embeddings", progress)
    done = list(run_jobs(tasks, embedder, Options(None, None, 0), folder))
    failed = [each.message for each in done if each.state == "failed"]
    if failed:
        raise DataError("; ".join(failed))
    results = [each.result for each in done if each.result is not None]
    progress.console.print(
        f"{one.title}: " + " · ".join(_headline(result) for result in results),
        markup=False,
        soft_wrap=True,
    )
    return results


def _headline(result: Result) -> str:
    """One figure of each task, to see how it goes."""
    measure = next((m for m in result.measures if m.is_headline), None)
    if measure is None:
        return f"{result.task} not applicable"
    return f"{result.task} {measure.name} {measure.value:.1%}"


def _told(name: str, planned: Sequence[Planned]) -> tuple[str, ...]:
    """What was trained under a name: a row of `report.HEADINGS`."""
    runs = [one for one in planned if one.contender.name == name]
    recipe = runs[0].recipe
    reports = [_run_record(one.folder) for one in runs]
    speeds = sorted(speed for report in reports for speed in report["speeds"])
    signs = dict.fromkeys(sign for report in reports for sign in report["signs"])
    trained = next((r["trained_parameters"] for r in reports if r["trained_parameters"]), None)
    return (
        name,
        recipe.objective.kind,
        f"{recipe.last_step:,} x {recipe.optim.batch_size}",
        f"{trained / 1e6:.1f} M" if trained else "",
        f"{speeds[len(speeds) // 2]:,.0f}" if speeds else "",
        ", ".join(signs) or "none",
    )


def _run_record(folder: Path) -> dict[str, Any]:
    """Speeds, signs of ill health and size of a run, as far as it has written them."""
    found: dict[str, Any] = {"speeds": [], "signs": [], "trained_parameters": None}
    try:
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            speed = json.loads(line).get("speed/samples_per_second")
            if speed:
                found["speeds"].append(speed)
        found |= json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return found
    return found


def _few(seeds: int) -> list[str]:
    """What one training of each cannot show."""
    if seeds > 1:
        return []
    return ["one seed each: tests are over pictures alone and say nothing of another training"]


def _unequal(planned: Sequence[Planned], names: Sequence[str]) -> list[str]:
    """What a reader must know before comparing."""
    of_names = {one.contender.name: one.recipe for one in planned if one.contender.name in names}
    steps = {name: (r.last_step, r.optim.batch_size) for name, r in of_names.items()}
    if len(set(steps.values())) == 1:
        return []
    said = ", ".join(f"{name} {n:,} of {size}" for name, (n, size) in steps.items())
    return [f"not of equal steps: {said}"]


def _untested(figures: Sequence[Figure]) -> list[str]:
    """What has no test beside the baseline."""
    found: dict[str, dict[str, None]] = {}
    for figure in figures:
        for name, cell in figure.cells.items():
            if name != figure.baseline and cell.difference is None:
                found.setdefault(figure.key[0], {})[name] = None
    return [
        f"{task}: no test of {', '.join(names)}: no seed in common with the baseline, or not of "
        "the same pictures"
        for task, names in found.items()
    ]


def _title(plan: Plan) -> str:
    return f"Comparison: {plan.name}"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the trainings as Ctrl-C does: after a checkpoint each."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
