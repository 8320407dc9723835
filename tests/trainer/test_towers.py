"""Towers, positions, pooling and the learned scalars."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from core.errors import ConfigError
from trainer.config import OptimSection, Recipe, TextTower, TimmTower
from trainer.model import Hyper3
from trainer.optim import build_optimizer, learning_rate
from trainer.pooling import QueryPooling
from trainer.towers import TextTower as TextModel
from trainer.towers import build_image_tower, sincos_positions

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "schedule.json").read_text()
)


@pytest.mark.parametrize("name", ["vit_base_patch16_224", "vit_small_mocov3_patch16_224"])
def test_positions_are_those_of_the_family(name: str) -> None:
    golden = GOLDEN["positions"][f"pos_embed_{name}"]
    rows, width = golden["shape"]
    table = sincos_positions(width, (14, 14), 1)[0].double().numpy()
    assert table.shape == (rows, width)
    columns = [0, 1, 2, width // 4, width // 4 + 1, width // 2, width // 2 + 1, 3 * width // 4, -1]
    for row, values in golden["rows"].items():
        np.testing.assert_allclose(table[int(row), columns], values, atol=1e-6)
    assert table.sum() == pytest.approx(golden["sum"], rel=1e-6)
    assert not table[0].any()


def test_the_learning_rate_is_that_of_hyper3_clip() -> None:
    options = OptimSection(warmup_steps=4000, steps=500_000, peak_lr=5e-4)
    for step, rate in zip(GOLDEN["lr"]["steps"], GOLDEN["lr"]["rates"], strict=True):
        assert learning_rate(step, options) == pytest.approx(rate, rel=1e-6, abs=1e-20)


def test_a_vision_transformer_has_the_form_of_the_family() -> None:
    tower = build_image_tower(TimmTower(kind="timm", name="vit_tiny_patch16_224"), 64)
    backbone: Any = tower.backbone
    assert not backbone.pos_embed.requires_grad
    assert backbone.norm.eps == 1e-5
    seen = tower(torch.randn(2, 3, 64, 64))
    assert seen.feature.shape == (2, 192)
    assert seen.patches.shape == (2, 16, 192)  # the class token is left out


def test_a_convolutional_model_of_timm_gives_its_last_map_as_patches() -> None:
    tower = build_image_tower(TimmTower(kind="timm", name="resnet18"), 64).eval()
    seen = tower(torch.randn(2, 3, 64, 64))
    assert seen.feature.shape == (2, 512)
    assert seen.patches.shape == (2, 4, 512)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ConfigError, match="no_such_model"):
        build_image_tower(TimmTower(kind="timm", name="no_such_model"), 64)


def test_a_text_reads_the_same_at_any_padding() -> None:
    torch.manual_seed(0)
    tower = TextModel(TextTower(width=32, layers=2, heads=2)).eval()
    short = torch.tensor([[49406, 320, 1929, 49407]])
    long = torch.zeros(1, 77, dtype=torch.int64)
    long[0, :4] = short
    torch.testing.assert_close(tower(short), tower(long), rtol=1e-5, atol=1e-6)


def test_the_text_tower_starts_as_merus_does() -> None:
    torch.manual_seed(0)
    tower = TextModel(TextTower())
    parameters: dict[str, nn.Parameter] = dict(tower.transformer.named_parameters())
    assert sum(p.numel() for p in parameters.values()) == GOLDEN["text_params"]
    ours = {
        "posit_embed": "positional_embedding",
        "token_embed.weight": "token_embedding.weight",
    }
    for name, std in GOLDEN["init_std"].items():
        parameter = parameters[ours.get(name, f"transformer.{name}")]
        assert parameter.std().item() == pytest.approx(std, rel=0.01)


def test_pooling_equals_attention_over_the_patches_of_the_owner() -> None:
    """Against nn.MultiheadAttention with the patches repeated for every query, gradients too."""
    torch.manual_seed(0)
    pooling = QueryPooling(text_width=24, width=32, heads=4)
    nn.init.normal_(pooling.cross_attention.in_proj_bias)  # zero at the start: would hide a fault
    patches = torch.randn(3, 7, 32, requires_grad=True)
    states = torch.randn(5, 24, requires_grad=True)
    owner, slot = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 8, 9, 10])
    weight = torch.randn(5, 32)

    query = pooling.text_query_proj(states)[:, None]
    plain, _ = pooling.cross_attention(query, patches[owner], patches[owner])
    plain = plain[:, 0] + pooling.pool_mlp(pooling.mlp_norm(plain[:, 0]))
    folded = pooling(patches, states, slot, slots=4)
    torch.testing.assert_close(folded, plain, rtol=1e-5, atol=1e-5)

    names = [name for name, _ in pooling.named_parameters()]
    leaves = [patches, states, *pooling.parameters()]
    expected = torch.autograd.grad((plain * weight).sum(), leaves)
    found = torch.autograd.grad((folded * weight).sum(), leaves)
    for name, one, other in zip(["patches", "states", *names], found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=name)


def test_a_scalar_can_leave_its_bound_again(recipe: Recipe) -> None:
    model = Hyper3(recipe)
    with torch.no_grad():
        model.log_curv.fill_(-9.0)
        model.global_logit_scale.fill_(9.0)
        model.visual_alpha.fill_(1.0)
    model.clamp_scalars()
    assert model.curvature.item() == pytest.approx(0.1)
    assert model.scales().whole.item() == pytest.approx(100)
    assert model.visual_alpha.item() == 0
    model.curvature.backward()
    assert model.log_curv.grad is not None
    assert model.log_curv.grad.item() != 0


def test_the_paper_recipe_has_the_papers_size() -> None:
    """157,101,318 parameters with the biases of H3's projections and of its query map."""
    sections: dict[str, Any] = {
        "name": "paper",
        "data": {"train": "unused"},
        "image_tower": {"kind": "timm", "name": "vit_base_patch16_224"},
        "model": {"projection_bias": True},
    }
    model = Hyper3(Recipe.model_validate(sections))
    assert sum(parameter.numel() for parameter in model.parameters()) == 157_101_318


def test_vectors_and_scalars_do_not_decay(recipe: Recipe) -> None:
    model = Hyper3(recipe)
    decayed, kept = build_optimizer(model, recipe.optim).param_groups
    assert all(parameter.ndim >= 2 for parameter in decayed["params"])
    assert kept["weight_decay"] == 0
    identities = {id(parameter) for parameter in kept["params"]}
    assert {id(model.log_curv), id(model.visual_alpha)} <= identities
    trainable = sum(parameter.requires_grad for parameter in model.parameters())
    assert len(decayed["params"]) + len(kept["params"]) == trainable
