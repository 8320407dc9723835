"""What run.init takes: whole towers, and as much as fits of others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from core.errors import CheckpointError, ConfigError
from trainer import checkpoint
from trainer.clip_model import load_clip
from trainer.config import Recipe
from trainer.distributed import World
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.saver import copied
from trainer.start.begin import begin
from trainer.step import Training

Begin = Callable[..., tuple[Any, str]]

VIT = {"image_size": 32, "layers": 12, "width": 192, "head_width": 64, "patch_size": 16}
PLAIN = {"no_ln_pre": True, "norm_kwargs": {"eps": 1e-6}}  # as timm has its ViTs
TEXT = {"context_length": 20, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "hyper3-clip": {
        "embed_dim": 24, "vision_cfg": VIT | {"layers": 10, "width": 256}, "text_cfg": TEXT,
    },
    "hyper3-quickgelu": {
        "embed_dim": 24, "quick_gelu": True, "text_cfg": TEXT,
        "vision_cfg": VIT | PLAIN | {"image_size": 64},
    },
    "hyper3-vit": {"embed_dim": 24, "vision_cfg": VIT | PLAIN, "text_cfg": TEXT},
    "hyper3-trunk": {
        "embed_dim": 24, "custom_text": True, "text_cfg": TEXT | {"proj_bias": True},
        "vision_cfg": {
            "timm_model_name": "test_convnext", "timm_model_pretrained": False,
            "timm_pool": "", "timm_proj": "linear", "image_size": 64,
        },
    },
    "hyper3-siglip": {
        "embed_dim": 24, "custom_text": True,
        "text_cfg": TEXT | {"no_causal_mask": True, "pool_type": "last"},
        "vision_cfg": {
            "timm_model_name": "test_convnext", "timm_model_pretrained": False,
            "timm_pool": "avg", "timm_proj": "", "image_size": 64,
        },
    },
    "hyper3-resnet": {
        "embed_dim": 24, "text_cfg": TEXT | {"width": 64},
        "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8},
    },
}  # fmt: skip
CLIP_VIT = {"kind": "timm", "name": "vit_xsmall_patch16_clip_224"}  # has a norm before its blocks
VIT_TINY = {"kind": "timm", "name": "vit_tiny_patch16_224", "form": "timm"}
CONVNEXT = {"kind": "timm", "name": "test_convnext"}
TOKENS = torch.tensor([[49406, 320, 1929, 49407, 0, 0], [49406, 518, 2866, 267, 320, 49407]])


@pytest.fixture(scope="module", autouse=True)
def models(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)


@pytest.fixture
def start(recipe: Recipe) -> Begin:
    """A fresh model of the recipe, begun, and what was told."""

    def build(init: object = None, **sections: dict[str, Any]) -> tuple[Any, str]:
        values = recipe.model_dump(mode="json")
        values["text_tower"] |= {"layers": 2, "context_length": 20}
        values["model"] |= {"dim": 24}
        for section, changes in sections.items():
            values[section] = changes if "kind" in changes else values[section] | changes
        values["run"]["init"] = None if init is None else str(init)
        made = Recipe.model_validate(values)
        torch.manual_seed(0)
        model = DualEncoder(made)
        optimizer = build_optimizer(model, made.optim)
        training = Training(made, model, model, optimizer, World())
        begun = begin(training, None)
        return model.eval(), "\n".join(begun.told)

    return build


@torch.no_grad()
def features(model: DualEncoder, images: Tensor) -> tuple[Tensor, Tensor]:
    """What both projections give, before the scales of a curved space."""
    seen = model.image_tower(images).feature
    return model.image_proj(seen), model.text_proj(model.text_tower(TOKENS))


@torch.no_grad()
def theirs(name: str, images: Tensor) -> tuple[Tensor, Tensor]:
    model = load_clip(name, "random").eval()
    padded = torch.zeros(2, 20, dtype=torch.int64)
    padded[:, :6] = TOKENS
    return model.encode_image(images), model.encode_text(padded)


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "image_tower", "side"),
    [
        ("hyper3-clip", CLIP_VIT | {"form": "timm"}, 32),
        ("hyper3-vit", VIT_TINY, 32),
        ("hyper3-trunk", CONVNEXT, 64),
    ],
)
def test_a_model_of_open_clip_gives_the_same_features_here(
    start: Begin, name: str, image_tower: dict[str, Any], side: int
) -> None:
    images = torch.randn(3, 3, side, side)
    bias = name == "hyper3-trunk"
    model, said = start(
        f"open_clip:{name}:random", image_tower=image_tower, data={"side": side},
        model={"projection_bias": bias},
    )  # fmt: skip
    assert_same(features(model, images), theirs(name, images))
    state = model.state_dict()
    for part in ("image_tower", "image_proj", "text_tower", "text_proj"):
        count = sum(key.startswith(f"{part}.") for key in state)
        assert f"{part} {count} of {count}" in said
    assert "left over" not in said
    assert "of another shape" not in said


def test_weights_from_a_file_are_taken_and_no_code_is_run(start: Begin, tmp_path: Path) -> None:
    weights = load_clip("hyper3-trunk", "random").state_dict()
    weights["text.token_embedding.weight"] += 1
    save_file(
        {key: value.contiguous() for key, value in weights.items()}, tmp_path / "w.safetensors"
    )
    target = f"open_clip:hyper3-trunk:{tmp_path / 'w.safetensors'}"
    model, _ = start(target, image_tower=CONVNEXT, data={"side": 64})
    taken = model.text_tower.transformer.token_embedding.weight
    assert torch.equal(taken, weights["text.token_embedding.weight"])
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match=r"bad\.pt"):
        start(f"open_clip:hyper3-trunk:{tmp_path / 'bad.pt'}", image_tower=CONVNEXT)
    with pytest.raises(ConfigError, match="open_clip has no model 'none'"):
        start("open_clip:none:random")


def test_a_bias_that_the_other_model_lacks_is_zero(start: Begin) -> None:
    model, said = start(
        "open_clip:hyper3-vit:random", image_tower=VIT_TINY, model={"projection_bias": True}
    )
    assert "image_tower.backbone.patch_embed.proj.bias is 0" in said
    assert not model.image_tower.backbone.patch_embed.proj.bias.any()
    assert not model.image_proj.bias.any()
    assert not model.text_proj.bias.any()


def test_a_smaller_text_tower_takes_the_first_layers_and_positions(start: Begin) -> None:
    model, said = start(
        "open_clip:hyper3-vit:random", image_tower=VIT_TINY,
        text_tower={"layers": 1, "context_length": 8},
    )  # fmt: skip
    clip = load_clip("hyper3-vit", "random")
    text = model.text_tower.transformer
    assert torch.equal(text.positional_embedding, clip.positional_embedding[:8])
    one, other = (tower.transformer.resblocks[0].mlp.c_fc.weight for tower in (text, clip))
    assert torch.equal(one, other)
    assert "8 of 8 positions, from 20" in said
    assert "left over: resblocks 12" in said


def test_a_larger_text_tower_keeps_what_the_other_lacks(start: Begin) -> None:
    sizes = {"layers": 3, "context_length": 30, "frozen": True}
    fresh, _ = start(image_tower=VIT_TINY, text_tower=sizes)
    model, said = start("open_clip:hyper3-vit:random", image_tower=VIT_TINY, text_tower=sizes)
    ours, before = model.text_tower.transformer, fresh.text_tower.transformer
    clip = load_clip("hyper3-vit", "random")
    assert torch.equal(ours.positional_embedding[:20], clip.positional_embedding)
    assert torch.equal(ours.positional_embedding[20:], before.positional_embedding[20:])
    assert "20 of 30 positions, from 20" in said
    assert "not there: resblocks 12" in said
    assert "text_tower.frozen: its random weights stay" in said


def test_learned_positions_are_resampled_and_fixed_ones_stay(start: Begin) -> None:
    target = "open_clip:hyper3-vit:random"
    model, said = start(target, image_tower=VIT_TINY, data={"side": 64})
    assert "positions resampled from 5 to 17" in said
    clip = load_clip("hyper3-vit", "random")
    assert torch.equal(
        model.image_tower.backbone.pos_embed[0, 0], clip.visual.positional_embedding[0]
    )
    fresh, _ = start(image_tower=VIT_TINY | {"form": "meru"}, data={"side": 64})
    fixed, said = start(target, image_tower=VIT_TINY | {"form": "meru"}, data={"side": 64})
    assert torch.equal(fixed.image_tower.backbone.pos_embed, fresh.image_tower.backbone.pos_embed)
    assert "image_tower: positions: learned where it was trained, fixed here" in said
    assert "image_tower: eps of the norms: 1e-06 where it was trained, 1e-05 here" in said
    assert "image_tower 149 of 149" in said


def test_what_shapes_do_not_show_is_warned_of(start: Begin) -> None:
    _, said = start(
        "open_clip:hyper3-quickgelu:random", image_tower=VIT_TINY, text_tower={"heads": 4}
    )
    assert "text_tower: activation: quick_gelu where it was trained, gelu here" in said
    assert "image_tower: activation: quick_gelu where it was trained, gelu here" in said
    assert "text_tower: attention heads: 2 where it was trained, 4 here" in said
    assert "data.side: 64 where it was trained, 32 here" in said
    assert "data.mean: (0.48145466, 0.4578275, 0.40821073) where it was trained, (0.485" in said
    _, said = start("open_clip:hyper3-siglip:random", image_tower=CONVNEXT, data={"side": 64})
    assert "text_tower: attention is causal: False where it was trained, True here" in said
    assert "text_tower: state is read at: last where it was trained, argmax here" in said
    assert "image_proj 1 of 1" in said  # the trunk's own classifier


def test_one_tower_alone_is_taken_with_a_warning_and_none_is_an_error(start: Begin) -> None:
    _, said = start("open_clip:hyper3-trunk:random")
    assert "image_tower 0 of 12" in said
    assert "nothing of image_tower was taken: its weights are random" in said
    with pytest.raises(
        CheckpointError, match=r"nothing of image_tower and text_tower fits .*shape"
    ):
        start("open_clip:hyper3-resnet:random")


def test_a_run_of_ours_gives_what_fits_with_its_projections(start: Begin, recipe: Recipe) -> None:
    torch.manual_seed(5)
    other = DualEncoder(recipe)
    path = saved(recipe, other)
    model, said = start(path, image_tower={"kind": "conv", "widths": [8, 24]}, model={"dim": 16})
    assert "image_tower 7 of 12" in said
    assert "of another shape: layers 5" in said
    assert torch.equal(model.text_proj.weight, other.text_proj.weight)
    assert "not there: resblocks 12" in said
    assert not torch.equal(model.log_curv, torch.tensor(9.0))


def test_another_system_of_ours_with_other_heads_is_warned_of(start: Begin, recipe: Recipe) -> None:
    values = recipe.model_dump(mode="json") | {"objective": {"kind": "clip"}}
    values["text_tower"] |= {"heads": 4, "activation": "quick_gelu"}
    values["data"] |= {"mean": [0.5, 0.5, 0.5], "fit": "retrieval"}
    clip = Recipe.model_validate(values)
    path = saved(clip, DualEncoder(clip))
    _, said = start(path, text_tower={"layers": 1, "context_length": 77}, model={"dim": 16})
    assert "text_tower.heads: 4 where it was trained, 2 here" in said
    assert "text_tower.activation: quick_gelu where it was trained, gelu here" in said
    assert "data.mean: (0.5, 0.5, 0.5) where it was trained" in said
    assert "data.fit: retrieval where it was trained, letterbox here" in said
    assert "not there" not in said


def saved(recipe: Recipe, model: DualEncoder) -> Path:
    tensors = copied(checkpoint.tensors_of(model, build_optimizer(model, recipe.optim)))
    return checkpoint.write(recipe.folder, checkpoint.Position(1, 1), recipe, tensors, {})
