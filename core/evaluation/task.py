"""What a task is: one family of measures on one data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding
from core.image import Preprocess


@dataclass(frozen=True)
class Options:
    """What the user may choose; None leaves it to the family."""

    preprocess: Preprocess | None = None
    """How whole pictures become squares."""
    prompts: Mapping[str, tuple[str, ...]] | None = None
    """Prompt sets by name, in place of the official one of each data set."""
    seed: int = 0
    """Of everything that is drawn: negatives, resampling."""


@dataclass(frozen=True)
class Kind:
    """A family of measures. Its module in `core.evaluation.tasks` defines one of these."""

    name: str
    about: str
    """One line for `hyper3 eval --list`."""
    applies: Callable[[Dataset], bool]
    """Whether a data set has what it needs."""
    protocol: Callable[[Dataset, Options], dict[str, Any]]
    """Everything that determines its figures beside encoder, data and seed, as JSON: prompts,
    names, preprocessing, tie rules. It is written into the result and is part of its key."""
    measure: Callable[[Embedder, Dataset, Options], Finding]
