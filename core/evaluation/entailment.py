"""Whether the geometry says what is general and what is specific."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.spaces import Ordered

Points = npt.NDArray[np.floating[Any]]


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
