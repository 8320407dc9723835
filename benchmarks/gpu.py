"""Training on a device, against the limits of the device, and its losses against a CPU's.

A run of a few minutes, as `hyper3 train` makes it, then its reports: samples/s, the share of the
time spent waiting for data, model FLOP/s, their share of the device's dense bfloat16 peak (MFU),
and peak memory. The first reports are left out: compilers and allocators warm up in them.

Before it, three steps of a small batch without augmentation, whose random numbers differ between
devices, on the device in the recipe's precision and on the CPU in float32: the losses should be
equal within what bfloat16 rounds off (an 8-bit significand), or within float32.

    hyper3 data scenes                                       # the demo's shards
    python -m benchmarks.gpu                                 # on a GPU: the paper's recipe
    python -m benchmarks.gpu --recipe demo --steps 40        # on a CPU: to see that it works
    python -m benchmarks.gpu speed.compile=true optim.batch_size=512 --save
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import arguments, report
from trainer.config import Recipe, load_recipe
from trainer.run import train

STEADY = (
    "augment.crop_scale=[1,1]",
    "augment.jitter_probability=0",
    "augment.grayscale_probability=0",
)
CHECKED_STEPS, CHECKED_BATCH = 3, 32
WARM_UP = 0.25  # of the reports
TOLERANCE = {"bf16": 2e-2, "fp32": 1e-4}  # of a loss, by the device's precision


def reports(recipe: Recipe, console: Console) -> list[dict[str, Any]]:
    """The training reports of a run."""
    train(recipe, console)
    lines = (recipe.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == "train"]


def recipe_of(options: argparse.Namespace, out: Path, *more: str) -> Recipe:
    """The recipe on these shards, without evaluation and with one checkpoint at its end."""
    given = [
        f'data.train="{options.shards}"', f'run.out="{out}"', "run.eval_every=1000000",
        "run.save_every=1000000", *options.overrides, *more,
    ]  # fmt: skip
    dump = load_recipe(Path(options.recipe), given).model_dump()
    dump["data"]["val"] = None
    return Recipe.model_validate(dump)


def losses(options: argparse.Namespace, folder: Path, device: str, *more: str) -> list[float]:
    """Of the first steps, which see the same pictures on every device."""
    short = (
        f"run.stop_at={CHECKED_STEPS}", f"optim.batch_size={CHECKED_BATCH}", "run.log_every=1",
        f'run.device="{device}"', *STEADY, *more,
    )  # fmt: skip
    recipe = recipe_of(options, folder, *short)
    return [row["loss"] for row in reports(recipe, Console(file=StringIO()))]


def measured(rows: Sequence[dict[str, Any]]) -> Table:
    """Median and range of each figure of speed over the reports after the warm-up."""
    kept = rows[int(WARM_UP * len(rows)) :]
    table = Table("figure", "median", "range")
    for name in rows[-1]:
        if name.startswith("speed/"):
            values = [row[name] for row in kept]
            table.add_row(
                name.removeprefix("speed/"),
                f"{statistics.median(values):,.4g}",
                f"{min(values):,.4g} - {max(values):,.4g}",
            )
    return table


def main() -> None:
    """Check the losses, train, and print one table."""
    parser = arguments("Training on a device.", steps=100)
    parser.add_argument("overrides", nargs="*", help="section.key=value of the recipe")
    parser.add_argument("--recipe", default="hyper3_vit_b16")
    parser.add_argument("--shards", default="data/scenes/train")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        precision = recipe_of(options, folder).optim.precision
        here = losses(options, folder / "device", options.device)
        there = losses(options, folder / "cpu", "cpu", 'optim.precision="fp32"')
        worst = max(abs(a / b - 1) for a, b in zip(here, there, strict=True))
        every = f"run.log_every={max(1, options.steps // 20)}"
        stop = f"run.stop_at={options.steps}"
        recipe = recipe_of(options, folder / "run", stop, every, f'run.device="{options.device}"')
        rows = reports(recipe, Console())
    about = (
        f"{recipe.name}, {precision} on {options.device}, batches of {recipe.optim.batch_size}, "
        f"{options.steps} steps, data.workers {recipe.data.workers}; overrides: "
        f"{' '.join(options.overrides) or 'none'}\n"
        f"losses of {CHECKED_STEPS} steps of {CHECKED_BATCH} samples differ from a CPU's in "
        f"float32 by {worst:.1e} at most ({', '.join(f'{loss:.4f}' for loss in here)} against "
        f"{', '.join(f'{loss:.4f}' for loss in there)})"
    )
    report("gpu", measured(rows), about, options)
    if worst > TOLERANCE[precision]:
        sys.exit(f"the losses differ by more than {TOLERANCE[precision]:g}")


if __name__ == "__main__":
    main()
