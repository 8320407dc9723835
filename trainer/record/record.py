"""What a run tells of itself while it trains."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

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

from core.bundle import TOKENIZER
from core.errors import StorageError
from trainer.config import Recipe
from trainer.data.batch import Batch
from trainer.data.loader import reason
from trainer.health.divergence import causes
from trainer.health.measure import gradients, measure
from trainer.health.watch import Watch
from trainer.model import DualEncoder
from trainer.record.attention_picture import draw, texts_of
from trainer.record.outputs import Outputs
from trainer.record.pace import WAITING, Pace
from trainer.step import Evaluation, StepResult
from trainer.storage import storage_errors, write_json

_SPEED_PERIOD_S = 600.0  # that the remaining time is judged by: with evaluations in it
_QUIET_S = 60.0  # between the lines of a log that is no screen


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
    _held_out_named: bool = False
    _trained: int = 0  # parameters
    _told_at: float = 0.0  # when a log heard of the progress

    def __post_init__(self) -> None:
        self._watch = Watch(self.recipe)
        self._pace = Pace.of(self.recipe) if self.leads else Pace(self.recipe)

    def __enter__(self) -> Self:
        if self.leads:
            with storage_errors(self.folder):
                self._summary.unlink(missing_ok=True)  # of an earlier start
            self._outputs = Outputs(self.folder, self.recipe, self.first)
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            console=self.console,
            speed_estimate_period=_SPEED_PERIOD_S,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            self.recipe.name, total=self.recipe.last_step, completed=self.first, told=""
        )
        self._told_at = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if self.leads:
            self._outputs.close()
            with contextlib.suppress(StorageError):  # of a full disk, which has been told already
                self._sum_up(error)
        pace = self._pace.summary()
        if pace:
            self.console.print(pace, markup=False)
        for why, count in self.skipped.most_common():
            self.console.print(f"[yellow]left out {count:,} samples:[/] {escape(why)}")
        if self.bad_steps:
            self.console.print(f"[yellow]skipped {self.bad_steps:,} steps:[/] gradient not finite")
        for line in self._watch.summary():
            self.console.print(line)

    @property
    def _summary(self) -> Path:
        return self.folder / "summary.json"

    def _sum_up(self, error: BaseException | None) -> None:
        """What lists and comparisons of runs tell of this one, at its end, in ``summary.json``."""
        write_json(
            self._summary,
            {
                "failed": f"{type(error).__name__}: {error}" if error else None,
                "signs": list(self._watch.counts),
                "bad_steps": self.bad_steps,
                "left_out": dict(self.skipped),
                "trained_parameters": self._trained,
            },
        )

    def waiting(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the time spent waiting for them is what the data path costs."""
        return self._pace.waiting(batches)

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
        self._pace.step(len(result.nodes.images), result.grad_norm.device)
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
        numbers |= {
            "optim/grad_norm": float(result.grad_norm),
            "optim/lr": rate,
            **self._pace.report(),
            "data/left_out": float(sum(self.skipped.values())),
            "health/bad_steps": float(self.bad_steps),
        }
        self._outputs.write("train", step, numbers)
        if result.taken:
            self._warn("train", step, numbers)
        self._tell(step, numbers)

    def _tell(self, step: int, numbers: dict[str, float]) -> None:
        """The progress line: loss, speed, and what limits it; in a log, a line once a minute."""
        share = numbers["speed/share_waiting_for_data"]
        told = f"loss {numbers['loss']:.3f}  {numbers['speed/samples_per_second']:,.3g} samples/s"
        if "speed/mfu" in numbers:
            told += f"  MFU {numbers['speed/mfu']:.0%}"
        limited = f"[yellow]data-bound, {share:.0%} waiting[/]"
        told += f"  {'device-bound' if share < WAITING else limited}"
        self._bar.update(self._task, told=told)
        if not self.console.is_terminal and time.monotonic() - self._told_at >= _QUIET_S:
            self._told_at = time.monotonic()
            left = self._bar.tasks[0].time_remaining
            until = f"  {timedelta(seconds=int(left))} left" if left is not None else ""
            self._say(f"step {step:>7,} of {self.recipe.last_step:,}  {told}{until}")

    def evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Report held-out numbers, and what is wrong with them."""
        numbers = evaluation.numbers
        if evaluation.skipped and not self._held_out_named:
            self._held_out_named = True
            self._say(
                f"[yellow]left out {len(evaluation.skipped)} held-out samples, first:[/] "
                f"{escape(evaluation.skipped[0])}"
            )
        self._outputs.write("val", step, numbers)
        self._outputs.histograms(
            step, {f"radius/{kind}": values for kind, values in evaluation.radii.items()}
        )
        if evaluation.glance is not None:
            texts = texts_of(evaluation.glance, self.folder / TOKENIZER)
            self._outputs.picture(step, "val/attention", draw(evaluation.glance, texts))
        recalls = "  ".join(
            f"{name} R@1 {numbers[f'recall/{key}@1']:.1f}"
            for name, key in (("image→text", "image_to_text"), ("text→image", "text_to_image"))
        )
        self._say(f"step {step:>7,}  held-out loss {numbers['loss']:.3f}  {recalls}")
        self._warn("val", step, numbers)
        self._pace.restart()

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

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """The loop stands still for a checkpoint, which the next report tells."""
        start = time.perf_counter()
        yield
        self._pace.saved(time.perf_counter() - start)

    def saved(self, path: Path, *, last: bool) -> None:
        """Name the last checkpoint; the ones between go without saying."""
        if last:
            self._say(f"saved {escape(str(path))}")

    def _say(self, text: str) -> None:
        self._bar.console.print(text)
