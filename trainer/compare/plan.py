"""What is compared: recipes under names, and each of them once for every seed."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from core.config import Section, load
from core.errors import ConfigError
from trainer.config import Recipe, load_recipe

COMPARISONS = Path(__file__).parent / "comparisons"
"""The comparisons that ship with the package."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")  # of a system, and so of a folder
_OURS = {"run.out": "--out", "run.seed": "--seeds"}  # what a comparison sets itself


class Comparison(Section):
    """A file that names systems: one recipe, and what each of them changes in it."""

    recipe: str = Field(description="What all have in common: a file, or a bare name.")
    on: tuple[str, ...] = Field((), description="What they are measured on, as for hyper3 eval.")
    seeds: int = Field(1, ge=1, le=100)
    baseline: str | None = Field(None, description="With whom others are compared; the first.")
    needs: str = Field("", description="How to get the data, said where they are not there.")
    common: dict[str, Any] = Field({}, description="Keys of the recipe that all change alike.")
    systems: dict[str, dict[str, Any]] = Field(
        min_length=1,
        description="By name, keys of the recipe. run.base may name another of the systems.",
    )


@dataclass(frozen=True)
class Contender:
    """A recipe under a name."""

    name: str
    path: Path
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is compared, on what, and how often."""

    name: str
    contenders: tuple[Contender, ...]
    on: tuple[str, ...] = ()
    seeds: int = 1
    baseline: str | None = None
    needs: str = ""


@dataclass(frozen=True)
class Planned:
    """One training."""

    contender: Contender
    seed: int
    recipe: Recipe
    overrides: tuple[str, ...]  # all of them, as `hyper3 train` takes them
    base: Path | None  # the run of this comparison that it continues

    @property
    def folder(self) -> Path:
        """Of the run."""
        return self.recipe.folder

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.contender.name}, seed {self.seed}"


def read_plan(words: Sequence[str]) -> Plan:
    """The plan that comparisons, recipes, and ``section.key=value`` overrides of all of them make.

    Raises:
        ConfigError: A word means nothing, there are several comparisons, or the systems cannot
            stand beside one another.
    """
    overrides = tuple(word for word in words if "=" in word)
    named = [word for word in words if "=" not in word]
    if not named:
        raise ConfigError(
            f"name what to compare: a comparison ({', '.join(sorted(shipped()))}), or recipes"
        )
    found = [_comparison(word) for word in named]
    plans = [plan for plan in found if plan is not None]
    if len(plans) > 1 or (plans and len(named) > 1):
        raise ConfigError(f"{' '.join(named)}: give one comparison alone, or recipes")
    if plans:
        plan = plans[0]
    else:
        recipes = tuple(Contender(Path(word).stem, Path(word)) for word in named)
        plan = Plan("-".join(each.name for each in recipes)[:80], recipes)
    contenders = tuple(
        replace(each, overrides=(*each.overrides, *overrides)) for each in plan.contenders
    )
    _check(contenders)
    return replace(plan, contenders=contenders)


def _check(contenders: Sequence[Contender]) -> None:
    """Raises ConfigError where two have one name, or one that names no folder, or set what is ours.

    A name is the folder of runs and results: it must not lead out of the comparison's own.
    """
    names = [each.name for each in contenders]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)}: the name of two recipes; rename one of the files")
    for each in contenders:
        if not _NAME.fullmatch(each.name):
            raise ConfigError(
                f"{each.name!r}: no name for a system, of which folders are made; take letters, "
                "digits, _, - and ., at most 80"
            )
        for override in each.overrides:
            key = override.partition("=")[0].strip()
            if key in _OURS:
                raise ConfigError(
                    f"{each.name}: {override}: a comparison sets {key} itself; leave it out, and "
                    f"give {_OURS[key]}"
                )


def shipped() -> dict[str, Path]:
    """The comparisons that ship with the package, by name."""
    return {path.stem: path for path in sorted(COMPARISONS.glob("*.toml"))}


def _comparison(word: str) -> Plan | None:
    """The plan of a comparison's file or bare name; None for anything else."""
    path = Path(word)
    if not path.is_file():
        path = (
            shipped().get(path.name.removesuffix(".toml"), path) if path.parent == Path() else path
        )
    if path.suffix != ".toml" or not path.is_file() or not _names_systems(path):
        return None
    read = load(Comparison, path)
    recipe = Path(read.recipe)
    beside = path.parent / recipe
    common = beside if beside.is_file() else recipe
    contenders = [
        Contender(name, common, (*_flat(read.common), *_flat(values)))
        for name, values in read.systems.items()
    ]
    return Plan(path.stem, tuple(contenders), read.on, read.seeds, read.baseline, read.needs)


def _names_systems(path: Path) -> bool:
    try:
        return "systems" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # whoever reads it as a recipe says what is wrong
        return False


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Keys of a recipe as overrides. JSON of what TOML can hold is TOML."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value, ensure_ascii=False, default=str)}"


def runs(plan: Plan, out: Path, seeds: int) -> list[Planned]:
    """Every training, seeds outside, so that what is broken shows early in all.

    Raises:
        ConfigError: A recipe is wrong, two recipes are the same, or systems continue one another
            in a ring.
    """
    names = [contender.name for contender in plan.contenders]
    planned = []
    for seed in range(seeds):
        twins: dict[tuple[str, str, int], str] = {}
        for contender in plan.contenders:
            one = _planned(contender, out, seed, names)
            training = (one.recipe.digest(), one.recipe.data.train, one.recipe.last_step)
            twin = twins.setdefault(training, contender.name)
            if twin != contender.name:
                raise ConfigError(f"{twin} and {contender.name} are the same training")
            planned.append(one)
    _require_beginnings(planned)
    return planned


def _require_beginnings(planned: Sequence[Planned]) -> None:
    """Raises ConfigError where a chain of bases never ends: each would wait for the other."""
    bases = {one.folder: one.base for one in planned}
    for folder in bases:
        chain = [folder]
        while (base := bases.get(chain[-1])) is not None:
            if base in chain:
                names = " -> ".join(each.parent.name for each in (*chain, base))
                raise ConfigError(f"run.base: {names}: each continues the next; begin with one")
            chain.append(base)


def _planned(contender: Contender, out: Path, seed: int, names: Sequence[str]) -> Planned:
    try:
        recipe = load_recipe(contender.path, list(contender.overrides))
    except ConfigError as error:
        if contender.path.stem == contender.name:
            raise
        raise ConfigError(f"{contender.name}: {error}") from error
    base = _base_of(recipe, contender, names)
    ours = {"run.out": str(out / "runs" / contender.name / f"seed-{seed}"), "run.seed": seed}
    if base:
        ours["run.base"] = str(out / "runs" / base / f"seed-{seed}")
    overrides = (*contender.overrides, *(f"{key}={json.dumps(at)}" for key, at in ours.items()))
    recipe = load_recipe(contender.path, list(overrides))
    return Planned(contender, seed, recipe, overrides, recipe.run.base if base else None)


def _base_of(recipe: Recipe, contender: Contender, names: Sequence[str]) -> str | None:
    """Which of the others it continues: one named as such, or by the folder it has by itself."""
    meant = {Path(name): name for name in names} | {Path("runs") / name: name for name in names}
    found = meant.get(recipe.run.base) if recipe.run.base else None
    return None if found == contender.name else found


def rows(planned: Sequence[Planned]) -> list[str]:
    """Names of those that are compared: what others continue was only trained for them."""
    bases = {one.base.resolve() for one in planned if one.base}
    return list(
        dict.fromkeys(one.contender.name for one in planned if one.folder.resolve() not in bases)
    )
