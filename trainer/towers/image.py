"""The image encoders: pixels -> a feature of the whole and one of each patch."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional

from core.errors import ConfigError
from trainer.data.batch import Seen
from trainer.sections import ConvTower as ConvSection
from trainer.sections import TimmTower as TimmSection

# Where timm keeps models that are its VisionTransformer, or DeiT's two tokens in one.
_VISION_TRANSFORMERS = ("timm.models.vision_transformer", "timm.models.deit")

# What models of timm raise for a side, or a number of heads, that they cannot have.
_REFUSALS = (RuntimeError, TypeError, ValueError, AssertionError, AttributeError, IndexError)


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
        self.blocks: list[nn.Module] = []  # none that is worth a share of its own

    def recompute(self) -> None:
        """Always refuse: what is kept on the way is little beside a transformer's.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "speed.checkpointing: a tower of image_tower.kind 'conv' keeps what its layers give; "
            "set speed.checkpointing=false, or choose a model of timm"
        )

    def compile_layers(self) -> None:
        """Compile the whole."""
        _compile(self)

    def forward(self, images: Tensor) -> Seen:
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = self.layers(images)
        return Seen(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1), x.flatten(2).mT)


class TimmTower(nn.Module):
    """An image model of timm, of any kind whose last layer gives a map or tokens.

    The feature is what timm's own classifier would read: the class token or a mean, with the
    norms and convolutions of the head. The patches are the cells of the last map, or the tokens
    after class and register tokens; they may be of another width.

    In the form "meru", vision transformers get the family's fixed 2-D sin-cos positions and layer
    norms with eps 1e-5; all other models are as timm builds them. A projection draws its weights
    for features as a layer norm leaves them: those of a network without one at its end may be
    several times smaller, and its points then begin, and stay, nearer to the origin than the
    texts that should lie before them. ``norm`` normalises features and patches, without weights.

    Raises:
        ConfigError: timm knows no such model, or it does not take pictures of that side, or gives
            neither a map nor tokens.
    """

    def __init__(self, section: TimmSection, side: int) -> None:
        super().__init__()
        self.norm, self._name = section.norm, section.name
        self.backbone: Any = _build(section, side)
        if section.form == "meru" and isinstance(self.backbone, VisionTransformer):
            _fix_positions(self.backbone)
        self.prefix = int(getattr(self.backbone, "num_prefix_tokens", 0))
        self.channels_last = getattr(self.backbone, "output_fmt", None) == "NHWC"
        seen = self._dry_run(section.name, side)
        self.width, self.patch_width = seen.feature.shape[-1], seen.patches.shape[-1]

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers of a transformer, the first one first; none of other models."""
        layers = getattr(self.backbone, "blocks", None)
        if not isinstance(layers, nn.Sequential | nn.ModuleList):
            return []
        stages = any(isinstance(layer, nn.Sequential) for layer in layers)
        return [] if stages else list(layers)

    def recompute(self) -> None:
        """From now on keep what goes into each layer, and run it again on the way back.

        Raises:
            ConfigError: timm cannot do that for this model.
        """
        try:
            self.backbone.set_grad_checkpointing()
        except (*_REFUSALS, NotImplementedError) as error:
            raise ConfigError(
                f"speed.checkpointing: timm's {self._name} keeps what its layers give "
                f"({_short(error)}); set speed.checkpointing=false, or choose another "
                "image_tower.name"
            ) from error

    def compile_layers(self) -> None:
        """Compile each layer of a transformer, or the whole of another model."""
        for layer in self.blocks or [self]:
            _compile(layer)

    def forward(self, images: Tensor) -> Seen:
        """Features of ``(n, 3, side, side)`` normalised pixels."""
        x = self.backbone.forward_features(images)
        seen = Seen(self.backbone.forward_head(x, pre_logits=True), self._patches(x))
        return Seen(*map(_normed, seen)) if self.norm else seen

    def _patches(self, x: Tensor) -> Tensor:
        if x.ndim == 3:
            return x[:, self.prefix :]
        return x.flatten(1, 2) if self.channels_last else x.flatten(2).mT

    @torch.no_grad()
    def _dry_run(self, name: str, side: int) -> Seen:
        """What the model gives for one grey picture; draws no random number."""
        self.backbone.eval()
        try:
            x = self.backbone.forward_features(torch.zeros(1, 3, side, side))
            if not isinstance(x, Tensor) or x.ndim not in {3, 4}:
                raise ConfigError(
                    f"image_tower.name {name!r}: its last layer gives {_described(x)}, neither "
                    "a map nor tokens, so that it has no patches; choose another model"
                )
            seen = Seen(self.backbone.forward_head(x, pre_logits=True), self._patches(x))
        except _REFUSALS as error:
            raise ConfigError(
                f"image_tower.name {name!r} cannot read pictures of {side} x {side} pixels "
                f"(data.side): {_short(error)}"
            ) from error
        finally:
            self.backbone.train()
        cells = seen.patches.shape[1]
        if seen.feature.ndim != 2 or seen.patches.ndim != 3 or cells == 0:
            raise ConfigError(
                f"image_tower.name {name!r}: gives a feature of {tuple(seen.feature.shape)} and "
                f"{cells} patches for a picture of data.side {side}; choose another model or side"
            )
        return seen


def _compile(layer: Any) -> None:
    """In place, so that names of weights stay, and within what hooks of a layer do around it."""
    layer.forward = torch.compile(layer.forward)


def _normed(rows: Tensor) -> Tensor:
    return functional.layer_norm(rows, rows.shape[-1:])


def _build(section: TimmSection, side: int) -> Any:
    """The model without its classifier, made for the side where its positions depend on it."""
    name = section.name
    if not timm.is_model(name):
        near = timm.list_models(f"*{name}*")[:5]
        raise ConfigError(
            f"image_tower.name {name!r}: timm {timm.__version__} has no such model"
            + (f"; near it: {', '.join(near)}" if near else "")
        )
    options: dict[str, Any] = {} if section.heads is None else {"num_heads": section.heads}
    if section.patch_dropout > 0:
        options["patch_drop_rate"] = section.patch_dropout
    of_the_family = timm.model_entrypoint(name).__module__ in _VISION_TRANSFORMERS
    if section.form == "meru" and of_the_family:
        options["norm_layer"] = nn.LayerNorm
    try:
        try:
            return timm.create_model(name, num_classes=0, img_size=side, **options)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            return timm.create_model(name, num_classes=0, **options)
    except _REFUSALS as error:
        if "patch_drop_rate" in str(error):
            raise ConfigError(
                f"image_tower.patch_dropout {section.patch_dropout}: {name} of timm has no patches "
                "to leave out; set it to 0, or choose a vision transformer"
            ) from error
        if section.heads is not None and _is_built(name):
            raise ConfigError(
                f"image_tower.heads {section.heads}: {name} cannot have as many "
                f"({_short(error)}); leave it out for timm's own number"
            ) from error
        raise ConfigError(f"image_tower.name {name!r}: {_short(error)}") from error


def _is_built(name: str) -> bool:
    """Whether timm's own form of a model can be made."""
    try:
        timm.create_model(name, num_classes=0)
    except _REFUSALS:
        return False
    return True


def _fix_positions(backbone: Any) -> None:
    """Give a vision transformer that adds positions the family's, which do not train."""
    if backbone.pos_embed is None:
        return
    grid = backbone.patch_embed.grid_size
    prefix = backbone.pos_embed.shape[1] - grid[0] * grid[1]
    device = backbone.pos_embed.device
    positions = sincos_positions(backbone.embed_dim, grid, prefix).to(device)
    backbone.pos_embed = nn.Parameter(positions, requires_grad=False)


def _described(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"a tensor of {tuple(x.shape)}"
    return f"{len(x)} outputs" if isinstance(x, tuple | list) else f"a {type(x).__name__}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def build_image_tower(section: ConvSection | TimmSection, side: int) -> ConvTower | TimmTower:
    """The image tower of a recipe, with random weights.

    Raises:
        ConfigError: timm knows no such model, or it cannot be used at this side.
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
