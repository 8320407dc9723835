"""Where a run begins: at its own last step, at another run's, with given towers, or afresh."""

from dataclasses import dataclass

from core.errors import CheckpointError
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.config import difference
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


def begin(training: Training, before: Checkpoint | None) -> Start:
    """Put weights and AdamW's state to where the run begins.

    Args:
        training: Fresh model and optimizer.
        before: The run's own newest checkpoint, which goes before everything else.

    Raises:
        CheckpointError: There is no checkpoint where ``run.base`` or ``run.init`` says, it is
            of another model, or a base of other data or another schedule.
    """
    recipe = training.recipe
    if before:
        checkpoint.load_model(before, training.model)
        checkpoint.load_optimizer(before, training.model, training.optimizer)
        return Start(before.step)
    if recipe.run.base:
        return _continue(training, checkpoint.find(recipe.run.base))
    frozen = [
        name
        for name, tower in (("image", recipe.image_tower), ("text", recipe.text_tower))
        if tower.frozen
    ]
    if recipe.run.init:
        found = checkpoint.find(recipe.run.init)
        checkpoint.load_towers(found, training.model)
        return Start(0, (f"both towers are those of {found.path}",))
    return Start(
        0,
        tuple(
            f"[yellow]{name}_tower.frozen: its random weights stay as they are; give run.init a "
            "run that trained it[/]"
            for name in frozen
        ),
    )


def _continue(training: Training, base: Checkpoint) -> Start:
    recipe = training.recipe
    changed = [key for key in difference(base.recipe, recipe) if not key.startswith(_MAY_DIFFER)]
    if changed:
        raise CheckpointError(
            f"run.base {base.path}: of another recipe (differs in {', '.join(changed)}); a "
            "continuation has its base's data, model and schedule"
        )
    if base.step >= recipe.last_step:
        raise CheckpointError(
            f"run.base {base.path}: at step {base.step:,}, and this run ends at "
            f"{recipe.last_step:,}; nothing is left to continue"
        )
    checkpoint.load_model(base, training.model)
    fresh = checkpoint.load_optimizer(base, training.model, training.optimizer)
    told = [f"continues {base.path}"]
    if fresh:
        parts = sorted({name.partition(".")[0] for name in fresh})
        told.append(f"trained from here on: {', '.join(parts)}")
    return Start(base.step, tuple(told))
