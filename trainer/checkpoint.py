"""Checkpoints: written whole or not at all, checked when read, and without pickled code.

::

    RUN/checkpoints/00001000/
        model.safetensors      weights and buffers
        optimizer.safetensors  AdamW's state by parameter name
        state.json             step, recipe, and the sha256 of the two

Randomness is drawn from (seed, step), never from a running generator, so that the step is all
there is to restore.
"""

import errno
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from core.bundle import sha256
from core.errors import CheckpointError
from trainer.config import Recipe
from trainer.storage import storage_errors

log = logging.getLogger(__name__)

_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are whole."""

    path: Path
    step: int  # optimizer steps taken
    samples: int  # of the training data
    recipe: Recipe

    def weights_digest(self) -> str:
        """sha256 (hex) of the weights' file."""
        return sha256(self.path / _MODEL)


def path_of(folder: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of a step."""
    return folder / "checkpoints" / f"{step:08d}"


def save(
    target: Path, samples: int, recipe: Recipe, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write a checkpoint at `path_of` its step and remove the oldest beyond ``run.keep``.

    Raises:
        StorageError: The disk is full or the folder cannot be written; earlier checkpoints
            are as they were.
    """
    folder, step = target.parent.parent, int(target.name)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with storage_errors(folder):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write_tensors(model.state_dict(), temporary / _MODEL)
            _write_tensors(_optimizer_tensors(model, optimizer), temporary / _OPTIMIZER)
            state = {
                "step": step,
                "samples": samples,
                "recipe": recipe.model_dump(mode="json"),
                "files": {name: sha256(temporary / name) for name in (_MODEL, _OPTIMIZER)},
            }
            (temporary / _STATE).write_text(json.dumps(state, indent=2), encoding="utf-8")
            for name in (_MODEL, _OPTIMIZER, _STATE):
                _sync(temporary / name)
            if target.exists():
                shutil.rmtree(target)
            temporary.rename(target)
            _sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    # Newer ones, which an earlier run left torn, are not counted: the one just written stays.
    older = [path for path in _stored(folder) if path.name <= target.name]
    for old in older[: -recipe.run.keep]:
        shutil.rmtree(old)


def newest(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint of a run; torn ones are skipped with a warning."""
    for path in reversed(_stored(folder)):
        try:
            return read(path)
        except CheckpointError as error:
            log.warning("skipped: %s", error)
    return None


def _stored(folder: Path) -> list[Path]:
    """The folders of checkpoints, the oldest first."""
    return sorted((folder / "checkpoints").glob("[0-9]" * 8))


def read(path: Path) -> Checkpoint:
    """Check one checkpoint's files.

    Raises:
        CheckpointError: A file is missing or differs from what was written.
    """
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        for name, digest in state["files"].items():
            if sha256(path / name) != digest:
                raise CheckpointError(f"{path / name}: torn or altered")
        return Checkpoint(
            path, int(state["step"]), int(state["samples"]), Recipe.model_validate(state["recipe"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint: {error}") from error


def find(path: Path) -> Checkpoint:
    """The checkpoint that a run's folder or a checkpoint's own folder means.

    Raises:
        CheckpointError: There is none.
    """
    if (path / _STATE).exists():
        return read(path)
    checkpoint = newest(path)
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
        raise CheckpointError(f"{checkpoint.path / _MODEL}: {error}") from error


def read_model(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights and buffers by their names."""
    return load_file(checkpoint.path / _MODEL)


def load_optimizer(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer
) -> list[str]:
    """Put the optimizer's state back, parameter by parameter; returns those it has none of.

    Such a parameter begins as in a new run: no gradient of it was ever taken.
    """
    fresh: list[str] = []
    tensors = load_file(checkpoint.path / _OPTIMIZER)
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


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write copies on the CPU: safetensors refuses tensors that share memory.

    Raises:
        OSError: The disk is full, or another fault of the system.
    """
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(copies, path)
    except SafetensorError as error:  # says what the system said, without its number
        number = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(number, str(error), str(path)) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
