"""What else makes figures differ: limits, splits, prompts, pictures that were left out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evaluation.report.models import Model, tasks_of
from core.evaluation.report.names import TITLES
from core.evaluation.report.published import official_counts, protocol_notes
from core.evaluation.result import Result
from core.evaluation.zero_shot import OFFICIAL

_PUBLISHED_PREPROCESS = {
    "retrieval": "retrieval",
    "multilabel": "retrieval",
    "classification": "classification",
    "chains": "classification",
}
"""How the published figures made squares of whole pictures, by family."""

_FEWER = "fewer pictures than the whole split"
_LEFT_OUT = "pictures that could not be read are left out"
_SQUARES = "squares made otherwise than for the published figures (--preprocess)"
_PROMPTS = "other prompts than the official ones (--prompts), so no published figure is like it"
_MIXED = "results of different models in one folder; measure them again"
_DIFFER = "figures of models that are not of the same thing"
_NO_PAIRS = "not the same pictures were left out of all models, so no paired test is made"


@dataclass(frozen=True)
class Caution:
    """Something to know before figures are compared."""

    kind: str
    item: str
    """Where it is so; empty where the kind says it all."""
    tasks: frozenset[str]
    """Of which tasks; empty where it is of all."""


def find_cautions(models: Sequence[Model]) -> list[Caution]:
    """All there is to know."""
    found = [*_of_results(models), *_between(models)]
    there = {task for model in models for task in model.results}
    noted = [Caution(text, "", tasks) for text, tasks in protocol_notes() if there & tasks]
    return [*found, *noted]


def told(found: Sequence[Caution], tasks: Sequence[str] | None = None) -> tuple[str, ...]:
    """Sentences, one a kind: of these tasks, or of those cautions that are of none in particular.

    Args:
        found: All cautions.
        tasks: None for all cautions, whatever they are of.
    """
    own = [
        caution
        for caution in found
        if tasks is None or caution.tasks & {*tasks} or not (tasks or caution.tasks)
    ]
    kinds = dict.fromkeys(caution.kind for caution in own)
    return tuple(
        _sentence(kind, [c.item for c in own if c.kind == kind and c.item]) for kind in kinds
    )


def _sentence(kind: str, items: Sequence[str]) -> str:
    return f"{kind}: {'; '.join(items)}" if items else kind


def _of_results(models: Sequence[Model]) -> Iterator[Caution]:
    """What a result says of itself, once for all models of which it is so."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for model in models:
        prints = {r.determined_by["encoder"]["fingerprint"] for r in model.results.values()}
        if len(prints) > 1:
            said.setdefault((_MIXED, f"{len(prints)} fingerprints", ""), []).append(model.name)
        for task, result in model.results.items():
            for kind, item in _of_result(task, result):
                said.setdefault((kind, item, task), []).append(model.name)
    for (kind, item, task), names in said.items():
        having = [model.name for model in models if not task or task in model.results]
        of_whom = f" ({', '.join(names)})" if names != having else ""
        yield Caution(kind, f"{item}{of_whom}", frozenset({task} if task else ()))


def _of_result(task: str, result: Result) -> Iterator[tuple[str, str]]:
    data, protocol = result.determined_by["data"], result.determined_by["protocol"]
    family, _, name = task.partition("/")
    full = official_counts().get(name)
    if full and data["records"] < full and family != "parts":
        yield _FEWER, f"{task} {data['records']:,} of {full:,}"
    elif data.get("limit"):
        yield _FEWER, f"{task} the first {data['records']:,}"
    if result.left_out:
        yield _LEFT_OUT, f"{task} {len(result.left_out):,}, the first {result.left_out[0]}"
    usual, own = _PUBLISHED_PREPROCESS.get(family), protocol.get("preprocess")
    if usual and own not in (None, usual) and name in TITLES:
        yield _SQUARES, f"{task} by {own} where {usual} is usual"
    prompts = protocol.get("prompts", {})
    if family == "classification" and name in TITLES and OFFICIAL not in prompts:
        yield _PROMPTS, f"{task} by {', '.join(prompts)}"


def _between(models: Sequence[Model]) -> Iterator[Caution]:
    """What determined the results of one task, and is not the same for all models."""
    for task in tasks_of(models):
        having = [(m, m.results[task].determined_by) for m in models if task in m.results]
        first, base = having[0]
        for model, other in having[1:]:
            places = [
                place
                for part in ("data", "protocol", "seed")
                for place in _differing(base[part], other[part], part)
            ]
            if places:
                item = f"{task}, {first.name} and {model.name} in {', '.join(places)}"
                yield Caution(_DIFFER, item, frozenset({task}))
        if len({frozenset(model.results[task].left_out) for model, _ in having}) > 1:
            yield Caution(_NO_PAIRS, task, frozenset({task}))


def _differing(a: Any, b: Any, place: str) -> Iterator[str]:
    """The keys under which two differ; where one has other keys, the place that holds them."""
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for key in a:
            yield from _differing(a[key], b[key], f"{place}.{key}")
    elif a != b:
        yield place
