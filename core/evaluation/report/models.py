"""The results of models, side by side."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.evaluation.measure import Measure
from core.evaluation.result import Result, read_results


@dataclass(frozen=True)
class Model:
    """One model's results."""

    name: str
    """As the report calls it; no two are called the same."""
    folder: Path
    results: Mapping[str, Result]
    """By task."""

    @property
    def encoder(self) -> dict[str, Any]:
        """What its results say of it."""
        first: dict[str, Any] = next(iter(self.results.values())).determined_by["encoder"]
        return first

    def find(self, task: str, group: str, name: str) -> Measure | None:
        """A figure of a task, or None; in a group ``*`` stands for any characters."""
        result = self.results.get(task)
        named = [m for m in result.measures if m.name == name] if result else []
        exact = [measure for measure in named if measure.group == group]
        alike = (measure for measure in named if fnmatchcase(measure.group, group))
        return exact[0] if exact else next(alike, None)


def read_models(folders: Sequence[Path]) -> list[Model]:
    """One model a folder; a folder of such folders stands for all of them.

    Raises:
        DataError: A folder holds no results, or one is broken.
    """
    found = [folder for given in folders for folder in _model_folders(given)]
    found = list(dict.fromkeys(folder.resolve() for folder in found))
    results = [(folder, read_results(folder)) for folder in found]
    names = Counter(_name(each) for _, each in results)
    models: list[Model] = []
    for folder, each in results:
        name = _name(each)
        if names[name] > 1:
            name = f"{name} ({_fingerprint(each)[:8]})"
        if any(name == model.name for model in models):
            name = f"{name}, {folder.name} #{len(models) + 1}"
        models.append(Model(name, folder, {result.task: result for result in each}))
    return models


def tasks_of(models: Sequence[Model]) -> list[str]:
    """All tasks that any of the models did, sorted."""
    return sorted({task for model in models for task in model.results})


def _model_folders(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name one that `hyper3 eval` wrote")
    below = [child for child in sorted(folder.iterdir()) if any(child.glob("*/*.json"))]
    if any(folder.glob("*/*.json")) or not below:
        yield folder
    else:
        yield from below


def _name(results: Sequence[Result]) -> str:
    return str(results[0].determined_by["encoder"]["name"])


def _fingerprint(results: Sequence[Result]) -> str:
    return str(results[0].determined_by["encoder"]["fingerprint"])
