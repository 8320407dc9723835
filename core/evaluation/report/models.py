"""The results of models, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.evaluation.measure import Measure
from core.evaluation.report.likeness import called_here
from core.evaluation.report.names import TITLES
from core.evaluation.result import Result, read_result
from core.evaluation.suites import KINDS


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
        """A figure of a task, or None; in a group ``*`` stands for any characters.

        The shipped prompt sets are known by what they say, whatever a result calls them.
        """
        result = self.results.get(task)
        if result is None:
            return None
        group = called_here(result, group)
        named = [m for m in result.measures if m.name == name]
        exact = [measure for measure in named if measure.group == group]
        alike = (measure for measure in named if fnmatchcase(measure.group, group))
        return exact[0] if exact else next(alike, None)


def read_models(folders: Sequence[Path]) -> tuple[list[Model], list[str]]:
    """One model a folder; a folder of such folders stands for all of them.

    Returns:
        The models, and of each result that cannot be read why: the others are there without it.

    Raises:
        DataError: A folder holds no results, or there is none that can be read.
    """
    found = [folder for given in folders for folder in _model_folders(given)]
    found = list(dict.fromkeys(folder.resolve() for folder in found))
    broken: list[str] = []
    results = [(folder, each) for folder in found if (each := _read(folder, broken))]
    if not results:
        raise DataError("; ".join(broken))
    return _named(results), broken


def _named(results: Sequence[tuple[Path, list[Result]]]) -> list[Model]:
    """Each by its own name; those of one name with what tells them apart."""
    models: list[Model] = []
    for folder, each in results:
        name = _name(each)
        alike = [(other, its) for other, its in results if _name(its) == name]
        same = [other for other, its in alike if _fingerprint(its) == _fingerprint(each)]
        if len(same) < len(alike):
            name = f"{name} ({_fingerprint(each)[:8]})"
        if len(same) > 1:
            has_own = len({other.name for other in same}) == len(same)
            name = f"{name} in {folder.name if has_own else folder.parent.name}"
        if any(name == model.name for model in models):
            name = f"{name} #{len(models) + 1}"
        models.append(Model(name, folder, {result.task: result for result in each}))
    return models


def tasks_of(models: Sequence[Model]) -> list[str]:
    """All tasks that any of the models did, sorted."""
    return sorted({task for model in models for task in model.results})


def families_of(models: Sequence[Model]) -> dict[str, list[str]]:
    """The tasks of each family, in the order of `hyper3 eval --list`."""
    order = list(KINDS)
    found: dict[str, list[str]] = {}
    for task in tasks_of(models):
        found.setdefault(task.partition("/")[0], []).append(task)
    known = [family for family in order if family in found]
    return {family: found[family] for family in (*known, *(found.keys() - set(order)))}


def data_title(task: str, models: Sequence[Model]) -> str:
    """What the data of a task are called; of a file its name and its folder's."""
    name = task.partition("/")[2]
    titles = (model.results[task].title for model in models if task in model.results)
    title = TITLES.get(name) or next(filter(None, titles), name)
    return "/".join(Path(title).parts[-2:]) if title.endswith(".jsonl") else title


def _read(folder: Path, broken: list[str]) -> list[Result]:
    """The results of a model by task; why some are not there is added to ``broken``."""
    results, files = [], sorted(folder.glob("*/*.json"))
    if not files:
        raise DataError(f"{folder}: holds no results; `hyper3 eval` writes them")
    for file in files:
        try:
            results.append(read_result(file))
        except DataError as error:
            broken.append(str(error))
    return sorted(results, key=lambda result: result.task)


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
