"""The suite over HTTP against the suite on the bundle directly.

All tasks that the data allow, on the bundle and on a service of it that is started here, in turn.
Nothing that was embedded is kept. How far figures and orders agree is measured first.

    python benchmarks/evaluation_http.py --bundle bundles/NAME --data test.jsonl [--save]
"""

import argparse
import datetime as dt
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Encoder, open_encoder
from core.evaluation.measure import Measure
from core.evaluation.suites import KINDS
from core.evaluation.task import Options

RESULTS = Path(__file__).parent / "results"
CLOSE = 1e-4  # in distance: pairs closer than this may swap their places
SHARE = 1e-3  # shares may differ by this

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Both sides, and how far they agree."""

    tasks: tuple[str, ...]
    pictures: int
    seconds: dict[str, list[float]]
    share_difference: float
    """The largest of any measure that is a share."""
    orders: int
    """Rankings of all captions by a picture, or of all pictures by a caption."""
    changed: int
    gap: float
    """Of all pairs that swap their places, the most that they are apart on the bundle."""


def compare(bundle: Path, file: Path, limit: int | None, rounds: int) -> Comparison:
    """Start a service, check that both sides agree, and time the suite on each in turn."""
    data = open_dataset(file, limit)
    tasks = tuple(name for name in data.families if KINDS[name].applies(data))
    with service(bundle) as url:
        sides = {"bundle": open_encoder(str(bundle)), "service": open_encoder(url)}
        found = {name: suite(encoder, data, tasks) for name, encoder in sides.items()}
        changed, orders, gap = compare_orders(*(distances(side, data) for side in sides.values()))
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, encoder in sides.items():
                start = time.perf_counter()
                suite(encoder, data, tasks)
                seconds[name].append(time.perf_counter() - start)
    differences = [
        abs(a.value - b.value)
        for a, b in zip(found["bundle"], found["service"], strict=True)
        if a.unit == "share"
    ]
    return Comparison(tasks, len(data.records), seconds, max(differences), orders, changed, gap)


def suite(encoder: Encoder, data: Dataset, tasks: tuple[str, ...]) -> list[Measure]:
    """Every task, each embedding what it needs."""
    with Progress(disable=True) as progress:
        embedder = Embedder(encoder, None, progress)
        findings = [KINDS[name].measure(embedder, data, Options()) for name in tasks]
    return [measure for finding in findings for measure in finding.measures]


def distances(encoder: Encoder, data: Dataset) -> Floats:
    """Of all captions and pictures, ``(captions, pictures)``."""
    with Progress(disable=True) as progress:
        embedder = Embedder(encoder, None, progress)
        images = embedder.readable(data.pictures("retrieval")).points
        captions = [text for record in data.records for text in (*record.captions, *record.levels)]
        texts = embedder.text_points(captions)
    return -encoder.space.similarity(texts, images)


def compare_orders(ours: Floats, theirs: Floats) -> tuple[int, int, float]:
    """How many of all orders, along rows and columns, differ, and the widest gap of a swap."""
    gaps = [
        widest_swap(a, b)
        for mine, other in ((ours, theirs), (ours.T, theirs.T))
        for a, b in zip(mine, other, strict=True)
    ]
    return sum(gap > 0 for gap in gaps), len(gaps), max(gaps)


def widest_swap(a: Floats, b: Floats) -> float:
    """Of all pairs that ``b`` orders the other way, the most that they are apart in ``a``.

    For each item the first that comes before it in ``a`` and after it in ``b`` is the furthest
    away; the running maximum of ``b`` finds it.
    """
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    first = np.searchsorted(np.maximum.accumulate(b), b, side="right")
    swapped = np.flatnonzero(first < np.arange(len(b)))
    return float((a[swapped] - a[first[swapped]]).max(initial=0.0))


@contextmanager
def service(bundle: Path) -> Iterator[str]:
    """The address of a service of a bundle, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "core", "serve", "--bundle", str(bundle), "--data", folder,
             "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"COLUMNS": "200"},
        )  # fmt: skip
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _address(process: "subprocess.Popen[str]") -> str:
    said = []
    for line in process.stderr or ():
        said.append(line)
        if "/docs" in line:
            return next(word for word in "".join(said).split() if word.startswith("http://"))
    sys.exit(f"the service did not start:\n{''.join(said)}")


def tabulate(found: Comparison) -> Table:
    """Times of the suite on both."""
    table = Table("suite on", "median s", "range s", "of the bundle's speed")
    base = statistics.median(found.seconds["bundle"])
    for side, seconds in found.seconds.items():
        middle = statistics.median(seconds)
        spread = f"{min(seconds):.2f} - {max(seconds):.2f}"
        table.add_row(side, f"{middle:.2f}", spread, f"{base / middle:.2f}")
    return table


def main() -> None:
    """Check, measure, and print one table."""
    parser = argparse.ArgumentParser(description="The suite over HTTP against the bundle.")
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="records, or a prepared folder")
    parser.add_argument("--limit", type=int, help="take the first records alone")
    parser.add_argument("--rounds", type=int, default=3, help="of both sides")
    parser.add_argument("--save", action="store_true", help=f"keep the table in {RESULTS}")
    options = parser.parse_args()
    found = compare(options.bundle, options.data, options.limit, options.rounds)
    console = Console(record=True, width=100, highlight=False)
    console.print(tabulate(found))
    console.print(
        f"{', '.join(found.tasks)} of {found.pictures:,} pictures; {options.rounds} rounds, "
        f"alternating\nlargest difference of a share: {100 * found.share_difference:.3f} points; "
        f"of {found.orders:,} orders {found.changed:,} differ,\nby pairs at most {found.gap:.1e} "
        f"apart in distance\n{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, onnxruntime {version('onnxruntime')}"
    )
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}-evaluation-http.md"
        file.write_text(f"```\n{console.export_text()}```\n", encoding="utf-8")
    if found.gap >= CLOSE or found.share_difference > SHARE:
        sys.exit("the service does not give what the bundle gives")


if __name__ == "__main__":
    main()
