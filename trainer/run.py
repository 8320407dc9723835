"""A training run, from its recipe to its last checkpoint, as a list of events."""

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console

from core.errors import CheckpointError, ConfigError
from core.lock import take_lock
from core.text import TextSpec
from trainer import checkpoint
from trainer.batch import (
    BatchDataset,
    Schedule,
    load_batches,
    validation_rows,
)
from trainer.config import Recipe
from trainer.model import Hyper3
from trainer.optim import build_optimizer, learning_rate
from trainer.record import Record
from trainer.shards import ShardIndex, find_shards, index_shards
from trainer.step import evaluate, train_step
from trainer.storage import storage_errors, write_json
from trainer.vocabulary import write_tokenizer

TOKENIZER = "tokenizer.json"


def train(recipe: Recipe, console: Console) -> Path:
    """Train, or go on from the newest checkpoint of the run; returns the last checkpoint.

    Every sample of a step, and all randomness, follow from (seed, step): a run that was
    stopped takes the same steps as one that was not.

    Raises:
        CheckpointError: The folder holds a run of another recipe.
        DataError: Shards are missing or unusable.
        StorageError: The folder cannot be written, another training runs in it, or the disk
            is full.
        TrainingDiverged: A gradient is not finite.
    """
    folder = recipe.folder
    with closing(take_lock(folder)):
        return _train(recipe, folder, console)


def _train(recipe: Recipe, folder: Path, console: Console) -> Path:
    before = _resumable(folder, recipe)
    if before and before.step >= recipe.optim.steps:
        console.print(f"{folder}: complete at step {before.step:,}; nothing to do")
        return before.path
    device = _device(recipe)
    torch.manual_seed(recipe.run.seed)
    model = Hyper3(recipe).to(device)
    optimizer = build_optimizer(model, recipe.optim)
    first = 0
    if before:
        checkpoint.load_model(before, model)
        checkpoint.load_optimizer(before, model, optimizer)
        first = before.step
    data = _open_data(recipe, folder)
    _announce(console, recipe, model, data, device, first)
    if before and before.samples != len(data.train):
        console.print(
            f"[yellow]data.train now holds {len(data.train):,} samples, not {before.samples:,}: "
            "from here on the run differs from one that was not stopped[/]"
        )
    with Record(folder, recipe, console, first) as record, _stop_signal() as stop:
        return _loop(model, optimizer, recipe, data, device, record, stop, first)


def _loop(
    model: Hyper3,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    data: "Data",
    device: torch.device,
    record: Record,
    stop: "Stop",
    first: int,
) -> Path:
    folder, options = recipe.folder, recipe.optim
    generator = torch.Generator(device)
    schedule = Schedule(data.train, options.batch_size, recipe.run.seed, first, options.steps)
    step = first
    with closing(load_batches(data.dataset, schedule, recipe.data.workers)) as batches:
        for batch in record.waiting(batches):
            rate = learning_rate(step, options)
            for group in optimizer.param_groups:
                group["lr"] = rate
            generator.manual_seed(recipe.run.seed * 1_000_003 + step)
            result = train_step(model, batch.to(device), optimizer, recipe, generator)
            step += 1
            record.step(step, model, batch, result, rate)
            last = step == options.steps or stop.asked
            if data.val and (step % recipe.run.eval_every == 0 or step == options.steps):
                held_out = load_batches(data.val_dataset, data.val, workers=0)
                record.evaluation(step, evaluate(model, held_out, recipe, device))
            if step % recipe.run.save_every == 0 or last:
                path = checkpoint.save(folder, step, len(data.train), recipe, model, optimizer)
                record.saved(path, last=last)
            if last:
                return path
    raise AssertionError("the schedule ends at the last step")


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


def _open_data(recipe: Recipe, folder: Path) -> Data:
    write_tokenizer(folder / TOKENIZER)
    spec = TextSpec(context_length=recipe.text_tower.context_length)

    def dataset(index: ShardIndex) -> BatchDataset:
        return BatchDataset(index, folder / TOKENIZER, spec, recipe.data, recipe.run.seed)

    train_index = index_shards(find_shards(recipe.data.train))
    if recipe.data.val is None:
        return Data(train_index, dataset(train_index), dataset(train_index), [])
    val_index = index_shards(find_shards(recipe.data.val))
    rows = validation_rows(val_index, recipe.optim.batch_size)
    return Data(train_index, dataset(train_index), dataset(val_index), rows)


def _resumable(folder: Path, recipe: Recipe) -> checkpoint.Checkpoint | None:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    before = checkpoint.newest(folder)
    if before and before.recipe.digest() != recipe.digest():
        changed = _difference(before.recipe.model_dump(), recipe.model_dump())
        raise CheckpointError(
            f"{folder}: holds a run of another recipe (step {before.step:,}; differs in "
            f"{', '.join(changed)}); give another run.out, or remove the folder"
        )
    write_json(folder / "recipe.json", recipe.model_dump(mode="json"))
    return before


def _difference(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    """The keys, as section.key, in which two recipes differ."""
    keys: list[str] = []
    for key in dict.fromkeys([*a, *b]):
        old, new = a.get(key), b.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            keys += _difference(old, new, f"{prefix}{key}.")
        elif old != new:
            keys.append(f"{prefix}{key}")
    return keys


def _device(recipe: Recipe) -> torch.device:
    name = recipe.run.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"run.device {name!r}: {error}") from error
    return device


def _announce(
    console: Console, recipe: Recipe, model: Hyper3, data: Data, device: torch.device, first: int
) -> None:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(
        f"{recipe.name}: {parameters / 1e6:.1f} M parameters on {device} "
        f"({recipe.optim.precision}), {len(data.train):,} samples, batches of "
        f"{recipe.optim.batch_size}, steps {first:,} to {recipe.optim.steps:,} -> {recipe.folder}"
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
