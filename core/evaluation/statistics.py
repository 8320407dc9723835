"""How sure a figure is: bootstrap intervals, and paired tests between two results.

Pictures are drawn with replacement, all items of a picture together (B. Efron, "Bootstrap
Methods", 1979; clusters as the unit of drawing). A draw is a row of counts, how often each
cluster was drawn, so that every statistic is computed under weights and nothing is copied.

Average precision rises when positives are drawn twice, since they then stand beside themselves:
its draws are moved back by the mean of that. In simulations of 100 and 500 pictures the intervals
of a mean average precision then held the truth in 89 to 94% of cases, and in 81 to 87% before.

A mean of hits over classes stays one over all of them: each class that a draw can miss has one
further item in every draw, right as often as items are (A. Agresti and B. Caffo add items likewise,
"Simple and effective confidence intervals", 2000). In simulations of 2 to 60 classes, of 18 and 2
items or of one each, intervals then held the truth in 85% of cases or more; in 68 to 95% where a
class that is missed was passed over.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation import metrics
from core.evaluation.blocks import each_block
from core.evaluation.measure import Measure, Outcomes
from core.evaluation.weighted import Counts, Floats, weighted

RESAMPLES = 1_000
_RISING = ("ap", "map")
_Z = 1.959964  # of a 95% interval of the normal distribution
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
    """The measures, the headline ones that have outcomes with their intervals.

    A mean of hits alone, or of misses alone, does not vary when it is drawn again. Its bounds are
    those of E. B. Wilson ("Probable inference", 1927) for as many items as there are clusters.
    """
    found = []
    for measure in measures:
        outcomes = measure.outcomes
        if measure.is_headline and outcomes is not None and np.isfinite(measure.value):
            is_certain = _is_certain(outcomes)
            low, high = _wilson(outcomes) if is_certain else interval(outcomes, seed)
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


def draws(outcomes: Outcomes, seed: int, resamples: int = RESAMPLES) -> Floats:
    """The figure under each draw of its pictures, ``(resamples,)``.

    Outcomes of the same pictures meet the same draws: their differences are paired.
    """
    (drawn,) = _resampled([outcomes], seed, resamples)
    return _moved_back(drawn, outcomes)


def _resampled(outcomes: Sequence[Outcomes], seed: int, resamples: int) -> list[Floats]:
    """Each statistic under the same draws, ``(resamples,)``."""
    if not all(len(each.cluster) for each in outcomes):
        return [np.full(resamples, np.nan) for _ in outcomes]
    clusters = len(np.unique(outcomes[0].cluster))
    statistics = [_of_draws(each, seed) for each in outcomes]
    items = max(clusters, *(len(each.cluster) for each in outcomes))
    size = max(1, min(resamples, _AT_ONCE // items))

    def block(start: int) -> list[Floats]:
        rows = range(start, min(start + size, resamples))
        counts = np.stack([_draw(seed, row, clusters) for row in rows])
        return [statistic(rows, counts) for statistic in statistics]

    blocks = each_block(block, range(0, resamples, size))
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _of_draws(outcomes: Outcomes, seed: int) -> Callable[[range, Counts], Floats]:
    """The statistic of draws, from their numbers and counts."""
    if outcomes.statistic != "per_class" or not _are_hits(outcomes):
        statistic = weighted(outcomes)
        return lambda _, counts: statistic(counts)
    classes = _can_be_missed(outcomes)
    extended = weighted(_with_further_items(outcomes, classes))
    clusters = len(np.unique(outcomes.cluster))
    chance = (clusters * compute(outcomes) + 1) / (clusters + 2)

    def evaluate(rows: range, counts: Counts) -> Floats:
        luck = [np.random.default_rng([seed, row, 1]).random(len(classes)) for row in rows]
        right = (np.stack(luck) < chance).astype(np.float32)
        return extended(np.concatenate([counts, right, 1 - right], axis=1))

    return evaluate


def _can_be_missed(outcomes: Outcomes) -> npt.NDArray[np.intp]:
    """The classes that some cluster has no item of."""
    held = np.unique(np.stack([np.asarray(outcomes.labels), outcomes.cluster]), axis=1)[0]
    classes, clusters = np.unique(held, return_counts=True)
    return classes[clusters < len(np.unique(outcomes.cluster))]


def _with_further_items(outcomes: Outcomes, classes: npt.NDArray[np.intp]) -> Outcomes:
    """A right item of each class and then a wrong one of each, every one its own cluster."""
    extra = 2 * len(classes)
    last = outcomes.cluster.max()
    return Outcomes(
        outcomes.statistic,
        np.concatenate([outcomes.values, np.repeat([1.0, 0.0], len(classes))]),
        np.concatenate([outcomes.cluster, np.arange(last + 1, last + 1 + extra)]),
        np.concatenate([np.asarray(outcomes.labels), classes, classes]),
    )


def _is_certain(outcomes: Outcomes) -> bool:
    """Whether the figure is a mean of hits alone, or of misses alone."""
    is_mean = outcomes.statistic in ("mean", "per_class")
    return is_mean and _are_hits(outcomes) and outcomes.values.min() == outcomes.values.max()


def _are_hits(outcomes: Outcomes) -> bool:
    """Whether the values are true or false, not lengths, degrees or differences."""
    return outcomes.values.dtype == np.bool_


def _wilson(outcomes: Outcomes) -> tuple[float, float]:
    """Bounds of a share of 0 or 1."""
    open_part = _Z**2 / (len(np.unique(outcomes.cluster)) + _Z**2)
    return (1 - open_part, 1.0) if outcomes.values.flat[0] else (0.0, open_part)


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
