"""How much an accuracy hangs on its prompts: the paper's Table 6, for any set of prompts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.classification import classify
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import mean_per_class_accuracy
from core.evaluation.task import Kind, Options
from core.evaluation.zero_shot import (
    OFFICIAL,
    PHOTO,
    embed_prompts,
    has_classes,
    names_protocol,
    official_prompts,
    per_class,
    points_of_classes,
)
from core.prompts import prompt_sets

Indices = npt.NDArray[np.intp]

_SETS = "prompt sets"


@dataclass(frozen=True)
class _Template:
    """One template of a set, alone."""

    set: str
    template: str
    accuracy: float


def _protocol(data: Dataset, options: Options) -> dict[str, Any]:
    variant = next(iter(data.classes))
    return {
        "preprocess": options.preprocess or "classification",
        "prompts": {name: list(templates) for name, templates in _sets(data, options).items()},
        "names": {variant: names_protocol(data)[variant]},
        "class point": "mean tangent over the prompts, lifted once",
        "ties": "the first class in order wins",
        "accuracy": "mean over the classes that have pictures",
    }


def _measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """The accuracy under each prompt set, and under each of their templates alone.

    ``details``: ``templates``, of each its ``set``, ``template`` and ``accuracy``; ``extremes``,
    of each group of templates the ``best`` and the ``worst`` as such.
    """
    actual = data.labels()
    names = next(iter(data.classes.values()))
    sets = _sets(data, options)
    images = embedder.readable(data.pictures(options.preprocess or "classification"))
    tangents = embed_prompts(embedder, sets.values(), [names])
    truth = actual[images.rows]

    def predict(templates: Sequence[str]) -> Indices:
        classes = points_of_classes(tangents, templates, names, embedder.space)
        return classify(images.points, classes, embedder.space)

    alone: dict[str, float] = {}
    distinct = dict.fromkeys(template for templates in sets.values() for template in templates)
    task = embedder.progress.add_task("templates", total=len(distinct))
    for template in distinct:
        predicted = predict([template])
        alone[template] = mean_per_class_accuracy(predicted, truth, len(names), "observed")
        embedder.progress.advance(task)
    embedder.progress.remove_task(task)
    whole = {prompts: predict(templates) for prompts, templates in sets.items()}
    measures = [
        per_class(_SETS, prompts, predicted, truth, images.rows, len(names))
        for prompts, predicted in whole.items()
    ]
    if {OFFICIAL, PHOTO} <= set(whole):
        hits = (whole[OFFICIAL] == truth).astype(np.float64) - (whole[PHOTO] == truth)
        measures.append(_difference(hits, truth, images.rows))
    found = [
        _Template(prompts, template, alone[template])
        for prompts, templates in sets.items()
        for template in templates
    ]
    groups = _groups(found)
    for group, templates in groups.items():
        measures += _spread(group, templates, len(truth), len(names))
    details = {
        "templates": [asdict(each) for each in found],
        "extremes": {group: _extremes(templates) for group, templates in groups.items()},
    }
    return Finding(tuple(measures), details, images.left_out)


def _sets(data: Dataset, options: Options) -> Mapping[str, tuple[str, ...]]:
    """The official set, the photo set, and those that the user gave; of equal names the last."""
    official = official_prompts(data)
    sets = {OFFICIAL: official} if official else {}
    return sets | {PHOTO: prompt_sets()[PHOTO]} | dict(options.prompts or {})


def _difference(gained: npt.NDArray[np.float64], actual: Indices, rows: Indices) -> Measure:
    """What the official prompts gain over the photo prompt, picture by picture.

    Args:
        gained: ``(n,)``: 1 where they alone are right, -1 where the photo prompt alone is.
        actual: ``(n,)``, classes.
        rows: Which picture of the data set each is.
    """
    items = np.bincount(actual)
    sums = np.bincount(actual, weights=gained)
    return Measure(
        _SETS,
        f"{OFFICIAL} less {PHOTO}",
        float(np.mean(sums[items > 0] / items[items > 0])),
        0.0,
        len(actual),
        is_headline=True,
        outcomes=Outcomes("per_class", gained, rows, actual),
    )


def _groups(found: Sequence[_Template]) -> dict[str, list[_Template]]:
    """The templates of each set that has several, and each distinct one of all sets."""
    by_set: dict[str, list[_Template]] = {}
    for each in found:
        by_set.setdefault(each.set, []).append(each)
    groups = {f"single templates, {prompts} set": each for prompts, each in by_set.items()}
    if len(by_set) > 1:
        groups["single templates, all sets"] = list(
            {each.template: each for each in found}.values()
        )
    return {group: templates for group, templates in groups.items() if len(templates) > 1}


def _extremes(templates: Sequence[_Template]) -> dict[str, Any]:
    ordered = sorted(templates, key=lambda each: each.accuracy)
    return {"best": asdict(ordered[-1]), "worst": asdict(ordered[0])}


def _spread(
    group: str, templates: Sequence[_Template], pictures: int, classes: int
) -> Iterator[Measure]:
    """Best and worst template, how far they are apart, and the standard deviation over all."""
    accuracies = np.array([each.accuracy for each in templates])
    best, worst = float(accuracies.max()), float(accuracies.min())
    yield Measure(group, "best", best, 1 / classes, pictures)
    yield Measure(group, "worst", worst, 1 / classes, pictures)
    for name, value in (("spread", best - worst), ("deviation", float(accuracies.std()))):
        yield Measure(group, name, value, None, len(templates), is_lower_better=True)


KIND = Kind(
    "prompts",
    "how accuracy changes with the prompts: sets against each other, and single templates",
    has_classes,
    _protocol,
    _measure,
)
