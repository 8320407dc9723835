"""Weights & Biases, an extra: the same scalars, on a page that a team shares."""

import hashlib
from pathlib import Path
from typing import Any, Protocol

from core.errors import ConfigError
from trainer.config import Recipe


class WandbRun(Protocol):
    """What we use of a run of theirs."""

    def define_metric(self, name: str, step_metric: str) -> Any:
        """Say over what a figure is drawn."""

    def log(self, data: dict[str, Any]) -> None:
        """Send figures, when it suits their process."""

    def finish(self) -> None:
        """Send the rest, and end."""


def begin(folder: Path, recipe: Recipe) -> WandbRun:
    """Begin the run's page, or go on with it where the run goes on.

    What their own variables say holds: ``WANDB_MODE=offline`` keeps all in the run's folder.

    Raises:
        ConfigError: The package is missing, nobody is logged in, or they cannot be reached.
    """
    try:
        import wandb  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"run.wandb {recipe.run.wandb!r} reports to Weights & Biases, which is not installed: "
            "pip install 'hyper3-stack[wandb]', or leave run.wandb out"
        ) from error
    try:
        run: WandbRun = wandb.init(
            project=recipe.run.wandb,
            id=page_of(folder, recipe),
            name=recipe.name,
            dir=str(folder),
            config=recipe.model_dump(mode="json"),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise ConfigError(
            f"run.wandb {recipe.run.wandb!r}: {error}; log in with `wandb login`, set "
            "WANDB_MODE=offline and send it later with `wandb sync`, or leave run.wandb out"
        ) from error
    # Steps that are taken again after a crash come twice, which a step of theirs may not.
    run.define_metric("*", step_metric="step")
    return run


def page_of(folder: Path, recipe: Recipe) -> str:
    """The same for a run at every start, and another for every other run."""
    told = f"{folder.resolve()}\n{recipe.digest()}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]
