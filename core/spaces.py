"""The spaces that the systems of the comparison embed into, for numpy arrays and torch tensors.

A *tangent* is what a tower and its projection give; a space *lifts* it to a point. How near an
image is to a text is the space's `similarity`. Where there are cones, the general has a small
`radius` and sees the specific under a small `exterior_angle`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal

from core import lorentz
from core.lorentz import Array

if TYPE_CHECKING:
    from typing import TypeAlias

    Space: TypeAlias = "Euclidean | Lorentz[Any] | Product[Any]"


@dataclass(frozen=True)
class Euclidean:
    """The unit sphere with the cosine, as CLIP (arXiv:2103.00020) has it: no order, no cones."""

    def lift(self, tangent: Array) -> Array:
        """Unit vectors, ``(n, dim)``; a zero vector stays zero."""
        return lorentz.unit(tangent)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Cosines, ``(texts, images)``."""
        return texts @ images.T


@dataclass(frozen=True)
class Lorentz(Generic[Array]):
    """One hyperboloid, ``(n, dim + 1)`` points."""

    curvature: float | Array
    """C > 0."""
    score: Literal["distance", "angle"] = "distance"
    """What similarity is the negative of: the angle is ATMG's, at the text towards the image."""

    def lift(self, tangent: Array) -> Array:
        """Points of tangents ``(n, dim)``."""
        return lorentz.lift(tangent, self.curvature)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Negative distances or angles, ``(texts, images)``."""
        if self.score == "angle":
            return -lorentz.pairwise_exterior_angle(texts, images, self.curvature)
        return -lorentz.pairwise_distance(texts, images, self.curvature)

    def radius(self, point: Array) -> Array:
        """Distances from the origin, ``(n,)``."""
        return lorentz.radius(point, self.curvature)

    def exterior_angle(self, general: Array, specific: Array) -> Array:
        """Angles at the general point, ``(n,)`` radians (`core.lorentz.exterior_angle`)."""
        return lorentz.exterior_angle(general, specific, self.curvature)


@dataclass(frozen=True)
class Product(Generic[Array]):
    """Hyperboloids side by side, ``(n, factors, dim + 1)`` points (PHyCLIP)."""

    curvature: Array
    """``(factors,)``, each c > 0."""
    norm: Literal["l1", "l2"]
    """The mean of the factors' distances, or their root mean square."""

    def lift(self, tangent: Array) -> Array:
        """Points of tangents ``(n, factors * dim)``, which lie factor after factor."""
        factors = tangent.reshape(len(tangent), len(self.curvature), -1)
        return lorentz.lift(factors, self.curvature)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Negative distances, ``(texts, images)``."""
        apart = lorentz.pairwise_distance(
            texts.swapaxes(0, 1), images.swapaxes(0, 1), self.curvature
        )
        return -self._mean(apart, 0)

    def radius(self, point: Array) -> Array:
        """Distances from the origin, ``(n,)``."""
        return self._mean(lorentz.radius(point, self.curvature), -1)

    def exterior_angle(self, general: Array, specific: Array) -> Array:
        """Angles at the general point, the mean of the factors', ``(n,)`` radians."""
        return lorentz.exterior_angle(general, specific, self.curvature).mean(-1)

    def _mean(self, distances: Array, axis: int) -> Array:
        if self.norm == "l1":
            return distances.mean(axis)
        return lorentz.length(distances, axis) / len(self.curvature) ** 0.5
