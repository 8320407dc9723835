"""Where a run begins: at its own last step, at another run's, with given towers, or afresh."""

from dataclasses import dataclass
from pathlib import Path

from core.errors import CheckpointError
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.config import RECIPES, difference
from trainer.step import Training

_MAY_DIFFER = (
    "name", "objective", "data.workers", "optim.decay_idle_pooling", "optim.max_bad_steps",
    "run.out", "run.base", "run.init", "run.stop_at", "run.device", "run.log_every",
    "run.eval_every", "run.save_every", "run.keep",
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """The first step that is to be taken, and what a person should know of it."""

    step: int
    told: tuple[str, ...] = ()
    samples: int | None = None  # of the training data so far; None in a new run


def begin(training: Training, before: Checkpoint | None) -> Start:
    """Put weights and AdamW's state to where the run begins.

    Args:
        training: Fresh model and optimizer.
        before: The run's own newest checkpoint, which goes before everything else.

    Raises:
        CheckpointError: There is no checkpoint where ``run.base`` or ``run.init`` says, it is
            of another model, or a base of other data, another schedule, or not at its end.
    """
    recipe = training.recipe
    if before:
        checkpoint.load_model(before, training.model)
        checkpoint.load_optimizer(before, training.model, training.optimizer)
        return Start(before.step, samples=before.samples)
    if recipe.run.base:
        return _continue(training, _find("run.base", recipe.run.base))
    if recipe.run.init:
        found = _find("run.init", Path(recipe.run.init))
        checkpoint.load_towers(found, training.model)
        return Start(0, (f"both towers are those of {found.path}",))
    frozen = {"image": recipe.image_tower.frozen, "text": recipe.text_tower.frozen}
    return Start(
        0,
        tuple(
            f"[yellow]{name}_tower.frozen: its random weights stay as they are; to lock a trained "
            "one, start in another run.out with run.init=RUN[/]"
            for name, locked in frozen.items()
            if locked
        ),
    )


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
    told = [f"continues {base.path}"]
    if fresh:
        parts = sorted({name.partition(".")[0] for name in fresh})
        told.append(f"trained from here on: {', '.join(parts)}")
    return Start(base.step, tuple(told), base.samples)
