"""What a run opens before its first step: the device, the shards, and what is held out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console

from core.bundle import TOKENIZER
from core.errors import ConfigError
from core.text import TextSpec
from trainer.checkpoint import Position
from trainer.config import Recipe
from trainer.data.index import open_shards
from trainer.data.loader import BatchDataset, Schedule, validation_rows
from trainer.data.shards import ShardIndex
from trainer.distributed import World, agree
from trainer.features.precompute import Used, stored_features
from trainer.features.store import Features
from trainer.step import Training
from trainer.vocabulary import write_tokenizer


@dataclass(frozen=True)
class Data:
    """Training samples, and the batches that are held out."""

    train: ShardIndex
    digest: str  # of `train`
    dataset: BatchDataset
    val_dataset: BatchDataset
    val: list[tuple[int, list[int]]]

    def position(self, step: int, schedule: Schedule) -> Position:
        """Where a run stands in the data after a step."""
        return Position(step, len(self.train), self.digest, *schedule.place(step))

    def doubts(self, before: Position | None) -> list[str]:
        """What has changed in the training data since a checkpoint."""
        if before is None:
            return []
        if before.samples != len(self.train):
            what = f"{len(self.train):,} samples now, not {before.samples:,}"
        elif before.data not in {"", self.digest}:
            what = "other samples than it did, or in another order"
        else:
            return []
        return [f"data.train holds {what}: from here on the run differs from one never stopped"]


def open_device(recipe: Recipe, world: World) -> torch.device:
    """The device that ``run.device`` names; of several GPUs, this process's own.

    Raises:
        ConfigError: There is no such device, or one is named for several processes.
    """
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


def open_data(training: Training, device: torch.device, console: Console) -> Data:
    """Find out where every sample lies, and compute what of a frozen tower is to be kept.

    Raises:
        ConfigError: The processes do not see the same shards, or shards that lie elsewhere have
            no folder to be fetched into.
        DataError: Shards are missing or unusable.
        StorageError: A folder cannot be written, or its disk cannot hold what is missing.
    """
    recipe, world = training.recipe, training.world
    tokenizer = recipe.folder / TOKENIZER
    if world.leads:
        write_tokenizer(tokenizer)
    spec = TextSpec(context_length=recipe.text_tower.context_length)
    index = _shards(recipe.data.train, recipe, world, console)
    used = [Used(index, np.arange(len(index)))]
    held_out: list[tuple[int, list[int]]] = []
    if recipe.data.val is not None:
        val_index = _shards(recipe.data.val, recipe, world, console)
        held_out = validation_rows(val_index, recipe.optim.batch_size)
        used.append(Used(val_index, np.concatenate([numbers for _, numbers in held_out])))
    datasets = [
        BatchDataset(one.index, tokenizer, spec, recipe.needed, recipe.run.seed, features)
        for one, features in zip(used, _features(training, device, used, console), strict=True)
    ]
    digest = index_digest(index)
    agree(world, samples=len(index), data=int(digest[:15], 16))
    return Data(index, digest, datasets[0], datasets[-1], held_out)


def _shards(pattern: str, recipe: Recipe, world: World, console: Console) -> ShardIndex:
    """Where every sample lies; the first process, which can be watched, fetches what is missing.

    The others come when it has ``data.cache`` to itself, and wait at its lock.
    """

    def meet() -> None:
        agree(world, steps=recipe.last_step)

    if world.leads:
        return open_shards(pattern, recipe.data.cache, console, held=meet)
    meet()
    return open_shards(pattern, recipe.data.cache, console)


def index_digest(index: ShardIndex) -> str:
    """sha256 (hex) of the shards' names, where every sample lies, and which share a photo.

    Equal for the same shards in another folder. Other pictures of the very same sizes in shards
    of the same names would go unseen.
    """
    names = [str(shard).rpartition("/")[2] for shard in index.shards]
    digest = hashlib.sha256("/".join(names).encode())
    for column in (index.shard, index.offset, index.size, index.photo):
        digest.update(np.ascontiguousarray(column, dtype="<i8").data)
    return digest.hexdigest()


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
