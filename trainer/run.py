"""A training run, from its recipe to its last checkpoint, as a list of events."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from rich.console import Console

from core.errors import CheckpointError, ConfigError
from core.lock import take_lock
from core.text import TextSpec
from trainer import checkpoint
from trainer.config import Recipe, difference
from trainer.data.loader import BatchDataset, Schedule, load_batches, validation_rows
from trainer.data.shards import ShardIndex, find_shards, index_shards
from trainer.distributed import World, agree, exchange, join, spread
from trainer.features.precompute import Used, stored_features
from trainer.features.store import Features
from trainer.health.divergence import require_finite, stop_if_diverged
from trainer.model import DualEncoder
from trainer.optim import build_optimizer, learning_rate
from trainer.record import Record
from trainer.start.begin import begin
from trainer.step import Training, evaluate, train_step
from trainer.storage import storage_errors, write_json
from trainer.vocabulary import write_tokenizer

TOKENIZER = "tokenizer.json"


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
        device = _device(recipe, world)
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
    data = _open_data(training, device, console)
    agree(world, samples=len(data.train))
    if world.size > 1:
        training = replace(training, spread=spread(model, device))
    _announce(console, training, data, device, started.step)
    if started.samples not in {None, len(data.train)}:
        console.print(
            f"[yellow]data.train now holds {len(data.train):,} samples, not {started.samples:,}: "
            "from here on the run differs from one that was not stopped[/]"
        )
    for told in (*started.told, *(f"[yellow]{doubt}[/]" for doubt in recipe.doubts())):
        console.print(told)
    recording = Record(folder, recipe, console, started.step, leads=world.leads)
    with recording as record, _stop_signal() as stop:
        return _loop(training, data, device, record, stop, started.step)


def _loop(
    training: Training, data: "Data", device: torch.device, record: Record, stop: "Stop", first: int
) -> Path:
    recipe, world = training.recipe, training.world
    generator = torch.Generator(device)
    schedule = Schedule(
        data.train, recipe.optim.batch_size, recipe.run.seed, first, recipe.last_step,
        world.rank, world.size,
    )  # fmt: skip
    step, bad = first, 0  # bad steps in a row
    eval_due = save_due = False  # put off while the steps are bad
    with closing(load_batches(data.dataset, schedule, recipe.data.workers)) as batches:
        for batch in record.waiting(batches):
            shares = exchange(
                batch,
                world,
                query_images=recipe.objective.needs_visual_nodes,
                stop=stop.asked,
            )
            rate = learning_rate(step, recipe.optim)
            for group in training.optimizer.param_groups:
                group["lr"] = rate
            seed = (recipe.run.seed * 1_000_003 + step) * world.size + world.rank
            generator.manual_seed(seed)
            result = train_step(training, batch.to(device), shares, generator)
            step += 1
            bad = 0 if result.taken else bad + 1
            record.step(step, training.model, shares.skipped, result, rate)
            last = step == recipe.last_step or shares.stop
            stop_if_diverged(recipe, training.model, result, step, bad, last=last)
            eval_due |= _is_due(step, recipe.run.eval_every, recipe)
            save_due |= step % recipe.run.save_every == 0 or last
            if not (eval_due or save_due) or (bad and not last):
                continue
            require_finite(recipe, training.model, step)
            if eval_due and data.val and world.leads:
                held_out = load_batches(data.val_dataset, data.val, workers=0)
                record.evaluation(step, evaluate(training, held_out, device))
            if save_due:
                path = checkpoint.path_of(recipe.folder, step)
                if world.leads:
                    checkpoint.save(
                        path, len(data.train), recipe, training.model, training.optimizer
                    )
                record.saved(path, last=last)
            if last:
                return path
            eval_due = save_due = False
    raise AssertionError("the schedule ends at the last step")


def _is_due(step: int, every: int, recipe: Recipe) -> bool:
    return step % every == 0 or step == recipe.last_step


@dataclass(frozen=True)
class Data:
    """Training samples, and the batches that are held out."""

    train: ShardIndex
    dataset: BatchDataset
    val_dataset: BatchDataset
    val: list[tuple[int, list[int]]]


@dataclass
class Stop:
    """Whether somebody asked the run to end at the next step."""

    asked: bool = False


def _open_data(training: Training, device: torch.device, console: Console) -> Data:
    recipe, world = training.recipe, training.world
    tokenizer = recipe.folder / TOKENIZER
    if world.leads:
        write_tokenizer(tokenizer)
    spec = TextSpec(context_length=recipe.text_tower.context_length)
    index = index_shards(find_shards(recipe.data.train))
    used = [Used(index, np.arange(len(index)))]
    held_out: list[tuple[int, list[int]]] = []
    if recipe.data.val is not None:
        val_index = index_shards(find_shards(recipe.data.val))
        held_out = validation_rows(val_index, recipe.optim.batch_size)
        used.append(Used(val_index, np.concatenate([numbers for _, numbers in held_out])))
    datasets = [
        BatchDataset(one.index, tokenizer, spec, recipe.needed, recipe.run.seed, features)
        for one, features in zip(used, _features(training, device, used, console), strict=True)
    ]
    return Data(index, datasets[0], datasets[-1], held_out)


def _features(
    training: Training, device: torch.device, used: list[Used], console: Console
) -> Sequence[Features | None]:
    """What a frozen image tower gives for the pictures of some shards, where it is kept.

    The first process computes what is missing. The others come when it has the folder to itself,
    and wait at its lock.
    """
    recipe, world, tower = training.recipe, training.world, training.model.image_tower
    if recipe.data.features is None:
        return [None] * len(used)

    def meet() -> None:
        agree(world, samples=len(used[0].index))

    if world.leads:
        return stored_features(recipe, tower, device, used, console, held=meet)
    meet()
    return stored_features(recipe, tower, device, used, console)


def _resumable(folder: Path, recipe: Recipe, world: World) -> checkpoint.Checkpoint | None:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    before = checkpoint.newest(folder)
    if before and before.recipe.digest() != recipe.digest():
        changed = difference(before.recipe, recipe)
        raise CheckpointError(
            f"{folder}: holds a run of another recipe (step {before.step:,}; differs in "
            f"{', '.join(changed)}); give another run.out, or remove the folder"
        )
    if world.leads:
        write_json(folder / "recipe.json", recipe.model_dump(mode="json"))
    return before


def _device(recipe: Recipe, world: World) -> torch.device:
    name = recipe.run.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and world.size > 1:
            if ":" in name:
                raise ConfigError(
                    f"run.device {name!r}: each of the {world.size} processes takes a GPU of its "
                    "own; give cuda, and choose among them by CUDA_VISIBLE_DEVICES"
                )
            device = torch.device("cuda", world.local_rank)
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"run.device {name!r}: {error}") from error
    return device


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
