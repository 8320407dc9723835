"""Gradient caching, checkpointing and patch dropout: the same gradients, and the same draws."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from core.errors import ConfigError
from core.text import TextSpec, Tokenizer
from trainer.config import Recipe, load_recipe
from trainer.data.augment import normalise, to_float
from trainer.data.batch import Batch, Decoded, Seen, collate
from trainer.distributed import Shares, Sizes, World
from trainer.micro import cut, encode
from trainer.model import DualEncoder
from trainer.objectives.loss import loss_terms
from trainer.optim import build_optimizer
from trainer.run import train
from trainer.sections import ConvTower, TimmTower
from trainer.speed import ready
from trainer.step import Training, backward
from trainer.towers import build_image_tower
from trainer.vocabulary import write_tokenizer

SMOKE = [
    "hyper3_vit_b16", "hyper3_vit_b16-ablation-mean-pooled", "hyper3_vit_b16-ablation-no-query",
    "hyper3_vit_b16-ablation-text-hierarchy", "clip_vit_b16", "beta-clip_vit_b16", "siglip_vit_b16",
    "meru_vit_b16", "atmg_vit_b16", "hycoclip_vit_b16", "uncha_vit_b16", "phyclip_vit_b16",
]  # fmt: skip

SAMPLES = (
    ("A bus", ()),
    ("A dog runs after a red ball on the beach. It is fast.", ("a dog", "a red ball", "beach")),
    ("Snow", ()),
    ("Two cats on a sofa", ("a cat", "another cat", "a sofa", "a dog", "a bus")),
    ("A dog runs after a red ball on the beach. It is fast.", ("a dog",)),
    ("Sand", ("snow",)),
    ("A man who reads a newspaper beside a lamp. The lamp is on. It is late.", ()),
)
"""Parts and queries stand unevenly, and texts of one sample are those of another."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    write_tokenizer(file)
    return Tokenizer(file, TextSpec())


def little(name: str, **sections: dict[str, Any]) -> Recipe:
    dump = load_recipe(Path(f"{name}-smoke")).model_dump()
    for section, values in sections.items():
        dump[section] = dump[section] | values
    return Recipe.model_validate(dump)


def batch_of(recipe: Recipe, tokenizer: Tokenizer) -> Batch:
    draw = np.random.default_rng(0)
    side = recipe.data.side

    def picture() -> Any:
        return draw.integers(0, 256, (side, side, 3), dtype=np.uint8)

    most = recipe.needed.max_parts
    samples = [
        Decoded(picture(), caption, [picture() for _ in names[:most]], list(names[:most]),
                list(names[:most]))
        for caption, names in SAMPLES
    ]  # fmt: skip
    return collate(samples, tokenizer, recipe.needed, ())


def training_of(recipe: Recipe, dtype: torch.dtype = torch.float64) -> Training:
    """Points well outside the region where cones are saturated, so that every term has a slope."""
    torch.manual_seed(0)
    model = DualEncoder(recipe)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("_alpha"):
                value.fill_(-1.0)
    model = model.to(dtype)
    training = Training(recipe, model, model, build_optimizer(model, recipe.optim), World())
    return ready(training, torch.device("cpu"))


def pictures(batch: Batch, recipe: Recipe) -> Tensor:
    assert isinstance(batch.pictures, Tensor)
    return normalise(to_float(batch.pictures), recipe.data).double()


