"""Distances and angles of the objectives, against those that all rooms share."""

from typing import Any

import pytest
import torch
from torch import Tensor

from core import lorentz
from trainer.objectives import distances
from trainer.objectives.angles import angle_and_length
from trainer.objectives.contrastive import match, symmetric
from trainer.objectives.distances import Distances
from trainer.objectives.nodes import Temperature


def points(count: int, seed: int, curvature: float) -> Tensor:
    """Of norms from 1e-3 to 10, on one hyperboloid."""
    draw = torch.Generator().manual_seed(seed)
    space = torch.randn((count, 5), generator=draw, dtype=torch.float64)
    space = space * 10 ** torch.linspace(-3, 1, count, dtype=torch.float64)[:, None]
    return lorentz.from_space(space, curvature)


def exterior_angle(general: Tensor, specific: Tensor, curvature: Tensor) -> Tensor:
    return angle_and_length(general, specific, curvature)[0]


def losses(x: Tensor, y: Tensor, c: Tensor, *, at_once: bool) -> Tensor:
    """Of both directions, and of rows with factors, masks and counts, in blocks or as matrices."""
    draw = torch.Generator().manual_seed(len(x))
    temperature = Temperature(10 * c, None)  # so that it gets a gradient
    masked = torch.rand((len(x), len(x)), generator=draw) < 0.2
    masked = (masked | masked.T).fill_diagonal_(False)
    own = torch.randint(len(y), (len(x),), generator=draw)
    excluded = torch.rand((len(x), len(y)), generator=draw) < 0.2
    excluded = excluded.scatter(1, own[:, None], False)
    count = torch.randint(3, (len(y),), generator=draw).index_fill(0, own, 2)
    square = Distances(x, y[: len(x)], c)
    rows = Distances(x, y, c, torch.rand(len(x), generator=draw).to(x) + 0.5)
    made = (square, rows) if at_once else (square.taken(), rows.taken())
    return torch.stack([
        symmetric(made[0], temperature),
        symmetric(made[0], temperature, masked),
        match(made[1], own, temperature),
        match(made[1], own, temperature, excluded, count),
    ])  # fmt: skip


