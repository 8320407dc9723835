"""Zero-shot naming: the class whose text lies nearest."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from core import lorentz
from core.articles import article
from core.evaluation.encoder import Tangents

NAMING_TEMPLATES = ("a photo of {a} {name}.", "{name}")


def fill_template(template: str, name: str) -> str:
    """A prompt: ``{name}`` becomes the name, underscores as spaces, ``{a}`` its article."""
    name = name.replace("_", " ")
    return template.format(name=name, a=article(name))


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


def prompts(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """The prompts of all classes, all templates of a class side by side."""
    return [fill_template(template, name) for name in names for template in templates]
