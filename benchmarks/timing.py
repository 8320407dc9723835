"""Two sides of a benchmark, alternating in one process, and one table of them."""

import argparse
import datetime as dt
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

RESULTS = Path(__file__).parent / "results"


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    """Those that all have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="of all sides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help=f"keep the table in {RESULTS}")
    return parser


def alternate(
    sides: Mapping[str, Callable[[int], object]], rounds: int, device: str = "cpu"
) -> dict[str, list[float]]:
    """Seconds of each side in each round; a first round of each is not counted.

    Args:
        sides: By name; each gets the number of the round.
        rounds: That are counted.
        device: Where they compute; it has finished before a time is taken.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side(number)
            if device != "cpu":
                torch.cuda.synchronize()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def tabulate(
    seconds: Mapping[str, Sequence[float]],
    plain: str,
    columns: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """Medians, ranges, and how many times faster than plain.

    Args:
        seconds: Of each side.
        plain: The side that the others are compared with.
        columns: More of them, by title and side.
    """
    more = columns or {}
    table = Table("side", "median ms", "range ms", "times faster", *more)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        table.add_row(
            name,
            f"{median[name] * 1e3:.1f}",
            f"{min(values) * 1e3:.1f} - {max(values) * 1e3:.1f}",
            f"{median[plain] / median[name]:.2f}",
            *(cells.get(name, "") for cells in more.values()),
        )
    return table


def worst_difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest error of an entry, of all tensors together, over the largest entry."""
    largest = max(float(value.detach().abs().max()) for value in expected.values())
    errors = (float((found[name] - value).detach().abs().max()) for name, value in expected.items())
    return max(errors) / largest


def report(name: str, table: Table, about: str, seed: int, *, save: bool) -> None:
    """Print a table, what was measured, and where; keep them where that is asked."""
    console = Console(record=True, width=110, highlight=False)
    console.print(table)
    console.print(
        f"{about}\n{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, load "
        f"{os.getloadavg()[0]:.1f} at the end; torch {torch.__version__}, Python "
        f"{platform.python_version()}; seed {seed}"
    )
    if save:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}-{name}.md"
        file.write_text(f"```\n{console.export_text()}```\n", encoding="utf-8")


def processor() -> str:
    """The name of the processor, and of the GPU where there is one."""
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return gpu + (names[0] if names else platform.processor() or platform.machine())
