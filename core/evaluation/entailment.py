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
    """Share of pairs in which the general one entails the specific one more than the reverse.
    Pairs with equal scores, as when neither lies in the other's half space, are not right."""
    mean_score: float
    """Mean entailment score of the specific ones, in [0, 1]."""
    pairs: int


def direction(general: Points, specific: Points, curvature: float) -> Direction:
    """Compare the two entailment scores of each pair, ``(n, dim + 1)`` against the same."""
    forth = lorentz.entailment_score(general, specific, curvature)
    back = lorentz.entailment_score(specific, general, curvature)
    return Direction(
        right=float(np.mean(forth > back)), mean_score=float(np.mean(forth)), pairs=len(forth)
    )


def mean_radius(points: Points, curvature: float) -> float:
    """The mean distance from the origin: smaller is more general."""
    return float(np.mean(lorentz.radius(points, curvature)))
