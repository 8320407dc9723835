"""With and without the query terms: the demonstration's recipe, the same steps, several seeds.

Both sides see the same scenes in the same order, start from the same weights, and take the
same number of steps; one pays for the query pooling and its losses, the other does not. Runs
that are complete are not repeated. Two run at once, each on its share of the cores.

    python -m benchmarks.query_terms [--seeds 3] [--jobs 2] [--save]
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.timing import arguments, report

SIDES = {"with query terms": 1.0, "without": 0.0}
SPLITS = {"trained style": "test", "unseen style": "test_unseen_style"}
FOLDER = Path("runs/query_terms")


def main() -> None:
    """Train what is missing, measure, and print one table."""
    parser = arguments("With and without the query terms.", seeds=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    options = parser.parse_args()
    runs = [(side, seed) for seed in range(options.seeds) for side in SIDES]
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(measure, side, seed, options.jobs) for side, seed in runs]
        measured = {run: done.result() for run, done in zip(runs, waiting, strict=True)}
    about = f"{options.seeds} seeds; {options.jobs} runs at once; mean ± standard deviation"
    report("query-terms", tabulate(measured, options.seeds), about, options, modules=())


def measure(side: str, seed: int, jobs: int) -> dict[str, float]:
    """Train one run unless it is complete, and evaluate its checkpoint."""
    folder = FOLDER / f"{side.replace(' ', '-')}-{seed}"
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {"OMP_NUM_THREADS": threads}

    def hyper3(*words: str) -> None:
        command = [sys.executable, "-m", "core", *words]
        with (FOLDER / f"{folder.name}.log").open("a") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)

    FOLDER.mkdir(parents=True, exist_ok=True)
    hyper3(
        "train", "trainer/recipes/demo.toml", f"run.out={folder}", f"run.seed={seed}",
        f"objective.query_weight={SIDES[side]}",
    )  # fmt: skip
    numbers: dict[str, float] = {"minutes of training": training_minutes(folder)}
    for title, split in SPLITS.items():
        report = folder / f"{split}.json"
        hyper3("eval", str(folder), f"data/scenes/{split}.jsonl", "--json", str(report))
        for task in json.loads(report.read_text()).values():
            for group, values in task["measures"].items():
                for name, value in values.items():
                    numbers[f"{title}|{group}|{name}"] = value["value"]
    return numbers


def training_minutes(folder: Path) -> float:
    """Time spent in steps, from the run's own reports."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    train = [row for row in rows if row["split"] == "train"]
    steps = np.diff([0, *(row["step"] for row in train)])
    speeds = np.array([row["speed/samples_per_second"] for row in train])
    batch = json.loads((folder / "recipe.json").read_text())["optim"]["batch_size"]
    return float((steps * batch / speeds).sum() / 60)


def tabulate(measured: dict[tuple[str, int], dict[str, float]], seeds: int) -> Table:
    """One row for each measure that both sides have."""
    table = Table(title="The query terms, at the same number of steps")
    for column in ("", "measure", *SIDES, "difference"):
        table.add_column(column, justify="left" if column in ("", "measure") else "right")
    for name in next(iter(measured.values())):
        group, _, title = name.rpartition("|")
        values = {
            side: np.array([measured[side, seed][name] for seed in range(seeds)]) for side in SIDES
        }
        percent = "R@" in title or "right" in title or " and " in title
        scale, digits = (100, 1) if percent else (1, 2)
        spread = {side: value.std(ddof=1) if seeds > 1 else 0.0 for side, value in values.items()}
        cells = [
            f"{scale * value.mean():.{digits}f} ± {scale * spread[side]:.{digits}f}"
            for side, value in values.items()
        ]
        one, other = values.values()
        difference = scale * (one - other)  # paired: the same seed, the same scenes
        table.add_row(group.replace("|", ", "), title, *cells, f"{difference.mean():+.{digits}f}")
    return table


if __name__ == "__main__":
    main()
