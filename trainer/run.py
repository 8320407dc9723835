"""A training run, from its recipe to its last checkpoint, as a list of events."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console

from core.errors import CheckpointError, ConfigError
from core.lock import take_lock
from trainer.checkpoint import BEST, Checkpoint, newest, path_of, tensors_of
from trainer.config import Recipe, difference
from trainer.data.batch import Batch
from trainer.data.loader import Schedule, load_batches, lost_workers_named
from trainer.distributed import World, agree, exchange, first_says, join
from trainer.health.divergence import require_finite, stop_if_diverged
from trainer.model import DualEncoder
from trainer.opening import Data, open_data, open_device
from trainer.optim import build_optimizer, learning_rate
from trainer.record import Record
from trainer.saver import Saver
from trainer.speed import ready
from trainer.start.begin import begin
from trainer.step import StepResult, Training, evaluate, train_step
from trainer.storage import storage_errors, write_json


def train(recipe: Recipe, console: Console) -> Path:
    """Train, or go on from the newest checkpoint of the run; returns the last checkpoint.

    Every sample of a step, and all randomness, follow from (seed, step): a run that was
    stopped takes the same steps as one that was not. Started by torchrun, each process takes
    its share of every batch.

    Raises:
        CheckpointError: The folder holds a run of another recipe, or the run that this one
            continues is of another.
        DataError: Shards are missing or unusable.
        StorageError: The folder cannot be written, another training runs in it, or the disk
            is full.
        TrainingDiverged: Too many gradients in a row are not finite.
        ProcessLost: Another process of this training has ended.
    """
    with join(recipe.run.device) as world:
        if recipe.optim.batch_size < world.size:
            raise ConfigError(
                f"optim.batch_size {recipe.optim.batch_size} has no sample for each of the "
                f"{world.size} processes; it is the size of the whole batch"
            )
        device = open_device(recipe, world)
        if not world.leads:
            return _train(recipe, Console(quiet=True), device, world)
        with closing(take_lock(recipe.folder)):
            return _train(recipe, console, device, world)


def _train(recipe: Recipe, console: Console, device: torch.device, world: World) -> Path:
    folder = recipe.folder
    before = _resumable(folder, recipe, world)
    step = before.step if before else 0
    agree(world, recipe=int(recipe.digest()[:15], 16), step=step)
    if before and before.step >= recipe.last_step:
        console.print(f"{folder}: complete at step {before.step:,}; nothing to do", markup=False)
        return before.path
    torch.manual_seed(recipe.run.seed)
    model = DualEncoder(recipe).to(device)
    optimizer = build_optimizer(model, recipe.optim)
    training = Training(recipe, model, model, optimizer, world)
    started = begin(training, before)
    data = open_data(training, device, console)
    training = ready(training, device)
    _announce(console, training, data, device, started.step)
    doubts = (*data.doubts(started.position), *recipe.doubts())
    for told in (*started.told, *(f"[yellow]{doubt}[/]" for doubt in doubts)):
        console.print(told)
    saving = Saver(recipe, started.step, leads=world.leads)
    recording = Record(folder, recipe, console, started.step, leads=world.leads)
    lost = lost_workers_named(recipe.data.workers)
    with lost, recording as record, _stop_signal() as stop, saving as saver:
        path = _loop(Run(training, data, device, record, saver, stop), started.step)
    if saver.best:
        console.print(f"best: {saver.best}, which {folder / BEST} means", markup=False)
    return path


@dataclass(frozen=True)
class Run:
    """What the loop works with."""

    training: Training
    data: Data
    device: torch.device
    record: Record
    saver: Saver
    stop: "Stop"


@dataclass
class Stop:
    """Whether somebody asked the run to end at the next step."""

    asked: bool = False


def _loop(run: Run, first: int) -> Path:
    training, data, saver = run.training, run.data, run.saver
    recipe, world = training.recipe, training.world
    schedule = Schedule(
        data.train, recipe.optim.batch_size, recipe.run.seed, first, recipe.last_step,
        world.rank, world.size,
    )  # fmt: skip
    step, bad = first, 0  # bad steps in a row
    eval_due = save_due = False  # put off while the steps are bad
    pinned = run.device.type == "cuda"
    made = load_batches(data.dataset, schedule, recipe.data.workers, pinned=pinned)
    with closing(made) as batches:
        for batch in run.record.waiting(batches):
            result, stop = _take(run, batch, step)
            step += 1
            bad = 0 if result.taken else bad + 1
            last = step == recipe.last_step or stop
            saver.check(result.terms)
            if bad:
                saver.wait()  # a run that ends on this names its newest checkpoint
            stop_if_diverged(recipe, training.model, result, step, bad, last=last)
            eval_due |= step % recipe.run.eval_every == 0 or step == recipe.last_step
            save_due |= saver.is_due(step) or last
            if not (eval_due or save_due) or (bad and not last):
                continue
            require_finite(recipe, training.model, step)
            figures = _evaluate(run, step) if eval_due and data.val else {}
            save_due |= first_says(world, claim=saver.note(step, figures))
            if save_due:
                with run.record.saving():
                    tensors = tensors_of(training.model, training.optimizer)
                    saver.save(data.position(step, schedule), tensors, figures)
            if last:
                saver.wait()
                agree(world, step=step)  # nobody leaves before it is written
                run.record.saved(path_of(recipe.folder, step), last=last)
                return path_of(recipe.folder, step)
            eval_due = save_due = False
    raise AssertionError("the schedule ends at the last step")


def _take(run: Run, batch: Batch, step: int) -> tuple[StepResult, bool]:
    """Take the step after ``step`` and report it; with it, whether any process is to stop."""
    training, recipe, world = run.training, run.training.recipe, run.training.world
    shares = exchange(
        batch, world, query_images=recipe.objective.needs_visual_nodes, stop=run.stop.asked
    )
    rate = learning_rate(step, recipe.optim)
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    generator = torch.Generator(run.device)
    generator.manual_seed((recipe.run.seed * 1_000_003 + step) * world.size + world.rank)
    result = train_step(training, batch.to(run.device), shares, generator)
    run.record.step(step + 1, training.model, shares.skipped, result, rate)
    return result, shares.stop


def _evaluate(run: Run, step: int) -> Mapping[str, float]:
    """Held-out figures, which the first process alone takes.

    Where processes share weights all do it, as none can run a layer by itself.
    """
    world = run.training.world
    if not (world.leads or run.training.recipe.speed.shard):
        return {}
    held_out = load_batches(run.data.val_dataset, run.data.val, workers=0)
    evaluation = evaluate(run.training, held_out, run.device)
    if not world.leads:
        return {}
    run.record.evaluation(step, evaluation)
    return evaluation.numbers


def _resumable(folder: Path, recipe: Recipe, world: World) -> Checkpoint | None:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    before = newest(folder)
    if before and before.recipe.digest() != recipe.digest():
        changed = difference(before.recipe, recipe)
        raise CheckpointError(
            f"{folder}: holds a run of another recipe (step {before.step:,}; differs in "
            f"{', '.join(changed)}); give another run.out, or remove the folder"
        )
    if world.leads:
        write_json(folder / "recipe.json", recipe.model_dump(mode="json"))
    return before


def _announce(
    console: Console, training: Training, data: Data, device: torch.device, first: int
) -> None:
    recipe = training.recipe
    trained = sum(value.numel() for value in training.model.parameters() if value.requires_grad)
    processes = f" x {training.world.size} processes" if training.world.size > 1 else ""
    console.print(
        f"{recipe.name}: {recipe.objective.kind}, {trained / 1e6:.1f} M trained parameters on "
        f"{device}{processes} ({recipe.optim.precision}), {len(data.train):,} samples, batches of "
        f"{recipe.optim.batch_size}, steps {first:,} to {recipe.last_step:,} -> {recipe.folder}",
        markup=False,
    )


@contextmanager
def _stop_signal() -> Iterator[Stop]:
    """SIGTERM and the first Ctrl-C end the run at the next step, after a checkpoint."""
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
