"""Golden learning rates; see README.md for how they were made."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from trainer.optim import build_optimizer, learning_rate
from trainer.sections import OptimSection

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("schedule.json").read_text())


@pytest.mark.parametrize("horizon", [500_000, 100_000])
def test_the_rates_are_those_of_hyper3_clip(horizon: int) -> None:
    options = OptimSection(warmup_steps=4000, steps=horizon, peak_lr=5e-4)
    golden = GOLDEN[f"horizon_{horizon}"]
    for step, rate in zip(golden["steps"], golden["rates"], strict=True):
        assert learning_rate(step, options) == pytest.approx(rate, rel=1e-6, abs=1e-20)


def test_a_pooling_that_decays_while_idle_shrinks_below_a_hundredth() -> None:
    """What AdamW leaves of a weight without gradient, after the base run of the ablations."""
    golden = GOLDEN["idle_decay"]
    options = OptimSection(warmup_steps=4000, steps=100_000, weight_decay=golden["weight_decay"])
    rates = [learning_rate(step, options) for step in range(golden["steps"])]
    assert math.fsum(rates) == pytest.approx(golden["sum_of_rates"], rel=1e-6)
    left = math.prod(1 - rate * options.weight_decay for rate in rates)
    assert left == pytest.approx(golden["factor"], rel=1e-6)


def test_a_step_without_gradient_is_decay_alone() -> None:
    """The factor of one step of the product above, by the optimizer itself."""
    layer = nn.Linear(4, 3).double()
    before, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    options = OptimSection(weight_decay=0.2)
    optimizer = build_optimizer(layer, options)
    layer.weight.grad = torch.zeros_like(layer.weight)
    layer.bias.grad = torch.zeros_like(layer.bias)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), before * (1 - options.peak_lr * 0.2))
    torch.testing.assert_close(layer.bias.detach(), bias, rtol=0, atol=0)
