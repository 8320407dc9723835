"""Image-text retrieval both ways, in tiles that all cores share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from core.errors import VectorError
from core.evaluation.blocks import each_block
from core.spaces import Space

Points = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]

_IMAGES = 128  # in a tile; with _TEXTS 1 MB, which stays in a core's cache from step to step
_TEXTS = 1024
_OWN_IMAGES = 16  # whose own texts are ranked at once: all of them against all of these


@dataclass(frozen=True)
class Ranks:
    """How many wrong answers come before the first right one: 0 is a hit at 1."""

    images_before: Indices
    """``(texts,)``: wrong images before each text's own."""
    texts_before: Indices
    """``(images,)``: texts of others before the nearest of each image's own."""
    own: Indices
    """``(images,)``: how many texts an image has; one without is never asked for them."""


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
    ranks: Ranks


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
    ranks = rank(images, texts, image_of_text, space)
    asked = ranks.own > 0
    counts, images_with = np.unique(ranks.own[asked], return_counts=True)
    return Recalls(
        image_to_text={k: float(np.mean(ranks.texts_before[asked] < k)) for k in ks},
        text_to_image={k: float(np.mean(ranks.images_before < k)) for k in ks},
        image_to_text_chance={
            k: float(
                np.average(
                    [chance_of_hit(len(texts), int(own), k) for own in counts],
                    weights=images_with,
                )
            )
            for k in ks
        },
        text_to_image_chance={k: chance_of_hit(len(images), 1, k) for k in ks},
        images=int(asked.sum()),
        texts=len(texts),
        ranks=ranks,
    )


def rank(
    images: Points, texts: Points, image_of_text: Sequence[int] | Indices, space: Space
) -> Ranks:
    """The ranks from which `retrieval` makes its recalls, with the same arguments and errors."""
    owner = np.asarray(image_of_text, np.intp)
    images, texts = finite_points(images, space), finite_points(texts, space)
    own = _own(images, texts, owner, space)
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, owner, own)
    grains = space.grain(images), space.grain(texts)

    def count(start: int) -> tuple[Indices, Indices]:
        return _ahead(images, texts, owner, space, start, best, own, grains)

    images_before = np.zeros(len(texts), np.intp)
    texts_before = [np.empty(0, np.intp)]
    for per_text, per_image in each_block(count, range(0, len(images), _IMAGES)):
        images_before += per_text
        texts_before.append(per_image)
    return Ranks(
        images_before, np.concatenate(texts_before), np.bincount(owner, minlength=len(images))
    )


def places_of_right(
    images: Points,
    texts: Points,
    right: Sequence[Indices],
    space: Space,
    queries: Literal["images", "texts"],
) -> list[Indices]:
    """Where in the ranking of each query its right answers stand, where several are right.

    Wrong items that tie with a right one come first, as in `rank`.

    Args:
        images: Points, ``(n, ...)``.
        texts: Points, ``(m, ...)``.
        right: Of each query, which items of the other kind are right: one or more.
        space: Of both.
        queries: Which of the two ask; there are as many as ``right``.

    Returns:
        Of each query, rising places from 0, as many as are right.

    Raises:
        VectorError: A coordinate is not finite.
    """
    images, texts = finite_points(images, space), finite_points(texts, space)
    asking, items = (images, texts) if queries == "images" else (texts, images)
    grain, item_grain = space.grain(asking), space.grain(items)

    def block(start: int) -> list[Indices]:
        some = asking[start : start + _IMAGES]
        ranking = (
            space.ranking(texts, some).T if queries == "images" else space.ranking(some, images)
        )
        return [
            _places(row, right[q], grain[q] * item_grain) for q, row in enumerate(ranking, start)
        ]

    found = each_block(block, range(0, len(asking), _IMAGES))
    return [places for places_of_block in found for places in places_of_block]


def chance_of_hit(items: int, right: int, k: int) -> float:
    """The chance that ``k`` items drawn at random hold one of the right ones."""
    return 1 - math.comb(items - right, k) / math.comb(items, k) if k < items else 1.0


def finite_points(points: Points, space: Space) -> npt.NDArray[np.float64]:
    """The points in float64, exactly in their space.

    Raises:
        VectorError: A coordinate is not finite.
    """
    finite = np.isfinite(points).reshape(len(points), -1).all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite)
        raise VectorError(f"{len(rows)} points are not finite, the first at row {rows[0]}")
    return space.restore(points.astype(np.float64))


def _places(
    ranking: npt.NDArray[np.float64], right: Indices, slack: npt.NDArray[np.float64]
) -> Indices:
    own = np.sort(ranking[right])[::-1]
    wrong = np.delete(ranking + slack, right)
    wrong = np.sort(wrong[wrong >= own[-1]])
    before = len(wrong) - np.searchsorted(wrong, own, side="left")
    return before + np.arange(len(own))


def _ahead(
    images: Points,
    texts: Points,
    owner: Indices,
    space: Space,
    start: int,
    best: npt.NDArray[np.float64],
    own: npt.NDArray[np.float64],
    grains: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
) -> tuple[Indices, Indices]:
    """Wrong pairs of one block of images that are as near as the right ones, or nearer.

    Args:
        images: All, as the other arguments are of all.
        texts: All.
        owner: The image of each text.
        space: Of both.
        start: Where the block begins.
        best: The ranking of each image with the nearest of its own texts.
        own: The ranking of each text with its own image.
        grains: Of the images and of the texts. Each pair has its own bar: one far picture would
            coarsen a common one for all others.

    Returns:
        Counts for each text, and for each image of the block.
    """
    image_grain, text_grain = grains
    block = slice(start, start + _IMAGES)
    mine = np.flatnonzero(owner // _IMAGES == start // _IMAGES)
    per_text = np.zeros(len(texts), np.intp)
    per_image = np.zeros(len(images[block]), np.intp)
    for first in range(0, len(texts), _TEXTS):
        tile = slice(first, first + _TEXTS)
        ranking = space.ranking(texts[tile], images[block])
        ranking += text_grain[tile, None] * image_grain[block]
        here = mine[slice(*np.searchsorted(mine, (first, first + _TEXTS)))]
        ranking[here - first, owner[here] - start] = -np.inf  # what is right is not ahead of itself
        per_text[tile] = np.count_nonzero(ranking >= own[tile, None], axis=1)
        per_image += np.count_nonzero(ranking >= best[block], axis=0)
    return per_text, per_image


def _own(images: Points, texts: Points, owner: Indices, space: Space) -> npt.NDArray[np.float64]:
    """The ranking of each text with its own image."""
    own = np.empty(len(texts))
    order = np.argsort(owner, kind="stable")
    starts = range(0, len(images), _OWN_IMAGES)
    ends = np.searchsorted(owner[order], [start + _OWN_IMAGES for start in starts])
    for start, mine in zip(starts, np.split(order, ends[:-1]), strict=True):
        ranking = space.ranking(texts[mine], images[start : start + _OWN_IMAGES])
        own[mine] = ranking[np.arange(len(mine)), owner[mine] - start]
    return own
