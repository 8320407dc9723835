import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core import lorentz
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.entailment import score_pairs
from core.evaluation.metrics import auroc, average_precision
from core.evaluation.task import Options
from core.evaluation.tasks.chains import KIND, NEGATIVES, negatives
from core.spaces import Euclidean, Lorentz, Ordered, Product, Space

Fixture = Callable[..., Any]

SPACES = [
    Lorentz(0.7),
    Product(np.array([0.5, 1, 2]), "l1"),
    Product(np.array([0.5, 1, 2]), "l2"),
]


def chained(data: Path, chain: str = "paint|{0}|all {0} {0}") -> Dataset:
    """The pictures of ``data`` with a chain each."""
    lines = [
        {"image": f"{colour}.png", "levels": chain.format(colour).split("|")}
        for colour in ("red", "green", "blue")
    ]
    file = data.with_name("chains.jsonl")
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return open_dataset(file)


@pytest.mark.parametrize("space", SPACES)
def test_own_captions_hold_their_picture_and_others_do_not(
    data: Path, embed: Fixture, colours: Fixture, space: Ordered
) -> None:
    finding = KIND.measure(embed(colours(space)), chained(data), Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    for score in ("clamped score", "signed margin"):
        group = f"own captions against fixed negatives, {score}"
        assert found[group, "AP"].value == found[group, "AUROC"].value == 1
        assert found[group, "AP"].count == 3 * 3 + 3 * 2
        assert found[group, "AP"].chance == pytest.approx(9 / 15)
    assert found["the radius grows with the level", "whole chains"].value == 1
    assert found["the radius grows with the level", "whole chains"].chance == pytest.approx(1 / 6)
    levels = [found["mean radius", name].value for name in ("level 1 (most general)", "level 2")]
    assert levels == sorted(levels)
    assert found["image to text, level 2", "R@1"].value == 1


def test_a_level_that_all_share_is_one_text_that_no_picture_is_wrong_for(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    finding = KIND.measure(embed(colours()), chained(data), Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    shared = found["text to image, level 1 (most general)", "R@1"]
    assert (shared.value, shared.chance, shared.count) == (1, 1, 1)


def test_clamped_scores_that_are_mostly_zero_are_pointed_out(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    quiet = KIND.measure(embed(colours()), chained(data), Options())
    loud = KIND.measure(embed(colours()), chained(data, "{0} {0} {0}|{0} {0} {0} {0}"), Options())
    assert len(loud.details["notes"]) == len(quiet.details["notes"]) + 1
    assert loud.details["notes"][-1].startswith("100% of the clamped scores are 0")


def test_histograms_share_their_edges_and_hold_everything(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    radii = KIND.measure(embed(colours()), chained(data), Options()).details["radii"]
    assert list(radii) == ["level 1 (most general)", "level 2", "level 3", "pictures"]
    assert all(each["edges"] == radii["pictures"]["edges"] for each in radii.values())
    assert all(sum(each["counts"]) == 3 for each in radii.values())


def test_without_cones_only_retrieval_is_measured_and_that_is_said(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    finding = KIND.measure(embed(colours(Euclidean())), chained(data), Options())
    assert "no cones" in finding.details["not_applicable"]
    assert {measure.name for measure in finding.measures} == {"R@1", "R@5", "R@10"}


def test_a_collapsed_model_ties_everywhere_and_has_the_precision_of_guessing(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    dataset = chained(data)
    records = tuple(
        record.model_copy(update={"levels": ("red", f"red {row}")})
        for row, record in enumerate(dataset.records)
    )
    dataset = replace(dataset, records=records)
    for colour in ("green", "blue"):
        (data.parent / f"{colour}.png").write_bytes((data.parent / "red.png").read_bytes())
    finding = KIND.measure(embed(colours()), dataset, Options())
    for measure in finding.measures:
        if measure.name == "AP":
            assert measure.value == measure.chance
        if measure.name == "AUROC":
            assert measure.value == 0.5
    assert finding.details["ties"]["signed margin, fixed"]["distinct"] == 1


@pytest.mark.parametrize("space", [Euclidean(), *SPACES])
def test_a_collapsed_model_retrieves_nothing_at_any_level(
    data: Path, embed: Fixture, colours: Fixture, space: Space
) -> None:
    Image.new("RGB", (8, 8), (200, 110, 70)).save(data.parent / "red.png")
    dataset = chained(data)
    mixed = "red green blue red "  # on the sphere a text said again is the same point
    times = 40 if isinstance(space, Euclidean) else 1
    records = tuple(
        dataset.records[0].model_copy(update={"levels": (f"{mixed * (1 + row % times)}{row}",)})
        for row in range(40)
    )
    finding = KIND.measure(embed(colours(space)), replace(dataset, records=records), Options())
    shares = {measure.value for measure in finding.measures if "level 1" in measure.group}
    assert shares == {0}


def test_drawn_negatives_have_rows_only_where_they_are_others(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    dataset = chained(data)

    def measured(count: int) -> tuple[set[str], str]:
        records = tuple(
            dataset.records[0].model_copy(update={"levels": ("red", f"red {row}")})
            for row in range(count)
        )
        finding = KIND.measure(embed(colours()), replace(dataset, records=records), Options())
        return {measure.group for measure in finding.measures}, " ".join(finding.details["notes"])

    groups, notes = measured(NEGATIVES + 1)
    assert "own captions against fixed negatives, signed margin" in groups
    assert "own captions against seeded negatives, signed margin" not in groups
    assert "those drawn would be the fixed ones" in notes
    groups, notes = measured(NEGATIVES + 2)
    assert "own captions against seeded negatives, signed margin" in groups
    assert "those drawn" not in notes


def test_negatives_are_the_finest_captions_of_others_without_the_own_ones() -> None:
    chain = [np.array(own) for own in ([0, 1, 2], [0, 3, 4], [5, 2, 6], [7, 8, 4])]
    fixed = [wrong.tolist() for wrong in negatives(chain, seed=0)["fixed"]]
    assert fixed == [[4, 6, 4], [2, 6], [4, 4], [2, 6]]


def test_of_many_negatives_the_first_hundred_or_a_hundred_drawn_ones_are_taken() -> None:
    chain = [np.array([row, 1000 + row]) for row in range(300)]
    found = negatives(chain, seed=1)
    assert [row.tolist() for row in found["fixed"][200:202]] == [list(range(1000, 1100))] * 2
    assert found["fixed"][3].tolist() == [*range(1000, 1003), *range(1004, 1101)]
    drawn = found["seeded"]
    assert all(len(set(row.tolist())) == NEGATIVES for row in drawn)
    assert all(1000 + own not in row for own, row in enumerate(drawn))
    assert drawn[0].tolist() != drawn[1].tolist()
    again = negatives(chain, seed=1)["seeded"]
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(drawn, negatives(chain, seed=2)["seeded"], strict=True)
    )


@pytest.mark.parametrize("space", SPACES)
def test_scores_of_pairs_are_those_of_the_pairs_one_by_one(space: Ordered) -> None:
    generator = np.random.default_rng(0)
    general = space.lift(generator.normal(size=(50, 6)))
    specific = space.lift(2 * generator.normal(size=(150, 6)))
    text, image = generator.integers(0, 50, 400), generator.integers(0, 150, 400)
    scored = score_pairs(general, specific, text, image, space)
    angle = space.exterior_angle(general[text], specific[image])
    margin = space.half_aperture(general)[text] - angle
    assert scored.margin == pytest.approx(margin, abs=2e-9)
    assert scored.clamped == pytest.approx(np.maximum(1 - 2 * angle / np.pi, 0), abs=2e-9)


def test_the_cones_of_a_product_are_the_mean_of_its_factors() -> None:
    space = Product(np.array([0.5, 2.0]), "l1")
    general, specific = (
        space.lift(np.random.default_rng(seed).normal(size=(5, 4))) for seed in (0, 1)
    )
    factors = [lorentz.half_aperture(general[:, row], c) for row, c in enumerate(space.curvature)]
    assert space.half_aperture(general) == pytest.approx(np.mean(factors, axis=0))
    pairwise = space.pairwise_exterior_angle(general, specific)
    assert np.diag(pairwise) == pytest.approx(space.exterior_angle(general, specific), abs=1e-9)


def test_figures_are_those_of_scores_computed_pair_by_pair(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    dataset = chained(data, "{0}|red {0}|red red {0} green")
    space = Lorentz(1.0)
    encoder = colours(space)
    finding = KIND.measure(embed(encoder), dataset, Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    chain = [record.levels for record in dataset.records]
    scores, labels = [], []
    pictures = space.lift(np.eye(3))
    for row, own in enumerate(chain):
        wrong = [other[-1] for other in chain if other[-1] not in own]
        for text in [*own, *wrong]:
            (point,) = space.lift(encoder.texts([text]).astype(np.float64))
            angle = float(space.exterior_angle(point, pictures[row]))
            scores.append(round(float(space.half_aperture(point)) - angle, 9))
            labels.append(text in own)
    group = "own captions against fixed negatives, signed margin"
    value = average_precision(np.array(scores), np.array(labels))
    assert found[group, "AP"].value == pytest.approx(value)
    assert found[group, "AUROC"].value == pytest.approx(auroc(np.array(scores), np.array(labels)))


def test_a_broken_picture_leaves_with_its_chain(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    (data.parent / "red.png").write_bytes(b"broken")
    finding = KIND.measure(embed(colours()), chained(data), Options())
    assert "red.png" in finding.left_out[0]
    outcomes = finding.measures[0].outcomes
    assert outcomes is not None
    assert set(outcomes.cluster.tolist()) == {1, 2}
