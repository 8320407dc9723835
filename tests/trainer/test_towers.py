"""Towers, positions, pooling and the learned scalars."""

from typing import Any

import pytest
import torch
from torch import nn

from core.errors import ConfigError
from trainer.config import ConvTower, Recipe, TextTower, TimmTower
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.pooling import QueryPooling
from trainer.towers import TextTower as TextModel
from trainer.towers import build_image_tower


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


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_the_activation_is_the_one_that_was_asked_for(activation: Any) -> None:
    tower = TextModel(TextTower(width=32, layers=2, heads=2, activation=activation))
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    expected = {
        "gelu": x * (1 + torch.erf(x / 2**0.5)) / 2,
        "quick_gelu": x * torch.sigmoid(1.702 * x),
    }[activation]
    for block in tower.transformer.transformer.resblocks:
        torch.testing.assert_close(block.mlp.gelu(x), expected)


def test_a_tower_in_eval_keeps_its_running_statistics() -> None:
    """What holds a frozen tower still: batch norm learns from every batch otherwise."""
    tower = build_image_tower(ConvTower(kind="conv", widths=(8, 16)), 32)
    images = torch.randn(4, 3, 32, 32)
    start = {name: tensor.clone() for name, tensor in tower.state_dict().items()}

    def moved() -> set[str]:
        tower(images)
        state = tower.state_dict()
        return {name for name in state if not torch.equal(state[name], start[name])}

    tower.eval()
    assert moved() == set()
    tower.train()
    assert any("running_mean" in name for name in moved())


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
    model = DualEncoder(recipe)
    with torch.no_grad():
        model.log_curv.fill_(-9.0)
        for name, value in model.named_parameters():
            if name.endswith("log_scale"):
                value.fill_(9.0)
        model.visual_alpha.fill_(1.0)
    model.clamp_scalars()
    assert model.curvature.item() == pytest.approx(0.1)
    assert model.scalars().whole.scale.item() == pytest.approx(100)
    assert model.visual_alpha.item() == 0
    model.curvature.backward()
    assert model.log_curv.grad is not None
    assert model.log_curv.grad.item() != 0


def test_the_papers_model_has_its_size_and_decays_the_same_weights() -> None:
    """157,101,318 parameters with the biases of H3's projections and of its query map.

    Positions of the patches do not train; of the rest hyper3-clip decays 156,736,768.
    """
    sections: dict[str, Any] = {
        "name": "paper",
        "data": {"train": "unused"},
        "image_tower": {"kind": "timm", "name": "vit_base_patch16_224"},
        "model": {"projection_bias": True},
    }
    recipe = Recipe.model_validate(sections)
    model = DualEncoder(recipe)
    assert sum(parameter.numel() for parameter in model.parameters()) == 157_101_318
    sizes = [
        sum(parameter.numel() for parameter in group["params"])
        for group in build_optimizer(model, recipe.optim).param_groups
    ]
    assert sizes == [156_736_768, 213_254]


def test_vectors_and_scalars_do_not_decay(recipe: Recipe) -> None:
    model = DualEncoder(recipe)
    decayed, kept = build_optimizer(model, recipe.optim).param_groups
    assert all(parameter.ndim >= 2 for parameter in decayed["params"])
    assert kept["weight_decay"] == 0
    identities = {id(parameter) for parameter in kept["params"]}
    assert {id(model.log_curv), id(model.visual_alpha)} <= identities
    trainable = sum(parameter.requires_grad for parameter in model.parameters())
    assert len(decayed["params"]) + len(kept["params"]) == trainable