def taken_back(
    training: Training, batch: Batch, images: Tensor | Seen, samples: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Terms and gradients of a step in pieces of so many samples, by name."""
    recipe, shares = training.recipe, Shares((), batch.links, batch.links)
    speed = recipe.speed.model_copy(update={"micro_batch": samples})
    training = replace(training, recipe=recipe.model_copy(update={"speed": speed}))
    training.model.zero_grad(set_to_none=True)
    terms, _ = backward(training, batch, images, shares, seed=5)
    named = training.model.named_parameters()
    return terms, {name: value.grad for name, value in named if value.grad is not None}


def require_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        error = float((found[name] - value).detach().abs().max())
        assert error <= 1e-10 * max(float(value.detach().abs().max()), 1e-6), name


@pytest.mark.parametrize("name", SMOKE)
def test_pieces_have_the_gradients_of_the_whole_batch(name: str, tokenizer: Tokenizer) -> None:
    recipe = little(name)
    batch = batch_of(recipe, tokenizer)
    images = pictures(batch, recipe)
    training = training_of(recipe)
    terms, gradients = taken_back(training, batch, images)
    assert any(value.any() for value in gradients.values())
    for samples in (1, 3):  # of 7
        found, same = taken_back(training, batch, images, samples)
        require_same(found, terms)
        require_same(same, gradients)


def test_so_they_have_where_towers_are_frozen_or_features_are_stored(tokenizer: Tokenizer) -> None:
    frozen = {"image_tower": {"frozen": True}, "text_tower": {"frozen": True}}
    recipe = little("hyper3_vit_b16", **frozen)
    batch = batch_of(recipe, tokenizer)
    images = pictures(batch, recipe)
    training = training_of(recipe)
    with torch.no_grad():
        seen = training.model.image_tower(images)
    stored = Seen(seen.feature.half(), seen.patches[: len(batch)].half())
    for given in (images, stored):
        _, expected = taken_back(training, batch, given)
        assert not any(name.startswith(("image_tower", "text_tower")) for name in expected)
        require_same(taken_back(training, batch, given, 3)[1], expected)


def test_each_distinct_text_passes_the_tower_once_in_each_pass(tokenizer: Tokenizer) -> None:
    recipe = little("hyper3_vit_b16", speed={"micro_batch": 2})
    batch = batch_of(recipe, tokenizer)
    training = training_of(recipe)
    passed: dict[bool, list[int]] = {False: [], True: []}

    def note(_tower: nn.Module, groups: tuple[Tensor, ...], states: Tensor) -> None:
        passed[states.requires_grad].append(len(states))
        assert sum(map(len, groups)) == len(states)

    training.model.text_tower.register_forward_hook(note)
    shares = Shares((), batch.links, batch.links)
    backward(training, batch, pictures(batch, recipe), shares, seed=0)
    texts = sum(map(len, batch.tokens))
    for counts in passed.values():
        assert len(counts) == 4
        assert sum(counts) == texts


def test_more_pieces_than_samples_still_give_one_for_each_pass(tokenizer: Tokenizer) -> None:
    """As in a process whose neighbour has more: it meets that one in every pass."""
    recipe = little("hyper3_vit_b16")
    batch = batch_of(recipe, tokenizer)
    own = Shares((), batch.links, batch.links)
    many = Shares((Sizes(len(batch), 0, 0, 0), Sizes(60, 0, 0, 0)), batch.links, batch.links)
    assert len(cut(batch, own, 2)) == 4
    pieces = cut(batch, many, 2)
    assert len(pieces) == 30
    for kind, count in (("wholes", 7), ("parts", len(batch.links.part_owner))):
        rows = [row for piece in pieces for row in range(count)[getattr(piece, kind)]]
        assert rows == list(range(count))
    assert all(piece.tokens for piece in pieces)


def test_the_second_pass_leaves_out_the_patches_that_the_first_did(tokenizer: Tokenizer) -> None:
    """Against one graph over the same pieces."""
    recipe = little("hyper3_vit_b16", image_tower={"patch_dropout": 0.5})
    batch = batch_of(recipe, tokenizer)
    images = pictures(batch, recipe)
    training = training_of(recipe)
    _, found = taken_back(training, batch, images, 3)

    model = training.model
    model.zero_grad(set_to_none=True)
    with_graph: Any = encode.__wrapped__  # type: ignore[attr-defined] # under no_grad's wrapping
    shares = Shares((), batch.links, batch.links)
    pieces = cut(batch, shares, 3)
    _, tangents = with_graph(model, batch, images, pieces, torch.enable_grad, 5)
    nodes = model.nodes(tangents, batch.links)
    loss = loss_terms(nodes, model.scalars(), recipe.objective)["loss"]
    (loss + model.anchor()).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    require_same(found, expected)


@pytest.mark.parametrize("tower", ["test_vit", "test_efficientnet"])
def test_layers_that_are_computed_again_have_the_same_gradients_and_statistics(
    tower: str, tokenizer: Tokenizer
) -> None:
    changed: dict[str, dict[str, Any]] = {"image_tower": {"name": tower}, "data": {"side": 96}}
    recipe = little("hyper3_vit_b16", **changed)
    batch = batch_of(recipe, tokenizer)
    images = pictures(batch, recipe)
    shares = Shares((), batch.links, batch.links)
    found: list[tuple[dict[str, Tensor], dict[str, Tensor], list[str]]] = []
    for again in (False, True):
        training = training_of(little("hyper3_vit_b16", speed={"checkpointing": again}, **changed))
        runs: list[str] = []
        model = training.model
        backbone: Any = model.image_tower.backbone
        layers = {"text": model.text_tower, "image": backbone.blocks}
        for name, tower_ in layers.items():
            leaf = next(m for m in tower_.modules() if isinstance(m, nn.Linear | nn.Conv2d))
            leaf.register_forward_pre_hook(lambda *_, runs=runs, name=name: runs.append(name))
        backward(training, batch, images, shares, seed=0)
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append((gradients, dict(model.named_buffers()), sorted(runs)))
    (expected, statistics, once), (same, also, twice) = found
    require_same(same, expected)
    assert (once, twice) == (["image", "text"], ["image", "image", "text", "text"])
    for name, value in statistics.items():
        torch.testing.assert_close(also[name], value, rtol=0, atol=0)


def test_patches_are_left_out_in_training_alone_and_queries_look_at_the_rest(
    tokenizer: Tokenizer,
) -> None:
    recipe = little("hyper3_vit_b16", image_tower={"patch_dropout": 0.5})
    training = training_of(recipe)
    tower = training.model.image_tower
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    assert tower(images).patches.shape[1] == 8
    assert tower.eval()(images).patches.shape[1] == 16
    batch = batch_of(recipe, tokenizer)
    tower.train()
    _, gradients = taken_back(training, batch, pictures(batch, recipe))
    assert gradients["pooling.cross_attention.in_proj_weight"].any()


def test_a_run_that_was_stopped_leaves_out_the_same_patches(recipe: Recipe, tmp_path: Path) -> None:
    def run(name: str, stop_at: int) -> dict[int, float]:
        dump = recipe.model_dump()
        dump["image_tower"] = {"kind": "timm", "name": "test_vit", "patch_dropout": 0.5}
        dump["run"] |= {"out": tmp_path / name, "stop_at": stop_at}
        dump["data"] |= {"val": None}
        made = Recipe.model_validate(dump)
        train(made, Console(quiet=True))
        rows = (made.folder / "metrics.jsonl").read_text().splitlines()
        return {row["step"]: row["loss"] for row in map(json.loads, rows)}

    whole = run("whole", 4)
    run("stopped", 2)
    assert run("stopped", 4) == whole


def test_a_model_without_patches_to_leave_out_is_named() -> None:
    with pytest.raises(ConfigError, match=r"image_tower.patch_dropout 0.5: test_resnet of timm"):
        build_image_tower(TimmTower(kind="timm", name="test_resnet", patch_dropout=0.5), 64)


def test_a_tower_that_keeps_what_its_layers_give_is_named() -> None:
    conv = build_image_tower(ConvTower(kind="conv", widths=(8, 16)), 32)
    with pytest.raises(ConfigError, match=r"speed.checkpointing: .*'conv'"):
        conv.recompute()
    refuses = build_image_tower(TimmTower(kind="timm", name="pit_ti_224"), 224)
    with pytest.raises(ConfigError, match=r"speed.checkpointing: timm's pit_ti_224"):
        refuses.recompute()


def test_batch_norms_do_not_go_with_pieces_unless_they_rest(recipe: Recipe) -> None:
    dump = recipe.model_dump()
    dump["speed"] = {"micro_batch": 2}
    with pytest.raises(ConfigError, match=r"speed.micro_batch: the image tower has batch norms"):
        training_of(Recipe.model_validate(dump))
    dump["image_tower"] |= {"frozen": True}
    training_of(Recipe.model_validate(dump))
