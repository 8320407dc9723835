"""Counting the parts of shards: `hyper3 data scan` against the standard library and webdataset.

All three read the same shards in one process, in turn, and must agree; the files are in memory
from the round before the first that counts, and times are of the CPU. Our side counts photos too,
the others do not.

    python -m benchmarks.scan data/flickr8k/train [--most 10] [--rounds 3] [--save]
"""

import statistics
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import webdataset

from benchmarks.timing import alternate, arguments, report, tabulate
from trainer.data.shards import find_shards
from trainer.inspection.scan import scan

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


def main() -> None:
    """Check, measure, and print one table."""
    parser = arguments("Counting the parts of shards.", rounds=3)
    parser.add_argument("shards", help="a folder, a tar, a glob or braces")
    parser.add_argument("--most", type=int, default=10, help="the first so many shards")
    options = parser.parse_args()
    shards = find_shards(options.shards)[: options.most]
    sides: dict[str, Callable[[int], Counts]] = {
        "webdataset": lambda _: stream(shards),
        "tarfile, headers": lambda _: headers(shards),
        "hyper3 data scan": lambda _: ours(shards),
    }
    counts = {name: side(0) for name, side in sides.items()}
    if len(set(counts.values())) > 1:
        raise SystemExit(f"the sides disagree: {counts}")
    samples, parts = counts["hyper3 data scan"]
    seconds = alternate(sides, options.rounds, time.process_time)
    rates = {name: f"{samples / statistics.median(own):,.0f}" for name, own in seconds.items()}
    size = sum(shard.stat().st_size for shard in shards)
    about = (
        f"{len(shards)} shards of {size / 1e6:,.0f} MB, {samples:,} samples, {parts:,} parts; one "
        f"process, time of its CPU, files in memory; {options.rounds} rounds, alternating"
    )
    table = tabulate(seconds, "webdataset", {"samples/s": rates})
    report("scan", table, about, options, modules=("webdataset",))


if __name__ == "__main__":
    main()
