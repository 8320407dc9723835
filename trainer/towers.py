"""Image and text encoders: pixels and tokens -> features."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import open_clip.transformer
import timm
import torch
from torch import Tensor, nn

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
    """3x3 convolutions of stride 2 with batch norm; average and maximum of the last map.

    Parts come at another scale than wholes, and so with other statistics: each batch norm keeps
    running statistics of both, over shared weights.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        self.norms = nn.ModuleList()
        self.part_norms = nn.ModuleList()
        before = 3
        for width in widths:
            self.convolutions.append(nn.Conv2d(before, width, 3, 2, 1, bias=False))
            norm, part_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            part_norm.weight, part_norm.bias = norm.weight, norm.bias
            self.norms.append(norm)
            self.part_norms.append(part_norm)
            before = width
        self.width, self.patch_width = 2 * before, before

    def forward(self, images: Tensor, *, parts: bool = False) -> Seen:
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = images
        for convolution, norm in zip(
            self.convolutions, self.part_norms if parts else self.norms, strict=True
        ):
            x = torch.relu_(norm(convolution(x)))
        return Seen(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1), x.flatten(2).mT)


class TimmTower(nn.Module):
    """An image model of timm: class token, or mean of the map where it has none.

    Vision transformers get the family's form: fixed 2-D sin-cos positions, layer norms with
    eps 1e-5 (spec 1.7).
    """

    def __init__(self, section: TimmSection, side: int) -> None:
        super().__init__()
        try:
            vit = "vit" in section.name and hasattr(
                timm.models.vision_transformer, section.name.partition(".")[0]
            )
            extra = {"norm_layer": nn.LayerNorm, "img_size": side} if vit else {}
            if section.heads is not None:
                extra["num_heads"] = section.heads
            self.backbone = timm.create_model(section.name, num_classes=0, **extra)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"image_tower.name {section.name!r}: {error}") from error
        self.width = self.patch_width = int(self.backbone.num_features)
        if vit:
            grid = self.backbone.patch_embed.grid_size
            positions = sincos_positions(self.width, grid, self.backbone.num_prefix_tokens)
            self.backbone.pos_embed = nn.Parameter(positions, requires_grad=False)

    def forward(self, images: Tensor, *, parts: bool = False) -> Seen:  # noqa: ARG002 - one scale
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = self.backbone.forward_features(images)
        if x.ndim == 4:
            return Seen(x.mean((2, 3)), x.flatten(2).mT)
        prefix = self.backbone.num_prefix_tokens
        feature = x[:, 0] if prefix else x.mean(1)
        return Seen(feature, x[:, prefix:])


class TextTower(nn.Module):
    """open_clip's CLIP transformer with MERU's initialisation, at the length of its input."""

    def __init__(self, section: TextSection) -> None:
        super().__init__()
        self.transformer = open_clip.transformer.TextTransformer(
            context_length=section.context_length,
            vocab_size=VOCABULARY,
            width=section.width,
            heads=section.heads,
            layers=section.layers,
            output_dim=None,
        )
        self.width = section.width
        self.context_length = section.context_length

    def forward(self, tokens: Tensor) -> Tensor:
        """States at the end token, ``(n, width)``, of ``(n, length)`` ids.

        Attention is causal, so that what follows the end token changes nothing: any padding
        gives the same state.
        """
        length = tokens.shape[1]
        t = self.transformer
        x = t.token_embedding(tokens) + t.positional_embedding[:length]
        x = t.transformer(x, attn_mask=t.attn_mask[:length, :length])
        end = tokens.argmax(-1)  # the end token has the largest id
        return t.ln_final(x[torch.arange(x.shape[0], device=x.device), end])  # type: ignore[no-any-return]


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
