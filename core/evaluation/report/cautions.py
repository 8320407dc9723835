"""What else makes figures differ: splits, protocols, pictures that were left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.evaluation.report.likeness import differing, why_not_paired
from core.evaluation.report.models import Model, tasks_of
from core.evaluation.report.published import official_counts, protocol_notes
from core.evaluation.result import Result

_FEWER = "fewer pictures than the whole split"
_LEFT_OUT = "pictures that could not be read are left out"
_MIXED = "results of different models in one folder; measure them again"
_DIFFER = "figures of models that are not of the same thing"
_NO_PAIRS = "no paired test is made"
_BROKEN = "results that cannot be read are missing here"


@dataclass(frozen=True)
class Caution:
    """Something to know before figures are compared."""

    kind: str
    item: str
    """Where it is so; empty where the kind says it all."""
    tasks: frozenset[str]
    """Of which tasks; empty where it is of all."""


def find_cautions(
    models: Sequence[Model], broken: Sequence[str] = (), base: Model | None = None
) -> list[Caution]:
    """All there is to know.

    Args:
        models: All of the report.
        broken: Of each result that could not be read why.
        base: With whom the others are compared; None for the first that did a task.
    """
    found = [*_of_results(models), *_between(models, base)]
    found += [Caution(_BROKEN, why, frozenset()) for why in broken]
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
    records = result.determined_by["data"]["records"]
    family, _, name = task.partition("/")
    full = official_counts().get(name)
    if full and records < full and family != "parts":
        yield _FEWER, f"{task} {records:,} of {full:,}"
    if result.left_out:
        yield _LEFT_OUT, f"{task} {len(result.left_out):,}, the first {result.left_out[0]}"


def _between(models: Sequence[Model], base: Model | None) -> Iterator[Caution]:
    """What determined the results of one task, and is not the same for all models."""
    for task in tasks_of(models):
        having = [model for model in models if task in model.results]
        first = base if base is not None and task in base.results else having[0]
        for model in having:
            if model is not first:
                for kind, said in _apart(first.results[task], model.results[task]):
                    item = f"{task}, {first.name} and {model.name} {said}"
                    yield Caution(kind, item, frozenset({task}))


def _apart(one: Result, other: Result) -> Iterator[tuple[str, str]]:
    places = [
        place
        for part in ("data", "protocol", "seed")
        for place in differing(one.determined_by[part], other.determined_by[part], part)
    ]
    if places:
        yield _DIFFER, f"in {', '.join(places)}"
    reasons = {why_not_paired(one, other, measure.group) for measure in one.measures}
    whole = why_not_paired(one, other)
    for why in sorted(reasons - {""}):
        yield _NO_PAIRS, f"({why})" if whole else f"where the seed draws ({why})"
