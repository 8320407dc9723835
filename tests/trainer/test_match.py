"""What the rows of similarities lose, against plain statements; tolerance 1e-12."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainer.objectives.contrastive import match, repeats, symmetric
from trainer.objectives.nodes import Temperature

SCALE, BIAS = (torch.tensor(value, dtype=torch.float64) for value in (3.0, -2.0))
SOFTMAX, SIGMOID = Temperature(SCALE), Temperature(SCALE, BIAS)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def normal(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def test_rows_that_match_have_the_cross_entropy() -> None:
    similarity, own = normal(4, 5), torch.tensor([1, 0, 4, 4])
    plain = functional.cross_entropy(SCALE * similarity, own)
    assert match(similarity, own, SOFTMAX).item() == close(plain.item())


def test_the_sigmoid_is_siglips_sum_over_columns_and_mean_over_rows() -> None:
    similarity, own = normal(3, 4), torch.tensor([1, 0, 3])
    plain = 0.0
    for row in range(3):
        for column in range(4):
            logit = (SCALE * similarity[row, column] + BIAS).item()
            sign = 1 if column == own[row] else -1
            plain -= math.log(1 / (1 + math.exp(-sign * logit))) / 3
    assert match(similarity, own, SIGMOID).item() == close(plain)


def test_what_is_excluded_is_as_if_it_were_not_there() -> None:
    similarity, own = normal(1, 4), torch.tensor([1])
    excluded = torch.tensor([[False, False, True, False]])
    for temperature in (SOFTMAX, SIGMOID):
        left = match(similarity[:, [0, 1, 3]], own, temperature)
        assert match(similarity, own, temperature, excluded).item() == close(left.item())


def test_a_count_stands_for_that_many_columns() -> None:
    similarity, own, count = normal(4, 4), torch.tensor([0, 0, 1, 3]), torch.tensor([2, 1, 0, 3])
    plain = functional.cross_entropy(
        SCALE * similarity.repeat_interleave(count, 1), torch.tensor([0, 1, 2, 3])
    )
    assert match(similarity, own, SOFTMAX, count=count).item() == close(plain.item())
    assert match(similarity, own, SIGMOID, count=count) == match(similarity, own, SIGMOID)


def test_no_rows_have_no_loss_and_no_gradient() -> None:
    similarity = torch.zeros(0, 3, requires_grad=True)
    loss = match(similarity, torch.zeros(0, dtype=torch.int64), SOFTMAX)
    loss.backward()
    assert loss.item() == 0


@pytest.mark.parametrize("temperature", [SOFTMAX, SIGMOID], ids=["softmax", "sigmoid"])
def test_the_symmetric_loss_is_half_of_rows_and_columns(temperature: Temperature) -> None:
    similarity, own = normal(4, 4), torch.arange(4)
    masked = repeats(torch.tensor([0, 1, 0, 2]))
    rows = match(similarity, own, temperature, masked)
    columns = match(similarity.T, own, temperature, masked.T)
    loss = symmetric(similarity, temperature, masked)
    assert loss.item() == close((rows.item() + columns.item()) / 2)
    if temperature.bias is not None:  # SigLIP has one sum over all pairs
        assert rows.item() == close(columns.item())


def test_repeats_share_any_identity_and_are_not_themselves() -> None:
    shared = repeats(torch.tensor([0, 1, 0, 2]), torch.tensor([5, 6, 7, 6]))
    assert shared.nonzero().tolist() == [[0, 2], [1, 3], [2, 0], [3, 1]]
