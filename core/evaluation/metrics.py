"""Recall, average precision, AUROC, accuracy and calibration, each with its rule for ties.

All take plain arrays and return shares within [0, 1].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[Any]

Ties = Literal["grouped", "insertion"]
"""Equal scores form one step of the curve, as in scikit-learn; or keep the order they came in,
as some published multi-label numbers do."""


def recall_at_k(scores: Scores, positives: Labels, k: int) -> float:
    """The share of queries with a positive among their ``k`` best, a tie counting as a miss.

    Args:
        scores: ``(queries, items)``, the higher the better.
        positives: ``(queries, items)``, true where the item answers the query. Transpose both
            for the other direction. Queries without a positive are left out.
        k: How many are looked at.
    """
    positives = positives.astype(bool)
    asked = positives.any(axis=1)
    best = np.where(positives, scores, -np.inf).max(axis=1, keepdims=True)
    ahead = ((scores >= best) & ~positives).sum(axis=1)
    return float(np.mean(ahead[asked] < k))


def average_precision(scores: Scores, labels: Labels, ties: Ties = "grouped") -> float:
    """The area under the precision-recall steps; NaN without a positive.

    Args:
        scores: ``(n,)``, the higher the better.
        labels: ``(n,)``, true for the positives.
        ties: How equal scores are ordered.
    """
    order = np.argsort(-scores, kind="stable")
    hits = labels[order].astype(bool)
    found = np.cumsum(hits)
    if not found.size or found[-1] == 0:
        return float("nan")
    seen = np.arange(1, len(hits) + 1)
    if ties == "insertion":
        return float(np.mean(found[hits] / seen[hits]))
    ends = _group_ends(scores[order])
    gained = np.diff(found[ends], prepend=0)
    return float(np.sum(gained * (found[ends] / seen[ends])) / found[-1])


def auroc(scores: Scores, labels: Labels) -> float:
    """The chance that a positive scores above a negative, a tie counting one half.

    NaN unless there are both.
    """
    order = np.argsort(scores, kind="stable")
    hits = labels[order].astype(bool)
    ends = _group_ends(scores[order])
    positives = np.diff(np.cumsum(hits)[ends], prepend=0)
    negatives = np.diff(np.cumsum(~hits)[ends], prepend=0)
    pairs = int(positives.sum()) * int(negatives.sum())
    if pairs == 0:
        return float("nan")
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + negatives / 2)) / pairs)


def mean_average_precision(scores: Scores, labels: Labels, ties: Ties = "grouped") -> float:
    """Average precision per class, ``(n, classes)``, averaged over classes with a positive."""
    per_class = [
        average_precision(scores[:, column], labels[:, column], ties)
        for column in np.flatnonzero(labels.any(axis=0))
    ]
    return float(np.mean(per_class))


def mean_per_class_accuracy(
    predicted: Labels, actual: Labels, classes: int, average: Literal["observed", "macro"]
) -> float:
    """The mean over classes of the share of their items that were named rightly.

    Args:
        predicted: ``(n,)``, class indices.
        actual: ``(n,)``, class indices.
        classes: How many classes there are.
        average: Over the classes that have items; or, as torchmetrics does, also over those
            that were merely predicted, which count 0.
    """
    items = np.bincount(actual, minlength=classes)
    right = np.bincount(actual[predicted == actual], minlength=classes)
    counted = items > 0
    if average == "macro":
        counted |= np.bincount(predicted, minlength=classes) > 0
    return float(np.mean(right[counted] / np.maximum(items[counted], 1)))


@dataclass(frozen=True)
class Bin:
    """Predictions of like confidence."""

    count: int
    confidence: float
    """Their mean, 0 where there are none."""
    accuracy: float
    """The share that is right, 0 where there are none."""


def reliability(confidence: Scores, right: Labels, bins: int = 15) -> list[Bin]:
    """Predictions by confidence, in bins of equal width over (0, 1].

    Args:
        confidence: ``(n,)``, the probability of each prediction, in [0, 1].
        right: ``(n,)``, whether it is right.
        bins: How many.
    """
    found = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    counts = np.bincount(found, minlength=bins)
    sums = (np.bincount(found, values, bins) for values in (confidence, right.astype(np.float64)))
    sure, hits = (total / np.maximum(counts, 1) for total in sums)
    return [
        Bin(int(count), float(mean), float(share))
        for count, mean, share in zip(counts, sure, hits, strict=True)
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """How far confidence is from accuracy, the mean over predictions of their bin's gap.

    ECE of C. Guo et al., "On Calibration of Modern Neural Networks" (arXiv:1706.04599), eq. 3.
    NaN where there are no predictions.
    """
    items = sum(each.count for each in bins)
    gaps = sum(each.count * abs(each.accuracy - each.confidence) for each in bins)
    return gaps / items if items else float("nan")


@dataclass(frozen=True)
class PartStatistics:
    """How many parts the images of a data set have."""

    examples: int
    parts: int
    mean: float
    most: int
    one: float
    """Share of examples with one part."""
    one_or_two: float
    retained: dict[int, float]
    """For each cap, the share of parts that it keeps."""
    untruncated: dict[int, float]
    """For each cap, the share of examples that it leaves whole."""


def part_statistics(histogram: Mapping[int, int], caps: Sequence[int]) -> PartStatistics:
    """Statistics of a histogram, parts per image -> images, under caps on the parts."""
    counts = np.array(list(histogram))
    images = np.array(list(histogram.values()))
    examples, parts = int(images.sum()), int(images @ counts)
    return PartStatistics(
        examples=examples,
        parts=parts,
        mean=parts / examples,
        most=int(counts.max()),
        one=float(images[counts == 1].sum() / examples),
        one_or_two=float(images[counts <= 2].sum() / examples),
        retained={cap: float(images @ np.minimum(counts, cap) / parts) for cap in caps},
        untruncated={cap: float(images[counts <= cap].sum() / examples) for cap in caps},
    )


def r_precision(places: npt.NDArray[np.intp]) -> float:
    """The share of right answers among the R nearest, where R answers are right.

    Args:
        places: ``(R,)``, the places of the right answers in the ranking, rising from 0; R >= 1.
    """
    return float(np.mean(places < len(places)))


def map_at_r(places: npt.NDArray[np.intp]) -> float:
    """Mean average precision at R (K. Musgrave et al., arXiv:2003.08505, section 3.2).

    ``1/R`` times the sum, over the right answers among the R nearest, of the precision there.

    Args:
        places: As `r_precision`.
    """
    within = places[places < len(places)]
    return float(np.sum(np.arange(1, len(within) + 1) / (within + 1)) / len(places))


def chance_of_map_at_r(items: int, right: int) -> float:
    """`map_at_r` of a random order of ``items``, of which ``right`` are right, as it is expected.

    A place r holds a right answer in right / items of cases; each place before it then does in
    (right - 1) / (items - 1).
    """
    others = (right - 1) / max(items - 1, 1)
    places = range(1, right + 1)
    return sum((1 + (place - 1) * others) / place for place in places) / items


def _group_ends(ordered: Scores) -> npt.NDArray[np.intp]:
    """The last index of each run of equal values."""
    return np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
