"""Whether the geometry says what is general and what is specific."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.blocks import each_block
from core.spaces import Ordered

Points = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.intp]

_BLOCK = 64  # specific points at once: 4,000 general ones against them take 2 MB
_DECIMALS = 9


@dataclass(frozen=True)
class Direction:
    """Pairs of a general and a specific point, and the way the cones point."""

    right: float
    """Share of pairs in which the specific one lies nearer to the axis of the general one's cone
    than the reverse. Angles are compared, not scores: a score is cut off at 0, and would tie."""
    mean_score: float
    """Mean entailment score of the specific ones, in [0, 1] (`core.lorentz.entailment_score`)."""
    pairs: int


def direction(general: Points, specific: Points, space: Ordered) -> Direction:
    """Compare the two exterior angles of each pair, ``(n, ...)`` points against the same."""
    forth = space.exterior_angle(general, specific)
    back = space.exterior_angle(specific, general)
    score = np.maximum(1 - 2 / math.pi * forth, 0)
    return Direction(
        right=float(np.mean(forth < back)), mean_score=float(np.mean(score)), pairs=len(forth)
    )


def mean_radius(points: Points, space: Ordered) -> float:
    """The mean distance from the origin: smaller is more general."""
    return float(np.mean(space.radius(points)))


@dataclass(frozen=True)
class Scored:
    """How far the general entails the specific, ``(n,)`` for pairs."""

    clamped: npt.NDArray[np.float64]
    """``max(1 - 2 φ / π, 0)`` (`core.lorentz.entailment_score`)."""
    margin: npt.NDArray[np.float64]
    """``Θ - φ``, in radians: positive inside the cone."""


def score_pairs(
    general: Points, specific: Points, general_of: Indices, specific_of: Indices, space: Ordered
) -> Scored:
    """Scores of chosen pairs, from angles of all pairs in blocks.

    They are rounded to 9 decimals: pairs whose points are the same then tie, whatever the matrix
    product made of them.

    Args:
        general: Points, ``(g, ...)``.
        specific: Points, ``(s, ...)``.
        general_of: Of each pair, ``(n,)``, its general point.
        specific_of: Of each pair its specific point.
        space: Of both.
    """
    aperture = space.half_aperture(general)
    order = np.argsort(specific_of, kind="stable")
    bounds = np.searchsorted(specific_of[order], np.arange(0, len(specific) + _BLOCK, _BLOCK))

    def block(number: int) -> npt.NDArray[Any]:
        pairs, first = order[bounds[number] : bounds[number + 1]], number * _BLOCK
        used, column = np.unique(general_of[pairs], return_inverse=True)
        angles = space.pairwise_exterior_angle(general[used], specific[first : first + _BLOCK])
        return np.asarray(angles[column, specific_of[pairs] - first])

    angle = np.empty(len(order), np.float64)
    angle[order] = np.concatenate(list(each_block(block, range(len(bounds) - 1))))
    return Scored(
        clamped=np.round(np.maximum(1 - 2 / math.pi * angle, 0), _DECIMALS).astype(np.float64),
        margin=np.round(aperture[general_of] - angle, _DECIMALS).astype(np.float64),
    )
