"""Zero-shot naming: the class whose text lies nearest."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.blocks import each_block
from core.evaluation.encoder import Tangents
from core.spaces import Lorentz, Space

Points = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

_BLOCK = 256  # images at once: 1,000 classes against them take 2 MB


@dataclass(frozen=True)
class Naming:
    """What images were taken for."""

    predicted: Indices
    """``(n,)``: the most similar class; of equal ones the first."""
    before: Indices
    """``(n,)``: how many classes come before the true one, in that order."""
    confidence: Floats | None
    """``(n,)``: the probability of the predicted class, where similarities can become logits."""


def class_points(tangents: Tangents, templates: int, space: Space) -> Floats:
    """One point a class: the mean tangent over templates, lifted once.

    On the sphere every text is normalised first, as CLIP does.

    Args:
        tangents: ``(classes * templates, dim)``, all templates of a class side by side.
        templates: How many there are.
        space: What the points are of.
    """
    grouped = tangents.astype(np.float64).reshape(-1, templates, tangents.shape[-1])
    return space.centre(grouped)


def classify(images: Points, classes: Points, space: Space) -> Indices:
    """The index of the class most similar to each image, ``(n,)``; of equal ones the first.

    Args:
        images: Points.
        classes: Points.
        space: Of both.
    """
    images, classes = (space.restore(points.astype(np.float64)) for points in (images, classes))

    def nearest(start: int) -> Indices:
        best: Indices = space.ranking(classes, images[start : start + _BLOCK]).argmax(0)
        return best

    found = each_block(nearest, range(0, len(images), _BLOCK))
    return np.concatenate([np.empty(0, np.intp), *found])


def name_images(
    images: Points, classes: Points, actual: Indices, space: Space, logit_scale: float | None
) -> Naming:
    """What each image is taken for, how far off the true class is, and how sure the model is.

    Args:
        images: Points.
        classes: Points.
        actual: The true class of each image, ``(n,)``.
        space: Of both.
        logit_scale: What similarities are multiplied by before the softmax; None leaves
            confidences out.
    """
    images, classes = (space.restore(points.astype(np.float64)) for points in (images, classes))

    def block(start: int) -> tuple[Indices, Indices, Floats]:
        seen, truth = images[start : start + _BLOCK], actual[start : start + _BLOCK]
        ranking = space.ranking(classes, seen).T
        own = ranking[np.arange(len(truth)), truth][:, None]
        ahead = (ranking > own) | ((ranking == own) & (np.arange(len(classes)) < truth[:, None]))
        sure = np.empty(0)
        if logit_scale is not None:
            products = isinstance(space, Lorentz) and space.score == "distance"
            similarity = space.similarity(classes, seen).T if products else ranking
            logits = logit_scale * (similarity - similarity.max(axis=1, keepdims=True))
            sure = 1 / np.exp(logits).sum(axis=1)
        return ranking.argmax(axis=1), np.count_nonzero(ahead, axis=1), sure

    found = [(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0))]
    found += each_block(block, range(0, len(images), _BLOCK))
    predicted, before, sure = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Naming(predicted, before, None if logit_scale is None else sure)
