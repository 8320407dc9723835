"""What a checkpoint costs the loop: written beside it, and written while it waits.

Both sides save the same model, optimizer and step to the same disk, in turn, in one process. The
model is that of the paper's recipe with random weights and AdamW's state; a step is a forward and
a backward pass of its image tower. Two costs are told: how long the loop stands still, and by how
much the steps that are taken during the write are slower than steps alone (the writer takes a
share of the cores, which on a GPU nobody misses).

    python -m benchmarks.checkpoints [--rounds 5] [--small] [--device cuda] [--save]
"""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from benchmarks.timing import arguments, report
from trainer.allocator import keep_freed_memory
from trainer.checkpoint import Position, path_of, tensors_of, write
from trainer.config import Recipe, load_recipe
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.saver import Saver

FOLDER = Path("runs/checkpoints-benchmark")
ALONE = 8  # steps that are timed without a write


@dataclass
class Round:
    """Seconds of one checkpoint of each kind."""

    blocking: float  # that the loop stands still
    beside: float  # the same, where the rest is written beside it
    writing: float  # until that is whole
    slowed: float  # by which the steps taken meanwhile are slower than alone, in all


def main() -> None:
    """Measure, and print one table."""
    keep_freed_memory()
    parser = arguments("A checkpoint written beside the loop against one it waits for.", rounds=5)
    parser.add_argument("--small", action="store_true", help="a model of a few megabytes")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    name = "demo-smoke" if options.small else "hyper3_vit_b16"
    recipe = load_recipe(Path(name), [f"run.out={FOLDER}", "run.keep=1"])
    device = torch.device(options.device)
    shutil.rmtree(FOLDER, ignore_errors=True)
    model = DualEncoder(recipe).to(device)
    optimizer = build_optimizer(model, recipe.optim)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # makes AdamW's state
    optimizer.zero_grad(set_to_none=True)
    size = sum(
        tensor.nbytes
        for named in tensors_of(model, optimizer).values()
        for tensor in named.values()
    )
    rounds = measure(recipe, model, optimizer, device, options.rounds)
    shutil.rmtree(FOLDER)
    table = tabulate(rounds, f"{name}: {size / 1e9:.2f} GB on {device.type}")
    about = (
        f"median of {options.rounds} after one that is not counted, whose copy took its memory "
        f"first and {rounds[0].beside:.2f} s"
    )
    report("checkpoints", table, about, options)


def measure(
    recipe: Recipe,
    model: DualEncoder,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    count: int,
) -> list[Round]:
    """Both kinds in turn, once more than ``count``."""
    pictures = torch.rand(1, 3, recipe.data.side, recipe.data.side, device=device)

    def step() -> None:
        model.encode_images(pictures).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    step()
    rounds = []
    with Saver(recipe, 0) as saver:
        for number in range(1, count + 2):
            alone = statistics.median(seconds(step) for _ in range(ALONE))
            blocking = seconds(lambda: wait_for_write(recipe, model, optimizer))
            begin = time.perf_counter()
            saver.save(Position(number, 1), tensors_of(model, optimizer), {})
            beside = time.perf_counter() - begin
            taken = 0
            while not path_of(FOLDER, number).exists():
                step()
                taken += 1
            writing = time.perf_counter() - begin
            rounds.append(Round(blocking, beside, writing, writing - beside - taken * alone))
    return rounds


def wait_for_write(recipe: Recipe, model: DualEncoder, optimizer: torch.optim.Optimizer) -> None:
    """A checkpoint as without a thread, which takes no copy of what lies in the host's memory."""
    tensors = {
        file: {name: tensor.cpu() for name, tensor in named.items()}
        for file, named in tensors_of(model, optimizer).items()
    }
    write(FOLDER / "blocking", Position(1, 1), recipe, tensors, {})


def seconds(do: Callable[[], object]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def tabulate(rounds: list[Round], title: str) -> Table:
    """Medians, and their share of what a blocking checkpoint costs."""
    counted = rounds[1:]
    blocking = statistics.median(one.blocking for one in counted)
    rows = {
        "blocking: the loop stands still": blocking,
        "beside the loop: it stands still": statistics.median(one.beside for one in counted),
        "  steps meanwhile are slower by": statistics.median(one.slowed for one in counted),
        "  until it is whole": statistics.median(one.writing for one in counted),
    }
    table = Table(title=title)
    for column in ("", "seconds", "of blocking"):
        table.add_column(column, justify="left" if not column else "right")
    for label, value in rows.items():
        table.add_row(label, f"{value:.3f}", f"{value / blocking:.0%}")
    return table


if __name__ == "__main__":
    main()
