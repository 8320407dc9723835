"""Stored features of a frozen tower against running it: the same recipe, steps and seed.

Both sides train Flickr8k's recipe with a frozen EfficientNet-Lite0, one after the other; what is
compared is the speed that the runs report themselves, the first report left out. The first run on
the features computes them, which is not counted but told.

    python -m benchmarks.features [--steps 60] [--save] [section.key=value ...]
"""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from rich.table import Table

from benchmarks.timing import arguments, report

FOLDER = Path("runs/features")
FROZEN = (
    "image_tower.kind=timm", "image_tower.name=tf_efficientnet_lite0", "image_tower.form=timm",
    "image_tower.frozen=true", "augment.crop_scale=[1,1]", "augment.jitter_probability=0",
    "augment.grayscale_probability=0",
)  # fmt: skip


def main() -> None:
    """Train both ways, and print one table."""
    parser = arguments("Stored features of a frozen tower against running it.", steps=60)
    parser.add_argument("overrides", nargs="*", help="of the recipe flickr8k")
    options = parser.parse_args()
    settings = [f"optim.steps={options.steps}", "optim.warmup_steps=5", *options.overrides]
    sides = {
        "the tower in every step": measure("tower", settings),
        "stored features": measure("stored", [*settings, f"data.features={FOLDER / 'store'}"]),
    }
    slowest = min(speed for speed, _ in sides.values())
    table = Table(title="flickr8k with a frozen EfficientNet-Lite0")
    for column in ("", "samples/s", "ratio", "waiting for data"):
        table.add_column(column, justify="left" if not column else "right")
    for side, (speed, share) in sides.items():
        table.add_row(side, f"{speed:.1f}", f"{speed / slowest:.1f}", f"{share:.0%}")
    about = f"{options.steps} steps each, {' '.join(options.overrides) or 'nothing else changed'}"
    report("features", table, about, options, modules=())


def measure(side: str, settings: list[str]) -> tuple[float, float]:
    """Median samples per second of the reports of one run, and the share spent on waiting."""
    folder = FOLDER / side
    shutil.rmtree(folder, ignore_errors=True)
    every = [f"run.out={folder}", "run.log_every=5", "run.eval_every=1000000"]
    command = [sys.executable, "-m", "core", "train", "flickr8k", *FROZEN, *settings, *every]
    subprocess.run(command, check=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    reports = [line for line in lines if line["split"] == "train"][1:]
    speed, share = (
        statistics.median(line[f"speed/{name}"] for line in reports)
        for name in ("samples_per_second", "share_waiting_for_data")
    )
    return speed, share


if __name__ == "__main__":
    main()
