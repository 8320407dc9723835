"""The suite over HTTP against the suite on the bundle directly.

All tasks that the data allow, on the bundle and on a service of it that is started here, in turn.
Nothing that was embedded is kept. How far figures and orders agree is measured first.

    python -m benchmarks.evaluation_http --bundle bundles/NAME --data test.jsonl [--save]
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from benchmarks.timing import alternate, arguments, report, tabulate
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Encoder, open_encoder
from core.evaluation.measure import Measure
from core.evaluation.suites import KINDS
from core.evaluation.task import Options

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
        bundled, served = open_encoder(str(bundle)), open_encoder(url)
        sides: dict[str, Callable[[int], list[Measure]]] = {
            "bundle": lambda _: suite(bundled, data, tasks),
            "service": lambda _: suite(served, data, tasks),
        }
        found = {name: side(0) for name, side in sides.items()}
        changed, orders, gap = compare_orders(distances(bundled, data), distances(served, data))
        seconds = alternate(sides, rounds)
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


def main() -> None:
    """Check, measure, and print one table."""
    parser = arguments("The suite over HTTP against the bundle.", rounds=3)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="records, or a prepared folder")
    parser.add_argument("--limit", type=int, help="take the first records alone")
    options = parser.parse_args()
    found = compare(options.bundle, options.data, options.limit, options.rounds)
    about = (
        f"{', '.join(found.tasks)} of {found.pictures:,} pictures; {options.rounds} rounds, "
        f"alternating\nlargest difference of a share: {100 * found.share_difference:.3f} points; "
        f"of {found.orders:,} orders {found.changed:,} differ,\nby pairs at most {found.gap:.1e} "
        "apart in distance"
    )
    table = tabulate(found.seconds, "bundle")
    report("evaluation-http", table, about, options, modules=("onnxruntime",))
    if found.gap >= CLOSE or found.share_difference > SHARE:
        sys.exit("the service does not give what the bundle gives")


if __name__ == "__main__":
    main()
