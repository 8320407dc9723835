"""A figure with everything that its uncertainty can be computed from."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Statistic = Literal[
    "mean",  # of values
    "per_class",  # mean over classes (labels) of the mean of values
    "ap",  # average precision of values (scores) for labels (positives), ties grouped
    "auroc",  # of the same
    "map",  # mean over columns of ap: values and labels (n, classes)
]


@dataclass(frozen=True)
class Outcomes:
    """What happened to each item, from which a figure is computed again under resampling."""

    statistic: Statistic
    values: npt.NDArray[Any]
    """``(n,)`` hits, lengths or scores; ``(n, classes)`` scores for ``map``."""
    cluster: npt.NDArray[np.intp]
    """``(n,)``: items of one cluster (an image, usually) are drawn together. From 0 upwards."""
    labels: npt.NDArray[Any] | None = None
    """``(n,)`` classes for ``per_class``, positives for ``ap`` and ``auroc``;
    ``(n, classes)`` positives for ``map``."""


@dataclass(frozen=True)
class Measure:
    """One figure."""

    group: str
    name: str
    value: float
    chance: float | None
    """What guessing reaches; None where that has no meaning."""
    count: int
    """How many queries, pictures or pairs it is of."""
    unit: Literal["share", "number"] = "share"
    """A share of 0..1 is shown in percent, a number as it is."""
    is_lower_better: bool = False
    is_headline: bool = False
    """Whether it gets a confidence interval."""
    outcomes: Outcomes | None = None
    low: float | None = None
    high: float | None = None
    """Bounds of the 95% confidence interval."""

    def number(self, value: float) -> str:
        """A value that is no share, as people read it: whole, or with four digits."""
        if abs(value) >= 1000 or float(value).is_integer():
            return f"{value:,.0f}"
        return f"{value:#.4g}"


@dataclass(frozen=True)
class Finding:
    """What a task found."""

    measures: tuple[Measure, ...]
    details: dict[str, Any] = field(default_factory=dict)
    """What plots and listings show, JSON; keys are documented where they are made."""
    left_out: tuple[str, ...] = ()
    """Of each picture that could not be read why; the figures are of the others."""
