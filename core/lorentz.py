"""The Lorentz model of hyperbolic space, one implementation for numpy arrays and torch tensors.

A *point* is ``(..., dim + 1)`` with the time coordinate first: ``x0 = sqrt(1/c + |x|²)`` for
curvature magnitude ``c > 0``. A *tangent* is ``(..., dim)``, a vector at the origin. The
textbook forms (acosh, acos of the Lorentz product; MERU, arXiv:2304.09172) lose up to all of
their digits for near points, tiny norms and collinear pairs; here every difference is taken
of coordinates, not of products, and every inverse function is asinh or atan2.

The curvature may be a number, a tensor of no dimension that receives a gradient, or an array
``(factors,)`` for points ``(..., factors, dim + 1)`` of a product of hyperboloids. Gradients are
finite everywhere: where a function has no slope (coincident points, the origin) it is 0.
"""

import math
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", npt.NDArray[Any], "torch.Tensor")

MIN_RADIUS = 0.1
"""K of the entailment cones: the aperture saturates within ``2K / sqrt(c)`` of the origin."""

# sinh of more than this, squared, leaves the number format.
_MAX_SCALED_NORM_32 = 40.0
_MAX_SCALED_NORM_64 = 300.0

# The rounding of a cosine of unit vectors that were normalised first, of 2 to 512 dimensions.
_COSINE_EPSILONS = 8


def lift(tangent: Array, curvature: "float | Array") -> Array:
    """Points that the exponential map at the origin makes of tangent vectors.

    ``x = sinh(√c|u|) u / (√c|u|)`` (MERU, eq. 3). ``√c|u|`` is held at 40 in float32 and 300
    in float64, beyond which sinh² would overflow.

    Args:
        tangent: Vectors at the origin, ``(..., dim)``.
        curvature: c > 0.

    Returns:
        Points, ``(..., dim + 1)``, time first.
    """
    xp = namespace(tangent)
    limit = _MAX_SCALED_NORM_64 if tangent.dtype == xp.float64 else _MAX_SCALED_NORM_32
    norm = curvature**0.5 * length(tangent)
    away = norm > 0
    safe = xp.where(away, norm, 1.0)
    factor = xp.where(away, xp.sinh(xp.clip(safe, None, limit)) / safe, 1.0)
    return from_space(factor[..., None] * tangent, curvature)


def from_space(space: Array, curvature: "float | Array") -> Array:
    """Points ``(..., dim + 1)`` with the given space coordinates ``(..., dim)``."""
    xp = namespace(space)
    time = xp.sqrt(1 / curvature + xp.sum(space * space, -1))
    return xp.concatenate([time[..., None], space], -1)


def log_map(point: Array, curvature: "float | Array") -> Array:
    """The tangent vectors, ``(..., dim)``, that `lift` would send to these points."""
    xp = namespace(point)
    space = point[..., 1:]
    scaled = curvature**0.5 * length(space)
    away = scaled > 0
    safe = xp.where(away, scaled, 1.0)
    return xp.where(away, xp.asinh(safe) / safe, 1.0)[..., None] * space


def to_poincare(point: Array, curvature: "float | Array") -> Array:
    """The same points in the Poincaré ball of radius ``1/√c``, ``(..., dim)``."""
    return point[..., 1:] / (1 + curvature**0.5 * point[..., 0])[..., None]


def mirror(point: Array) -> Array:
    """The points with the sign of time turned.

    The Lorentz product of x and y is the ordinary product of x and the mirrored y.
    """
    xp = namespace(point)
    return xp.concatenate([-point[..., :1], point[..., 1:]], -1)


def inner(x: Array, y: Array) -> Array:
    """Lorentz products ``<x, y> = x·y - x0 y0`` of points that broadcast."""
    xp = namespace(x)
    return xp.sum(x[..., 1:] * y[..., 1:], -1) - x[..., 0] * y[..., 0]


def radius(point: Array, curvature: "float | Array") -> Array:
    """Geodesic distances from the origin, ``asinh(√c|x|) / √c``: small is general."""
    xp = namespace(point)
    root = curvature**0.5
    return xp.asinh(root * length(point[..., 1:])) / root


def distance(x: Array, y: Array, curvature: "float | Array") -> Array:
    """Geodesic distances between points of one hyperboloid.

    With ``A = asinh(√c|x|)``, ``B = asinh(√c|y|)`` and θ the angle between the directions,
    ``sinh²(√c d/2) = sinh²((A - B)/2) + sinh A sinh B sin²(θ/2)``.

    In float32 the relative error is under 5e-7 while √c x0 <= 16 for either point. Further out a
    step along the ray counts √c x0 times less than one across it, which is then lost in the
    other's rounding where the two directions all but agree: under 3e-8 times the smaller √c x0.

    Args:
        x: Points, ``(..., dim + 1)``, time first.
        y: Points that broadcast against ``x``.
        curvature: c > 0.

    Returns:
        Distances >= 0, of the broadcast shape less its last axis. Where x == y it is 0, and
        so is the gradient.
    """
    xp = namespace(x)
    a, b = x[..., 1:], y[..., 1:]
    norm_a, norm_b = length(a), length(b)
    half = xp.sinh(_radial_gap(a, b, norm_a, norm_b, curvature) / 2)
    q = half**2 + curvature * _chord_squared(a, b, norm_a, norm_b) / 4
    met = q <= 0  # a square root has no slope at 0: step around it, but let a NaN through
    root = xp.sqrt(xp.where(met, 1.0, q))
    return xp.where(met, 0.0, 2 / curvature**0.5 * xp.asinh(root))


