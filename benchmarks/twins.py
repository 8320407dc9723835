"""A minute of every recipe's twin on the demonstration's scenes: which losses fall?

Each twin runs with its own objective and tiny towers for about the given time, the ablation's
continuations from the base twin's end. A term has fallen when its mean over the last tenth of
the steps lies below that over the first ten steps (a continuation's: below the base's first
ten, where the base had the term). Of those that have not, the figures that explain it follow.
Runs that are complete are not repeated: remove runs/twins to start afresh.

    python -m benchmarks.twins [--seconds 60] [--jobs 2] [--save] [NAME ...]
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.timing import arguments, report
from trainer.config import RECIPES, load_recipe

FOLDER = Path("runs/twins")
BASE = "hyper3_vit_b16-ablation-base-smoke"
TRIAL = 30  # steps that tell how many fit into the time


@dataclass(frozen=True)
class Course:
    """A run's training reports: ``(reports,)`` of each number."""

    name: str
    numbers: dict[str, np.ndarray]
    base: "Course | None" = None

    def first(self, term: str) -> float:
        """Mean of the first ten steps in which the term was trained."""
        if self.base and term in self.base.numbers:
            return self.base.first(term)
        return float(self.numbers[term][:10].mean())

    def last(self, term: str) -> float:
        """Mean of the last tenth of the steps."""
        values = self.numbers[term]
        return float(values[-max(len(values) // 10, 1) :].mean())

    def terms(self) -> list[str]:
        """The losses."""
        prefixes = ("loss", "contrastive/", "entailment/", "calibration/", "query/")
        return [name for name in self.numbers if name.startswith(prefixes)]


def main() -> None:
    """Run what is asked for, and print one table."""
    parser = arguments("A minute of every recipe's twin: which losses fall?")
    parser.add_argument("names", nargs="*", help="recipes, without -smoke; all when none")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    options = parser.parse_args()
    names = [f"{name}-smoke" for name in options.names] or sorted(
        path.stem for path in RECIPES.glob("*-smoke.toml")
    )
    courses: dict[str, Course] = {}
    continued = [name for name in names if load_recipe(Path(name)).run.base]
    alone = [name for name in names if name not in continued]
    if continued and BASE not in alone:
        alone.insert(0, BASE)
    with ThreadPoolExecutor(options.jobs) as pool:
        for group in (alone, continued):
            base = courses[BASE] if group is continued and group else None
            train = partial(course, seconds=options.seconds, jobs=options.jobs, base=base)
            courses |= dict(zip(group, pool.map(train, group), strict=True))
    about = f"{options.seconds:g} s each, {options.jobs} at once"
    report("twins", tabulate(courses), about, options, modules=())


def course(name: str, seconds: float, jobs: int, base: Course | None) -> Course:
    """Train one twin for about the given time, or from the base's end to the schedule's."""
    steps, stop = 0, None
    if (FOLDER / name / "checkpoints").is_dir():
        return Course(name, read(FOLDER / name), base)
    if base:
        steps = json.loads((FOLDER / BASE / "recipe.json").read_text())["optim"]["steps"]
    else:
        run(name, FOLDER / "trial" / name, TRIAL, None, jobs)
        speeds = read(FOLDER / "trial" / name)["speed/samples_per_second"][TRIAL // 3 :]
        batch = load_recipe(Path(name)).optim.batch_size
        steps = max(int(seconds * float(np.median(speeds)) / batch), TRIAL)
    if name == BASE:
        steps, stop = 2 * steps, steps
    run(name, FOLDER / name, steps, stop, jobs)
    return Course(name, read(FOLDER / name), base)


def run(name: str, folder: Path, steps: int, stop: int | None, jobs: int) -> None:
    """Train afresh in a process of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    command = [
        sys.executable, "-m", "core", "train", str(RECIPES / f"{name}.toml"),
        "data.train=data/scenes/train", "data.val=data/scenes/val", f"run.out={folder}",
        f"optim.steps={steps}", f"optim.warmup_steps={steps // 10}", "run.log_every=1",
        f"run.eval_every={steps}", f"run.save_every={steps}", f"run.stop_at={stop or steps}",
    ]  # fmt: skip
    if load_recipe(Path(name)).run.base:
        command.append(f"run.base={FOLDER / BASE}")
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{name}: {result.stderr or result.stdout}")


def read(folder: Path) -> dict[str, np.ndarray]:
    """Every number of the training reports."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["split"] == "train"]
    return {
        name: np.array([row.get(name, np.nan) for row in rows])
        for name in rows[-1]
        if name not in {"split", "time"}
    }


CONES = {
    "image_text": "text", "part_image_text": "part_text", "image_part": "part_image",
    "text_part": "part_text", "visual_hierarchy": "query_image", "text_hierarchy": "query_text",
    "visual_calibration": "query_image", "text_calibration": "query_text",
}  # fmt: skip
"""The general side of each relation, as the figures name it."""


def why(one: Course, term: str) -> str:
    """What the run's other figures say of a term that has not fallen."""

    def change(name: str) -> str:
        return f"{one.first(name):.2f} to {one.last(name):.2f}"

    relation = term.rpartition("/")[2]
    if relation not in CONES:
        return f"alignment of images {change('health/alignment_image')}"
    cones = "query_text" if term == "query/image_text" else CONES[relation]
    radius = f"radius of its cones {change(f'radius/{cones}')}"
    saturated = f"health/saturated_{cones}"
    if saturated in one.numbers and one.first(saturated) > one.last(saturated) + 0.1:
        return (
            "cones of 90 degrees and more held nearly all at first: share of them so near the "
            f"origin {change(saturated)}, {radius}"
        )
    side = "text" if "text" in cones else "image"
    return f"alignment of {side}s {change(f'health/alignment_{side}')}; {radius}"


def tabulate(courses: dict[str, Course]) -> Table:
    """One row for each term of each twin."""
    table = Table(title="A minute of each twin: losses before their weights")
    for column in ("twin", "steps", "term", "first", "last", "fell"):
        table.add_column(
            column, justify="right" if column in {"steps", "first", "last"} else "left"
        )
    for name, one in courses.items():
        for place, term in enumerate(one.terms()):
            first, last = one.first(term), one.last(term)
            title = (name.removesuffix("-smoke"), str(len(one.numbers["step"])))
            table.add_row(
                *(title if place == 0 else ("", "")), term, f"{first:.4f}", f"{last:.4f}",
                "yes" if last < first else f"no: {why(one, term)}",
            )  # fmt: skip
        table.add_section()
    return table


if __name__ == "__main__":
    main()
