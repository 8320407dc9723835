"""Zero-shot naming: the class whose text lies nearest."""

from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.encoder import Tangents
from core.spaces import Space

Points = npt.NDArray[np.floating[Any]]

_BLOCK = 1024  # images at once: 1,000 classes against them take 8 MB


def class_points(tangents: Tangents, templates: int, space: Space) -> npt.NDArray[np.float64]:
    """One point a class: the mean tangent over templates, lifted once.

    On the sphere every text is normalised first, as CLIP does.

    Args:
        tangents: ``(classes * templates, dim)``, all templates of a class side by side.
        templates: How many there are.
        space: What the points are of.
    """
    grouped = tangents.astype(np.float64).reshape(-1, templates, tangents.shape[-1])
    return space.centre(grouped)


def classify(images: Points, classes: Points, space: Space) -> npt.NDArray[np.intp]:
    """The index of the class most similar to each image, ``(n,)``; of equal ones the first.

    Args:
        images: Points.
        classes: Points.
        space: Of both.
    """
    images, classes = (space.restore(points.astype(np.float64)) for points in (images, classes))
    nearest = [
        space.ranking(classes, images[start : start + _BLOCK]).argmax(0)
        for start in range(0, len(images), _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.intp), *nearest])
