"""Zero-shot naming: the class whose text lies nearest."""

import numpy as np
import numpy.typing as npt

from core import lorentz
from core.evaluation.encoder import Tangents


def class_points(tangents: Tangents, templates: int, curvature: float) -> npt.NDArray[np.float64]:
    """One point a class, ``(classes, dim + 1)``: the mean tangent over templates, lifted once.

    Args:
        tangents: ``(classes * templates, dim)``, all templates of a class side by side.
        templates: How many there are.
        curvature: c > 0.
    """
    grouped = tangents.astype(np.float64).reshape(-1, templates, tangents.shape[-1])
    return lorentz.lift(grouped.mean(axis=1), curvature)


def classify(
    images: npt.NDArray[np.float64], classes: npt.NDArray[np.float64], curvature: float
) -> npt.NDArray[np.intp]:
    """The index of the class nearest to each image, ``(n,)``; of equal ones the first.

    Args:
        images: Points, ``(n, dim + 1)``.
        classes: Points, ``(classes, dim + 1)``.
        curvature: c > 0.
    """
    nearest: npt.NDArray[np.intp] = np.argmin(
        lorentz.pairwise_distance(images, classes, curvature), axis=1
    )
    return nearest