def pairwise_distance(x: Array, y: Array, curvature: "float | Array") -> Array:
    """Geodesic distances of all pairs, ``(..., n, dim + 1)`` against ``(..., m, dim + 1)``.

    The one matrix product runs on unit directions, so its rounding is not multiplied by the
    norms, and radii keep their differences. In float32 the error is under 3e-5 / √c where the
    directions are 0.2 rad apart. Nearer ones, 1 - cos θ is off by up to 8 machine epsilons, so
    that ``sinh²(√c d/2)`` is off by 4 of them times sinh A sinh B: coincident points of radius
    1 / √c come out up to 2e-3 / √c apart. `distance` has no such error.

    Args:
        x: Points, time first.
        y: Points with the same leading dimensions.
        curvature: c > 0: a number, or one for each of the leading dimensions.

    Returns:
        ``(..., n, m)``.
    """
    xp = namespace(x)
    root = curvature**0.5
    sinh_a = _trailing(root, 1) * length(x[..., 1:])
    sinh_b = _trailing(root, 1) * length(y[..., 1:])
    versed = _versed(x, y)
    gap = xp.asinh(sinh_a)[..., :, None] - xp.asinh(sinh_b)[..., None, :]
    q = xp.sinh(gap / 2) ** 2 + sinh_a[..., :, None] * sinh_b[..., None, :] * versed / 2
    met = q <= 0
    safe = xp.sqrt(xp.where(met, 1.0, q))
    return xp.where(met, 0.0, 2 / _trailing(root, 2) * xp.asinh(safe))


def half_aperture(general: Array, curvature: "float | Array") -> Array:
    """Half apertures of the entailment cones of points, in radians, within (0, π/2].

    ``asin(2K / (√c|x|))`` with K = 0.1 (Le et al., arXiv:1902.00913; MERU, eq. 7); π/2, and no
    slope, where √c|x| <= 2K.
    """
    return aperture_at(curvature**0.5 * length(general[..., 1:]))


def aperture_at(norm: Array) -> Array:
    """Half apertures of the cones of points with these √c|x|: `half_aperture` by the length."""
    xp = namespace(norm)
    within = norm <= 2 * MIN_RADIUS
    return xp.where(within, math.pi / 2, xp.asin(2 * MIN_RADIUS / xp.where(within, 1.0, norm)))


def exterior_angle(general: Array, specific: Array, curvature: "float | Array") -> Array:
    """Angles at ``general`` between the ray away from the origin and the geodesic to ``specific``.

    ``π - ∠(O, general, specific)`` in radians within [0, π]: 0 where the specific point lies
    straight outward, π where it lies towards the origin. It is written as the atan2 of the
    components of the geodesic's direction across and along the axis. Of the origin, and of a
    point to itself, it is 0: both entail. The error is under 8e-7 rad in float32, times √c x0 of
    the general point where the two directions all but agree (`distance` says why).

    Args:
        general: Points, ``(..., dim + 1)``, time first: the roots of the cones.
        specific: Points that broadcast against ``general``.
        curvature: c > 0.
    """
    xp = namespace(general)
    a, b = specific[..., 1:], general[..., 1:]
    norm_a, norm_b = length(a), length(b)
    axis = unit(b)
    gap = a - b
    across = length(gap - xp.sum(gap * axis, -1)[..., None] * axis)
    time_a, time_b = xp.sqrt(1 + curvature * norm_a**2), xp.sqrt(1 + curvature * norm_b**2)
    weight = norm_a * time_b + norm_b * time_a
    along = xp.sum(gap * (a + b), -1) / xp.where(weight > 0, weight, 1.0)
    turned = _chord_squared(a, b, norm_a, norm_b) / xp.where(norm_b > 0, norm_b, 1.0)
    along = along - turned / 2 * time_b
    return _angle(across, along, norm_b <= 0)


