"""Several things in one picture: mean average precision over classes (Table 4)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation.classification import class_points
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder, Readable
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import average_precision, mean_average_precision
from core.evaluation.task import Kind, Options
from core.evaluation.zero_shot import PHOTO, names_protocol, prompts_of
from core.prompts import prompt_sets

_BLOCK = 1024  # pictures at once

Scores = npt.NDArray[np.float64]
Positives = npt.NDArray[np.bool_]


def protocol(data: Dataset, options: Options) -> dict[str, Any]:
    """Prompts, names, preprocessing, and the rules of the average."""
    return {
        "preprocess": options.preprocess or "retrieval",
        "prompts": {name: list(templates) for name, templates in _prompts(options).items()},
        "names": names_protocol(data),
        "score": "similarity of the picture to the class; the mean tangent over templates, lifted",
        "ties": "grouped; also in insertion order, named so",
        "classes": "those with a positive among the pictures, each counts the same",
        "pictures": "all; also those with a label alone, where some have none",
    }


def measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Mean average precision for each variant of the names and each prompt set.

    ``details["pictures"]`` counts pictures, those without a label and classes without a picture;
    ``details["classes"]`` lists name, positives and average precision by variant.

    Raises:
        DataError: There are no class names, or no picture that can be read has a label.
    """
    rows, positives = _positives(data)
    preprocess = options.preprocess or "retrieval"
    pictures = [data.picture(data.records[row], preprocess) for row in rows]
    found = embedder.readable(pictures)
    rows, positives = rows[found.rows], positives[found.rows]
    if not positives.any():
        raise DataError(
            f"{data.folder}: no picture that has a label can be read; {found.left_out[0]}"
        )
    measures: list[Measure] = []
    listed: dict[str, Any] = {}
    sets = _prompts(options)
    for variant, names in data.classes.items():
        for prompts, templates in sets.items():
            title = variant if len(sets) == 1 else f"{variant}, prompts {prompts}"
            scores = _scores(embedder, found, names, templates)
            measures += _figures(title, scores, positives, rows)
            listed[title] = _by_class(names, scores, positives)
    counts = {
        "all": len(rows),
        "without a label": int((~positives.any(axis=1)).sum()),
        "classes without a picture": int((~positives.any(axis=0)).sum()),
    }
    return Finding(tuple(measures), {"pictures": counts, "classes": listed}, found.left_out)


def _prompts(options: Options) -> Mapping[str, tuple[str, ...]]:
    return options.prompts or {PHOTO: prompt_sets()[PHOTO]}


def _positives(data: Dataset) -> tuple[npt.NDArray[np.intp], Positives]:
    """The records that are labelled, and their classes ``(n, classes)``."""
    if not data.classes:
        raise DataError(
            f"{data.folder}: the classes have no names; write them as a list into "
            "categories.json beside the records"
        )
    labelled = [row for row, record in enumerate(data.records) if record.labels is not None]
    positives = data.positives()[labelled]
    if not positives.any():
        raise DataError(f"{data.folder}: none of the {len(labelled):,} pictures has a label")
    return np.array(labelled, np.intp), positives


def _scores(
    embedder: Embedder, found: Readable, names: tuple[str, ...], templates: tuple[str, ...]
) -> Scores:
    """Similarities, ``(pictures, classes)``."""
    tangents = embedder.texts(prompts_of(templates, names), "names")
    classes = class_points(tangents, len(templates), embedder.space)
    return np.concatenate(
        [
            embedder.space.similarity(classes, found.points[start : start + _BLOCK]).T
            for start in range(0, len(found.points), _BLOCK)
        ]
    )


def _figures(
    title: str, scores: Scores, positives: Positives, rows: npt.NDArray[np.intp]
) -> list[Measure]:
    measures = _of_pictures(title, "mAP", scores, positives, rows)
    has_label = positives.any(axis=1)
    if not has_label.all():
        own = scores[has_label], positives[has_label], rows[has_label]
        measures += _of_pictures(title, "mAP, pictures with a label alone", *own)
    return measures


def _of_pictures(
    title: str, name: str, scores: Scores, positives: Positives, rows: npt.NDArray[np.intp]
) -> list[Measure]:
    grouped, ordered = (
        mean_average_precision(scores, positives, ties) for ties in ("grouped", "insertion")
    )
    share = positives.mean(axis=0)
    chance = float(share[share > 0].mean())
    outcomes = Outcomes("map", scores, rows, positives)
    count = len(rows)
    return [
        Measure(title, name, grouped, chance, count, is_headline=True, outcomes=outcomes),
        Measure(title, f"{name}, ties in insertion order", ordered, chance, count),
    ]


def _by_class(
    names: tuple[str, ...], scores: Scores, positives: Positives
) -> list[dict[str, str | int | float]]:
    return [
        {
            "name": name,
            "positives": int(positives[:, column].sum()),
            "ap": average_precision(scores[:, column], positives[:, column]),
        }
        for column, name in enumerate(names)
        if positives[:, column].any()
    ]


KIND = Kind(
    name="multilabel",
    about="mean average precision of several things in a picture",
    applies=lambda data: "multilabel" in data.families,
    protocol=protocol,
    measure=measure,
)
