"""Image-text retrieval both ways, in blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core import lorentz
from core.errors import VectorError

Points = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]

_BLOCK = 256  # images at once: 25,000 texts against them take 50 MB
_TIE = 1e-12  # of the product of the time coordinates; rounding in float64 is about 1e-15


@dataclass(frozen=True)
class Recalls:
    """Shares of queries with a right answer among their k nearest, by k."""

    image_to_text: dict[int, float]
    """Any of an image's own texts is right."""
    text_to_image: dict[int, float]
    image_to_text_chance: dict[int, float]
    text_to_image_chance: dict[int, float]
    images: int
    texts: int


def retrieval(
    images: Points,
    texts: Points,
    image_of_text: Sequence[int] | Indices,
    curvature: float,
    ks: Sequence[int] = (1, 5, 10),
) -> Recalls:
    """Rank all texts for each image, and all images for each text, by distance.

    Distances grow with the negative Lorentz product, so that one matrix product in float64
    ranks. A wrong item that ties with the right one counts as nearer: a model that sends
    everything to one point has recall 0, not 1.

    Args:
        images: Points, ``(n, dim + 1)``. One without a text is never asked for texts.
        texts: Points, ``(m, dim + 1)``.
        image_of_text: The index of each text's image, ``(m,)``.
        curvature: c > 0, of both.
        ks: How many nearest are looked at.

    Raises:
        VectorError: A coordinate is not finite.
    """
    owner = np.asarray(image_of_text, np.intp)
    images_before, texts_before = _ranks(
        _points(images, curvature), _points(texts, curvature), owner
    )
    own = np.bincount(owner, minlength=len(images))
    asked = own > 0
    return Recalls(
        image_to_text={k: float(np.mean(texts_before[asked] < k)) for k in ks},
        text_to_image={k: float(np.mean(images_before < k)) for k in ks},
        image_to_text_chance={
            k: float(np.mean([chance_of_hit(len(texts), n, k) for n in own[asked]])) for k in ks
        },
        text_to_image_chance={k: chance_of_hit(len(images), 1, k) for k in ks},
        images=int(asked.sum()),
        texts=len(texts),
    )


def chance_of_hit(items: int, right: int, k: int) -> float:
    """The chance that ``k`` items drawn at random hold one of the right ones."""
    return 1 - math.comb(items - right, k) / math.comb(items, k) if k < items else 1.0


def _ranks(images: Points, texts: Points, owner: Indices) -> tuple[Indices, Indices]:
    """How many wrong images come before each text's own, and wrong texts before each image's."""
    own = lorentz.inner(images[owner], texts)
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, owner, own)
    image_time, text_time = images[:, 0], texts[:, 0]
    text_bar = own - _TIE * image_time.max() * text_time
    image_bar = best - _TIE * text_time.max() * image_time
    images_before = np.zeros(len(texts), np.intp)
    texts_before = np.zeros(len(images), np.intp)
    columns = lorentz.mirror(texts).T
    for start in range(0, len(images), _BLOCK):
        stop = min(start + _BLOCK, len(images))
        products = images[start:stop] @ columns
        mine = np.flatnonzero((owner >= start) & (owner < stop))
        products[owner[mine] - start, mine] = -np.inf  # what is right is not ahead of itself
        images_before += (products >= text_bar).sum(axis=0)
        texts_before[start:stop] = (products >= image_bar[start:stop, None]).sum(axis=1)
    return images_before, texts_before


def _points(points: Points, curvature: float) -> npt.NDArray[np.float64]:
    """The points in float64, exactly on the hyperboloid."""
    if not np.isfinite(points).all():
        rows = np.flatnonzero(~np.isfinite(points).all(axis=1))
        raise VectorError(f"{len(rows)} points are not finite, the first at row {rows[0]}")
    return lorentz.from_space(points[:, 1:].astype(np.float64), curvature)
