"""Whether the geometry says what is general and what is specific."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core import lorentz

Points = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Direction:
    """Pairs of a general and a specific point, and the way the cones point."""

    right: float
    """Share of pairs in which the specific one lies nearer to the axis of the general one's cone
    than the reverse. Angles are compared, not scores: a score is cut off at 0, and would tie."""
    mean_score: float
    """Mean entailment score of the specific ones, in [0, 1]."""
    pairs: int


def direction(general: Points, specific: Points, curvature: float) -> Direction:
    """Compare the two exterior angles of each pair, ``(n, dim + 1)`` against the same."""
    forth = lorentz.exterior_angle(general, specific, curvature)
    back = lorentz.exterior_angle(specific, general, curvature)
    score = lorentz.entailment_score(general, specific, curvature)
    return Direction(
        right=float(np.mean(forth < back)), mean_score=float(np.mean(score)), pairs=len(forth)
    )


def mean_radius(points: Points, curvature: float) -> float:
    """The mean distance from the origin: smaller is more general."""
    return float(np.mean(lorentz.radius(points, curvature)))
