import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.task import Options
from core.evaluation.tasks.pairs import KIND
from core.spaces import Euclidean, Lorentz, Product, Space

Fixture = Callable[..., Any]


def pairs(data: Path, rows: list[tuple[str, str, str, str]]) -> Dataset:
    """A data set of (picture, kind, right caption, wrong caption) on the pictures of ``data``."""
    names = ("image", "kind", "positive", "negative")
    file = data.with_name("pairs.jsonl")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    file.write_text("\n".join(lines), encoding="utf-8")
    return open_dataset(file)


MIXED = [
    ("red.png", "swap", "red", "green"),
    ("red.png", "swap", "blue", "red"),
    ("red.png", "swap", "red", "blue"),
    ("green.png", "add", "green", "green"),
    ("green.png", "add", "green", "blue"),
]


@pytest.mark.parametrize(
    "space",
    [Lorentz(1.0), Lorentz(0.5, "angle"), Euclidean(), Product(np.array([0.5, 1, 2]), "l2")],
)
def test_a_pair_is_right_where_the_right_caption_is_strictly_nearer(
    data: Path, embed: Fixture, colours: Fixture, space: Space
) -> None:
    finding = KIND.measure(embed(colours(space)), pairs(data, MIXED), Options())
    found = {measure.name: measure for measure in finding.measures}
    assert found["swap"].value == pytest.approx(2 / 3)
    assert found["add"].value == pytest.approx(1 / 2)
    assert found["mean over kinds"].value == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["mean over kinds"].count == 5
    assert found["pairs"].value == 1
    assert finding.details["ties"] == {"swap": 0, "add": 1}


def test_a_picture_of_many_pairs_is_embedded_once_and_drawn_as_one(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    encoder = colours()
    finding = KIND.measure(embed(encoder), pairs(data, MIXED), Options())
    assert encoder.embedded.count("red.png") == encoder.embedded.count("green.png") == 1
    outcomes = finding.measures[0].outcomes
    assert outcomes is not None
    assert outcomes.cluster.tolist() == [0, 0, 0, 1, 1]


def test_pairs_of_one_kind_have_no_mean_over_kinds(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    finding = KIND.measure(embed(colours()), pairs(data, MIXED[:3]), Options())
    assert [measure.name for measure in finding.measures] == ["swap", "pairs"]


def test_pairs_of_a_broken_picture_are_left_out(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    (data.parent / "red.png").write_bytes(b"broken")
    finding = KIND.measure(embed(colours()), pairs(data, MIXED), Options())
    (fault,) = finding.left_out
    assert "red.png" in fault
    assert [(measure.name, measure.count) for measure in finding.measures] == [
        ("add", 2),
        ("pairs", 2),
    ]
