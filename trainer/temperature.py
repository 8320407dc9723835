"""The inverse temperatures that each system learns."""

import math

import torch
from torch import nn

from trainer.objectives.nodes import Temperature
from trainer.objectives.options import ClipObjective, Objective, WholePart


class LearnedTemperature(nn.Module):
    """A learned inverse temperature, and for the sigmoid loss a bias."""

    def __init__(self, start: float, contrast: str, *, curved: bool) -> None:
        super().__init__()
        if contrast == "sigmoid":
            start = 10.0  # SigLIP's; its bias of -10 puts a cosine of 1 at the logit 0,
        self.log_scale = nn.Parameter(torch.tensor(math.log(start)))
        self.bias: nn.Parameter | None = None
        if contrast == "sigmoid":  # where a distance of 0 is by itself
            self.bias = nn.Parameter(torch.tensor(0.0 if curved else -10.0))

    def forward(self) -> Temperature:
        """With gradient."""
        return Temperature(self.log_scale.exp(), self.bias)


def first_temperatures(objective: Objective) -> dict[str, float]:
    """The inverse temperatures that a system learns, and where they start (CLIP; UNCHA)."""
    names = {"whole": 1 / 0.07}
    if isinstance(objective, ClipObjective) and objective.needs_queries:
        names |= {"part": 1 / 0.07}
    if isinstance(objective, WholePart):
        names |= {"part": 1 / 0.05, "cross": 1 / 0.06}
    return names
