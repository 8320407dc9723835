"""How sure a figure is: bootstrap intervals, and paired tests between two results.

Pictures are drawn with replacement, all items of a picture together (B. Efron, "Bootstrap
Methods", 1979; clusters as the unit of drawing). A draw is a row of counts, how often each
cluster was drawn, so that every statistic is computed under weights and nothing is copied.

Average precision rises when positives are drawn twice, since they then stand beside themselves:
its draws are moved back by the mean of that. In simulations of 100 and 500 pictures the intervals
of a mean average precision then held the truth in 89 to 94% of cases, and in 81 to 87% before.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation import metrics
from core.evaluation.blocks import each_block
from core.evaluation.measure import Measure, Outcomes

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.floating[Any]]
"""``(draws, clusters)``: how often each cluster counts."""

RESAMPLES = 1_000
_RISING = ("ap", "map")
_AT_ONCE = 1_000_000  # weights of one block: 4 MB a thread, times three


@dataclass(frozen=True)
class Difference:
    """One result less another, on the same pictures."""

    delta: float
    low: float
    high: float
    """Bounds of the 95% confidence interval."""
    p: float
    """Two-sided: how often draws fall on the other side of no difference. It is taken from the
    same draws as the interval, for every statistic, so that the two never contradict."""


def compute(outcomes: Outcomes) -> float:
    """The figure itself; NaN where it is of nothing."""
    values, labels = outcomes.values, outcomes.labels
    if not len(values):
        return float("nan")
    if outcomes.statistic == "mean":
        return float(np.mean(values))
    if labels is None:
        raise ValueError(f"outcomes of {outcomes.statistic} need labels")
    if outcomes.statistic == "per_class":
        items = np.bincount(labels)
        sums = np.bincount(labels, weights=values)
        return float(np.mean(sums[items > 0] / items[items > 0]))
    if outcomes.statistic == "ap":
        return metrics.average_precision(values, labels)
    if outcomes.statistic == "auroc":
        return metrics.auroc(values, labels)
    return metrics.mean_average_precision(values, labels) if labels.any() else float("nan")


def interval(outcomes: Outcomes, seed: int, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Bounds of the 95% interval, percentiles of the draws; NaN where the figure is of nothing.

    Args:
        outcomes: What happened to each item.
        seed: Of the draws: draw ``i`` depends on it, on ``i`` and on the number of clusters.
        resamples: How many draws.
    """
    (drawn,) = _resampled([outcomes], seed, resamples)
    low, high = _bounds(_moved_back(drawn, outcomes))
    if outcomes.statistic in _RISING:
        return float(np.maximum(low, 0)), float(np.minimum(high, 1))
    return low, high


def with_intervals(measures: Iterable[Measure], seed: int) -> tuple[Measure, ...]:
    """The measures, the headline ones that have outcomes with their intervals."""
    found = []
    for measure in measures:
        if measure.is_headline and measure.outcomes is not None and np.isfinite(measure.value):
            low, high = interval(measure.outcomes, seed)
            found.append(replace(measure, low=low, high=high))
        else:
            found.append(measure)
    return tuple(found)


def compare(a: Outcomes, b: Outcomes, seed: int, resamples: int = RESAMPLES) -> Difference:
    """``a`` less ``b`` under the same draws of the pictures that both are of.

    Raises:
        DataError: The two are not of the same pictures, or not the same statistic.
    """
    if a.statistic != b.statistic:
        raise DataError(
            f"a {a.statistic} cannot be compared with a {b.statistic}; compare like figures"
        )
    mine, theirs = np.unique(a.cluster), np.unique(b.cluster)
    if not np.array_equal(mine, theirs):
        apart = len(np.setxor1d(mine, theirs))
        raise DataError(
            f"the results are of different pictures: {apart:,} are in one alone; "
            "measure both on the same data"
        )
    drawn_a, drawn_b = _resampled([a, b], seed, resamples)
    drawn = _moved_back(drawn_a, a) - _moved_back(drawn_b, b)
    low, high = _bounds(drawn)
    drawn = drawn[np.isfinite(drawn)]
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
    return Difference(compute(a) - compute(b), low, high, p)


def weighted(outcomes: Outcomes) -> Callable[[Counts], Floats]:
    """The statistic as a function of counts, ``(draws, clusters)`` to ``(draws,)``.

    Clusters are those that occur, in rising order. All counts 1 give `compute`. NaN where a draw
    holds nothing that the statistic is of.
    """
    cluster = np.unique(outcomes.cluster, return_inverse=True)[1].reshape(-1)
    values, labels = outcomes.values, outcomes.labels
    if outcomes.statistic == "mean":
        return _mean(values, cluster)
    if labels is None:
        raise ValueError(f"outcomes of {outcomes.statistic} need labels")
    if outcomes.statistic == "per_class":
        return _per_class(values, labels, cluster)
    if outcomes.statistic == "map":
        columns = [
            _curve(values[:, column], labels[:, column], cluster, "ap")
            for column in np.flatnonzero(labels.any(axis=0))
        ]
        return lambda counts: _mean_of_known(np.stack([column(counts) for column in columns], 1))
    return _curve(values, labels, cluster, outcomes.statistic)


