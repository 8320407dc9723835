"""Laws of the hyperboloid, over all curvatures and all norms of the space part that occur.

The bounds of float32 are those that `core.lorentz` documents; float64 is held to the same ones,
scaled by the ratio of the two epsilons, and serves as the truth for float32.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core import lorentz

DIM = 6
EPS = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}

curvatures = st.floats(0.1, 10)
rounded_curvatures = curvatures.map(lambda c: float(np.float32(c)))
norms = st.floats(-6, 4).map(lambda exponent: 10.0**exponent)
seeds = st.integers(0, 2**32 - 1)

Make = Callable[[Any], Any]


def to_numpy(array: Any) -> Any:
    return array


def to_torch(array: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(np.array(array))


makes = pytest.mark.parametrize("make", [to_numpy, to_torch], ids=["numpy", "torch"])
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def direction(seed: int) -> Any:
    vector = np.random.default_rng(seed).normal(size=DIM)
    return vector / np.linalg.norm(vector)


@st.composite
def other_space(draw: st.DrawFn, space: Any) -> Any:
    """The space part of a second point: anywhere, or where digits are easily lost."""
    where = draw(st.sampled_from(["anywhere", "same ray", "opposite", "tilted", "near", "same"]))
    norm, way = draw(norms), direction(draw(seeds))
    ray = space / np.linalg.norm(space)
    if where == "anywhere":
        return norm * way
    if where == "same ray":
        return norm * ray
    if where == "opposite":
        return -norm * ray
    if where == "tilted":
        tilted = ray + 10 ** draw(st.floats(-9, 0)) * way
        return norm * tilted / np.linalg.norm(tilted)
    if where == "near":
        return space + 10 ** draw(st.floats(-7, -0.5)) * np.linalg.norm(space) * way
    return space


@st.composite
def few_spaces(draw: st.DrawFn, count: int) -> Any:
    """The space parts of points, ``(count, DIM)``, in float32's numbers."""
    first = draw(norms) * direction(draw(seeds))
    others = [draw(other_space(first)) for _ in range(count - 1)]
    return np.stack([first, *others]).astype(np.float32)


def points(spaces: Any, curvature: float, dtype: str = "float64") -> Any:
    return lorentz.from_space(spaces.astype(dtype), curvature)


def scaled_time(point: Any, curvature: float) -> Any:
    """cosh of the scaled radius."""
    return math.sqrt(curvature) * point[..., 0]


@given(spaces=few_spaces(2), c=curvatures)
def test_distance_is_symmetric(spaces: Any, c: float) -> None:
    x, y = points(spaces, c)
    assert lorentz.distance(x, y, c) == pytest.approx(lorentz.distance(y, x, c), rel=1e-11, abs=0)


@given(spaces=few_spaces(3), c=curvatures)
def test_no_detour_is_shorter(spaces: Any, c: float) -> None:
    x, y, z = points(spaces, c)
    detour = lorentz.distance(x, y, c) + lorentz.distance(y, z, c)
    assert lorentz.distance(x, z, c) <= detour * (1 + 1e-11)


@makes
@dtypes
@given(spaces=few_spaces(1), c=curvatures)
def test_a_point_is_at_no_distance_from_itself_and_entails_itself(
    make: Make, dtype: str, spaces: Any, c: float
) -> None:
    x = make(points(spaces, c, dtype))
    assert lorentz.distance(x, x, c) == 0
    assert lorentz.exterior_angle(x, x, c) == 0
    assert lorentz.pairwise_exterior_angle(x, x, c) == 0


@given(spaces=few_spaces(2), c=curvatures, share=st.floats(0, 1))
def test_distances_add_up_along_a_geodesic(spaces: Any, c: float, share: float) -> None:
    x, y = points(spaces, c)
    whole = lorentz.distance(x, y, c)
    length = math.sqrt(c) * whole
    assume(length > 0)
    weights = math.sinh((1 - share) * length), math.sinh(share * length)
    between = (weights[0] * x + weights[1] * y) / math.sinh(length)
    between = lorentz.from_space(between[1:], c)
    # What a rounding of the coordinates of the point between moves it by.
    moved = 8 * EPS["float64"] * max(scaled_time(x, c), scaled_time(y, c)) / math.sqrt(c)
    assert lorentz.distance(x, between, c) == pytest.approx(share * whole, rel=1e-11, abs=moved)
    assert lorentz.distance(between, y, c) == pytest.approx(
        (1 - share) * whole, rel=1e-11, abs=moved
    )


