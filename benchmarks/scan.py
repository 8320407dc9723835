"""Counting the parts of shards: `hyper3 data scan` against the standard library and webdataset.

All three read the same shards in one process, in turn, and must agree; the files are in memory
from the round before the first that counts. Our side counts photos too, the others do not.

    python benchmarks/scan.py data/flickr8k/train [--most 10] [--rounds 3] [--save]
"""

import argparse
import datetime as dt
import os
import platform
import statistics
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import webdataset
from rich.console import Console
from rich.table import Table

from trainer.data.shards import find_shards
from trainer.inspection.scan import scan

RESULTS = Path(__file__).parent / "results"

Counts = tuple[int, int]  # samples, parts


def ours(shards: Sequence[Path]) -> Counts:
    """`hyper3 data scan`."""
    histogram = scan(shards, 1, lambda _: None).histogram
    return sum(histogram.values()), sum(parts * count for parts, count in histogram.items())


def headers(shards: Sequence[Path]) -> Counts:
    """The headers by the standard library's tarfile, and what is in each numparents.txt."""
    samples = parts = 0
    for shard in shards:
        with tarfile.open(shard) as tar:
            for member in tar:
                if member.name.endswith(".numparents.txt"):
                    content = tar.extractfile(member)
                    samples += 1
                    parts += int(content.read()) if content else 0
    return samples, parts


def stream(shards: Sequence[Path]) -> Counts:
    """Every sample by webdataset, nothing decoded."""
    dataset = webdataset.WebDataset(
        [str(shard) for shard in shards], shardshuffle=False, empty_check=False
    )
    samples = parts = 0
    for sample in dataset:
        samples += 1
        parts += int(sample["numparents.txt"])
    return samples, parts


SIDES: dict[str, Callable[[Sequence[Path]], Counts]] = {
    "webdataset": stream,
    "tarfile, headers": headers,
    "hyper3 data scan": ours,
}


def main() -> None:
    """Check, measure, and print one table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("shards", help="a folder, a tar, a glob or braces")
    arguments.add_argument("--most", type=int, default=10, help="the first so many shards")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--save", action="store_true", help=f"keep the table in {RESULTS}")
    options = arguments.parse_args()
    shards = find_shards(options.shards)[: options.most]
    counts = {name: side(shards) for name, side in SIDES.items()}
    if len(set(counts.values())) > 1:
        raise SystemExit(f"the sides disagree: {counts}")
    samples, parts = counts["hyper3 data scan"]
    seconds: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(options.rounds):
        for name, side in SIDES.items():
            start = time.process_time()
            side(shards)
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    table = Table("side", "median s of CPU", "range s", "samples/s", "times faster")
    for name, times in seconds.items():
        table.add_row(
            name,
            f"{medians[name]:.2f}",
            f"{min(times):.2f} - {max(times):.2f}",
            f"{samples / medians[name]:,.0f}",
            f"{medians['webdataset'] / medians[name]:.1f}",
        )
    console = Console(record=True, width=100)
    console.print(table)
    size = sum(shard.stat().st_size for shard in shards)
    console.print(
        f"{len(shards)} shards of {size / 1e6:,.0f} MB, {samples:,} samples, {parts:,} parts; one "
        f"process, files in memory; {options.rounds} rounds, alternating\n"
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"webdataset {webdataset.__version__}"
    )
    if options.save:
        file = RESULTS / f"{dt.date.today().isoformat()}-scan.md"  # noqa: DTZ011
        file.write_text(f"```\n{console.export_text()}```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
