"""Intervals and paired tests."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import DataError
from core.evaluation.measure import Measure, Outcomes, Statistic
from core.evaluation.metrics import auroc, average_precision, mean_average_precision
from core.evaluation.statistics import compare, compute, interval, with_intervals
from core.evaluation.weighted import weighted

STATISTICS: tuple[Statistic, ...] = ("mean", "per_class", "ap", "auroc", "map")


def some(statistic: Statistic, seed: int, clusters: int = 12, each: int = 3) -> Outcomes:
    """Scores with many ties, several items to a cluster."""
    generator = np.random.default_rng(seed)
    shape = (clusters * each, 4) if statistic == "map" else (clusters * each,)
    values = np.round(generator.normal(size=shape), 1)
    labels = generator.integers(0, 2, shape)
    labels[:2] = [[0], [1]] if statistic == "map" else [0, 1]
    if statistic == "per_class":
        labels = generator.integers(0, 4, shape)
    cluster = generator.permutation(np.repeat(np.arange(clusters), each))
    return Outcomes(statistic, values, cluster, labels)


def times(outcomes: Outcomes, counts: np.ndarray[Any, Any]) -> Outcomes:
    """Every item repeated as often as its cluster counts."""
    repeats = counts[outcomes.cluster].astype(int)
    assert outcomes.labels is not None
    return replace(
        outcomes,
        values=np.repeat(outcomes.values, repeats, axis=0),
        cluster=np.repeat(outcomes.cluster, repeats),
        labels=np.repeat(outcomes.labels, repeats, axis=0),
    )


@pytest.mark.parametrize("statistic", STATISTICS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_counts_of_one_give_the_plain_figure(statistic: Statistic, seed: int) -> None:
    outcomes = some(statistic, seed)
    (found,) = weighted(outcomes)(np.ones((1, 12)))
    assert found == pytest.approx(compute(outcomes), rel=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_a_count_is_the_same_as_a_repeated_cluster(statistic: Statistic, seed: int) -> None:
    outcomes = some(statistic, seed)
    counts = np.random.default_rng(seed).integers(0, 4, (5, 12)).astype(np.float32)
    for row, found in zip(counts, weighted(outcomes)(counts), strict=True):
        expected = compute(times(outcomes, row))
        assert found == pytest.approx(expected, rel=1e-6, nan_ok=True)


def test_the_figures_are_those_of_the_metrics_with_ties_grouped() -> None:
    binary, many = some("ap", 1), some("map", 1)
    assert binary.labels is not None
    assert many.labels is not None
    assert compute(binary) == average_precision(binary.values, binary.labels)
    assert compute(replace(binary, statistic="auroc")) == auroc(binary.values, binary.labels)
    assert compute(many) == mean_average_precision(many.values, many.labels)


def test_scores_that_all_tie_have_the_precision_of_guessing_in_every_draw() -> None:
    labels = np.tile([1, 0, 0, 0], 10)
    outcomes = Outcomes("ap", np.zeros(40), np.repeat(np.arange(10), 4), labels)
    assert interval(outcomes, seed=0) == pytest.approx((0.25, 0.25))
    assert interval(replace(outcomes, statistic="auroc"), seed=0) == pytest.approx((0.5, 0.5))


def test_about_95_of_100_intervals_hold_the_truth() -> None:
    generator = np.random.default_rng(7)
    held = 0
    for trial in range(200):
        rate = np.clip(generator.normal(0.4, 0.15, 60), 0, 1)  # differs between clusters
        hits = generator.random((60, 5)) < rate[:, None]
        outcomes = Outcomes("mean", hits.ravel(), np.repeat(np.arange(60), 5))
        low, high = interval(outcomes, trial, resamples=300)
        held += low <= 0.4 <= high
    assert 180 <= held <= 199


@pytest.mark.parametrize("chances", [(0.5, 0.5), (0.8, 0.5), (0.9, 0.7)])
def test_intervals_over_a_large_and_a_small_kind_hold_the_truth(
    chances: tuple[float, float],
) -> None:
    generator = np.random.default_rng(0)
    kind = np.repeat([0, 1], [18, 2])
    held = 0
    for trial in range(200):
        hits = generator.random(20) < np.array(chances)[kind]
        outcomes = Outcomes("per_class", hits, np.arange(20), kind)
        low, high = interval(outcomes, trial, resamples=200)
        held += bool(low <= np.mean(chances) <= high)
    assert held >= 165


@pytest.mark.parametrize("statistic", ["mean", "per_class"])
def test_hits_alone_or_misses_alone_have_the_bounds_of_wilson(statistic: Statistic) -> None:
    cluster = np.repeat(np.arange(50), 2)
    for hit, bounds in ((True, (0.9287, 1)), (False, (0, 0.0713))):  # z² = 3.8415 of 53.8415
        outcomes = Outcomes(statistic, np.full(100, hit), cluster, np.arange(100) % 3)
        measure = Measure("g", "n", float(hit), None, 100, is_headline=True, outcomes=outcomes)
        (found,) = with_intervals([measure], seed=0)
        assert (found.low, found.high) == pytest.approx(bounds, abs=1e-4)


def test_lengths_and_differences_that_are_all_equal_do_not_pass_for_hits() -> None:
    for statistic in ("mean", "per_class"):
        outcomes = Outcomes(statistic, np.ones(30), np.arange(30), np.arange(30) % 2)
        measure = Measure("g", "n", 1.0, None, 30, is_headline=True, outcomes=outcomes)
        (found,) = with_intervals([measure], seed=0)
        assert (found.low, found.high) == (1, 1)


def test_items_of_one_cluster_do_not_pass_for_independent() -> None:
    hits = np.random.default_rng(0).random(100) < 0.5
    alone = Outcomes("mean", hits, np.arange(100))
    fivefold = Outcomes("mean", np.repeat(hits, 5), np.repeat(np.arange(100), 5))
    assert interval(fivefold, seed=3) == pytest.approx(interval(alone, seed=3))


def test_an_interval_holds_its_figure_where_positives_are_few() -> None:
    generator = np.random.default_rng(0)
    labels = generator.random((200, 30)) < 0.02
    scores = generator.normal(size=(200, 30))
    outcomes = Outcomes("map", scores, np.arange(200), labels)
    low, high = interval(outcomes, seed=0)
    assert low < compute(outcomes) < high


def test_intervals_follow_from_the_seed() -> None:
    outcomes = some("ap", 0)
    assert interval(outcomes, seed=1) == interval(outcomes, seed=1)
    assert interval(outcomes, seed=1) != interval(outcomes, seed=2)


def test_only_headlines_with_outcomes_get_an_interval() -> None:
    outcomes = some("mean", 0)
    headline = Measure("g", "n", 0.5, None, 36, is_headline=True, outcomes=outcomes)
    plain = replace(headline, is_headline=False)
    bare = replace(headline, outcomes=None)
    first, *others = with_intervals([headline, plain, bare], seed=0)
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.high
    assert others == [plain, bare]


def test_a_result_does_not_differ_from_itself() -> None:
    for statistic in STATISTICS:
        outcomes = some(statistic, 0)
        found = compare(outcomes, outcomes, seed=0)
        assert (found.delta, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_pairing_finds_a_difference_that_two_intervals_would_hide() -> None:
    base = np.random.default_rng(0).random(300) < 0.5
    better = base.copy()
    better[np.flatnonzero(~base)[:15]] = True
    a, b = (Outcomes("mean", hits, np.arange(300)) for hits in (better, base))
    found = compare(a, b, seed=0)
    assert interval(a, seed=0)[0] < interval(b, seed=0)[1]
    assert found.delta == pytest.approx(0.05)
    assert 0 < found.low < 0.05 < found.high
    assert found.p < 0.01
    assert compare(b, a, seed=0).delta == -found.delta


def test_chance_alone_is_found_to_differ_in_about_5_of_100_cases() -> None:
    generator = np.random.default_rng(3)
    found = 0
    for trial in range(200):
        a, b = (Outcomes("mean", generator.random(80) < 0.5, np.arange(80)) for _ in range(2))
        found += compare(a, b, trial, resamples=300).p < 0.05
    assert 2 <= found <= 20


def test_results_of_other_pictures_are_not_compared() -> None:
    a = some("mean", 0)
    with pytest.raises(DataError, match="2 are in one alone"):
        compare(a, replace(a, cluster=np.where(a.cluster == 11, 40, a.cluster)), seed=0)


def test_unlike_figures_are_not_compared() -> None:
    with pytest.raises(DataError, match="a ap cannot be compared with a mean"):
        compare(some("ap", 0), some("mean", 0), seed=0)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_figure_of_nothing_is_not_a_number(statistic: Statistic) -> None:
    shape = (0, 3) if statistic == "map" else (0,)
    empty = Outcomes(statistic, np.zeros(shape), np.zeros(0, np.intp), np.zeros(shape, np.intp))
    assert np.isnan(compute(empty))
    assert np.isnan(interval(empty, seed=0)).all()
