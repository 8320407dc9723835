"""A frozen tower's features, kept on disk: what they save must not change what is trained."""

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from core.errors import ConfigError, StorageError
from trainer import precompute
from trainer.config import Recipe
from trainer.data.features import Features
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import write_shard
from trainer.data.table import Table, Writer
from trainer.data.shards import find_shards, index_shards
from trainer.model import DualEncoder
from trainer.precompute import Used, stored_features
from trainer.run import train


def console() -> Console:
    return Console(file=StringIO(), width=300)


def said(told: Console) -> str:
    assert isinstance(told.file, StringIO)
    return told.file.getvalue()


def losses(folder: Path, split: str = "train") -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["split"] == split]


@pytest.fixture
def frozen(recipe: Recipe) -> Recipe:
    """A frozen tower and no augmentation, without stored features."""
    return changed(
        recipe,
        image_tower={"frozen": True},
        augment={
            "crop_scale": (1.0, 1.0), "jitter_probability": 0.0, "grayscale_probability": 0.0,
        },
    )  # fmt: skip


def changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    dump = recipe.model_dump()
    for section, values in sections.items():
        dump[section] |= values
    return Recipe.model_validate(dump)


def stored(recipe: Recipe, told: Console | None = None, seed: int = 0) -> Features:
    """What is kept for the training shards, and a tower of random weights."""
    torch.manual_seed(seed)
    tower = DualEncoder(recipe).image_tower
    index = index_shards(find_shards(recipe.data.train))
    used = [Used(index, np.arange(len(index)))]
    (features,) = stored_features(recipe, tower, torch.device("cpu"), used, told or console())
    return features


@pytest.mark.parametrize("objective", ["hyper3", "hycoclip", "clip"])
def test_a_run_on_stored_features_takes_the_steps_of_one_that_runs_its_tower(
    frozen: Recipe, tmp_path: Path, objective: str
) -> None:
    dump = frozen.model_dump() | {"objective": {"kind": objective}}
    plain = Recipe.model_validate(dump)
    train(plain, console())
    told = console()
    kept = changed(plain, data={"features": tmp_path / "features"}, run={"out": tmp_path / "kept"})
    train(kept, told)
    for split in ("train", "val"):  # what is rounded is a feature, to 11 bits
        assert losses(kept.folder, split) == pytest.approx(losses(plain.folder, split), rel=1e-3)
    assert "were computed now" in said(told)
