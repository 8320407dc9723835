"""Figures over seeds: means, spreads, and tests of differences in pairs.

A difference varies with the pictures that were drawn and with the seeds that were trained. The
first is the bootstrap variance of the mean difference over seeds, on the same pictures for all; the
second is the variance of the differences between seeds, each system's seed beside the other's,
over their number. They add up, and the mean difference over the root of the sum is compared with
Student's t of Satterthwaite's degrees of freedom (F. E. Satterthwaite, "An Approximate
Distribution of Estimates of Variance Components", 1946). With one seed only pictures count.

The p of one figure are corrected for the number of systems (S. Holm, "A Simple Sequentially
Rejective Multiple Test Procedure", 1979), not for the number of figures.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.evaluation.measure import Measure
from core.evaluation.result import Result
from core.evaluation.statistics import draws
from core.evaluation.weighted import Floats

Key = tuple[str, str, str]
"""Task, group and name of a figure."""

Results = Mapping[str, Mapping[int, Sequence[Result]]]
"""By system and seed."""


@dataclass(frozen=True)
class Difference:
    """A system less the baseline, mean over seeds."""

    delta: float
    low: float
    high: float
    """Bounds of the 95% confidence interval."""
    p: float
    """Two-sided, corrected for the number of systems."""


@dataclass(frozen=True)
class Cell:
    """A figure of a system."""

    values: dict[int, float]
    """By seed."""
    difference: Difference | None = None

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(list(self.values.values())))

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; NaN of one."""
        values = list(self.values.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class Figure:
    """A row of the table."""

    key: Key
    measure: Measure
    """Of any system: its unit, and which way is better."""
    cells: dict[str, Cell]
    """By system; those that have no such figure are absent."""
    baseline: str
    """With whom the others are compared: the comparison's, or the first that has the figure."""


def collect(
    results: Results, baseline: str, seed: int, advance: Callable[[], None] = lambda: None
) -> list[Figure]:
    """Every headline figure, with differences to the baseline over the seeds that both have.

    Args:
        results: Of each system and seed.
        baseline: One of the systems.
        seed: Of the draws.
        advance: Called for each figure.
    """
    found = []
    for key, measures in _by_key(results).items():
        drawn = {
            name: {at: draws(m.outcomes, seed) for at, m in of_seeds.items() if m.outcomes}
            for name, of_seeds in measures.items()
        }
        cells = {
            name: Cell({at: measure.value for at, measure in of_seeds.items()})
            for name, of_seeds in measures.items()
        }
        base = baseline if baseline in measures else next(iter(measures))
        pairs = {
            name: _difference(measures[name], measures[base], drawn[name], drawn[base])
            for name in measures
            if name != base
        }
        for name, pair in _holm(pairs).items():
            cells[name] = replace(cells[name], difference=pair)
        found.append(Figure(key, next(iter(measures[base].values())), cells, base))
        advance()
    return found


def headlines(results: Results) -> int:
    """How many figures `collect` will give."""
    return len(_by_key(results))


def _by_key(results: Results) -> dict[Key, dict[str, dict[int, Measure]]]:
    found: dict[Key, dict[str, dict[int, Measure]]] = {}
    for name, of_seeds in results.items():
        for at, of_tasks in of_seeds.items():
            for result in of_tasks:
                for measure in result.measures:
                    if measure.is_headline and math.isfinite(measure.value):
                        key = (result.task, measure.group, measure.name)
                        found.setdefault(key, {}).setdefault(name, {})[at] = measure
    return found


def _difference(
    ours: Mapping[int, Measure],
    theirs: Mapping[int, Measure],
    drawn: Mapping[int, Floats],
    drawn_theirs: Mapping[int, Floats],
) -> Difference | None:
    """The mean difference over common seeds and its t-test; None without outcomes in common."""
    from scipy.stats import t as student  # noqa: PLC0415 - of the extra `eval`

    seeds = sorted(drawn.keys() & drawn_theirs.keys())
    if not seeds:
        return None
    apart = np.array([ours[at].value - theirs[at].value for at in seeds])
    under_draws = np.mean([drawn[at] - drawn_theirs[at] for at in seeds], axis=0)
    of_pictures = float(np.nanvar(under_draws, ddof=1))
    of_seeds = float(np.var(apart, ddof=1)) / len(seeds) if len(seeds) > 1 else 0.0
    delta, total = float(apart.mean()), of_pictures + of_seeds
    if total == 0:
        return Difference(delta, delta, delta, 1.0 if delta == 0 else 0.0)
    outcomes = ours[seeds[0]].outcomes
    pictures = len(np.unique(outcomes.cluster)) if outcomes else 2
    squares = of_pictures**2 / max(pictures - 1, 1)
    if of_seeds:
        squares += of_seeds**2 / (len(seeds) - 1)
    freedom = total**2 / squares
    half = float(student.ppf(0.975, freedom)) * math.sqrt(total)
    p = 2 * float(student.sf(abs(delta) / math.sqrt(total), freedom))
    return Difference(delta, delta - half, delta + half, p)


def _holm(pairs: Mapping[str, Difference | None]) -> dict[str, Difference]:
    """The same with p corrected for how many there are."""
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    corrected, least = dict[str, Difference](), 0.0
    ordered = sorted(known.items(), key=lambda item: item[1].p)
    for rank, (name, pair) in enumerate(ordered):
        least = min(1.0, max(least, pair.p * (len(ordered) - rank)))
        corrected[name] = replace(pair, p=least)
    return corrected
