"""A recipe: everything that decides a training run."""

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from core.config import Section, load
from core.errors import ConfigError
from core.image import ImageSpec
from trainer.objectives.options import Hyper3Objective, Objective, PhyclipObjective
from trainer.sections import (
    AugmentSection,
    ConvTower,
    DataSection,
    ModelSection,
    OptimSection,
    RunSection,
    SpeedSection,
    TextTower,
    TimmTower,
)


class Recipe(Section):
    """Everything that decides a training run."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")
    data: DataSection
    augment: AugmentSection = AugmentSection()
    image_tower: Annotated[TimmTower | ConvTower, Field(discriminator="kind")]
    text_tower: TextTower = TextTower()
    model: ModelSection = ModelSection()
    objective: Annotated[Objective, Field(discriminator="kind")] = Hyper3Objective()
    optim: OptimSection = OptimSection()
    speed: SpeedSection = SpeedSection()
    run: RunSection = RunSection()

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.text_tower.width % self.text_tower.heads:
            raise ValueError(
                f"text_tower.width {self.text_tower.width} is not a multiple of "
                f"text_tower.heads {self.text_tower.heads}"
            )
        return self

    @model_validator(mode="after")
    def _factors_divide(self) -> Self:
        if isinstance(self.objective, PhyclipObjective) and self.model.dim % self.objective.factors:
            raise ValueError(
                f"model.dim {self.model.dim} is not a multiple of objective.factors "
                f"{self.objective.factors}"
            )
        return self

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if self.run.base and self.run.init:
            raise ValueError("run.base continues a run, run.init starts a new one: give one")
        return self

    @model_validator(mode="after")
    def _features_hold(self) -> Self:
        """Stored features are those of a tower and of pictures that never change."""
        if self.data.features is not None and self._unsteady:
            raise ValueError(
                "data.features keeps what the image tower gives for a picture, which changes from "
                f"visit to visit: set {', '.join(self._unsteady)}, or leave data.features out"
            )
        return self

    @property
    def _unsteady(self) -> list[str]:
        """What would have to be set for a picture's feature to be the same at every visit."""
        still = {
            "image_tower.frozen=true": self.image_tower.frozen,
            "augment.crop_scale=[1,1]": self.augment.crop_scale == (1.0, 1.0),
            "augment.jitter_probability=0": self.augment.jitter_probability == 0,
            "augment.grayscale_probability=0": self.augment.grayscale_probability == 0,
        }
        return [setting for setting, holds in still.items() if not holds]

    @property
    def last_step(self) -> int:
        """Where the run ends."""
        return min(self.run.stop_at or self.optim.steps, self.optim.steps)

    @property
    def image_spec(self) -> ImageSpec:
        """What the image tower takes."""
        return ImageSpec(side=self.data.side, mean=self.data.mean, std=self.data.std)

    @property
    def needed(self) -> DataSection:
        """What the objective uses of each sample: parts and queries are not read for nothing."""
        unused: dict[str, int] = {}
        if not self.objective.needs_parts:
            unused["max_parts"] = 0
        if not self.objective.needs_queries:
            unused["max_queries"] = 1
        return self.data.model_copy(update=unused)

    def doubts(self) -> list[str]:
        """Settings that are allowed and hardly meant, each with what it comes to."""
        optim, objective = self.optim, self.objective
        found = []
        if optim.warmup_steps >= optim.steps:
            found.append(
                f"optim.warmup_steps {optim.warmup_steps:,} is not under optim.steps "
                f"{optim.steps:,}: optim.peak_lr is never reached"
            )
        if self.run.stop_at and self.run.stop_at > optim.steps:
            found.append(f"run.stop_at {self.run.stop_at:,} is beyond optim.steps {optim.steps:,}")
        if objective.needs_queries and self.data.max_queries == 1:
            found.append("data.max_queries is 1, the caption itself: no query is trained")
        if objective.needs_parts and self.data.max_parts == 0:
            found.append(f"data.max_parts is 0: the terms of {objective.kind} for parts are 0")
        if self.data.features is None and not self._unsteady:
            found.append(
                "the frozen image tower gives the same for a picture at every visit: with "
                "data.features=FOLDER each goes through it once"
            )
        return found

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run.out or Path("runs") / self.name

    def digest(self) -> str:
        """sha256 of all that changes the result: not of folders, workers, speed or the device."""
        return hashlib.sha256(
            self.model_dump_json(
                exclude={
                    "data": {"train", "val", "features", "cache", "workers"},
                    "speed": True,
                    "run": set(RunSection.model_fields) - {"seed", "base", "init"},
                }
            ).encode()
        ).hexdigest()


def difference(a: Recipe, b: Recipe) -> list[str]:
    """The keys, as section.key, in which two recipes differ."""
    return _difference(a.model_dump(), b.model_dump())


def _difference(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key in dict.fromkeys([*a, *b]):
        old, new = a.get(key), b.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            keys += _difference(old, new, f"{prefix}{key}.")
        elif old != new:
            keys.append(f"{prefix}{key}")
    return keys


def load_recipe(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe and apply ``section.key=value`` overrides.

    A recipe that ships with the package is found by its bare name (``demo`` or ``demo.toml``)
    from anywhere, and so it is where another one extends it.

    Raises:
        ConfigError: The file is missing, or a key is unknown or out of range.
    """
    if not path.is_file() and path.parent == Path():
        name = path.name.removesuffix(".toml")
        if not (RECIPES / f"{name}.toml").exists():
            names = sorted((recipe.stem for recipe in RECIPES.glob("*.toml")), key=len)
            near = [known for known in names if name in known] or get_close_matches(name, names)
            raise ConfigError(
                f"{path}: no such file, and no recipe of that name; `hyper3 recipes` lists those "
                "that ship" + (f", near it: {', '.join(near[:4])}" if near else "")
            )
        path = RECIPES / f"{name}.toml"
    return load(Recipe, path, overrides, shipped=RECIPES)


RECIPES = Path(__file__).parent / "recipes"
"""The recipes that ship with the package; what they share is in its folder `parts`."""
