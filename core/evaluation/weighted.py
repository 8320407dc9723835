"""Statistics of outcomes under weights: nothing is copied to count an item twice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.measure import Outcomes

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.floating[Any]]
"""``(draws, clusters)``: how often each cluster counts."""


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


def _ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, NaN where it is of nothing."""
    quotient: Floats = np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
    return quotient


def _mean_of_known(values: Floats) -> Floats:
    """The mean of each row over what is not NaN."""
    known = np.isfinite(values)
    return _ratio(np.where(known, values, 0).sum(axis=1), known.sum(axis=1))
