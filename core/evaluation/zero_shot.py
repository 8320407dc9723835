"""What zero-shot naming asks: which prompt sets, of which class names."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation.classification import class_points
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Tangents
from core.evaluation.measure import Measure, Outcomes
from core.evaluation.metrics import mean_per_class_accuracy
from core.prompts import fill, prompt_sets
from core.spaces import Space

Indices = npt.NDArray[np.intp]

PHOTO = "photo"
OFFICIAL = "official"


def has_classes(data: Dataset) -> bool:
    """Whether every picture shows one of the named classes."""
    return "classification" in data.families and bool(data.classes)


def official_prompts(data: Dataset) -> tuple[str, ...]:
    """The official templates of a data set, none where it has no prompt set.

    Raises:
        DataError: Its prompt set is not known.
    """
    if not data.prompts:
        return ()
    templates = prompt_sets().get(data.prompts)
    if templates is None:
        raise DataError(
            f"{data.folder}: prompts {data.prompts!r} are not known; write one of "
            f"{', '.join(sorted(prompt_sets()))} into its manifest"
        )
    return templates


def names_protocol(data: Dataset) -> dict[str, Any]:
    """Each variant of the class names, the default first, as a digest with size and origin."""
    return {
        variant: {
            "sha256": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
            "count": len(names),
            "origin": data.classes_origin.get(variant, ""),
        }
        for variant, names in data.classes.items()
    }


def prompts_of(templates: Iterable[str], names: Iterable[str]) -> list[str]:
    """All templates of the first name, then of the next."""
    templates = tuple(templates)
    return [fill(template, name) for name in names for template in templates]


def embed_prompts(
    embedder: Embedder, sets: Iterable[Iterable[str]], variants: Iterable[Iterable[str]]
) -> dict[str, Tangents]:
    """The tangent of every template with every name, each distinct text embedded once."""
    sets, variants = [tuple(each) for each in sets], [tuple(each) for each in variants]
    texts = list(
        dict.fromkeys(
            text
            for names in variants
            for templates in sets
            for text in prompts_of(templates, names)
        )
    )
    return dict(zip(texts, embedder.texts(texts, "prompts"), strict=True))


def points_of_classes(
    tangents: Mapping[str, Tangents], templates: Iterable[str], names: Iterable[str], space: Space
) -> npt.NDArray[np.float64]:
    """One point a class: the mean tangent over the templates, lifted."""
    templates = tuple(templates)
    rows = np.stack([tangents[text] for text in prompts_of(templates, names)])
    return class_points(rows, len(templates), space)


def per_class(
    group: str, name: str, predicted: Indices, actual: Indices, cluster: Indices, classes: int
) -> Measure:
    """The accuracy of each class that has pictures, averaged, as a headline.

    Args:
        group: Of the measure.
        name: Of the measure.
        predicted: ``(n,)``, classes.
        actual: ``(n,)``, classes.
        cluster: Which picture of the data set each is, ``(n,)``.
        classes: How many there are.
    """
    return Measure(
        group,
        name,
        mean_per_class_accuracy(predicted, actual, classes, "observed"),
        1 / classes,
        len(actual),
        is_headline=True,
        outcomes=Outcomes("per_class", predicted == actual, cluster, actual),
    )
