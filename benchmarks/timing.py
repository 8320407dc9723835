"""Two sides of a benchmark, alternating in one process, and one table of them."""

import argparse
import datetime as dt
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table

if TYPE_CHECKING:  # some benchmarks do without torch
    from torch import Tensor

RESULTS = Path(__file__).parent / "results"


def arguments(description: str, **numbers: int) -> argparse.ArgumentParser:
    """``--save``, and whole numbers by their names and defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--save", action="store_true", help=f"keep the table in {RESULTS}")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser


def alternate(
    sides: Mapping[str, Callable[[int], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each side in each round; a first round of each is not counted.

    Args:
        sides: By name; each gets the number of the round, and ends when its device has.
        rounds: That are counted.
        clock: Which seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            start = clock()
            side(number)
            if number:
                seconds[name].append(clock() - start)
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


def worst_difference(found: Mapping[str, "Tensor"], expected: Mapping[str, "Tensor"]) -> float:
    """The largest error of an entry, of all tensors together, over the largest entry."""
    largest = max(float(value.detach().abs().max()) for value in expected.values())
    errors = (float((found[name] - value).detach().abs().max()) for name, value in expected.items())
    return max(errors) / largest


def peak_mib() -> float:
    """The most memory that this process has held.

    Of this program alone: what getrusage tells begins at the peak of the process that started it.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) / 2**10


def report(
    name: str,
    table: RenderableType,
    about: str,
    options: argparse.Namespace,
    modules: Sequence[str] = ("torch",),
) -> None:
    """Print a table, what was measured, and where; keep them where that is asked.

    Args:
        name: Of the benchmark.
        table: Or several.
        about: What was measured.
        options: Of ``arguments``.
        modules: Those whose versions matter.
    """
    console = Console(record=True, width=150, highlight=False)
    console.print(table)
    seed = f"; seed {options.seed}" if "seed" in options else ""
    console.print(f"{about}\n{surroundings(modules)}{seed}", markup=False)
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}-{name}.md"
        file.write_text(f"```\n{console.export_text()}```\n", encoding="utf-8")


def surroundings(modules: Sequence[str]) -> str:
    """The machine, how busy it is, and the versions of modules and Python."""
    loaded = {name: importlib.import_module(name) for name in modules}
    machine = [processor(), f"{os.cpu_count()} cores"]
    if torch := loaded.get("torch"):
        gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
        machine = [*gpu, *machine, f"{torch.get_num_threads()} threads"]
    machine.append(f"load {os.getloadavg()[0]:.1f} at the end")
    versions = [f"{name} {module.__version__}" for name, module in loaded.items()]
    return f"{', '.join(machine)}; {', '.join([*versions, f'Python {platform.python_version()}'])}"


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
