"""Where a run begins: at its own last step, at another run's, with given towers, or afresh."""

from dataclasses import dataclass
from pathlib import Path

import timm
import torch
from rich.markup import escape

from core.errors import CheckpointError
from trainer import checkpoint
from trainer.checkpoint import Checkpoint, Position
from trainer.clip_model import SCHEME
from trainer.config import RECIPES, Recipe, difference
from trainer.sections import TimmTower as TimmSection
from trainer.start.transfer import from_checkpoint, from_open_clip, take, tell
from trainer.step import Training
from trainer.towers import TimmTower
from trainer.towers.clip import backbone_traits
from trainer.towers.weights import load_weights

_MAY_DIFFER = (
    "name", "objective", "data.features", "data.cache", "data.workers",
    "optim.decay_idle_pooling", "optim.max_bad_steps", "speed.", "run.out", "run.base",
    "run.init", "run.stop_at", "run.device", "run.log_every", "run.eval_every", "run.save_every",
    "run.keep", "run.best", "run.wandb",
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """The first step that is to be taken, and what a person should know of it."""

    step: int
    told: tuple[str, ...] = ()
    position: Position | None = None  # in the data so far; None in a new run


def begin(training: Training, before: Checkpoint | None) -> Start:
    """Put weights and AdamW's state to where the run begins.

    Args:
        training: Fresh model and optimizer.
        before: The run's own newest checkpoint, which goes before everything else.

    Raises:
        CheckpointError: There is no checkpoint where ``run.base`` or ``run.init`` says, nothing of
            it fits, or a base is of other data, another schedule, or not at its end; or the file of
            ``image_tower.weights`` is of another model.
        ConfigError: There is no such file, package or model of open_clip.
    """
    recipe = training.recipe
    if before:
        checkpoint.load_model(before, training.model)
        checkpoint.load_optimizer(before, training.model, training.optimizer)
        return Start(before.step, position=before.position)
    if recipe.run.base:
        return _continue(training, _find("run.base", recipe.run.base))
    return Start(0, tuple(_first_weights(training)))


_OR_WEIGHTS = " or image_tower.weights=FILE (of timm's models)"


def _first_weights(training: Training) -> list[str]:
    """Weights of a file into the image tower, then those of another model; what there is to say.

    An image tower that has weights of its own takes none of ``run.init``, nor does its projection.
    """
    recipe, model, image = training.recipe, training.model, training.recipe.image_tower
    told: list[str] = []
    trained: set[str] = set()
    parts = ["image_tower", "image_proj", "text_tower", "text_proj"]
    if isinstance(model.image_tower, TimmTower) and image.kind == "timm" and image.weights:
        told += load_weights(model.image_tower, image.weights, fixed_positions=image.form == "meru")
        told += _other_pixels(model.image_tower, recipe) + _other_heads(image)
        trained.add("image_tower")
        parts = parts[2:]
    if recipe.run.init:
        source = (
            from_open_clip(recipe.run.init)
            if recipe.run.init.startswith(SCHEME)
            else from_checkpoint(_find("run.init", Path(recipe.run.init)))
        )
        got = take(source, model, recipe, parts)
        told += tell(source, got, model, recipe)
        trained |= {one.part for one in got if one.is_whole}
    frozen = {"image_tower": image.frozen, "text_tower": recipe.text_tower.frozen}
    return told + [
        f"[yellow]{name}.frozen: its random weights stay as they are; to lock a trained one, start "
        f"in another run.out with run.init=RUN{_OR_WEIGHTS if name == 'image_tower' else ''}[/]"
        for name, locked in frozen.items()
        if locked and name not in trained
    ]


def _other_heads(section: TimmSection) -> list[str]:
    """A warning where attention has other heads than timm's own model: shapes do not show it."""
    if section.heads is None:
        return []
    with torch.random.fork_rng(devices=[]):
        own = backbone_traits(timm.create_model(section.name)).get("image_tower: attention heads")
    if own in {None, section.heads}:
        return []
    theirs = f"{own} in timm's {section.name}"
    return [f"[yellow]image_tower.heads: {section.heads} here, {theirs}, as its weights expect[/]"]


def _other_pixels(tower: TimmTower, recipe: Recipe) -> list[str]:
    """A warning where the pictures are not scaled as timm says of the model."""
    known = tower.backbone.pretrained_cfg
    name = known.get("architecture", "the model")
    return [
        f"[yellow]data.{key}: {list(ours)} here, and timm gives {list(known[key])} for the weights "
        f"of {name}[/]"
        for key, ours in (("mean", recipe.data.mean), ("std", recipe.data.std))
        if known.get(key) and any(abs(a - b) > 0.02 for a, b in zip(ours, known[key], strict=True))
    ]


def _find(key: str, path: Path) -> Checkpoint:
    try:
        return checkpoint.find(path)
    except CheckpointError as error:
        known = (RECIPES / f"{path.name}.toml").exists()
        first = f"run `hyper3 train {path.name}` first, or give" if known else "give"
        raise CheckpointError(
            f"{key} {path}: no whole checkpoint there; {first} the folder of another run"
        ) from error


def _continue(training: Training, base: Checkpoint) -> Start:
    recipe, path = training.recipe, training.recipe.run.base
    changed = [
        key
        for key in difference(base.recipe, recipe)
        if key == "objective.kind" or not key.startswith(_MAY_DIFFER)
    ]
    if changed:
        raise CheckpointError(
            f"run.base {path}: of another recipe (differs in {', '.join(changed)}); a "
            "continuation has its base's data, system, model and schedule"
        )
    if base.step < base.recipe.last_step and base.path != path:
        raise CheckpointError(
            f"run.base {path}: at step {base.step:,} of its {base.recipe.last_step:,}; finish it, "
            f"or give {base.path} to mean that very step"
        )
    if base.step >= recipe.last_step:
        raise CheckpointError(
            f"run.base {path}: at step {base.step:,}, and this run ends at "
            f"{recipe.last_step:,}; nothing is left to continue"
        )
    checkpoint.load_model(base, training.model)
    fresh = checkpoint.load_optimizer(base, training.model, training.optimizer)
    told = [f"continues {escape(str(base.path))}"]
    if fresh:
        parts = sorted({name.partition(".")[0] for name in fresh})
        told.append(f"trained from here on: {', '.join(parts)}")
    return Start(base.step, tuple(told), base.position)
