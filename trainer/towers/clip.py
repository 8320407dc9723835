"""The tensors of an open_clip model by the names that they have in ours."""

import re
from typing import Any

import open_clip.transformer
import torch
from open_clip.timm_model import TimmModel
from torch import Tensor, nn

_TEXT = "text_tower.transformer."
_IMAGE = "image_tower.backbone."

_AROUND = {
    "conv1": "patch_embed.proj",
    "class_embedding": "cls_token",
    "positional_embedding": "pos_embed",
    "ln_pre": "norm_pre",
    "ln_post": "norm",
}
_OF_A_BLOCK = {
    "ln_1": "norm1",
    "attn.in_proj": "attn.qkv",
    "attn.out_proj": "attn.proj",
    "ls_1": "ls1",
    "ln_2": "norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "ls_2": "ls2",
}


def clip_tensors(model: Any) -> dict[str, Tensor]:
    """Towers and projections by the names of a `DualEncoder` with a tower of timm.

    What has no counterpart there (a text tower of Hugging Face, a ResNet of OpenAI's kind, a
    pooling of its own) keeps a name that no model of ours has.
    """
    return _image_tensors(model.visual) | _text_tensors(text_of(model))


def text_of(model: Any) -> Any:
    """The text tower, which the oldest kind of model keeps at its top."""
    return getattr(model, "text", model)


def _text_tensors(text: Any) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    if not hasattr(text, "token_embedding"):  # Hugging Face's
        return {f"text_tower.{name}": value for name, value in text.state_dict().items()}
    for name, value in text.state_dict().items():
        if name == "text_projection":
            named["text_proj.weight"] = value.T
        elif name.startswith("text_projection."):
            named[name.replace("text_projection.", "text_proj.")] = value
        elif not name.startswith(("visual.", "logit_")):
            named[_TEXT + name] = value
    return named


def _image_tensors(visual: Any) -> dict[str, Tensor]:
    tensors = visual.state_dict()
    if isinstance(visual, open_clip.transformer.VisionTransformer):
        return dict(_transformer_entry(name, value) for name, value in tensors.items())
    if isinstance(visual, TimmModel):
        return {_trunk_name(name, visual.trunk): value for name, value in tensors.items()}
    return {f"image_tower.{name}": value for name, value in tensors.items()}


def _transformer_entry(name: str, value: Tensor) -> tuple[str, Tensor]:
    """A tensor of open_clip's vision transformer as timm has it."""
    if name == "proj":
        return "image_proj.weight", value.T
    if name in {"class_embedding", "positional_embedding"}:
        return _IMAGE + _AROUND[name], value.reshape(1, -1, value.shape[-1])
    if found := re.fullmatch(r"transformer\.resblocks\.(\d+)\.(.+)[._](weight|bias|gamma)", name):
        number, layer, kind = found.groups()
        return f"{_IMAGE}blocks.{number}.{_OF_A_BLOCK.get(layer, layer)}.{kind}", value
    layer, _, kind = name.partition(".")
    return f"{_IMAGE}{_AROUND.get(layer, layer)}.{kind}", value


def _trunk_name(name: str, trunk: Any) -> str:
    """The trunk is a model of timm; its projection stands behind it, or as its classifier."""
    classifier = trunk.pretrained_cfg.get("classifier")
    if name.startswith("head.proj."):
        return name.replace("head.proj.", "image_proj.")
    if isinstance(classifier, str) and name.startswith(f"trunk.{classifier}."):
        return name.replace(f"trunk.{classifier}.", "image_proj.")
    return name.replace("trunk.", _IMAGE) if name.startswith("trunk.") else f"image_tower.{name}"


def clip_traits(model: Any) -> dict[str, object]:
    """What decides how the tensors are used and cannot be read off their shapes."""
    traits: dict[str, object] = {}
    text = text_of(model)
    if hasattr(text, "token_embedding"):
        first = text.transformer.resblocks[0]
        traits |= {
            "text_tower: attention heads": first.attn.num_heads,
            "text_tower: activation": activation_of(first.mlp.gelu),
            "text_tower: eps of the norms": text.ln_final.eps,
            "text_tower: attention is causal": text.attn_mask is not None,
            "text_tower: state is read at": getattr(
                text, "text_pool_type", getattr(text, "pool_type", None)
            ),
        }
    visual = model.visual
    if isinstance(visual, TimmModel):
        return traits | backbone_traits(visual.trunk)
    if isinstance(visual, open_clip.transformer.VisionTransformer):
        first = visual.transformer.resblocks[0]
        pooled = {"tok": "token", "avg": "avg"}.get(visual.pool_type, visual.pool_type)
        traits |= {
            "image_tower: attention heads": first.attn.num_heads,
            "image_tower: activation": activation_of(first.mlp.gelu),
            "image_tower: eps of the norms": visual.ln_post.eps,
            "image_tower: pooling": pooled if visual.attn_pool is None else "attention",
            "image_tower: positions": "learned",
        }
    return traits


def text_traits(transformer: Any) -> dict[str, object]:
    """The same of our text tower."""
    first = transformer.transformer.resblocks[0]
    return {
        "text_tower: attention heads": first.attn.num_heads,
        "text_tower: activation": activation_of(first.mlp.gelu),
        "text_tower: eps of the norms": transformer.ln_final.eps,
        "text_tower: attention is causal": True,
        "text_tower: state is read at": "argmax",
    }


def backbone_traits(backbone: Any) -> dict[str, object]:
    """The same of a model of timm; of one that has no blocks, less."""
    traits: dict[str, object] = {}
    pool = getattr(backbone, "global_pool", None)
    if isinstance(pool, str):
        traits["image_tower: pooling"] = pool
    if getattr(backbone, "pos_embed", None) is not None:
        traits["image_tower: positions"] = "learned"
    norm = getattr(backbone, "norm", None)
    if isinstance(norm, nn.LayerNorm):
        traits["image_tower: eps of the norms"] = norm.eps
    blocks = getattr(backbone, "blocks", None)
    first = blocks[0] if isinstance(blocks, nn.Sequential | nn.ModuleList) and len(blocks) else None
    if (attention := getattr(first, "attn", None)) is not None and hasattr(attention, "num_heads"):
        traits["image_tower: attention heads"] = attention.num_heads
    if isinstance(activation := getattr(getattr(first, "mlp", None), "act", None), nn.Module):
        traits["image_tower: activation"] = activation_of(activation)
    return traits


@torch.no_grad()
def activation_of(layer: nn.Module) -> str:
    """What it computes: gelu or quick_gelu; else the name of its class."""
    x = torch.linspace(-4, 4, 65)
    y = layer(x.clone())
    curves = {"gelu": nn.functional.gelu(x), "quick_gelu": x * torch.sigmoid(1.702 * x)}
    near = [name for name, curve in curves.items() if torch.allclose(y, curve, atol=1e-5)]
    return near[0] if near else type(layer).__name__
