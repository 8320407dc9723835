"""Laws of the hyperboloid, for numpy and torch."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core import lorentz

curvatures = st.floats(0.1, 10)
radii = st.floats(0.01, 5)
seeds = st.integers(0, 2**32 - 1)
DIM = 6


def direction(seed: int) -> Any:
    vector = np.random.default_rng(seed).normal(size=DIM)
    return vector / np.linalg.norm(vector)


def point_at(radius: float, seed: int, curvature: float) -> Any:
    return lorentz.lift(radius * direction(seed), curvature)


@given(a=radii, b=radii, one=seeds, other=seeds, c=curvatures)
def test_distance_is_symmetric(a: float, b: float, one: int, other: int, c: float) -> None:
    x, y = point_at(a, one, c), point_at(b, other, c)
    assert lorentz.distance(x, y, c) == pytest.approx(lorentz.distance(y, x, c), rel=1e-12)


@given(radii_of_three=st.tuples(radii, radii, radii), seed=seeds, c=curvatures)
def test_no_detour_is_shorter(
    radii_of_three: tuple[float, float, float], seed: int, c: float
) -> None:
    x, y, z = (point_at(r, (seed + turn) % 2**32, c) for turn, r in enumerate(radii_of_three))
    straight = lorentz.distance(x, z, c)
    assert straight <= (lorentz.distance(x, y, c) + lorentz.distance(y, z, c)) * (1 + 1e-12)


@given(a=radii, one=seeds, c=curvatures)
def test_a_point_is_at_no_distance_from_itself(a: float, one: int, c: float) -> None:
    x = point_at(a, one, c).astype(np.float32)
    assert lorentz.distance(x, x, c) == 0


@given(a=radii, one=seeds, other=seeds, exponent=st.floats(-7, -1), c=curvatures)
def test_near_pairs_keep_the_digits_of_float32(
    a: float, one: int, other: int, exponent: float, c: float
) -> None:
    x = (point_at(a / math.sqrt(c), one, c)[1:]).astype(np.float32)
    y = (x + 10**exponent * direction(other)).astype(np.float32)
    assume(not np.array_equal(x, y))
    exact_x, exact_y = (lorentz.from_space(space.astype(np.float64), c) for space in (x, y))
    exact = lorentz.distance(exact_x, exact_y, c)
    rounded = lorentz.distance(lorentz.from_space(x, c), lorentz.from_space(y, c), c)
    # Outward steps shrink by cosh(radius) against sideways ones, whose rounding then shows.
    assert rounded == pytest.approx(exact, rel=5e-7 if a < 4 else 2e-6)


@given(a=radii, b=radii, one=seeds, c=curvatures)
def test_distances_add_up_along_a_geodesic(a: float, b: float, one: int, c: float) -> None:
    x, y = point_at(a, one, c), point_at(-b, one, c)
    assert lorentz.distance(x, y, c) == pytest.approx(a + b, rel=1e-12)
    assert lorentz.distance(x, lorentz.lift(np.zeros(DIM), c), c) == pytest.approx(a, rel=1e-12)


@given(a=st.floats(0, 5), one=seeds, c=curvatures)
def test_the_log_map_undoes_the_lift(a: float, one: int, c: float) -> None:
    tangent = a * direction(one)
    assert lorentz.log_map(lorentz.lift(tangent, c), c) == pytest.approx(tangent, rel=1e-12)


@given(a=radii, b=radii, one=seeds, other=seeds, c=curvatures)
def test_the_mirror_turns_a_dot_product_into_the_lorentz_product(
    a: float, b: float, one: int, other: int, c: float
) -> None:
    x, y = point_at(a, one, c), point_at(b, other, c)
    product = lorentz.inner(x, y)
    rounding = 1e-13 * x[0] * y[0]  # of products that nearly cancel
    assert x @ lorentz.mirror(y) == pytest.approx(product, abs=rounding)
    cosh = np.cosh(math.sqrt(c) * lorentz.distance(x, y, c))
    assert cosh / c == pytest.approx(-product, rel=1e-12, abs=rounding)


@given(a=radii, further=radii, one=seeds, c=curvatures)
def test_what_lies_straight_outward_is_entailed(
    a: float, further: float, one: int, c: float
) -> None:
    general, specific = (point_at(scaled / math.sqrt(c), one, c) for scaled in (a, a + further))
    assert lorentz.entailment_score(general, specific, c) == pytest.approx(1, abs=1e-9)
    assert lorentz.entailment_score(specific, general, c) == pytest.approx(0, abs=1e-9)


@given(one=seeds, other=seeds, c=curvatures)
def test_torch_and_numpy_agree(one: int, other: int, c: float) -> None:
    torch = pytest.importorskip("torch")
    x = lorentz.lift(np.stack([direction(one), 3 * direction(other)]), c)
    y = lorentz.lift(np.stack([2 * direction(other), direction(one)]), c)
    pair = torch.from_numpy(x), torch.from_numpy(y)
    for function in (lorentz.distance, lorentz.exterior_angle, lorentz.entailment_score):
        assert function(*pair, c).numpy() == pytest.approx(function(x, y, c), abs=1e-9)
    all_pairs = lorentz.pairwise_distance(x, y, c)  # where two coincide: the root of a rounding
    assert lorentz.pairwise_distance(*pair, c).numpy() == pytest.approx(all_pairs, abs=1e-6)
