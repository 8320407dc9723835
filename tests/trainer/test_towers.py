"""Towers, positions, pooling and the learned scalars."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from rich.console import Console
from torch import nn

from core.errors import ConfigError
from trainer import checkpoint
from trainer.config import Recipe
from trainer.export import export
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.pooling import QueryPooling
from trainer.run import train
from trainer.sections import ConvTower, TextTower, TimmTower
from trainer.towers import TextTower as TextModel
from trainer.towers import TimmTower as TimmModel
from trainer.towers import build_image_tower, sincos_positions


def test_a_vision_transformer_has_the_form_of_the_family() -> None:
    tower = build_image_tower(TimmTower(kind="timm", name="vit_tiny_patch16_224"), 64)
    backbone: Any = tower.backbone
    assert not backbone.pos_embed.requires_grad
    assert backbone.norm.eps == 1e-5
    seen = tower(torch.randn(2, 3, 64, 64))
    assert seen.feature.shape == (2, 192)
    assert seen.patches.shape == (2, 16, 192)  # the class token is left out


def timm_tower(name: str, side: int, **options: Any) -> TimmModel:
    tower = build_image_tower(TimmTower(kind="timm", name=name, **options), side)
    assert isinstance(tower, TimmModel)
    return tower.eval()


@pytest.mark.parametrize(
    ("name", "side", "patches"),
    [
        ("resnet18", 64, 4),
        ("test_efficientnet", 96, 9),
        ("test_convnext", 96, 9),
        ("test_mambaout", 96, 9),  # channels last
        ("test_maxvit", 96, 9),
        ("mobilenetv3_small_050", 96, 9),  # a feature wider than a patch
        ("test_vit", 96, 36),
        ("test_vit_relpos", 96, 36),  # no class token
        ("deit_tiny_distilled_patch16_224", 64, 16),  # two tokens before the patches
        ("xcit_nano_12_p16_224", 64, 16),
        ("levit_128s", 96, 4),
        ("hiera_tiny_224", 64, 4),
    ],
)
@torch.no_grad()
def test_any_model_of_timm_gives_its_own_feature_and_its_last_cells(
    name: str, side: int, patches: int
) -> None:
    tower = timm_tower(name, side, form="timm")
    images = torch.randn(2, 3, side, side)
    seen = tower(images)
    assert torch.equal(seen.feature, tower.backbone(images))
    assert seen.feature.shape == (2, tower.width)
    assert seen.patches.shape == (2, patches, tower.patch_width)
    assert tower.patch_width == tower.backbone.num_features


@torch.no_grad()
def test_a_patch_shows_its_own_place() -> None:
    """What changes in one corner of a picture changes most in the patches of that corner."""
    for name, side in (("test_resnet", 256), ("test_mambaout", 256), ("test_vit", 64)):
        tower = timm_tower(name, side, form="timm")
        rows = int(tower(torch.zeros(1, 3, side, side)).patches.shape[1] ** 0.5)
        image = torch.randn(1, 3, side, side)
        other = image.clone()
        other[..., : side // rows, -side // rows :] += 3.0  # at the top right
        change = (tower(image).patches - tower(other).patches).norm(dim=-1).view(rows, rows)
        half = rows // 2
        quarters = [[part.mean() for part in row.split(half, 1)] for row in change.split(half, 0)]
        assert torch.tensor(quarters).argmax() == 1, name


def test_a_model_is_as_timm_builds_it_where_that_is_asked() -> None:
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64).state_dict()
    torch.manual_seed(0)
    tower = timm_tower("vit_tiny_patch16_224", 64, form="timm")
    ours = tower.backbone.state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert tower.backbone.pos_embed.requires_grad
    assert tower.backbone.norm.eps == 1e-6


def test_the_form_of_the_family_leaves_prefix_tokens_and_other_models_alone() -> None:
    """DeiT III adds positions to the patches alone, before the class token stands there."""
    for name, prefix in (("deit3_small_patch16_224", 0), ("vit_small_patch16_224", 1)):
        tower = timm_tower(name, 64, heads=12)
        assert tower.backbone.blocks[0].attn.num_heads == 12
        expected = sincos_positions(384, (4, 4), prefix)
        assert torch.equal(tower.backbone.pos_embed, expected)
        assert tower.backbone.norm.eps == 1e-5
    torch.manual_seed(0)
    one = timm_tower("test_convnext", 64).state_dict()
    torch.manual_seed(0)
    other = timm_tower("test_convnext", 64, form="timm").state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_last_map_of_one_cell_trains() -> None:
    tower = timm_tower("test_resnet", 32).train()
    seen = tower(torch.randn(2, 3, 32, 32))
    assert seen.patches.shape == (2, 1, 96)
    seen.feature.square().sum().backward()
    weight = next(tower.parameters())
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize(
    ("name", "side", "said"),
    [
        ("no_such_model", 64, "no_such_model.*timm .* has no such model"),
        ("resnet18x", 64, "has no such model$"),
        ("coat_tiny", 64, "coat_tiny.*gives 3 outputs, neither a map nor tokens"),
        ("test_vit", 100, "test_vit.*(divisible|multiple)"),
        ("resnet18", 64, r"image_tower\.heads 3: resnet18 cannot have"),
    ],
)
def test_a_model_that_cannot_be_used_is_named_with_the_reason(
    name: str, side: int, said: str
) -> None:
    heads = 3 if name == "resnet18" else None
    with pytest.raises(ConfigError, match=said):
        timm_tower(name, side, heads=heads)


@pytest.mark.parametrize("name", ["test_efficientnet", "test_mambaout"])
def test_a_convolutional_tower_trains_and_is_exported(
    recipe: Recipe, tmp_path: Path, name: str
) -> None:
    """Frozen, in timm's form; patches are narrower than the feature of the second."""
    values = recipe.model_dump(mode="json")
    values["image_tower"] = {"kind": "timm", "name": name, "form": "timm", "frozen": True}
    made = Recipe.model_validate(values)
    train(made, Console(quiet=True))
    manifest = export(checkpoint.find(made.folder), tmp_path / "bundle")
    assert manifest.parity.worst_error < 1e-4


def test_a_text_reads_the_same_at_any_padding() -> None:
    torch.manual_seed(0)
    tower = TextModel(TextTower(width=32, layers=2, heads=2)).eval()
    short = torch.tensor([[49406, 320, 1929, 49407]])
    long = torch.zeros(1, 77, dtype=torch.int64)
    long[0, :4] = short
    torch.testing.assert_close(tower(short), tower(long), rtol=1e-5, atol=1e-6)
    long[0, 4:] = 49407  # as Hugging Face pads
    torch.testing.assert_close(tower(short), tower(long), rtol=1e-5, atol=1e-6)
    norms = [layer for layer in tower.modules() if isinstance(layer, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-5}


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


def test_normed_features_and_patches_are_those_of_a_layer_norm() -> None:
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    plain, normed = (timm_tower("test_resnet", 64, norm=norm) for norm in (False, True))
    normed.load_state_dict(plain.state_dict())
    for before, after in zip(plain(images), normed(images), strict=True):
        assert not torch.allclose(before.std(-1, correction=0), torch.ones(before.shape[:-1]))
        torch.testing.assert_close(
            after, nn.functional.layer_norm(before, before.shape[-1:]), rtol=0, atol=0
        )
        torch.testing.assert_close(after.mean(-1), torch.zeros(after.shape[:-1]), atol=1e-5, rtol=0)
