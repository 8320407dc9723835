"""The spaces that the systems of the comparison embed into, for numpy arrays and torch tensors.

A *tangent* is what a tower and its projection give; a space *lifts* it to a point. How near an
image is to a text is the space's `similarity`. Where there are cones, the general has a small
`radius` and sees the specific under a small `exterior_angle`.

To order many pairs, `ranking` grows with the similarity and is cheap; it is meant for float64.
Two pairs are as good as tied where it differs by less than the product of the `grain` of their
text and image.
"""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias

from core import lorentz
from core.lorentz import Array

_GRAIN = 1e-6  # squared it is 1e-12: a thousand times the rounding of a product in float64
_ROOT_GRAIN = 1e-7  # several times the root of that rounding, which distances and angles show


@dataclass(frozen=True)
class Euclidean:
    """The unit sphere with the cosine, as CLIP (arXiv:2103.00020) has it: no order, no cones."""

    def lift(self, tangent: Array) -> Array:
        """Unit vectors, ``(..., dim)``; a zero vector stays zero."""
        return lorentz.unit(tangent)

    def centre(self, tangents: Array) -> Array:
        """One point for each group: members ``(groups, members, dim)``, normalised first."""
        mean: Array = lorentz.unit(tangents).mean(1)
        return lorentz.unit(mean)

    def restore(self, point: Array) -> Array:
        """The points at unit length again, of which another number format rounded them."""
        return lorentz.unit(point)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Cosines, ``(texts, images)``."""
        cosines: Array = texts @ images.T
        return cosines

    def paired_similarity(self, texts: Array, images: Array) -> Array:
        """The cosine of each text with the image of its row, ``(n,)``."""
        cosines: Array = (texts * images).sum(-1)
        return cosines

    def ranking(self, texts: Array, images: Array) -> Array:
        """The similarity."""
        return self.similarity(texts, images)

    def grain(self, point: Array) -> Array:
        """What a point adds to the rounding of a ranking, ``(n,)``."""
        return _GRAIN * lorentz.length(point)


@dataclass(frozen=True)
class Lorentz(Generic[Array]):
    """One hyperboloid, ``(n, dim + 1)`` points."""

    curvature: float | Array
    """C > 0."""
    score: Literal["distance", "angle"] = "distance"
    """What similarity is the negative of: the angle is ATMG's, at the text towards the image."""

    def lift(self, tangent: Array) -> Array:
        """Points of tangents ``(..., dim)``."""
        return lorentz.lift(tangent, self.curvature)

    def centre(self, tangents: Array) -> Array:
        """One point for each group: the mean of ``(groups, members, dim)`` tangents, lifted."""
        return self.lift(tangents.mean(1))

    def restore(self, point: Array) -> Array:
        """The points exactly on the hyperboloid, off which another number format put them."""
        return lorentz.from_space(point[..., 1:], self.curvature)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Negative distances or angles, ``(texts, images)``."""
        if self.score == "angle":
            return -lorentz.pairwise_exterior_angle(texts, images, self.curvature)
        return -lorentz.pairwise_distance(texts, images, self.curvature)

    def paired_similarity(self, texts: Array, images: Array) -> Array:
        """The similarity of each text with the image of its row, ``(n,)``, to the last digit."""
        if self.score == "angle":
            return -self.exterior_angle(texts, images)
        return -lorentz.distance(texts, images, self.curvature)

    def ranking(self, texts: Array, images: Array) -> Array:
        """Lorentz products, which fall as distances grow; or negative angles."""
        if self.score == "angle":
            return self.similarity(texts, images)
        products: Array = texts @ lorentz.mirror(images).T
        return products

    def grain(self, point: Array) -> Array:
        """What a point adds to the rounding of a ranking, ``(n,)``."""
        if self.score == "angle":
            root: Array = (_ROOT_GRAIN * self.curvature**0.5 * point[..., 0]) ** 0.5
            return root
        return _GRAIN * point[..., 0]

    def radius(self, point: Array) -> Array:
        """Distances from the origin, ``(n,)``."""
        return lorentz.radius(point, self.curvature)

    def exterior_angle(self, general: Array, specific: Array) -> Array:
        """Angles at the general point, ``(n,)`` radians (`core.lorentz.exterior_angle`)."""
        return lorentz.exterior_angle(general, specific, self.curvature)

    def pairwise_exterior_angle(self, general: Array, specific: Array) -> Array:
        """The same of all pairs, ``(general, specific)`` radians."""
        return lorentz.pairwise_exterior_angle(general, specific, self.curvature)

    def half_aperture(self, general: Array) -> Array:
        """Half apertures of the cones, ``(n,)`` radians (`core.lorentz.half_aperture`)."""
        return lorentz.half_aperture(general, self.curvature)


@dataclass(frozen=True)
class Product(Generic[Array]):
    """Hyperboloids side by side, ``(n, factors, dim + 1)`` points (PHyCLIP)."""

    curvature: Array
    """``(factors,)``, each c > 0."""
    norm: Literal["l1", "l2"]
    """The mean of the factors' distances, or their root mean square."""

    def lift(self, tangent: Array) -> Array:
        """Points of tangents ``(n, factors * dim)``, which lie factor after factor."""
        count = len(self.curvature)
        factors = tangent.reshape(len(tangent), count, tangent.shape[-1] // count)
        return lorentz.lift(factors, self.curvature)

    def centre(self, tangents: Array) -> Array:
        """One point for each group: the mean of ``(groups, members, dim)`` tangents, lifted."""
        return self.lift(tangents.mean(1))

    def restore(self, point: Array) -> Array:
        """The points exactly on their hyperboloids, off which another number format put them."""
        return lorentz.from_space(point[..., 1:], self.curvature)

    def similarity(self, texts: Array, images: Array) -> Array:
        """Negative distances, ``(texts, images)``."""
        apart = lorentz.pairwise_distance(
            texts.swapaxes(0, 1), images.swapaxes(0, 1), self.curvature
        )
        return -self._mean(apart, 0)

    def paired_similarity(self, texts: Array, images: Array) -> Array:
        """The similarity of each text with the image of its row, ``(n,)``, to the last digit."""
        return -self._mean(lorentz.distance(texts, images, self.curvature), -1)

    def ranking(self, texts: Array, images: Array) -> Array:
        """The similarity from Lorentz products, one factor after the other to save memory."""
        xp = lorentz.namespace(texts)
        total: Any = 0.0
        for factor, curvature in enumerate(self.curvature):
            products = texts[:, factor] @ lorentz.mirror(images[:, factor]).T
            apart = xp.arccosh(xp.clip(-curvature * products, 1.0, None)) / curvature**0.5
            total = total + (apart if self.norm == "l1" else apart**2)
        mean: Array = total / len(self.curvature)
        return -mean if self.norm == "l1" else -(mean**0.5)

    def grain(self, point: Array) -> Array:
        """What a point adds to the rounding of a ranking, ``(n,)``."""
        times = lorentz.length(point[..., 0]) / len(self.curvature) ** 0.5
        root: Array = (_ROOT_GRAIN * times) ** 0.5
        return root

    def radius(self, point: Array) -> Array:
        """Distances from the origin, ``(n,)``."""
        return self._mean(lorentz.radius(point, self.curvature), -1)

    def exterior_angle(self, general: Array, specific: Array) -> Array:
        """Angles at the general point, the mean of the factors', ``(n,)`` radians."""
        mean: Array = lorentz.exterior_angle(general, specific, self.curvature).mean(-1)
        return mean

    def pairwise_exterior_angle(self, general: Array, specific: Array) -> Array:
        """The same of all pairs, ``(general, specific)`` radians, one factor after the other."""
        total: Any = 0.0
        for factor, curvature in enumerate(self.curvature):
            total = total + lorentz.pairwise_exterior_angle(
                general[:, factor], specific[:, factor], curvature
            )
        mean: Array = total / len(self.curvature)
        return mean

    def half_aperture(self, general: Array) -> Array:
        """Half apertures of the cones, the mean of the factors', ``(n,)`` radians."""
        mean: Array = lorentz.half_aperture(general, self.curvature).mean(-1)
        return mean

    def _mean(self, distances: Array, axis: int) -> Array:
        mean: Array
        if self.norm == "l1":
            mean = distances.mean(axis)
        else:
            mean = lorentz.length(distances, axis) / len(self.curvature) ** 0.5
        return mean


Ordered: TypeAlias = Lorentz[Any] | Product[Any]
"""The spaces with cones and a radius."""

Space: TypeAlias = Euclidean | Ordered
