"""Checkpoints on their own: whole, or skipped; and what they say of the run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from core.errors import CheckpointError
from trainer import checkpoint
from trainer.checkpoint import Position, tensors_of
from trainer.config import Recipe
from trainer.data.shards import find_shards, index_shards
from trainer.opening import index_digest
from trainer.run import train
from trainer.saver import copied


def written(recipe: Recipe, position: Position, figures: dict[str, float] | None = None) -> Path:
    """A checkpoint of a linear map after a step of AdamW."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tensors = copied(tensors_of(model, optimizer))
    return checkpoint.write(recipe.folder, position, recipe, tensors, figures or {})


def truncate(path: Path) -> None:
    model = path / checkpoint.MODEL
    model.write_bytes(model.read_bytes()[:-1])


def flip(path: Path) -> None:
    optimizer = path / checkpoint.OPTIMIZER
    content = bytearray(optimizer.read_bytes())
    content[-1] ^= 1
    optimizer.write_bytes(content)


def lose(path: Path) -> None:
    (path / checkpoint.OPTIMIZER).unlink()


def lose_state(path: Path) -> None:
    (path / checkpoint.STATE).unlink()


@pytest.mark.parametrize("tear", [truncate, flip, lose, lose_state])
def test_a_torn_checkpoint_is_skipped_with_a_warning_for_the_one_before(
    recipe: Recipe, caplog: pytest.LogCaptureFixture, tear: Callable[[Path], None]
) -> None:
    first, torn = (written(recipe, Position(step, samples=24)) for step in (1, 2))
    tear(torn)
    found = checkpoint.newest(recipe.folder)
    assert found is not None
    assert found.path == first
    assert str(torn) in caplog.text
    whole = written(recipe, Position(2, samples=24))  # takes the place of the torn one
    assert whole == torn
    assert checkpoint.find(recipe.folder).step == 2


def test_a_checkpoint_whose_state_is_nonsense_is_none(recipe: Recipe) -> None:
    path = written(recipe, Position(1, samples=24))
    for nonsense in ("[]", '{"files": []}', "{", '{"files": {"x": 1}}', '{"files": {}}'):
        (path / checkpoint.STATE).write_text(nonsense)
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            checkpoint.read(path)
        assert checkpoint.held_out(path) == {}


def test_a_run_never_begins_anew_over_checkpoints_that_cannot_be_used(recipe: Recipe) -> None:
    paths = [written(recipe, Position(step, samples=24)) for step in (1, 2)]
    states = [(path / checkpoint.STATE).read_text() for path in paths]
    strange = json.loads(states[1])
    strange["recipe"]["unheard_of"] = 1  # of another version: the older one is not the newest
    (paths[1] / checkpoint.STATE).write_text(json.dumps(strange))
    with pytest.raises(CheckpointError, match=r"00000002: this version does not know its recipe"):
        train(recipe, Console(quiet=True))
    for path, state in zip(paths, states, strict=True):
        (path / checkpoint.STATE).write_text(state)
        (path / checkpoint.MODEL).write_bytes(b"torn")
    with pytest.raises(CheckpointError, match=r"all 2 checkpoints are torn .* or give another run"):
        train(recipe, Console(quiet=True))
    assert [path.is_dir() for path in paths] == [True, True]


def test_a_checkpoint_says_where_the_run_is_and_what_was_held_out(
    recipe: Recipe,
) -> None:
    position = Position(1, samples=24, data="0a", epoch=3, batches=2)
    figures = {"loss": 1.5, "radius/part": float("nan")}
    path = written(recipe, position, figures)
    assert checkpoint.read(path).position == position
    assert checkpoint.held_out(path) == {"loss": 1.5}
    state = json.loads((path / checkpoint.STATE).read_text())
    assert {"step": 1, "samples": 24, "epoch": 3, "batches": 2}.items() <= state.items()


def test_a_checkpoint_from_before_these_were_kept_is_read(recipe: Recipe) -> None:
    path = written(recipe, Position(1, 24))
    state = json.loads((path / checkpoint.STATE).read_text())
    for name in ("data", "epoch", "batches", "held_out"):
        del state[name]
    (path / checkpoint.STATE).write_text(json.dumps(state))
    assert checkpoint.read(path).position == Position(1, 24)
    assert checkpoint.held_out(path) == {}


def test_the_same_shards_elsewhere_are_the_same_data_and_others_are_not(
    shards: Path, tmp_path: Path
) -> None:
    digest = index_digest(index_shards(find_shards(str(shards))))
    moved = shutil.copytree(shards, tmp_path / "moved")
    assert index_digest(index_shards(find_shards(str(moved)))) == digest
    first, second = sorted(moved.glob("*.tar"))
    assert index_digest(index_shards([second, first])) != digest
    assert index_digest(index_shards([first])) != digest
    index = index_shards(find_shards(str(moved)))
    assert index.photo.dtype == np.int64
    index.photo[-1] = 0
    assert index_digest(index) != digest
