"""A checkpoint of any system, measured as it was trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from core.errors import BundleError
from core.evaluation.retrieval import retrieval
from trainer.checkpoint import find
from trainer.config import Recipe
from trainer.data.batch import decode_sample
from trainer.data.loader import validation_rows
from trainer.data.shards import find_shards, index_shards
from trainer.encoder import open_checkpoint
from trainer.export import export
from trainer.run import train

SYSTEMS: list[dict[str, Any]] = [
    {"kind": "clip"},
    {"kind": "meru"},
    {"kind": "atmg"},
    {"kind": "hycoclip"},
    {"kind": "uncha"},
    {"kind": "phyclip", "factors": 4},
    {"kind": "phyclip", "factors": 4, "norm": "l2"},
    {"kind": "hyper3"},
]


@pytest.mark.parametrize("objective", SYSTEMS, ids=lambda o: "-".join(map(str, o.values())))
def test_the_evaluation_ranks_as_the_training_does(
    recipe: Recipe, objective: dict[str, Any]
) -> None:
    recipe = Recipe.model_validate(recipe.model_dump() | {"objective": objective})
    train(recipe, Console(quiet=True))
    encoder = open_checkpoint(str(recipe.folder))
    assert encoder is not None
    index = index_shards(find_shards(recipe.data.train))
    samples = [
        decode_sample(index, number, recipe.data, np.random.default_rng(0))
        for _, (number,) in validation_rows(index, 1)
    ]
    images = encoder.space.lift(encoder.images(sample.image for sample in samples))
    texts = encoder.space.lift(encoder.texts([sample.caption for sample in samples]))
    found = retrieval(images, texts, range(len(samples)), encoder.space)
    rows = (recipe.folder / "metrics.jsonl").read_text().splitlines()
    held_out = [row for row in map(json.loads, rows) if row["split"] == "val"][-1]
    for way, by_k in (
        ("text_to_image", found.text_to_image),
        ("image_to_text", found.image_to_text),
    ):
        for k, value in by_k.items():  # one of 24 may change places with one as near
            assert 100 * value == pytest.approx(held_out[f"recall/{way}@{k}"], abs=100 / 24 + 1e-9)


@pytest.mark.parametrize("objective", [SYSTEMS[0], SYSTEMS[2], SYSTEMS[5]], ids=lambda o: o["kind"])
def test_a_system_that_no_bundle_can_hold_yet_is_refused_and_told_why(
    recipe: Recipe, tmp_path: Path, objective: dict[str, Any]
) -> None:
    recipe = Recipe.model_validate(recipe.model_dump() | {"objective": objective})
    train(recipe, Console(quiet=True))
    with pytest.raises(BundleError, match=rf"one hyperboloid.*{objective['kind']} has others"):
        export(find(recipe.folder), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
