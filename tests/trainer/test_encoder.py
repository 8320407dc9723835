"""A checkpoint of any system, measured as it was trained."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from core.errors import BundleError, CheckpointError
from core.evaluation.encoder import open_encoder
from core.evaluation.pictures import Picture
from core.evaluation.retrieval import retrieval
from core.image import Pixels
from core.spaces import Lorentz
from trainer.checkpoint import find, path_of
from trainer.config import Recipe
from trainer.data.decode import decode_sample
from trainer.data.loader import validation_rows
from trainer.data.shards import find_shards, index_shards
from trainer.encoder import CheckpointEncoder, open_checkpoint
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


def keep(square: Pixels, file: Path) -> Picture:
    """A square that the trainer has decoded, without loss."""
    Image.fromarray(square).save(file)
    return Picture(file, file.name)


@pytest.mark.parametrize("objective", SYSTEMS, ids=lambda o: "-".join(map(str, o.values())))
def test_the_evaluation_ranks_as_the_training_does(
    recipe: Recipe, tmp_path: Path, objective: dict[str, Any]
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
    pictures = [keep(sample.image, tmp_path / f"{row}.png") for row, sample in enumerate(samples)]
    images = encoder.space.lift(encoder.images(pictures).tangents)
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


@pytest.fixture
def run(recipe: Recipe) -> Path:
    train(recipe, Console(quiet=True))
    return recipe.folder


def opened(folder: Path) -> CheckpointEncoder:
    encoder = open_checkpoint(str(folder))
    assert encoder is not None
    return encoder


def draw(folder: Path, count: int) -> list[Picture]:
    """Pictures of noise, of many sizes."""
    rng = np.random.default_rng(1)
    for number in range(count):
        pixels = rng.integers(0, 256, (*rng.integers(16, 40, 2), 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [Picture(folder / f"{number}.png", f"{number}.png") for number in range(count)]


def test_a_checkpoint_says_what_it_is_and_what_its_bundle_would_say(
    run: Path, tmp_path: Path
) -> None:
    encoder, manifest = opened(run), export(find(run), tmp_path / "bundle")
    assert encoder.name == "tiny at step 6"
    assert isinstance(encoder.space, Lorentz)
    assert encoder.space.curvature == pytest.approx(manifest.curvature)
    assert encoder.logit_scale == pytest.approx(manifest.logit_scale)
    expected = {
        "kind": "checkpoint", "recipe": "tiny", "objective": "hyper3", "step": 6, "seed": 0,
        "side": 32, "max_parts": 5, "precision": "fp32",
    }  # fmt: skip
    assert expected.items() <= encoder.about.items()
    assert str(encoder.about["runtime"]).startswith("torch ")


def test_a_checkpoint_and_its_bundle_give_the_same_tangents(run: Path, tmp_path: Path) -> None:
    export(find(run), tmp_path / "bundle")
    encoder, bundle = opened(run), open_encoder(str(tmp_path / "bundle"))
    pictures = draw(tmp_path, 5)
    texts = ["a red thing", "It is blue, and there are three of them.", "green"]
    for ours, theirs in (
        (encoder.images(pictures).tangents, bundle.images(pictures).tangents),
        (encoder.texts(texts), bundle.texts(texts)),
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_texts_of_every_length_come_back_in_their_order(run: Path) -> None:
    encoder = opened(run)
    texts = [" ".join(["red"] * (number * 37 % 90 + 1)) for number in range(150)]
    together = encoder.texts(texts)
    alone = np.concatenate([encoder.texts([text]) for text in texts[:20]])
    np.testing.assert_allclose(together[:20], alone, atol=1e-5)
    assert len(np.unique(together.round(4), axis=0)) > 60  # beyond 75 words all are cut alike
    assert encoder.texts([]).shape == encoder.images([]).tangents.shape == (0, 16)


def test_a_picture_that_cannot_be_read_spoils_no_other(run: Path, tmp_path: Path) -> None:
    encoder, pictures = opened(run), draw(tmp_path, 130)
    expected = encoder.images(pictures).tangents
    pictures[0].file.write_bytes(b"no picture")
    pictures[129].file.unlink()
    found = encoder.images(pictures)
    assert sorted(found.faults) == [0, 129]
    assert str(pictures[0].file) in found.faults[0]
    assert str(pictures[129].file) in found.faults[129]
    assert np.isnan(found.tangents[[0, 129]]).all()
    np.testing.assert_allclose(found.tangents[1:129], expected[1:129], atol=1e-5)


def test_the_fingerprint_follows_weights_and_inputs_and_no_folder(
    run: Path, tmp_path: Path
) -> None:
    last = opened(run)
    assert opened(path_of(run, 3)).fingerprint != last.fingerprint
    assert len(last.fingerprint) == 64
    moved = tmp_path / "moved"
    run.rename(moved)
    assert opened(moved).fingerprint == last.fingerprint
    for change in ({"data": {"side": 64}}, {"text_tower": {"activation": "quick_gelu"}}):
        file = path_of(moved, 6) / "state.json"
        state = json.loads(file.read_text())
        for section, values in change.items():
            state["recipe"][section] |= values
        altered = tmp_path / "-".join(change)
        shutil.copytree(moved, altered)
        (path_of(altered, 6) / "state.json").write_text(json.dumps(state))
        assert opened(altered).fingerprint != last.fingerprint


def test_parts_are_told_of_systems_that_learn_from_them(recipe: Recipe) -> None:
    recipe = Recipe.model_validate(
        recipe.model_dump() | {"objective": {"kind": "meru"}, "name": "plain"}
    )
    train(recipe, Console(quiet=True))
    assert "max_parts" not in opened(recipe.folder).about


def test_a_run_without_a_whole_checkpoint_is_named(run: Path) -> None:
    for step in (3, 6):
        (path_of(run, step) / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match=rf"{run}: all 2 checkpoints are torn"):
        open_encoder(str(run))