def _mean(values: npt.NDArray[Any], cluster: npt.NDArray[np.intp]) -> Callable[[Counts], Floats]:
    sums = np.bincount(cluster, weights=values)
    items = np.bincount(cluster).astype(np.float64)
    return lambda counts: _ratio(counts @ sums, counts @ items)


def _per_class(
    values: npt.NDArray[Any], labels: npt.NDArray[Any], cluster: npt.NDArray[np.intp]
) -> Callable[[Counts], Floats]:
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    value, owner = values[order].astype(np.float64), cluster[order]

    def statistic(counts: Counts) -> Floats:
        weights = counts.take(owner, axis=1)
        items = np.add.reduceat(weights, starts, axis=1)
        return _mean_of_known(_ratio(np.add.reduceat(weights * value, starts, axis=1), items))

    return statistic


def _curve(
    scores: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    cluster: npt.NDArray[np.intp],
    statistic: str,
) -> Callable[[Counts], Floats]:
    """Average precision or AUROC, equal scores as one step.

    Weights are summed over runs of items: each group of equal scores that holds a positive, and
    each run of negatives between two such groups.
    """
    order = np.argsort(-scores, kind="stable")
    hits, ordered = labels[order].astype(bool), scores[order]
    first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    group = np.cumsum(first) - 1  # of each item
    edges = np.append(np.flatnonzero(first), len(ordered))
    held = np.unique(group[hits])
    starts = np.unique(np.concatenate([[0], edges[held], edges[held + 1]]))
    starts = starts[starts < len(ordered)]
    run = np.searchsorted(starts, edges[held])
    owner, owner_of_hit = cluster[order], cluster[order][hits]
    hit_starts = np.searchsorted(group[hits], held)

    def evaluate(counts: Counts) -> Floats:
        if not len(held):
            return np.full(len(counts), np.nan)
        gained = np.add.reduceat(counts.take(owner_of_hit, axis=1), hit_starts, axis=1)
        weights = np.add.reduceat(counts.take(owner, axis=1), starts, axis=1)
        gained, weights = gained.astype(np.float64), weights.astype(np.float64)
        found, seen = np.cumsum(gained, axis=1), np.cumsum(weights, axis=1)
        positives = found[:, -1]
        if statistic == "ap":
            precision = found / np.maximum(seen[:, run], 1)
            return _ratio((gained * precision).sum(axis=1), positives)
        negatives = seen[:, -1] - positives
        tied = weights[:, run] - gained
        below = negatives[:, None] - (seen[:, run] - found)
        return _ratio((gained * (below + tied / 2)).sum(axis=1), positives * negatives)

    return evaluate


def _resampled(outcomes: Sequence[Outcomes], seed: int, resamples: int) -> list[Floats]:
    """Each statistic under the same draws, ``(resamples,)``."""
    if not all(len(each.cluster) for each in outcomes):
        return [np.full(resamples, np.nan) for _ in outcomes]
    clusters = len(np.unique(outcomes[0].cluster))
    statistics = [weighted(each) for each in outcomes]
    items = max(clusters, *(len(each.cluster) for each in outcomes))
    size = max(1, min(resamples, _AT_ONCE // items))

    def block(start: int) -> list[Floats]:
        rows = range(start, min(start + size, resamples))
        counts = np.stack([_draw(seed, row, clusters) for row in rows])
        return [statistic(counts) for statistic in statistics]

    blocks = each_block(block, range(0, resamples, size))
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _draw(seed: int, row: int, clusters: int) -> npt.NDArray[np.float32]:
    """Counts of as many draws as there are clusters. Whole numbers: float32 adds them exactly."""
    drawn = np.random.default_rng([seed, row]).integers(0, clusters, clusters)
    return np.bincount(drawn, minlength=clusters).astype(np.float32)


def _moved_back(drawn: Floats, outcomes: Outcomes) -> Floats:
    """The draws around the figure itself, where drawing twice raises it."""
    known = drawn[np.isfinite(drawn)]
    if outcomes.statistic not in _RISING or not known.size:
        return drawn
    moved: Floats = drawn + (compute(outcomes) - known.mean())
    return moved


def _bounds(drawn: Floats) -> tuple[float, float]:
    known = drawn[np.isfinite(drawn)]
    if not known.size:
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, NaN where it is of nothing."""
    quotient: Floats = np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
    return quotient


def _mean_of_known(values: Floats) -> Floats:
    """The mean of each row over what is not NaN."""
    known = np.isfinite(values)
    return _ratio(np.where(known, values, 0).sum(axis=1), known.sum(axis=1))