@given(a=norms, b=norms, one=seeds, c=curvatures)
def test_distances_through_the_origin_are_sums_of_radii(
    a: float, b: float, one: int, c: float
) -> None:
    x, y = (lorentz.from_space(norm * direction(one), c) for norm in (a, -b))
    radii = [math.asinh(math.sqrt(c) * norm) / math.sqrt(c) for norm in (a, b)]
    origin = lorentz.lift(np.zeros(DIM), c)
    assert lorentz.radius(x, c) == pytest.approx(radii[0], rel=1e-12, abs=0)
    assert lorentz.distance(x, origin, c) == pytest.approx(radii[0], rel=1e-12, abs=0)
    assert lorentz.distance(x, y, c) == pytest.approx(sum(radii), rel=1e-12, abs=0)


@makes
@dtypes
@given(spaces=few_spaces(1), c=curvatures)
def test_lift_and_log_map_undo_each_other(make: Make, dtype: str, spaces: Any, c: float) -> None:
    point = make(points(spaces[0], c, dtype))
    tangent = lorentz.log_map(point, c)
    close = 16 * EPS[dtype]  # sinh multiplies a rounding by its argument, up to 11
    length = float(np.linalg.norm(np.asarray(tangent)))
    back = np.asarray(lorentz.lift(tangent, c))
    assert length == pytest.approx(float(lorentz.radius(point, c)), rel=close, abs=0)
    assert back == pytest.approx(np.asarray(point), rel=close, abs=0)
    again = np.asarray(lorentz.log_map(lorentz.lift(tangent, c), c))
    assert again == pytest.approx(np.asarray(tangent), rel=close, abs=0)


@given(spaces=few_spaces(2), c=curvatures)
def test_the_mirror_turns_a_dot_product_into_the_lorentz_product(spaces: Any, c: float) -> None:
    x, y = points(spaces, c)
    product = lorentz.inner(x, y)
    rounding = 1e-14 * x[0] * y[0]  # of products that nearly cancel
    assert x @ lorentz.mirror(y) == pytest.approx(product, rel=1e-14, abs=rounding)
    cosh = math.cosh(math.sqrt(c) * lorentz.distance(x, y, c))
    assert cosh / c == pytest.approx(-product, rel=1e-12, abs=rounding)


@given(a=norms, b=norms, one=seeds, c=curvatures)
def test_what_lies_straight_outward_is_entailed(a: float, b: float, one: int, c: float) -> None:
    assume(max(a, b) > 1.1 * min(a, b))
    general, specific = (lorentz.from_space(norm * direction(one), c) for norm in sorted((a, b)))
    assert lorentz.exterior_angle(general, specific, c) == pytest.approx(0, abs=1e-9)
    assert lorentz.exterior_angle(specific, general, c) == pytest.approx(math.pi, abs=1e-9)
    assert lorentz.entailment_score(general, specific, c) == pytest.approx(1, abs=1e-9)
    assert lorentz.entailment_score(specific, general, c) == pytest.approx(0, abs=1e-9)


@makes
@dtypes
@given(spaces=few_spaces(3), c=curvatures)
def test_angles_are_within_a_half_turn_and_scores_within_one(
    make: Make, dtype: str, spaces: Any, c: float
) -> None:
    x = make(points(spaces, c, dtype))
    for angle in (
        lorentz.exterior_angle(x[:1], x, c),
        lorentz.exterior_angle(x, x[:1], c),
        lorentz.pairwise_exterior_angle(x, x, c),
    ):
        assert bool((angle >= 0).all())
        assert float(angle.max()) <= float(np.dtype(dtype).type(math.pi))
    score = lorentz.entailment_score(x[:1], x, c)
    assert bool(((score >= 0) & (score <= 1)).all())


