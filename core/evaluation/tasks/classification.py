"""Zero-shot naming: the columns of the paper's Table 3, and the hierarchy half of its Table 2."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from core.evaluation.classification import Naming, name_images
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder, Readable
from core.evaluation.hierarchy import Paths, paths_of, read_tree
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import calibration_error, reliability
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
Unit = Literal["share", "number"]

PHOTO_IN_TABLE_3 = ("food101", "cub2011", "flowers102")
"""The data sets whose figure in the paper's Table 3 is that of the photo prompt."""

_BINS = 15
_TREE_MEASURES: dict[str, tuple[str, Unit, bool]] = {
    "TIE": ("tree_edges", "number", True),
    "LCA": ("lca", "number", True),
    "Jaccard": ("jaccard", "share", False),
    "H-precision": ("precision", "share", False),
    "H-recall": ("recall", "share", False),
}
_HEIGHT: dict[str, tuple[str, Unit, bool]] = {"LCA height": ("height", "number", True)}
_AT_ONCE = 64  # true classes whose guesses are scored at once: 1,000 classes deep 16 take 8 MB


def _protocol(data: Dataset, options: Options) -> dict[str, Any]:
    return {
        "preprocess": options.preprocess or "classification",
        "prompts": {name: list(templates) for name, templates in _sets(data, options).items()},
        "names": names_protocol(data),
        "class point": "mean tangent over the prompts, lifted once",
        "ties": "the first class in order wins",
        "mean per class": "over the classes that have pictures",
        "calibration": f"{_BINS} bins of equal width",
        "hierarchy": "strict: a label is not among its ancestors; and inclusive",
    }


def _measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Accuracies for each prompt set and variant of names, and tree measures where there is a tree.

    ``details``: ``table3_group``, the group whose mean per class stands in the paper's Table 3;
    ``reliability``, of each group the bins of confidence with count, confidence and accuracy;
    ``not_measured``, where the classes are nodes of a tree that is not there, how to get it.
    """
    actual = data.labels()
    paths = paths_of(read_tree(data.tree), data.nodes) if data.tree and data.nodes else None
    sets = _sets(data, options)
    images = embedder.readable(data.pictures(options.preprocess or "classification"))
    truth = actual[images.rows]
    tangents = embed_prompts(embedder, sets.values(), data.classes.values())
    measures: list[Measure] = []
    bins: dict[str, Any] = {}
    for variant, names in data.classes.items():
        for prompts, templates in sets.items():
            group = group_of(prompts, variant)
            classes = points_of_classes(tangents, templates, names, embedder.space)
            scale = embedder.encoder.logit_scale
            found = name_images(images.points, classes, truth, embedder.space, scale)
            measures += _accuracies(group, found, truth, images, len(names))
            if found.confidence is not None:
                measure, bins[group] = _calibration(group, found.confidence, found.before == 0)
                measures.append(measure)
            if paths is not None:
                measures += _tree_measures(group, paths, found.predicted, truth, images.rows)
    details: dict[str, Any] = {"table3_group": _table3_group(data, sets), "reliability": bins}
    if data.nodes and data.tree is None:
        details["not_measured"] = ["hierarchy: hyper3 data fetch imagenet-tree"]
    return Finding(tuple(measures), details, images.left_out)


def group_of(prompts: str, variant: str) -> str:
    """What the figures of a prompt set and a variant of the names stand under."""
    return f"{prompts} prompts, names of {variant}"


def _sets(data: Dataset, options: Options) -> Mapping[str, tuple[str, ...]]:
    """The prompt sets to use: those given, or the official one, with the photo set beside it."""
    if options.prompts:
        return options.prompts
    official, photo = official_prompts(data), prompt_sets()[PHOTO]
    if not official:
        return {PHOTO: photo}
    return {OFFICIAL: official} | ({PHOTO: photo} if data.name in PHOTO_IN_TABLE_3 else {})


def _table3_group(data: Dataset, sets: Mapping[str, tuple[str, ...]]) -> str | None:
    wanted = PHOTO if data.name in PHOTO_IN_TABLE_3 else OFFICIAL
    return group_of(wanted, next(iter(data.classes))) if wanted in sets else None


def _accuracies(
    group: str, found: Naming, actual: Indices, images: Readable, classes: int
) -> Iterator[Measure]:
    yield per_class(group, "mean per class", found.predicted, actual, images.rows, classes)
    for k in (1, 5):
        if k < classes:
            hits = found.before < k
            outcomes = Outcomes("mean", hits, images.rows)
            share = float(np.mean(hits))
            yield Measure(group, f"top-{k}", share, k / classes, len(hits), outcomes=outcomes)


def _calibration(
    group: str, confidence: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]
) -> tuple[Measure, list[dict[str, Any]]]:
    bins = reliability(confidence, right, _BINS)
    measure = Measure(
        group,
        "calibration error",
        calibration_error(bins),
        None,
        len(right),
        is_lower_better=True,
    )
    return measure, [asdict(each) for each in bins]


def _tree_measures(
    group: str, paths: Paths, predicted: Indices, actual: Indices, rows: Indices
) -> Iterator[Measure]:
    """TIE, LCA, Jaccard, precision and recall, strict and inclusive, and the symmetric height."""
    for title, inclusive in (("hierarchy", False), ("hierarchy with the labels", True)):
        scores = paths.compare(predicted, actual, inclusive=inclusive)
        chance = _chance(paths, actual, inclusive=inclusive)
        wanted = _TREE_MEASURES if inclusive else _TREE_MEASURES | _HEIGHT
        for name, (score, unit, is_lower_better) in wanted.items():
            yield Measure(
                f"{title}, {group}",
                name,
                float(np.mean(scores[score])),
                chance[score],
                len(actual),
                unit,
                is_lower_better,
                is_headline=not inclusive,
                outcomes=Outcomes("mean", scores[score], rows),
            )


def _chance(paths: Paths, actual: Indices, *, inclusive: bool) -> dict[str, float]:
    """The mean scores of guesses that take every class equally often."""
    classes = np.arange(len(paths.nodes))
    truths, counts = np.unique(actual, return_counts=True)
    sums: dict[str, float] = {}
    for start in range(0, len(truths), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        scores = paths.compare(classes, truths[block, None], inclusive=inclusive)
        for name, values in scores.items():
            sums[name] = sums.get(name, 0.0) + float(values.mean(axis=1) @ counts[block])
    return {name: total / len(actual) for name, total in sums.items()}


KIND = Kind(
    "classification",
    "pictures named by the nearest class: accuracy, calibration, and the distance in a tree",
    has_classes,
    _protocol,
    _measure,
)
