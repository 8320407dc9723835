"""The results of models, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import commonpath
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.evaluation.measure import Measure
from core.evaluation.report.names import TITLES, data_of, variant_of
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
        """A figure of a task, or None; in a group ``*`` stands for any characters."""
        result = self.results.get(task)
        if result is None:
            return None
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
    found: dict[Path, list[Result]] = {}
    broken: dict[str, None] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        found |= _models_in(folder, broken)
    if not found:
        raise DataError("; ".join(broken))
    return _named(list(found.items())), list(broken)


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
            name = f"{name} in {_place(folder, same)}"
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
    """What the data of a task are called, of a file its name and its folder's; with the variant."""
    name = data_of(task)
    titles = (model.results[task].title for model in models if task in model.results)
    title = TITLES.get(name) or next(filter(None, titles), name)
    title = "/".join(Path(title).parts[-2:]) if title.endswith(".jsonl") else title
    return ", ".join(filter(None, (title, variant_of(task))))


def _place(folder: Path, others: Sequence[Path]) -> str:
    """The last part of a folder that all of them have their own of, else what they do not share."""
    for part in range(1, min(len(other.parts) for other in others)):
        if len({other.parts[-part] for other in others}) == len(others):
            return folder.parts[-part]
    return str(folder.relative_to(commonpath(others)))


def _models_in(folder: Path, broken: dict[str, None]) -> dict[Path, list[Result]]:
    """The results of a model, or of each model in a folder of such.

    What lies there and is no result does not hide those that are, and is added to ``broken``.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name one that `hyper3 eval` wrote")
    places = [folder, *(child for child in sorted(folder.iterdir()) if child.is_dir())]
    if not any(any(place.glob("*/*.json")) for place in places):
        raise DataError(f"{folder}: holds no results; `hyper3 eval` writes them")
    own = _read(folder, broken)
    if own:
        return {folder: own}
    return {place: each for place in places[1:] if (each := _read(place, broken))}


def _read(folder: Path, broken: dict[str, None]) -> list[Result]:
    """The results of a model by task; why some are not there is added to ``broken``."""
    results = []
    for file in sorted(folder.glob("*/*.json")):
        try:
            results.append(read_result(file))
        except DataError as error:
            broken[str(error)] = None
    return sorted(results, key=lambda result: result.task)


def _name(results: Sequence[Result]) -> str:
    return str(results[0].determined_by["encoder"]["name"])


def _fingerprint(results: Sequence[Result]) -> str:
    return str(results[0].determined_by["encoder"]["fingerprint"])
