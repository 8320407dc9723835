"""What a run tells of itself while it trains."""

import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from trainer.config import Recipe
from trainer.data.batch import Batch
from trainer.data.loader import reason
from trainer.health.divergence import causes
from trainer.health.measure import gradients, measure
from trainer.health.watch import Watch
from trainer.model import DualEncoder
from trainer.step import Evaluation, StepResult
from trainer.storage import replacing, storage_errors, write_json


def count_trained(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad)


@dataclass
class Record:
    """What a run tells: a progress bar, TensorBoard, and a line of JSON for each report."""

    folder: Path
    recipe: Recipe
    console: Console
    first: int
    leads: bool = True  # of several processes one writes
    skipped: Counter[str] = field(default_factory=Counter)
    bad_steps: int = 0  # that were not taken, of this process's
    _waited: float = 0.0
    _since: float = 0.0
    _samples: int = 0
    _held_out_named: bool = False
    _trained: int = 0  # parameters

    def __post_init__(self) -> None:
        self._watch = Watch(self.recipe)

    def __enter__(self) -> Self:
        if self.leads:
            with storage_errors(self.folder):
                self._board = SummaryWriter(
                    str(self.folder / "tensorboard"), purge_step=self.first + 1
                )
                self._lines = self._open_lines()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            console=self.console,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            self.recipe.name, total=self.recipe.last_step, completed=self.first, told=""
        )
        self._since = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if self.leads:
            with contextlib.suppress(OSError):  # of a full disk, which has been told already
                self._board.close()
                self._lines.close()
                self._sum_up()
        for why, count in self.skipped.most_common():
            self.console.print(f"[yellow]left out {count:,} samples:[/] {escape(why)}")
        if self.bad_steps:
            self.console.print(f"[yellow]skipped {self.bad_steps:,} steps:[/] gradient not finite")
        for line in self._watch.summary():
            self.console.print(line)

    def _sum_up(self) -> None:
        """What a comparison of runs tells of this one, in ``summary.json``."""
        write_json(
            self.folder / "summary.json",
            {
                "signs": list(self._watch.counts),
                "bad_steps": self.bad_steps,
                "left_out": dict(self.skipped),
                "trained_parameters": self._trained,
            },
        )

    def waiting(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the time spent waiting for them is what the data path costs."""
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self._waited += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    def step(
        self,
        step: int,
        model: DualEncoder,
        skipped: Iterable[str],
        result: StepResult,
        rate: float,
    ) -> None:
        """Note one step of all processes; every ``run.log_every`` steps, report."""
        self._note_skipped(skipped)
        self._samples += len(result.nodes.images)
        self._trained = self._trained or count_trained(model)
        self._bar.update(self._task, completed=step)
        if not result.taken:
            self._note_bad(step, model, result)
        if not self.leads or (step % self.recipe.run.log_every and step != self.recipe.last_step):
            return
        numbers = {
            name: float(value)
            for name, value in (
                result.terms | measure(model, result.nodes) | gradients(model)
            ).items()
        }
        now = time.perf_counter()
        elapsed = now - self._since
        numbers |= {
            "optim/grad_norm": float(result.grad_norm),
            "optim/lr": rate,
            "speed/samples_per_second": self._samples / elapsed,
            "speed/share_waiting_for_data": self._waited / elapsed,
            "data/left_out": float(sum(self.skipped.values())),
            "health/bad_steps": float(self.bad_steps),
        }
        self._since, self._waited, self._samples = now, 0.0, 0
        self._write("train", step, numbers)
        if result.taken:
            self._warn("train", step, numbers)
        share = numbers["speed/share_waiting_for_data"]
        self._bar.update(
            self._task,
            told=f"loss {numbers['loss']:.3f}  {numbers['speed/samples_per_second']:.0f} samples/s"
            + (f"  [yellow]{share:.0%} waiting for data[/]" if share > 0.2 else ""),
        )

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Report held-out numbers, and what is wrong with them."""
        numbers = evaluation.numbers
        if evaluation.skipped and not self._held_out_named:
            self._held_out_named = True
            self._say(
                f"[yellow]left out {len(evaluation.skipped)} held-out samples, first:[/] "
                f"{escape(evaluation.skipped[0])}"
            )
        self._write("val", step, numbers)
        recalls = "  ".join(
            f"{name} R@1 {numbers[f'recall/{key}@1']:.1f}"
            for name, key in (("image→text", "image_to_text"), ("text→image", "text_to_image"))
        )
        self._say(f"step {step:>7,}  held-out loss {numbers['loss']:.3f}  {recalls}")
        self._warn("val", step, numbers)
        self._since, self._waited, self._samples = time.perf_counter(), 0.0, 0

    def _note_skipped(self, skipped: Iterable[str]) -> None:
        """Name the first sample that is left out, and count all."""
        for sample in skipped:
            if not self.skipped:
                self._say(f"[yellow]left out a sample:[/] {escape(sample)}")
            self.skipped[reason(sample)] += 1

    def _note_bad(self, step: int, model: DualEncoder, result: StepResult) -> None:
        """Count a step that was not taken; tell of the first, the tenth, the hundredth..."""
        self.bad_steps += 1
        if str(self.bad_steps).strip("0") == "1":
            count = f", {self.bad_steps:,} by now" if self.bad_steps > 1 else ""
            self._say(
                f"[yellow]step {step:,}: skipped, for its gradient is not finite{count}[/] "
                f"({causes(model, result)}); {self.recipe.optim.max_bad_steps} such steps in a "
                "row are borne, and more end the run"
            )

    def _warn(self, split: str, step: int, numbers: dict[str, float]) -> None:
        for sentence in self._watch.look(split, step, numbers):
            self._say(sentence)

    def saved(self, path: Path, *, last: bool) -> None:
        """Name the last checkpoint; the ones between go without saying."""
        if last:
            self._say(f"saved {escape(str(path))}")

    def _open_lines(self) -> TextIO:
        """The reports so far, without those of steps that are taken again after a crash."""
        file = self.folder / "metrics.jsonl"
        if file.exists():
            kept = []
            for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
                with contextlib.suppress(ValueError):  # of a line that was cut off
                    if json.loads(line)["step"] <= self.first:
                        kept.append(line)
            with replacing(file) as temporary:
                temporary.write_text("".join(kept), encoding="utf-8")
        return file.open("a", encoding="utf-8")

    def _write(self, split: str, step: int, numbers: dict[str, float]) -> None:
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        line: dict[str, Any] = {"split": split, "step": step, "time": time.time()}
        line |= dict.fromkeys(numbers) | finite  # JSON has no nan: it is null
        with storage_errors(self.folder):
            self._lines.write(json.dumps(line) + "\n")
            self._lines.flush()
            for name, value in finite.items():
                self._board.add_scalar(f"{split}/{name}", value, step)

    def _say(self, text: str) -> None:
        self._bar.console.print(text)
