"""Image-text retrieval both ways, in blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import VectorError
from core.spaces import Space

Points = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]

_BLOCK = 256  # images at once: 25,000 texts against them take 50 MB


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
    space: Space,
    ks: Sequence[int] = (1, 5, 10),
) -> Recalls:
    """Rank all texts for each image, and all images for each text, by similarity.

    A wrong item that ties with the right one counts as nearer: a model that sends everything to
    one point has recall 0, not 1.

    Args:
        images: Points, ``(n, ...)``. One without a text is never asked for texts.
        texts: Points, ``(m, ...)``.
        image_of_text: The index of each text's image, ``(m,)``.
        space: Of both.
        ks: How many nearest are looked at.

    Raises:
        VectorError: A coordinate is not finite.
    """
    owner = np.asarray(image_of_text, np.intp)
    images_before, texts_before = _ranks(
        _points(images, space), _points(texts, space), owner, space
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


def _ranks(images: Points, texts: Points, owner: Indices, space: Space) -> tuple[Indices, Indices]:
    """How many wrong images come before each text's own, and wrong texts before each image's."""
    own = _own(images, texts, owner, space)
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, owner, own)
    image_grain, text_grain = space.grain(images), space.grain(texts)
    text_bar = own - image_grain.max() * text_grain
    image_bar = best - text_grain.max() * image_grain
    images_before = np.zeros(len(texts), np.intp)
    texts_before = np.zeros(len(images), np.intp)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        ranking = space.ranking(texts, images[block])
        mine = np.flatnonzero(owner // _BLOCK == start // _BLOCK)
        ranking[mine, owner[mine] - start] = -np.inf  # what is right is not ahead of itself
        images_before += (ranking >= text_bar[:, None]).sum(axis=1)
        texts_before[block] = (ranking >= image_bar[block]).sum(axis=0)
    return images_before, texts_before


def _own(images: Points, texts: Points, owner: Indices, space: Space) -> npt.NDArray[np.float64]:
    """The ranking of each text with its own image, rounded as among all others."""
    own = np.empty(len(texts))
    for start in range(0, len(images), _BLOCK):
        mine = np.flatnonzero(owner // _BLOCK == start // _BLOCK)
        ranking = space.ranking(texts[mine], images[start : start + _BLOCK])
        own[mine] = ranking[np.arange(len(mine)), owner[mine] - start]
    return own


def _points(points: Points, space: Space) -> npt.NDArray[np.float64]:
    """The points in float64, exactly in their space."""
    finite = np.isfinite(points).reshape(len(points), -1).all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite)
        raise VectorError(f"{len(rows)} points are not finite, the first at row {rows[0]}")
    return space.restore(points.astype(np.float64))
