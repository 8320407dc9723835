"""Gradients and weights that are not finite: what is said of them, and when a run ends."""

from core.errors import TrainingDiverged
from trainer import checkpoint
from trainer.config import Recipe
from trainer.health.measure import not_finite
from trainer.model import DualEncoder
from trainer.step import StepResult

_NAMED = 6  # of what is not finite; where weights are not, hardly anything is


def causes(model: DualEncoder, result: StepResult) -> str:
    """What is not finite of a step that was not taken: terms and weights, or else gradients."""
    names = not_finite(result.terms) + not_finite(dict(model.named_parameters()))
    if not names:
        named = model.named_parameters()
        names = not_finite({f"gradient of {n}": p.grad for n, p in named if p.grad is not None})
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more or "the gradient's norm alone"


def stop_if_diverged(
    recipe: Recipe, model: DualEncoder, result: StepResult, step: int, bad: int, *, last: bool
) -> None:
    """End a run that does not come back to finite gradients.

    All processes have the same norm of the gradient, and so come to the same end.

    Args:
        recipe: For the limit, and for what to try.
        model: Its weights are those before the first of the bad steps.
        result: Of the last step.
        step: Its number.
        bad: Steps in a row, up to this one, that were not taken.
        last: Whether the run ends here. It may end on one bad step, as a sample could make it;
            a row of them says that the weights are no good.

    Raises:
        TrainingDiverged: ``bad`` is over ``optim.max_bad_steps``, or the run would end on a row.
    """
    if bad > recipe.optim.max_bad_steps or (last and bad > 1):
        raise TrainingDiverged(
            f"step {step:,}: the gradient was not finite in {bad} steps in a row, which were "
            f"skipped (optim.max_bad_steps {recipe.optim.max_bad_steps}). {_remedy(recipe)} "
            f"Not finite: {causes(model, result)}. {_way_back(recipe)}"
        )


def require_finite(recipe: Recipe, model: DualEncoder, step: int) -> None:
    """Let nobody evaluate or keep weights, or running statistics, that are not finite.

    Raises:
        TrainingDiverged: They are not.
    """
    names = not_finite(model.state_dict())
    if names:
        raise TrainingDiverged(
            f"step {step:,}: {', '.join(names[:_NAMED])} of the model are not finite. "
            f"{_remedy(recipe)} {_way_back(recipe)}"
        )


def _remedy(recipe: Recipe) -> str:
    optim = recipe.optim
    precision = ', or optim.precision="fp32"' if optim.precision == "bf16" else ""
    return (
        f"Try a lower optim.peak_lr (now {optim.peak_lr:g}) or more optim.warmup_steps "
        f"(now {optim.warmup_steps:,}){precision}, with another run.out."
    )


def _way_back(recipe: Recipe) -> str:
    good = checkpoint.newest(recipe.folder)
    if good is None:
        return "No checkpoint was written before."
    return f"If a sample was to blame, the same command goes on from {good.path}."