def pairwise_exterior_angle(general: Array, specific: Array, curvature: "float | Array") -> Array:
    """`exterior_angle` of all pairs: ``(n, dim + 1)`` against ``(m, dim + 1)``, ``(n, m)``.

    With A and B the scaled radii of the specific and the general point and θ the angle between
    their directions, the components of the geodesic across and along the axis are ``sinh A sin θ``
    and ``sinh(A - B) - (1 - cos θ) sinh A cosh B``. θ is taken from one matrix product of unit
    directions, so that 1 - cos θ is off by up to 8 machine epsilons: within 4 times the epsilon's
    root, 1.4e-3 in float32, θ is taken as 0 or π. An error of θ shows sinh A / sinh(√c d) times
    as large in the angle. `exterior_angle` has no such error.
    """
    xp = namespace(general)
    root = curvature**0.5
    sinh_a, sinh_b = root * length(specific[:, 1:])[None, :], root * length(general[:, 1:])[:, None]
    versed = _versed(general, specific)
    rounding = _COSINE_EPSILONS * xp.finfo(versed.dtype).eps
    versed = xp.where(versed <= rounding, 0.0, versed)
    square = versed * (2 - versed)  # sin² θ
    aside = square > 2 * rounding  # a square root has no slope at 0: step around it
    across = sinh_a * xp.where(aside, xp.sqrt(xp.where(aside, square, 1.0)), 0.0)
    along = xp.sinh(xp.asinh(sinh_a) - xp.asinh(sinh_b))
    along = along - versed * sinh_a * xp.sqrt(1 + sinh_b**2)
    return _angle(across, along, sinh_b <= 0)


def entailment_score(general: Array, specific: Array, curvature: "float | Array") -> Array:
    """How far ``specific`` is a kind or part of ``general``: ``max(1 - 2φ/π, 0)``, in [0, 1]."""
    xp = namespace(general)
    return xp.clip(1 - 2 / math.pi * exterior_angle(general, specific, curvature), 0.0, None)


def _radial_gap(
    a: Array, b: Array, norm_a: Array, norm_b: Array, curvature: "float | Array"
) -> Array:
    """``asinh(√c|a|) - asinh(√c|b|)`` without a loss of digits.

    From ``|a|² - |b|² = (a - b)·(a + b)``.
    """
    xp = namespace(a)
    weight = norm_a * xp.sqrt(1 + curvature * norm_b**2)
    weight = weight + norm_b * xp.sqrt(1 + curvature * norm_a**2)
    difference = xp.sum((a - b) * (a + b), -1) / xp.where(weight > 0, weight, 1.0)
    return xp.asinh(curvature**0.5 * difference)


def _chord_squared(a: Array, b: Array, norm_a: Array, norm_b: Array) -> Array:
    """``|a||b| |â - b̂|²``.

    For vectors of like norm it is taken from their difference, which is exact when they are
    close; otherwise from their directions, whose difference is then not small.
    """
    xp = namespace(a)
    total = norm_a + norm_b
    excess = xp.sum((a - b) * (a + b), -1) / xp.where(total > 0, total, 1.0)  # |a| - |b|
    alike = (norm_a > 0) & (norm_b > 0) & (xp.abs(excess) < 0.25 * total)
    safe_a, safe_b = xp.where(alike, norm_a, 1.0), xp.where(alike, norm_b, 1.0)
    tangential = (a - b) - (xp.where(alike, excess, 0.0) / safe_b)[..., None] * b  # |a|(â - b̂)
    near = xp.sum(tangential**2, -1) * (safe_b / safe_a)
    far = norm_a * norm_b * xp.sum((unit(a) - unit(b)) ** 2, -1)
    return xp.where(alike, near, far)


def _angle(across: Array, along: Array, at_origin: Array) -> Array:
    """``atan2(across, along)``; 0, and no slope, at the origin and where both are as good as 0."""
    xp = namespace(across)
    squares = across**2 + along**2  # the slope divides by them
    met = at_origin | (squares < xp.finfo(squares.dtype).tiny)
    return xp.where(met, 0.0, xp.atan2(xp.where(met, 0.0, across), xp.where(met, 1.0, along)))


def _versed(x: Array, y: Array) -> Array:
    """``1 - cos θ`` of the directions of all pairs of points, ``(..., n, m)``, within [0, 2]."""
    xp = namespace(x)
    return xp.clip(1 - unit(x[..., 1:]) @ xp.swapaxes(unit(y[..., 1:]), -1, -2), 0, 2)


def _trailing(value: "float | Array", dimensions: int) -> "float | Array":
    """The value with as many dimensions of length 1 at its end; a number stays one."""
    return value if isinstance(value, float | int) else value[(..., *[None] * dimensions)]


def unit(vector: Array) -> Array:
    """Directions; the zero vector stays zero, with the slope of no direction."""
    xp = namespace(vector)
    norm = length(vector)[..., None]
    return vector / xp.where(norm > 0, norm, 1.0)


def length(vector: Array, axis: int = -1) -> Array:
    """Euclidean lengths over an axis; torch gives the slope 0 at the zero vector."""
    lengths: Array = namespace(vector).linalg.vector_norm(vector, axis=axis)
    return lengths


def namespace(array: Any) -> Any:
    """The module that computes with this array, without importing torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else np
