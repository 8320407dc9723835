"""What a run takes from another model (``run.init``): towers and projections, as far as they fit.

Equal names and shapes are taken. A text tower with fewer layers takes the first ones, one with a
shorter context the first positions; learned positions of an image are resampled to another grid;
fixed ones stay. A bias that the other model lacks is 0.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from rich.markup import escape
from torch import Tensor

from core.errors import CheckpointError
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.clip_model import image_spec, load_clip, split_target
from trainer.config import Recipe
from trainer.model import DualEncoder
from trainer.sections import ConvTower
from trainer.towers import TimmTower
from trainer.towers.clip import backbone_traits, clip_tensors, clip_traits, text_traits
from trainer.towers.weights import resample_positions

_TEXT_POSITIONS = "text_tower.transformer.positional_embedding"
_IMAGE_POSITIONS = "image_tower.backbone.pos_embed"


@dataclass(frozen=True)
class Source:
    """A model that is taken from."""

    name: str
    tensors: dict[str, Tensor]  # by the names of ours
    traits: dict[str, object]  # what decides how they are used, beside their shapes


@dataclass(frozen=True)
class Taken:
    """What a tower or a projection got."""

    part: str
    taken: int  # tensors
    total: int
    is_whole: bool  # nothing of it is random
    notes: tuple[str, ...]  # what was done, and what was not taken


def from_checkpoint(found: Checkpoint) -> Source:
    """A run of ours, of any system."""
    return Source(str(found.path), checkpoint.read_model(found), _recipe_traits(found.recipe))


def from_open_clip(target: str) -> Source:
    """``open_clip:NAME:WEIGHTS``, with weights that are a file, a tag or ``random``.

    Raises:
        ConfigError: There is no such model or tag.
        CheckpointError: A file holds others, or more than tensors.
    """
    name, weights = split_target(target)
    model = load_clip(name, weights)
    spec = image_spec(name, model)
    seen = {"data.side": spec.side, "data.mean": spec.mean, "data.std": spec.std}
    return Source(target, clip_tensors(model), clip_traits(model) | seen)


def take(source: Source, model: DualEncoder, recipe: Recipe, parts: Iterable[str]) -> list[Taken]:
    """Copy what fits into towers and projections, and return what each got.

    Args:
        source: The other model.
        model: Ours; the rest of it stays.
        recipe: Of ours.
        parts: Names of ours, such as ``image_tower`` and ``text_proj``.

    Raises:
        CheckpointError: Nothing of a tower fits, and the other one is not whole either.
    """
    got = [_take_part(part, source, model, recipe) for part in parts]
    towers = [one for one in got if one.part.endswith("_tower")]
    empty = [one for one in towers if one.taken == 0]
    if empty and not any(one.is_whole for one in towers):
        raise CheckpointError(
            f"run.init {source.name}: nothing of {' and '.join(one.part for one in empty)} fits "
            f"({'; '.join(note for one in empty for note in one.notes)}); give a model with the "
            "image_tower.name or text_tower.width of this recipe, or leave run.init out"
        )
    return got


def tell(source: Source, got: list[Taken], model: DualEncoder, recipe: Recipe) -> list[str]:
    """What a person should know of it, compactly."""
    counts = ", ".join(f"{one.part} {one.taken} of {one.total}" for one in got)
    told = [f"run.init {escape(source.name)}: tensors taken: {counts}"]
    told += [f"{one.part}: {'; '.join(one.notes)}" for one in got if one.notes]
    told += [
        f"[yellow]nothing of {one.part} was taken: its weights are random[/]"
        for one in got
        if one.taken == 0 and one.part.endswith("_tower")
    ]
    used = {one.part: one.taken for one in got}
    ours = _traits(model, recipe)
    for trait, theirs in source.traits.items():
        tower = "text_tower" if trait.startswith("text_tower") else "image_tower"
        if used.get(tower) and trait in ours and theirs != ours[trait]:
            told.append(f"[yellow]{trait}: {theirs} where it was trained, {ours[trait]} here[/]")
    return told


def _take_part(part: str, source: Source, model: DualEncoder, recipe: Recipe) -> Taken:
    own = {
        name: value
        for name, value in model.state_dict().items()
        if name.startswith(f"{part}.") and not _is_fixed(name, recipe)
    }
    notes: list[str] = []
    absent: list[str] = []
    other: list[str] = []
    is_whole = True
    for name, target in own.items():
        value, said = _fitting(name, target, source, model)
        if value is None:
            (other if name in source.tensors else absent).append(name)
            continue
        with torch.no_grad():
            (target[: len(value)] if value.ndim else target).copy_(value)
        is_whole &= value.shape == target.shape
        notes += said
    left = [
        name
        for name in source.tensors
        if name.startswith(f"{part}.") and name not in own and not _is_fixed(name, recipe)
    ]
    groups = {"not there": absent, "of another shape": other, "left over": left}
    notes += [f"{said}: {_grouped(names)}" for said, names in groups.items() if names]
    taken = len(own) - len(absent) - len(other)
    return Taken(part, taken, len(own), is_whole and taken == len(own), tuple(notes))


def _fitting(
    name: str, target: Tensor, source: Source, model: DualEncoder
) -> tuple[Tensor | None, list[str]]:
    """What goes into the first rows of a tensor of ours, and what is to be said of it."""
    given = source.tensors.get(name)
    if given is None:
        is_bias = name.endswith(".bias") and source.tensors.get(f"{name[:-5]}.weight") is not None
        return (torch.zeros_like(target), [f"{name} is 0"]) if is_bias else (None, [])
    if given.shape == target.shape:
        return given, []
    if name == _TEXT_POSITIONS and given.shape[1] == target.shape[1]:
        rows = min(len(given), len(target))
        return given[:rows], [f"{rows} of {len(target)} positions, from {len(given)}"]
    if name == _IMAGE_POSITIONS and isinstance(model.image_tower, TimmTower):
        resampled = resample_positions(given, model.image_tower.backbone)
        if resampled.shape == target.shape:
            return resampled, [f"positions resampled from {given.shape[1]} to {target.shape[1]}"]
    return None, []


def _is_fixed(name: str, recipe: Recipe) -> bool:
    section = recipe.image_tower
    return name == _IMAGE_POSITIONS and section.kind == "timm" and section.form == "meru"


def _grouped(names: Iterable[str]) -> str:
    """Names counted by what stands before their first number, such as ``blocks 144, norm 2``."""

    def group(name: str) -> str:
        _, *pieces = (
            name.removeprefix("image_tower.backbone")
            .removeprefix("text_tower.transformer")
            .split(".")
        )
        numbers = [place for place, piece in enumerate(pieces) if piece.isdecimal()]
        return pieces[max(numbers[0] - 1, 0)] if numbers else pieces[0]

    return ", ".join(f"{name} {count}" for name, count in Counter(map(group, names)).items())


def _recipe_traits(recipe: Recipe) -> dict[str, object]:
    """What of a recipe decides how the tensors of its towers are used."""
    traits: dict[str, object] = {
        "data.side": recipe.data.side,
        "data.fit": recipe.data.fit,
        "data.mean": recipe.data.mean,
        "data.std": recipe.data.std,
        "text_tower.heads": recipe.text_tower.heads,
        "text_tower.activation": recipe.text_tower.activation,
    }
    if isinstance(recipe.image_tower, ConvTower):
        return traits
    image = recipe.image_tower
    return traits | {
        "image_tower.name": image.name,
        "image_tower.heads": image.heads,
        "image_tower.form": image.form,
        "image_tower.norm": image.norm,
    }


def _traits(model: DualEncoder, recipe: Recipe) -> dict[str, object]:
    traits = _recipe_traits(recipe) | text_traits(model.text_tower.transformer)
    if isinstance(model.image_tower, TimmTower):
        traits |= backbone_traits(model.image_tower.backbone)
    if _is_fixed(_IMAGE_POSITIONS, recipe):
        traits["image_tower: positions"] = "fixed"
    return traits
