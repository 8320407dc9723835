"""Figures over seeds: means, spreads, and tests of differences on the same pictures.

A difference varies with the pictures that were drawn and with the seeds that were trained. The
first is the bootstrap variance of the mean difference over seeds, on the same pictures for all; the
second is each system's own variance between seeds over their number, as in B. L. Welch's test ("The
Generalization of Student's Problem", 1947). They add up, and the mean difference over the root of
the sum is compared with Student's t of Satterthwaite's degrees of freedom (F. E. Satterthwaite, "An
Approximate Distribution of Estimates of Variance Components", 1946). With one seed only pictures
count.

In simulations of 400 pictures and no difference, p < 0.05 came in 1 to 6% of cases with two or
three seeds (5% in theory; the fewest where seeds alone do not differ, since what a seed does to
single pictures counts twice), and in up to 12% where the seeds of one system differ and those of
the other do not. The variance of differences, seed beside seed, has half the degrees of freedom:
with it 11% of two seeds.

The p of one figure are corrected for the number of systems (S. Holm, "A Simple Sequentially
Rejective Multiple Test Procedure", 1979), not for the number of figures.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from core.evaluation.measure import Measure
from core.evaluation.report.likeness import why_not_paired
from core.evaluation.result import Result
from core.evaluation.statistics import draws
from core.evaluation.weighted import Floats

Key = tuple[str, str, str]
"""Task, group and name of a figure."""

Results = Mapping[str, Mapping[int, Sequence[Result]]]
"""By system and seed."""


@dataclass(frozen=True)
class _Found:
    """A figure of one run."""

    measure: Measure
    result: Result
    drawn: Floats
    """Under the draws."""
    pictures: npt.NDArray[np.intp]
    """The clusters that are drawn; none of a figure without outcomes."""


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
        runs = {
            name: {at: _found(measure, result, seed) for at, (measure, result) in of_seeds.items()}
            for name, of_seeds in measures.items()
        }
        cells = {
            name: Cell({at: run.measure.value for at, run in of_seeds.items()})
            for name, of_seeds in runs.items()
        }
        base = baseline if baseline in runs else next(iter(runs))
        pairs = {name: _difference(runs[name], runs[base]) for name in runs if name != base}
        for name, pair in _holm(pairs).items():
            cells[name] = replace(cells[name], difference=pair)
        found.append(Figure(key, next(iter(runs[base].values())).measure, cells, base))
        advance()
    return found


def headlines(results: Results) -> int:
    """How many figures `collect` will give."""
    return len(_by_key(results))


def _by_key(results: Results) -> dict[Key, dict[str, dict[int, tuple[Measure, Result]]]]:
    found: dict[Key, dict[str, dict[int, tuple[Measure, Result]]]] = {}
    for name, of_seeds in results.items():
        for at, of_tasks in of_seeds.items():
            for result in of_tasks:
                for measure in result.measures:
                    if measure.is_headline and math.isfinite(measure.value):
                        key = (result.task, measure.group, measure.name)
                        found.setdefault(key, {}).setdefault(name, {})[at] = (measure, result)
    return found


def _found(measure: Measure, result: Result, seed: int) -> _Found:
    outcomes = measure.outcomes
    if outcomes is None:
        return _Found(measure, result, np.empty(0), np.empty(0, np.intp))
    return _Found(measure, result, draws(outcomes, seed), np.unique(outcomes.cluster))


def _difference(ours: Mapping[int, _Found], theirs: Mapping[int, _Found]) -> Difference | None:
    """The mean difference over common seeds, tested; None where pictures do not pair off."""
    seeds = sorted(ours.keys() & theirs.keys())
    mine, others = [ours[at] for at in seeds], [theirs[at] for at in seeds]
    if not seeds or not _pair_off([*mine, *others]):
        return None
    under_draws = np.mean([a.drawn - b.drawn for a, b in zip(mine, others, strict=True)], axis=0)
    known = under_draws[np.isfinite(under_draws)]
    values = [[run.measure.value for run in side] for side in (mine, others)]
    delta = float(np.mean(values[0]) - np.mean(values[1]))
    pictures = len(mine[0].pictures)
    parts = [(_variance(known, pictures), pictures - 1)] if len(known) > 1 else []
    if len(seeds) > 1:
        parts += [(float(np.var(side, ddof=1)) / len(seeds), len(seeds) - 1) for side in values]
    return _tested(delta, parts)


def _variance(drawn: Floats, pictures: int) -> float:
    """Of a mean difference over drawn pictures.

    Where no draw differs, all pictures agree, and how often others would not is unknown: at most
    about one of as many is supposed, which leaves little certainty where they are few.
    """
    if float(np.ptp(drawn)) < 1e-12:
        return 1 / pictures**2
    return float(np.var(drawn, ddof=1))


def _tested(delta: float, parts: Sequence[tuple[float, int]]) -> Difference | None:
    """The t-test of a difference whose variance is the sum of parts with degrees of freedom."""
    from scipy.stats import t as student  # noqa: PLC0415 - of the extra `eval`

    if not parts:
        return None
    total = sum(part for part, _ in parts)
    if total == 0:
        return Difference(delta, delta, delta, 1.0 if delta == 0 else 0.0)
    freedom = total**2 / sum(part**2 / max(of, 1) for part, of in parts)
    half = float(student.ppf(0.975, freedom)) * math.sqrt(total)
    p = 2 * float(student.sf(abs(delta) / math.sqrt(total), freedom))
    return Difference(delta, delta - half, delta + half, p)


def _pair_off(runs: Sequence[_Found]) -> bool:
    """Whether all are of the same pictures: else draws of one would meet others of the next."""
    first = runs[0]
    return all(
        len(run.pictures) > 0
        and np.array_equal(run.pictures, first.pictures)
        and not why_not_paired(run.result, first.result, run.measure.group)
        for run in runs
    )


def _holm(pairs: Mapping[str, Difference | None]) -> dict[str, Difference]:
    """The same with p corrected for how many there are."""
    known = {name: pair for name, pair in pairs.items() if pair is not None}
    corrected, least = dict[str, Difference](), 0.0
    ordered = sorted(known.items(), key=lambda item: item[1].p)
    for rank, (name, pair) in enumerate(ordered):
        least = min(1.0, max(least, pair.p * (len(ordered) - rank)))
        corrected[name] = replace(pair, p=least)
    return corrected
