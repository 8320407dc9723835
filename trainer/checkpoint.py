"""Checkpoints: written whole or not at all, checked when read, and without pickled code.

::

    RUN/checkpoints/00001000/
        model.safetensors      weights and buffers
        optimizer.safetensors  AdamW's state by parameter name
        state.json             step and place in the data, what was held out, the recipe, and the
                               sha256 of the two
    RUN/best -> checkpoints/00000700

The samples of a batch and all randomness are drawn from (seed, step), never from a running
generator, so that the step is all there is to restore; where it lies in the data is for people,
and the digest of the data for a warning. When one is written, and which stay: `trainer.saver`.
"""

import errno
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from core.bundle import sha256
from core.errors import CheckpointError
from trainer.config import Recipe
from trainer.sharding import whole
from trainer.storage import storage_errors

log = logging.getLogger(__name__)

BEST = "best"
"""The link in a run's folder to the checkpoint with the best held-out figure."""

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"

Tensors = dict[str, dict[str, Tensor]]
"""What a checkpoint holds, by file and name."""


@dataclass(frozen=True)
class Position:
    """How far a run has come, and in which data."""

    step: int  # optimizer steps taken
    samples: int  # of the training data
    data: str = ""  # sha256 of where each of them lies; of old checkpoints it is not known
    epoch: int = 0  # of the last batch, from 0
    batches: int = 0  # that were taken of this epoch


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are whole."""

    path: Path
    position: Position
    recipe: Recipe

    @property
    def step(self) -> int:
        """Optimizer steps taken."""
        return self.position.step

    def weights_digest(self) -> str:
        """sha256 (hex) of the weights' file."""
        return sha256(self.path / MODEL)


def path_of(folder: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of a step."""
    return folder / "checkpoints" / f"{step:08d}"


def stored(folder: Path) -> list[Path]:
    """The folders of a run's checkpoints, the oldest first; torn ones may be among them."""
    return sorted((folder / "checkpoints").glob("[0-9]" * 8))


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """What there is to keep of a model and its optimizer, as it lies on the device.

    All processes call it: those that share weights put them together for the first.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        MODEL: {name: whole(tensor) for name, tensor in model.state_dict().items()},
        OPTIMIZER: {
            f"{names[parameter]}/{key}": whole(value)
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
        },
    }


def write(
    folder: Path,
    position: Position,
    recipe: Recipe,
    tensors: Tensors,
    figures: Mapping[str, float],
) -> Path:
    """Write a run's checkpoint, whole or not at all, and return its place.

    Args:
        folder: Of the run.
        position: The step, and what else tells where the run is.
        recipe: Of the run.
        tensors: On the CPU, contiguous, and no two of one memory, as `trainer.saver.copied` makes
            them.
        figures: Of an evaluation at this step; none where there was none.

    Raises:
        StorageError: The disk is full or the folder cannot be written; other checkpoints are
            as they were.
    """
    target = path_of(folder, position.step)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with storage_errors(folder):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for name, named in tensors.items():
                _write_tensors(named, temporary / name)
            state = asdict(position) | {
                "held_out": {
                    name: value for name, value in figures.items() if math.isfinite(value)
                },
                "recipe": recipe.model_dump(mode="json"),
                "files": {name: sha256(temporary / name) for name in tensors},
            }
            (temporary / STATE).write_text(json.dumps(state, indent=2), encoding="utf-8")
            for name in (*tensors, STATE, ""):
                _sync(temporary / name)
            if target.exists():  # torn, or the run would have gone on from there
                shutil.rmtree(target)
            temporary.rename(target)
            _sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


class TornCheckpoint(CheckpointError):
    """A file of a checkpoint is missing, or is not what was written."""


def newest(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint of a run; torn ones are skipped with a warning.

    Raises:
        CheckpointError: There are some, and none can be used; or one is not torn and cannot be
            read. A run that began anew would take their place.
    """
    torn: list[TornCheckpoint] = []
    for path in reversed(stored(folder)):
        try:
            return read(path)
        except TornCheckpoint as error:
            log.warning("skipped: %s", error)
            torn.append(error)
    if torn:
        raise CheckpointError(
            f"{folder}: all {len(torn)} checkpoints are torn ({torn[0]}); bring them back, remove "
            f"{folder / 'checkpoints'} to begin anew, or give another run.out"
        )
    return None


def read(path: Path) -> Checkpoint:
    """Check one checkpoint's files.

    Raises:
        TornCheckpoint: A file is missing or differs from what was written.
        CheckpointError: It cannot be read, or this version does not know its recipe.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        for name, digest in state["files"].items():
            if sha256(path / name) != digest:
                raise TornCheckpoint(f"{path / name}: torn or altered")
        known = {field.name: state[field.name] for field in fields(Position) if field.name in state}
        position, recipe = Position(**known), state["recipe"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TornCheckpoint(f"{path}: not a whole checkpoint: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    try:
        return Checkpoint(path, position, Recipe.model_validate(recipe))
    except ValueError as error:
        raise CheckpointError(
            f"{path}: this version does not know its recipe: {error}; use the version that wrote "
            "it, or give another run.out"
        ) from error


def held_out(path: Path) -> dict[str, float]:
    """Figures of the evaluation at a checkpoint's step; none where there was none.

    Its other files are not looked at.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in state["held_out"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def find(path: Path) -> Checkpoint:
    """The checkpoint that a run's folder, its ``best``, or a checkpoint's own folder means.

    Raises:
        CheckpointError: There is none.
    """
    if path.is_symlink() and path.name == BEST:  # a run that goes on may soon have another one
        path = path.parent / path.readlink()
    if (path / STATE).exists():
        return read(path)
    checkpoint = newest(path)
    if checkpoint is None and path.name == BEST and stored(path.parent):
        raise CheckpointError(
            f"{path}: none is known as the best: that takes data.val, run.best and an evaluation; "
            f"{path.parent} means the newest"
        )
    if checkpoint is None:
        raise CheckpointError(
            f"{path}: no checkpoint here; give the folder of a run (with checkpoints/ in it)"
        )
    return checkpoint


def load_model(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the weights into a model of the checkpoint's recipe.

    Raises:
        CheckpointError: Keys or shapes differ; the message lists them.
    """
    try:
        model.load_state_dict(read_model(checkpoint))
    except RuntimeError as error:
        raise CheckpointError(f"{checkpoint.path / MODEL}: {error}") from error


def read_model(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights and buffers by their names."""
    return load_file(checkpoint.path / MODEL)


def load_optimizer(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> list[str]:
    """Put the optimizer's state back, parameter by parameter; returns those it has none of.

    Such a parameter begins as in a new run: no gradient of it was ever taken.
    """
    fresh: list[str] = []
    tensors = load_file(checkpoint.path / OPTIMIZER)
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[parameter]
            state = {
                key.rpartition("/")[2]: tensor
                for key, tensor in tensors.items()
                if key.rpartition("/")[0] == name
            }
            if not state:
                fresh.append(name)
                continue
            optimizer.state[parameter] = {
                key: tensor.to(parameter.device) for key, tensor in state.items()
            }
    return fresh


def _write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write one file; meanwhile other threads run.

    Raises:
        OSError: The disk is full, or another fault of the system.
    """
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # says what the system said, without its number
        number = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(number, str(error), str(path)) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