def in_blocks(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    return losses(x, y, c, at_once=True)


def as_matrices(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    return losses(x, y, c, at_once=False)


@pytest.mark.parametrize("pairs_at_once", [2**22, 30])
@pytest.mark.parametrize("curvature", [0.1, 1.0, 10.0])
def test_losses_and_gradients_are_those_of_the_matrix_of_distances(
    curvature: float, pairs_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "_AT_ONCE", pairs_at_once)
    x, y = points(9, 0, curvature), points(12, 1, curvature)
    y[5, 1:], x[0, 1:] = 2 * x[6, 1:], 0.0  # on one ray; at the origin
    c = torch.tensor(curvature, dtype=torch.float64)
    require_same(in_blocks, as_matrices, x, y, c)


def test_points_that_coincide_have_a_small_distance_and_a_small_slope() -> None:
    draw = torch.Generator().manual_seed(0)
    space = torch.randn((64, 512), generator=draw) / 20
    x = lorentz.from_space(space, 1.0).requires_grad_()
    one = torch.tensor(1.0)
    loss = symmetric(Distances(x, x.detach(), one), Temperature(one, None))
    expected = symmetric(-lorentz.pairwise_distance(x, x, one), Temperature(one, None))
    torch.testing.assert_close(loss, expected, atol=3e-3, rtol=0)
    (slope,) = torch.autograd.grad(loss, x)
    assert lorentz.length(slope).max() < 1e-2


def test_a_column_without_any_pair_gets_no_gradient() -> None:
    x, y = points(1, 0, 1.0).requires_grad_(), points(5, 1, 1.0).requires_grad_()
    one, excluded = torch.tensor(1.0).double(), torch.tensor([[False, True, False, False, True]])
    own = torch.zeros(1, dtype=torch.int64)
    _, columns, _ = Distances(x, y, one).softmax(own, one, excluded, both=True)
    assert columns.isinf().tolist() == excluded[0].tolist()
    columns[~excluded[0]].sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.isfinite().all()
    assert y.grad.abs().sum(1).gt(0).tolist() == (~excluded[0]).tolist()


def test_the_way_back_can_be_taken_twice() -> None:
    x, y = points(9, 0, 1.0).requires_grad_(), points(9, 1, 1.0)
    loss = in_blocks(x, y, torch.tensor(1.0, dtype=torch.float64)).sum()
    once, twice = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, twice)


@pytest.mark.parametrize("curvature", [0.1, 1.0, 10.0])
def test_so_are_angles_of_pairs(curvature: float) -> None:
    x, y = points(9, 0, curvature), points(9, 1, curvature)
    y[3] = x[3]  # coincide
    x[1, 1:] = 0.0  # at the origin
    require_same(exterior_angle, lorentz.exterior_angle, x, y, torch.tensor(curvature).double())


def test_angles_along_a_ray_are_flat_or_straight_and_their_slopes_stay_small() -> None:
    """There a slope has a size and no direction: rounding decides, and may not blow it up."""
    x = points(9, 0, 1.0)[4:]
    y = lorentz.from_space(x[:, 1:] * torch.tensor([2.0, 0.5, 1.5, 0.0, 3.0])[:, None], 1.0)
    x, y, one = x.requires_grad_(), y.requires_grad_(), torch.tensor(1.0, dtype=torch.float64)
    angle = exterior_angle(x, y, one)
    expected = torch.tensor([0, torch.pi, 0, torch.pi, 0], dtype=torch.float64)
    torch.testing.assert_close(angle, expected, atol=1e-12, rtol=0)
    by_x, by_y = torch.autograd.grad(angle.sum(), (x, y))
    norm_x, norm_y = lorentz.length(x[:, 1:]), lorentz.length(y[:, 1:])
    apart = (norm_y * x[:, 0] - norm_x * y[:, 0]).abs()
    assert (lorentz.length(by_y) <= 1.001 / apart).all()
    assert (lorentz.length(by_x) <= 1.001 * norm_y / norm_x / apart).all()


def test_so_are_angles_in_a_product() -> None:
    curvature = torch.tensor([0.5, 2.0], dtype=torch.float64)
    x, y = (
        torch.stack([points(9, seed + factor, float(c)) for factor, c in enumerate(curvature)], 1)
        for seed in (0, 5)
    )
    require_same(exterior_angle, lorentz.exterior_angle, x, y, curvature)


def require_same(found: Any, expected: Any, x: Tensor, y: Tensor, curvature: Tensor) -> None:
    """Values, and gradients by both points and the curvature."""
    results = []
    for function in (found, expected):
        leaves = [value.clone().requires_grad_() for value in (x, y, curvature)]
        values = function(*leaves)
        weight = torch.linspace(-1, 1, values.numel(), dtype=torch.float64).view(values.shape)
        results.append([values, *torch.autograd.grad((values * weight).sum(), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_angles_keep_their_digits_in_float32() -> None:
    """Near points, and all but collinear ones."""
    draw = torch.Generator().manual_seed(0)
    x = lorentz.from_space(torch.randn((64, 5), generator=draw, dtype=torch.float64), 1.0)
    near = torch.randn((64, 5), generator=draw, dtype=torch.float64)
    scale = 10 ** torch.linspace(-4, 0, 64, dtype=torch.float64)[:, None]
    y = lorentz.from_space(x[:, 1:] * 1.5 + scale * near, 1.0)
    x, y = x.float(), y.float()
    one = torch.tensor(1.0)
    error = exterior_angle(x, y, one) - exterior_angle(x.double(), y.double(), one.double())
    assert error.abs().max() < 1e-6


@pytest.mark.parametrize(("pairs", "most"), [(in_blocks, 1e-3), (exterior_angle, 0.1)])
@pytest.mark.parametrize("curvature", [0.1, 1.0, 10.0])
def test_gradients_are_right_for_points_near_and_far(
    pairs: Any, most: float, curvature: float
) -> None:
    """In float32 and by the tangents, up to where the lift holds them: nothing overflows."""
    draw = torch.Generator().manual_seed(0)
    tangents = torch.randn((2, 200, 16), generator=draw, dtype=torch.float64)
    sizes = 10 ** (torch.rand((2, 200, 1), generator=draw, dtype=torch.float64) * 4.5 - 3)
    tangents = tangents / lorentz.length(tangents)[..., None] * sizes / curvature**0.5
    tangents[:, :20] *= 39 / sizes[:, :20]  # all but held

    def slopes(kind: torch.dtype) -> list[Tensor]:
        leaves = [tangents[0].to(kind).requires_grad_(), tangents[1].to(kind).requires_grad_()]
        c = torch.tensor(curvature, dtype=kind, requires_grad=True)
        values = pairs(*(lorentz.lift(leaf, c) for leaf in leaves), c)
        return [slope.double() for slope in torch.autograd.grad(values.sum(), (*leaves, c))]

    found, expected = slopes(torch.float32), slopes(torch.float64)
    for one, other in zip(found, expected, strict=True):
        error = lorentz.length(one - other) / (lorentz.length(other) + 1e-3)
        assert error.max() < most


@pytest.mark.parametrize("pairs", [in_blocks, exterior_angle])
def test_their_gradients_are_slopes(pairs: Any) -> None:
    x, y = points(4, 0, 0.7).requires_grad_(), points(4, 1, 0.7).requires_grad_()
    c = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pairs, (x, y, c), eps=1e-7, atol=1e-5, rtol=1e-4)


def test_a_nan_is_not_lost() -> None:
    x = points(4, 0, 1.0)
    x[1, 2] = torch.nan
    x.requires_grad_()
    c = torch.tensor(1.0, dtype=torch.float64)
    own = torch.arange(3).repeat(2)[:4]
    rows, _, right = Distances(x, points(3, 1, 1.0), c).softmax(own, c)
    assert rows.isnan().tolist() == right.isnan().tolist() == [False, True, False, False]
    (rows - right).sum().backward()
    assert x.grad is not None
    assert x.grad.isnan().any(1).tolist() == [False, True, False, False]


def test_lengths_come_with_their_gradients() -> None:
    x, y = points(9, 0, 1.0)[1:].requires_grad_(), points(8, 1, 1.0)
    one = torch.tensor(1.0, dtype=torch.float64)
    _, length = angle_and_length(x, y, one)
    expected = lorentz.length(x[:, 1:])
    torch.testing.assert_close(length, expected)
    (found,) = torch.autograd.grad(length.square().sum(), x)
    (right,) = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(found, right)