@given(spaces=few_spaces(2), c=curvatures)
def test_the_angles_of_a_triangle_with_the_origin_sum_to_no_more_than_a_half_turn(
    spaces: Any, c: float
) -> None:
    x, y = points(spaces, c)
    forth, back = lorentz.exterior_angle(x, y, c), lorentz.exterior_angle(y, x, c)
    assume(lorentz.distance(x, y, c) > 0)
    at_origin = math.acos(min(max(float(lorentz.unit(x[1:]) @ lorentz.unit(y[1:])), -1), 1))
    assert (math.pi - forth) + (math.pi - back) + at_origin <= math.pi + 1e-7  # acos at 0


@makes
@dtypes
@given(a=norms, b=norms, one=seeds, c=curvatures)
def test_apertures_are_within_a_quarter_turn_and_narrow_outward(
    make: Make, dtype: str, a: float, b: float, one: int, c: float
) -> None:
    spaces = np.array(sorted((a, b)))[:, None] * direction(one)
    inner, outer = lorentz.half_aperture(make(points(spaces, c, dtype)), c)
    assert 0 < float(outer) <= float(np.dtype(dtype).type(math.pi / 2))
    assert float(inner) >= float(outer) * (1 - 4 * EPS[dtype])
    if math.sqrt(c) * min(a, b) <= 0.199:
        assert float(inner) == pytest.approx(math.pi / 2, rel=EPS[dtype])


@given(spaces=few_spaces(4), c=curvatures)
def test_torch_and_numpy_agree(spaces: Any, c: float) -> None:
    x = points(spaces, c)
    other = to_torch(x)
    assert lorentz.radius(other, c).numpy() == pytest.approx(lorentz.radius(x, c), rel=1e-12)
    ball = lorentz.to_poincare(x, c)
    assert lorentz.to_poincare(other, c).numpy() == pytest.approx(ball, rel=1e-12)
    got = lorentz.distance(other[:1], other, c).numpy()
    assert got == pytest.approx(lorentz.distance(x[:1], x, c), rel=1e-11, abs=0)
    for function in (lorentz.exterior_angle, lorentz.entailment_score):
        got = function(other[:1], other, c).numpy()
        assert got == pytest.approx(function(x[:1], x, c), abs=1e-9)


@makes
@given(spaces=few_spaces(2), c=rounded_curvatures)
def test_float32_keeps_distances_to_the_documented_bound(make: Make, spaces: Any, c: float) -> None:
    exact_x, exact_y = points(spaces, c)
    x, y = make(points(spaces, c, "float32"))
    exact = lorentz.distance(exact_x, exact_y, c)
    bound = max(5e-7, 3e-8 * min(scaled_time(exact_x, c), scaled_time(exact_y, c)))
    assert float(lorentz.distance(x, y, c)) == pytest.approx(exact, rel=bound, abs=0)


@makes
@given(spaces=few_spaces(2), c=rounded_curvatures)
def test_float32_keeps_angles_to_the_documented_bound(make: Make, spaces: Any, c: float) -> None:
    exact_x, exact_y = points(spaces, c)
    x, y = make(points(spaces, c, "float32"))
    exact = lorentz.exterior_angle(exact_x, exact_y, c)
    bound = 8e-7 * scaled_time(exact_x, c)
    assert float(lorentz.exterior_angle(x, y, c)) == pytest.approx(exact, abs=bound)


@makes
@dtypes
@given(spaces=few_spaces(5), c=rounded_curvatures)
def test_all_pairs_of_distances_are_within_the_documented_bound(
    make: Make, dtype: str, spaces: Any, c: float
) -> None:
    root = math.sqrt(c)
    exact = points(spaces, c)
    x = make(points(spaces, c, dtype))
    got = np.asarray(lorentz.pairwise_distance(x[:2], x[2:], c))
    want = lorentz.distance(exact[:2, None], exact[None, 2:], c)
    sinh = root * np.linalg.norm(spaces.astype(np.float64), axis=1)
    rounding = 4 * EPS[dtype] * sinh[:2, None] * sinh[None, 2:]
    square = np.sinh(root * want / 2) ** 2
    most = 2 / root * np.arcsinh(np.sqrt(square + rounding))
    least = 2 / root * np.arcsinh(np.sqrt(np.maximum(square - rounding, 0)))
    radial = 2 * EPS[dtype] * np.arcsinh(sinh.max()) / root  # the radii are rounded, too
    slack = radial + 8 * EPS[dtype] * want
    assert (got <= most + slack).all()
    assert (got >= least - slack).all()
    unit = lorentz.unit(exact[:, 1:])
    apart = np.linalg.norm(unit[:2, None] - unit[None, 2:], axis=-1) > 0.2
    near = 3e-5 * EPS[dtype] / EPS["float32"] / root
    assert (np.abs(got - want)[apart] <= near + 5e-7 * want[apart]).all()


