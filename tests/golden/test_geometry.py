"""Golden geometry; see README.md for how the values were made."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import lorentz

torch = pytest.importorskip("torch")

GOLDEN = json.loads(Path(__file__).with_name("geometry.json").read_text(encoding="utf-8"))
CASES = GOLDEN["cases"]

Make = Callable[[Any, str], Any]


def numpy_array(values: Any, dtype: str) -> Any:
    return np.array(values, dtype)


def torch_tensor(values: Any, dtype: str) -> Any:
    return torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)


makes = pytest.mark.parametrize("make", [numpy_array, torch_tensor])
cases = pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))


def values(array: Any) -> Any:
    return array.detach().numpy() if hasattr(array, "detach") else array


def quantities(case: dict[str, Any], make: Make, dtype: str) -> dict[str, float]:
    c = case["c"]
    a = lorentz.lift(make(case["tangent_a"], dtype), c)
    b = lorentz.lift(make(case["tangent_b"], dtype), c)
    computed = {
        "dist": lorentz.distance(a, b, c),
        "dist0_a": lorentz.radius(a, c),
        "half_aperture_b": lorentz.half_aperture(b, c),
        "exterior_angle_a_wrt_b": lorentz.exterior_angle(b, a, c),
        "exterior_angle_b_wrt_a": lorentz.exterior_angle(a, b, c),
        "entail_score": lorentz.entailment_score(b, a, c),
    }
    return {name: float(values(value)) for name, value in computed.items()}


@makes
@cases
def test_float64_agrees_with_sixty_digits_to_twelve(case: dict[str, Any], make: Make) -> None:
    for name, value in quantities(case, make, "float64").items():
        assert value == pytest.approx(case[name], rel=1e-12, abs=1e-12), name


@makes
@cases
def test_float32_agrees_with_sixty_digits_to_its_own(case: dict[str, Any], make: Make) -> None:
    c = case["c"]
    a, b = (from_golden_space(case[f"exp0_{side}"], c, make) for side in "ab")
    assert float(values(lorentz.distance(a, b, c))) == pytest.approx(case["dist"], rel=5e-7)
    for root, leaf, name in ((b, a, "exterior_angle_a_wrt_b"), (a, b, "exterior_angle_b_wrt_a")):
        angle = float(values(lorentz.exterior_angle(root, leaf, c)))
        assert angle == pytest.approx(case[name], abs=5e-7), name


@makes
@cases
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
def test_the_lift_lands_where_it_should(
    case: dict[str, Any], make: Make, dtype: str, tolerance: float
) -> None:
    for side in "ab":
        tangent, space = case[f"tangent_{side}"], np.array(case[f"exp0_{side}"])
        # sinh multiplies the rounding of its argument by the argument
        near = tolerance * max(1.0, math.sqrt(case["c"]) * math.hypot(*tangent) / 20)
        point = values(lorentz.lift(make(tangent, dtype), case["c"]))
        assert point[0] == pytest.approx(case[f"time_{side}"], rel=near)
        assert point[1:] == pytest.approx(space, rel=near, abs=near * np.abs(space).max())


@makes
@pytest.mark.parametrize("curvature", sorted({case["c"] for case in CASES}))
def test_all_pairs_in_float32_agree_to_three_hundred_thousandths(
    curvature: float, make: Make
) -> None:
    mine = [case for case in CASES if case["c"] == curvature]
    a, b = (
        from_golden_space([case[f"exp0_{side}"] for case in mine], curvature, make) for side in "ab"
    )
    got = np.diag(values(lorentz.pairwise_distance(a, b, curvature)))
    want = np.array([case["dist"] for case in mine])
    assert np.abs(got - want).max() < 3e-5 / math.sqrt(curvature) + 5e-7 * want.max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases
def test_every_gradient_is_finite(case: dict[str, Any], dtype: str) -> None:
    a = torch_tensor(case["tangent_a"], dtype)
    b = torch_tensor(case["tangent_b"], dtype)
    c = torch_tensor(case["c"], dtype)
    pair = lorentz.lift(a, c), lorentz.lift(b, c)
    for function in (lorentz.distance, lorentz.exterior_angle, lorentz.entailment_score):
        for x, y in (pair, pair[::-1], (pair[0], pair[0])):
            gradients = torch.autograd.grad(
                function(x, y, c), (a, b, c), retain_graph=True, allow_unused=True
            )
            for gradient in gradients:
                assert gradient is None or bool(gradient.isfinite().all())
    for of_one in (lorentz.half_aperture(pair[1], c), lorentz.radius(pair[1], c)):
        for gradient in torch.autograd.grad(of_one, (b, c), retain_graph=True):
            assert bool(gradient.isfinite().all())


@makes
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_degenerate_pairs_have_their_exact_values(make: Make, dtype: str) -> None:
    vector = np.array([0.3, -0.2, 0.5])
    x, deeper, opposite, origin = (
        lorentz.lift(make(scale * vector, dtype), 1.0) for scale in (1.0, 2.0, -1.0, 0.0)
    )
    for root, leaf, angle in (
        (x, x, 0),
        (origin, x, 0),
        (x, deeper, 0),
        (deeper, x, math.pi),
        (x, opposite, math.pi),
    ):
        got = float(values(lorentz.exterior_angle(root, leaf, 1.0)))
        assert got == pytest.approx(angle, abs=5e-7)
    assert float(values(lorentz.distance(x, x, 1.0))) == 0
    assert float(values(lorentz.half_aperture(origin, 1.0))) == pytest.approx(math.pi / 2)
    assert np.array_equal(values(origin), [1, 0, 0, 0])


@makes
def test_a_tangent_beyond_the_number_format_is_held(make: Make) -> None:
    for dtype in ("float32", "float64"):
        assert np.isfinite(values(lorentz.lift(make([1e4, 0.0], dtype), 1.0))).all()


@makes
def test_pairwise_angles_agree_with_atmg(make: Make) -> None:
    golden = GOLDEN["pairwise_angles"]
    roots = lorentz.from_space(make(golden["x"], "float64"), golden["c"])
    leaves = lorentz.from_space(make(golden["y"], "float64"), golden["c"])
    for angles in (
        lorentz.exterior_angle(roots[:, None], leaves[None], golden["c"]),
        lorentz.pairwise_exterior_angle(roots, leaves, golden["c"]),
    ):
        want = np.array(golden["angles"])
        assert values(angles) == pytest.approx(want, rel=1e-6)  # its eps is 1e-8


@makes
def test_the_log_map_agrees_with_meru(make: Make) -> None:
    golden = GOLDEN["log_map"]
    x = make(golden["x"], "float64")
    log = lorentz.log_map(lorentz.from_space(x, golden["c"]), golden["c"])
    assert values(log) == pytest.approx(np.array(golden["log"]), rel=1e-7)
    assert values(lorentz.lift(x, golden["c"]))[:, 1:] == pytest.approx(
        np.array(golden["exp"]), rel=1e-12
    )


def from_golden_space(space: Any, curvature: float, make: Make) -> Any:
    return lorentz.from_space(make(space, "float32"), curvature)


@makes
@pytest.mark.parametrize("curvature", sorted({case["c"] for case in CASES}))
def test_all_pairs_in_float64_agree_with_the_single_ones(curvature: float, make: Make) -> None:
    """To what a cosine of unit vectors keeps: √(16 ε) of an angle that is not told from 0."""
    mine = [case for case in CASES if case["c"] == curvature]
    a, b = (
        lorentz.from_space(make([case[f"exp0_{side}"] for case in mine], "float64"), curvature)
        for side in "ab"
    )
    product = np.array([case["inner"] for case in mine])
    assert values(lorentz.inner(a, b)) == pytest.approx(product, rel=1e-12)
    for all_pairs, single in (
        (lorentz.pairwise_distance, lorentz.distance),
        (lorentz.pairwise_exterior_angle, lorentz.exterior_angle),
    ):
        got = values(all_pairs(a, b, curvature))
        want = values(single(a[:, None], b[None], curvature))
        assert np.abs(got - want).max() < 2e-7, all_pairs.__name__


@makes
def test_degenerate_values_are_nearer_to_the_truth_than_merus(make: Make) -> None:
    vector = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 0.2, 0.05, -0.1])
    unit = vector / np.linalg.norm(vector)
    x, twice, opposite, near, origin = (
        lorentz.lift(make(scale * unit, "float32"), 1.0) for scale in (1.0, 2.0, -1.0, 0.1, 0.0)
    )
    ours = {
        "meru pairwise_dist(x,x) f32": (lorentz.distance(x, x, 1.0), 0),
        "meru half_aperture(norm 0.1) f32": (lorentz.half_aperture(near, 1.0), math.pi / 2),
        "meru oxy_angle(x,2x) f32 collinear": (lorentz.exterior_angle(x, twice, 1.0), 0),
        "meru oxy_angle(x,x) f32 coincident": (lorentz.exterior_angle(x, x, 1.0), 0),
        "meru oxy_angle(x,-x) f32": (lorentz.exterior_angle(x, opposite, 1.0), math.pi),
        "meru oxy_angle(2x,x) f32 inward": (lorentz.exterior_angle(twice, x, 1.0), math.pi),
        "meru exp_map0(0) f32": (origin[1:], 0),
    }
    golden = dict(GOLDEN["degenerate_float32"])
    held = golden.pop("meru exp_map0(norm 50) f32 (over the asinh(2^15) clamp)")
    assert golden.keys() == ours.keys()
    for name, (value, truth) in ours.items():
        theirs = np.abs(np.array(golden[name]) - truth).max()
        assert np.abs(values(value) - truth).max() <= max(theirs, 3e-7), (
            name
        )  # a step of float32 at π
    far = values(lorentz.lift(make(50 / math.hypot(*held) * np.array(held), "float64"), 1.0))
    assert math.hypot(*held) == pytest.approx(2**15, rel=1e-6)  # where MERU holds a lift
    assert math.hypot(*far[1:]) == pytest.approx(math.sinh(50), rel=1e-12)


@makes
@pytest.mark.parametrize(
    "row", GOLDEN["float32_sweep"], ids=lambda row: f"{row['c']}-{row['tangent_scale']}"
)
def test_in_float32_distances_keep_the_digits_that_merus_lose(
    row: dict[str, float], make: Make
) -> None:
    """Pairs a tenth of their norm apart, as those of the sweep were."""
    c, norm = row["c"], row["tangent_scale"]
    draws = lorentz.unit(np.random.default_rng(0).normal(size=(2, 256, 512)))
    single = [
        lorentz.lift(tangent, c)[:, 1:].astype(np.float32)
        for tangent in (norm * draws[0], norm * (draws[0] + 0.1 * draws[1]))
    ]

    def distances(dtype: str) -> Any:
        a, b = (lorentz.from_space(make(space, dtype), c) for space in single)
        return values(lorentz.distance(a, b, c))

    got, truth = distances("float32"), distances("float64")
    if math.sqrt(c) * norm < math.asinh(2**15):  # MERU's lift holds what is farther out
        assert truth.mean() == pytest.approx(row["mean_true_dist"], rel=0.05)
    assert np.abs(got - truth).max() < row["max_abs_err_meru_f32"]
    assert np.abs(got / truth - 1).max() < min(5e-7, row["max_rel_err"])
