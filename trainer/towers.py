"""Image and text encoders: pixels and tokens -> features."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import open_clip.transformer
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional

from core.errors import ConfigError
from trainer.config import ConvTower as ConvSection
from trainer.config import TextTower as TextSection
from trainer.config import TimmTower as TimmSection

VOCABULARY = 49_408
"""Entries of the CLIP vocabulary."""


class Seen(NamedTuple):
    """What an image tower gives."""

    feature: Tensor  # (n, width): the whole image
    patches: Tensor  # (n, patches, patch_width): for the query pooling


class ConvTower(nn.Module):
    """A 7x7 convolution of stride 4, then 3x3 ones of stride 2, each with batch norm and ReLU.

    The feature is the average and the maximum of the last map; its cells are the patches.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number, (before, width) in enumerate(pairwise([3, *widths])):
            kernel, stride = (7, 4) if number == 0 else (3, 2)
            layers += [
                nn.Conv2d(before, width, kernel, stride, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers)
        self.patch_width = widths[-1]
        self.width = 2 * self.patch_width

    def forward(self, images: Tensor) -> Seen:
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = self.layers(images)
        return Seen(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1), x.flatten(2).mT)


class TimmTower(nn.Module):
    """An image model of timm: class token, or mean of the map where it has none.

    Vision transformers get the family's form: fixed 2-D sin-cos positions, layer norms with
    eps 1e-5.
    """

    def __init__(self, section: TimmSection, side: int) -> None:
        super().__init__()
        name = section.name
        extra: dict[str, Any] = {} if section.heads is None else {"num_heads": section.heads}
        if not timm.is_model(name):
            raise ConfigError(
                f"image_tower.name {name!r}: timm {timm.__version__} has no such model"
            )
        try:
            if timm.model_entrypoint(name).__module__ == VisionTransformer.__module__:
                extra |= {"norm_layer": nn.LayerNorm, "img_size": side}
            backbone: Any = timm.create_model(name, num_classes=0, **extra)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"image_tower.name {name!r}: {error}") from error
        self.backbone = backbone
        self.width = self.patch_width = int(backbone.num_features)
        if isinstance(backbone, VisionTransformer):
            positions = sincos_positions(
                self.width, backbone.patch_embed.grid_size, backbone.num_prefix_tokens
            )
            backbone.pos_embed = nn.Parameter(positions, requires_grad=False)

    def forward(self, images: Tensor) -> Seen:
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = self.backbone.forward_features(images)
        if x.ndim == 4:
            return Seen(x.mean((2, 3)), x.flatten(2).mT)
        prefix = self.backbone.num_prefix_tokens
        has_class = prefix and getattr(self.backbone, "has_class_token", True)
        feature = x[:, 0] if has_class else x[:, prefix:].mean(1)
        return Seen(feature, x[:, prefix:])


class TextTower(nn.Module):
    """open_clip's CLIP transformer, run over texts of mixed lengths.

    Its weights start as MERU's or as those of Hugging Face's CLIPTextModel. Its activation is
    the exact GELU of the former or the quick one of the latter, x * sigmoid(1.702 x).

    All layers but the attention work on single tokens, so the tokens of all texts stand in one
    row of the batch and padding is never computed with; attention runs once per length.
    """

    def __init__(self, section: TextSection) -> None:
        super().__init__()
        self.transformer = open_clip.transformer.TextTransformer(
            context_length=section.context_length,
            vocab_size=VOCABULARY,
            width=section.width,
            heads=section.heads,
            layers=section.layers,
            output_dim=None,
            act_layer=_ACTIVATIONS[section.activation],
        )
        if section.init == "hf":
            _start_as_hugging_face(self.transformer)
        self.width = section.width
        self.context_length = section.context_length

    def forward(self, *groups: Tensor) -> Tensor:
        """States at the end token, ``(texts, width)``, of groups of ``(texts, length)`` ids.

        Attention is causal, so that what follows the end token changes nothing: any padding
        gives the same state.
        """
        tower = self.transformer
        positions = tower.positional_embedding
        x = tower.token_embedding(torch.cat([group.flatten() for group in groups]))
        x = x + torch.cat(
            [positions[: group.shape[1]].repeat(group.shape[0], 1) for group in groups]
        )
        shapes = [(group.shape[0], group.shape[1]) for group in groups]
        for block in tower.transformer.resblocks:
            x = x + _causal_attention(block.attn, block.ln_1(x), shapes)
            x = x + block.mlp(block.ln_2(x))
        sizes = [texts * length for texts, length in shapes]
        ends = [
            part.unflatten(0, shape)[
                torch.arange(shape[0], device=x.device), group.argmax(-1)  # the largest id
            ]
            for part, shape, group in zip(x.split(sizes), shapes, groups, strict=True)
        ]
        state: Tensor = tower.ln_final(torch.cat(ends))
        return state


_ACTIVATIONS = {"gelu": nn.GELU, "quick_gelu": open_clip.transformer.QuickGELU}


def _start_as_hugging_face(tower: open_clip.transformer.TextTransformer) -> None:
    """Redraw what CLIPTextModel draws otherwise than MERU.

    The attention's two deviations change places, positions are as wide as tokens, and no bias
    is drawn.
    """
    width, layers = tower.width, tower.transformer.layers
    nn.init.normal_(tower.positional_embedding, std=0.02)
    for block in tower.transformer.resblocks:
        nn.init.normal_(block.attn.in_proj_weight, std=(2 * layers * width) ** -0.5)
        nn.init.normal_(block.attn.out_proj.weight, std=width**-0.5)
        nn.init.zeros_(block.mlp.c_fc.bias)
        nn.init.zeros_(block.mlp.c_proj.bias)


def _causal_attention(
    attention: nn.MultiheadAttention, x: Tensor, shapes: Sequence[tuple[int, int]]
) -> Tensor:
    """What the attention gives for the tokens of all groups, ``(tokens, width)``."""
    heads = attention.num_heads
    mapped = functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    attended = []
    for part, shape in zip(
        mapped.split([texts * length for texts, length in shapes]), shapes, strict=True
    ):
        query, key, value = part.view(*shape, 3, heads, -1).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended.append(out.transpose(1, 2).flatten(2).flatten(0, 1))
    projected: Tensor = attention.out_proj(torch.cat(attended))
    return projected


def build_image_tower(section: ConvSection | TimmSection, side: int) -> ConvTower | TimmTower:
    """The image tower of a recipe, with random weights.

    Raises:
        ConfigError: timm knows no such model.
    """
    if isinstance(section, ConvSection):
        return ConvTower(section.widths)
    return TimmTower(section, side)


def sincos_positions(width: int, grid: tuple[int, int], prefix: int) -> Tensor:
    """Fixed positions ``(1, prefix + rows * columns, width)``; prefix tokens stand at zero.

    The first half of the channels encodes the row, the second the column, each as sines then
    cosines of frequencies ``10000^(-4k/width)`` (He et al., MAE, arXiv:2111.06377).
    """
    frequency = 10_000.0 ** -(np.arange(width // 4) / (width // 4))
    halves = [
        np.concatenate([np.sin(angle), np.cos(angle)], -1)
        for angle in (
            axis.reshape(-1, 1) * frequency
            for axis in np.meshgrid(np.arange(grid[0]), np.arange(grid[1]), indexing="ij")
        )
    ]
    table = np.concatenate([np.zeros((prefix, width)), np.concatenate(halves, -1)])
    return torch.from_numpy(table[None].astype(np.float32))
