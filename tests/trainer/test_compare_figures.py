"""Means, spreads and paired tests over seeds."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from core.evaluation.measure import Measure, Outcomes
from core.evaluation.result import Result
from core.evaluation.statistics import compare
from trainer.compare.figures import Cell, Difference, collect

Hits = npt.NDArray[np.bool_]


def result(hits: Hits, name: str = "R@1", left_out: tuple[str, ...] = ()) -> Result:
    outcomes = Outcomes("mean", hits, np.arange(len(hits)))
    measure = Measure(
        "text to image", name, float(hits.mean()), 0.1, len(hits), is_headline=True,
        outcomes=outcomes,
    )  # fmt: skip
    determined_by = {"data": {"digest": "d", "records": len(hits)}, "protocol": {}, "seed": 0}
    return Result("retrieval/x", determined_by, (measure,), {}, left_out, 0.0, "")


def results(**systems: Sequence[Hits]) -> dict[str, dict[int, list[Result]]]:
    return {
        name: {seed: [result(hits)] for seed, hits in enumerate(of_seeds)}
        for name, of_seeds in systems.items()
    }


def difference(of: dict[str, dict[int, list[Result]]], name: str = "b") -> Difference:
    (figure,) = collect(of, "a", seed=0)
    found = figure.cells[name].difference
    assert found is not None
    return found


def test_a_cell_has_the_mean_and_the_spread_of_its_seeds() -> None:
    cell = Cell({0: 0.2, 1: 0.4, 2: 0.9})
    assert cell.mean == pytest.approx(0.5)
    assert cell.spread == pytest.approx(np.std([0.2, 0.4, 0.9], ddof=1))
    assert math.isnan(Cell({0: 0.2}).spread)


def test_one_seed_is_tested_as_two_results_are() -> None:
    rng = np.random.default_rng(0)
    a = rng.random(400) < 0.4
    b = a ^ (rng.random(400) < 0.2)
    ours = difference(results(a=[a], b=[b]))
    theirs = compare(
        Outcomes("mean", b, np.arange(400)), Outcomes("mean", a, np.arange(400)), seed=0
    )
    assert ours.delta == pytest.approx(theirs.delta)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.008)
    assert ours.p == pytest.approx(theirs.p, abs=0.03)


def test_where_pictures_make_no_difference_it_is_welchs_t_test_over_seeds() -> None:
    """Every picture has the same hit, so that only the seed moves the figure."""
    shares = {"a": [0.0, 1.0, 0.0, 0.0], "b": [1.0, 1.0, 1.0, 0.0]}
    made = {
        name: [np.full(5_000, bool(share)) for share in of_seeds]
        for name, of_seeds in shares.items()
    }
    found = difference(results(**made))
    expected = stats.ttest_ind(shares["b"], shares["a"], equal_var=False)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_few_pictures_that_agree_prove_nothing() -> None:
    never, always = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    found = difference(results(a=[never], b=[always]))
    assert found.delta == 1
    assert found.p > 0.05
    assert difference(results(a=[never[:1]], b=[always[:1]])).p > 0.4
    many = difference(results(a=[np.zeros(100, dtype=bool)], b=[np.ones(100, dtype=bool)]))
    assert many.p < 0.001
    same = difference(results(a=[always], b=[always]))
    assert (same.p, same.delta) == (1, 0)
    assert same.low < 0 < same.high


def test_seeds_that_disagree_make_a_difference_less_sure() -> None:
    rng = np.random.default_rng(1)
    base = rng.random(500) < 0.4
    steady = [base | (rng.random(500) < 0.08) for _ in range(3)]
    wild = [base | (rng.random(500) < share) for share in (0.0, 0.08, 0.16)]
    sure, unsure = (difference(results(a=[base] * 3, b=each)) for each in (steady, wild))
    assert sure.p < 0.01 < unsure.p


@pytest.mark.parametrize(("of_seeds", "at_most"), [(0.0, 0.05), (0.2, 0.1)])
def test_equals_are_seldom_told_apart(of_seeds: float, at_most: float) -> None:
    """With seeds that move a figure alike in both systems, and with ones that do not."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(20):
        hard = rng.normal(size=100)
        systems = {
            name: [hard + rng.normal(size=100) + of_seeds * rng.normal() > 0.5 for _ in range(2)]
            for name in "ab"
        }
        found.append(difference(results(**systems)).p)
    assert np.mean(np.array(found) < 0.05) <= at_most


def test_what_is_not_of_the_same_pictures_is_not_tested() -> None:
    hits = np.arange(40) % 3 == 0
    of = results(a=[hits, hits], b=[hits, ~hits])
    assert difference(of).p <= 1
    for other in (result(~hits, left_out=("photo 3",)), result(~hits[:-1])):
        of["b"][1] = [other]
        (figure,) = collect(of, "a", seed=0)
        assert figure.cells["b"].difference is None
        assert len(figure.cells["b"].values) == 2


def test_p_is_corrected_for_the_number_of_systems_and_never_falls_with_rank() -> None:
    rng = np.random.default_rng(3)
    base = rng.random(300) < 0.4
    others = {name: [base ^ (rng.random(300) < 0.1)] for name in "bcd"}
    alone = {
        name: difference(results(a=[base], **{name: hits}), name) for name, hits in others.items()
    }
    together = {name: difference(results(a=[base], **others), name) for name in "bcd"}
    ranked = sorted("bcd", key=lambda name: alone[name].p)
    expected, least = {}, 0.0
    for rank, name in enumerate(ranked):
        least = expected[name] = min(1.0, max(least, alone[name].p * (3 - rank)))
    assert {name: pair.p for name, pair in together.items()} == pytest.approx(expected)


def test_where_the_baseline_has_no_figure_the_first_that_has_it_stands_in() -> None:
    hits = np.arange(40) % 2 == 0
    of = results(a=[hits], b=[hits], c=[~hits])
    of["a"][0] = [result(hits, "R@5")]
    by_name = {figure.key[2]: figure for figure in collect(of, "a", seed=0)}
    assert by_name["R@1"].baseline == "b"
    assert by_name["R@1"].cells["b"].difference is None
    assert by_name["R@1"].cells["c"].difference is not None
    assert by_name["R@5"].baseline == "a"


def test_only_seeds_that_both_have_are_paired() -> None:
    rng = np.random.default_rng(4)
    hits = [rng.random(80) < share for share in (0.2, 0.5, 0.8)]
    of = results(a=hits[:2], b=hits)
    assert difference(of).delta == pytest.approx(0.0)
    (figure,) = collect(of, "a", seed=0)
    assert len(figure.cells["b"].values) == 3