@makes
@dtypes
@given(spaces=few_spaces(5), c=rounded_curvatures)
def test_all_pairs_of_angles_are_within_the_documented_bound(
    make: Make, dtype: str, spaces: Any, c: float
) -> None:
    exact = points(spaces, c)
    general, specific = exact[:2, None], exact[None, 2:]
    x = make(points(spaces, c, dtype))
    got = np.asarray(lorentz.pairwise_exterior_angle(x[:2], x[2:], c))
    want = lorentz.exterior_angle(general, specific, c)
    eps, cosh = EPS[dtype], scaled_time(general, c)
    sinh = math.sqrt(c) * np.linalg.norm(specific[..., 1:], axis=-1)
    apart = np.sinh(math.sqrt(c) * lorentz.distance(general, specific, c))
    axis, ray = lorentz.unit(general[..., 1:]), lorentz.unit(specific[..., 1:])
    sine = np.minimum(np.linalg.norm(axis - ray, axis=-1), np.linalg.norm(axis + ray, axis=-1))
    turned = np.minimum(16 * eps / np.maximum(sine, eps), 4 * eps**0.5) + 8 * eps
    moved = sinh * turned + (8 * eps * sinh + 12 * eps * apart) * cosh
    moved = moved / np.maximum(apart, 1e-300)
    bound = np.where(moved < 1, math.pi / 2 * moved, math.pi) + 8 * eps
    assert (np.abs(got - want) <= bound).all()


@dtypes
@given(spaces=few_spaces(3), c=curvatures)
def test_every_gradient_is_finite(dtype: str, spaces: Any, c: float) -> None:
    torch = pytest.importorskip("torch")
    space = torch.tensor(np.concatenate([spaces, 0 * spaces[:1]]).astype(dtype), requires_grad=True)
    curvature = torch.tensor(c, dtype=space.dtype, requires_grad=True)
    x = lorentz.from_space(space, curvature)
    tangent = lorentz.log_map(x, curvature)
    first = x[:1].expand_as(x)
    outputs = [
        lorentz.lift(tangent, curvature).sum(),
        lorentz.radius(x, curvature).sum(),
        lorentz.half_aperture(x, curvature).sum(),
        lorentz.to_poincare(x, curvature).sum(),
        lorentz.pairwise_distance(x, x, curvature).sum(),
        lorentz.pairwise_exterior_angle(x, x, curvature).sum(),
    ]
    for function in (lorentz.distance, lorentz.exterior_angle, lorentz.entailment_score):
        outputs += [function(first, x, curvature).sum(), function(x, first, curvature).sum()]
    for output in outputs:
        assert bool(output.isfinite())
        for gradient in torch.autograd.grad(output, (space, curvature), retain_graph=True):
            assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_no_number_stays_none(kind: str) -> None:
    """A point that is not finite must not look like one that is near."""
    x: Any = lorentz.lift(np.ones((2, DIM)), 1.0)
    y: Any = np.full_like(x, np.nan)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        x, y = torch.from_numpy(x), torch.from_numpy(y)
    of_pairs = (
        lorentz.distance,
        lorentz.pairwise_distance,
        lorentz.exterior_angle,
        lorentz.pairwise_exterior_angle,
        lorentz.entailment_score,
    )
    for pair in ((x, y), (y, x)):
        assert all(np.isnan(np.asarray(function(*pair, 1.0))).all() for function in of_pairs)
    of_points = (lorentz.half_aperture, lorentz.radius)
    assert all(np.isnan(np.asarray(function(y, 1.0))).all() for function in of_points)
    assert np.isnan(np.asarray(lorentz.lift(y[:, 1:], 1.0))).all()
