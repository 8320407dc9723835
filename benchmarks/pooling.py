"""Query-conditioned pooling, forward and backward, against plain multi-head attention.

Both pool 16 images of 196 patches (width 768, 8 heads, float32) for 3 to 6 queries an image, with
the same parameters. The plain side repeats the patches of an image for each of its queries and
gives them to `nn.MultiheadAttention`. Outputs and all gradients are checked equal first.

    python benchmarks/pooling.py
    python benchmarks/pooling.py --save
"""

import argparse
import datetime as dt
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from trainer.pooling import QueryPooling

RESULTS = Path(__file__).parent / "results"
IMAGES, PATCHES, WIDTH, HEADS, TEXT_WIDTH = 16, 196, 768, 8, 512
FEWEST, MOST = 3, 6  # queries of an image
TOLERANCE = 1e-5  # of the largest value, of outputs and of each gradient


@dataclass(frozen=True)
class Case:
    """Patches, the texts of the queries, and whose they are."""

    patches: Tensor  # (images, patches, width)
    states: Tensor  # (queries, text width)
    image: Tensor  # (queries,): the image of each query
    slot: Tensor  # (queries,): image * MOST + place
    weight: Tensor  # (queries, width): the gradient that comes from above


def make_case(seed: int) -> Case:
    """Random inputs, leaves of the gradient; the number of queries differs between images."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(FEWEST, MOST + 1, (IMAGES,), generator=generator)
    image = torch.arange(IMAGES).repeat_interleave(counts)
    place = torch.cat([torch.arange(int(count)) for count in counts])

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    return Case(
        normal(IMAGES, PATCHES, WIDTH).requires_grad_(),
        normal(len(image), TEXT_WIDTH).requires_grad_(),
        image,
        image * MOST + place,
        normal(len(image), WIDTH),
    )


def folded(pooling: QueryPooling, case: Case) -> Tensor:
    """Ours: the maps of keys and values folded."""
    return pooling.attend(case.patches, case.states, case.slot, MOST)


def plain(pooling: QueryPooling, case: Case) -> Tensor:
    """The library's attention over patches repeated for each query."""
    repeated = case.patches[case.image]
    query = pooling.text_query_proj(case.states)[:, None]
    attended, _ = pooling.cross_attention(query, repeated, repeated, need_weights=False)
    return attended[:, 0]  # type: ignore[no-any-return]


def run(pooling: QueryPooling, case: Case, pool: Callable[[QueryPooling, Case], Tensor]) -> Tensor:
    """One forward and backward pass; the gradients are left where they belong."""
    for leaf in leaves(pooling, case).values():
        leaf.grad = None
    out = pool(pooling, case)
    out.backward(case.weight)
    return out.detach()


def leaves(pooling: QueryPooling, case: Case) -> dict[str, Tensor]:
    """What gets a gradient: inputs, the map of the queries and the attention's parameters."""
    parameters = {
        name: parameter
        for name, parameter in pooling.named_parameters()
        if name.startswith(("text_query_proj", "cross_attention"))
    }
    return {"patches": case.patches, "states": case.states} | parameters


def worst_difference(pooling: QueryPooling, case: Case) -> float:
    """The largest difference of outputs and gradients, each by the largest value of its tensor."""

    def results(pool: Callable[[QueryPooling, Case], Tensor]) -> dict[str, Tensor]:
        output = run(pooling, case, pool)
        gradients = {
            name: leaf.grad.clone()
            for name, leaf in leaves(pooling, case).items()
            if leaf.grad is not None
        }
        return {"output": output} | gradients

    ours, theirs = results(folded), results(plain)
    return max(
        float((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max())
        for name in leaves(pooling, case).keys() | {"output"}
    )


def measure(pooling: QueryPooling, case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds of each side, alternating; a first round of each is not counted."""
    sides = {"plain": plain, "folded": folded}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, pool in sides.items():
            start = time.perf_counter()
            run(pooling, case, pool)
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def tabulate(seconds: dict[str, list[float]]) -> Table:
    """Medians and ranges, and how many times faster than plain."""
    table = Table("side", "median ms", "range ms", "times faster")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        table.add_row(
            name,
            f"{median[name] * 1e3:.1f}",
            f"{min(values) * 1e3:.1f} - {max(values) * 1e3:.1f}",
            f"{median['plain'] / median[name]:.2f}",
        )
    return table


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Check, measure, and print one table."""
    parser = argparse.ArgumentParser(description="Query-conditioned pooling against plain.")
    parser.add_argument("--rounds", type=int, default=15, help="of both sides")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="keep the table in benchmarks/results")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    pooling, case = QueryPooling(TEXT_WIDTH, WIDTH, HEADS), make_case(options.seed)
    worst = worst_difference(pooling, case)
    if worst > TOLERANCE:
        sys.exit(f"outputs or gradients differ by {worst:.1e} of their largest value")
    seconds = measure(pooling, case, options.rounds)
    console = Console(record=True, width=100, highlight=False)
    console.print(tabulate(seconds))
    console.print(
        f"forward + backward, {IMAGES} images of {PATCHES} patches, {len(case.image)} queries, "
        f"width {WIDTH}, {HEADS} heads, float32\n"
        f"outputs and gradients equal to {worst:.1e} of their largest value; "
        f"{options.rounds} rounds, alternating\n"
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; "
        f"torch {torch.__version__}, Python {platform.python_version()}; seed {options.seed}"
    )
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}-pooling.md"
        file.write_text(f"```\n{console.export_text()}```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
