import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.task import Options
from core.evaluation.tasks.traversal import KIND, ROOT, geodesic
from core.spaces import Euclidean, Lorentz, Product, Space

Fixture = Callable[..., Any]

SPACES = [
    Lorentz(0.7),
    Product(np.array([0.5, 1, 2]), "l1"),
    Euclidean(),
]


@pytest.fixture
def chained(data: Path) -> Dataset:
    """Pictures with chains of one and two mentions of their colour."""
    lines = [
        {"image": f"{colour}.png", "levels": [colour, f"{colour} {colour}"]}
        for colour in ("red", "green", "blue")
    ]
    file = data.with_name("chains.jsonl")
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return open_dataset(file)


def test_a_path_goes_from_the_specific_over_the_general_to_the_root(
    chained: Dataset, embed: Fixture, colours: Fixture
) -> None:
    finding = KIND.measure(embed(colours(Lorentz(1.0))), chained, Options())
    for colour, path in zip(("red", "green", "blue"), finding.details["traversals"], strict=True):
        assert path["picture"] == f"{colour}.png"
        assert [step["text"] for step in path["steps"]] == [f"{colour} {colour}", colour, ROOT]
        assert path["steps"][0]["at"] == 1
        assert [step["radius"] for step in path["steps"]] == pytest.approx([1, 0.5, 0], abs=1e-4)
    value = {measure.name: measure.value for measure in finding.measures}
    assert value == {
        "texts on a path": 2,
        "paths that meet no text": 0,
        "paths that begin at an own caption": 1,
        "own levels met on the way": 1,
        "paths of two texts or more whose radii only fall": 1,
    }


def test_a_text_whose_cone_does_not_hold_the_point_is_passed_over(
    data: Path, embed: Fixture, colours: Fixture
) -> None:
    texts = ("red red green", "red")  # the first is nearer, and points elsewhere
    dataset = open_dataset(data, limit=1)
    record = dataset.records[0].model_copy(update={"captions": texts})
    dataset = replace(dataset, records=(record,))
    finding = KIND.measure(embed(colours(Lorentz(1.0))), dataset, Options())
    (path,) = finding.details["traversals"]
    assert [step["text"] for step in path["steps"]] == ["red", ROOT]


@pytest.mark.parametrize("space", SPACES)
def test_every_space_has_paths_and_ways_between_pictures(
    chained: Dataset, embed: Fixture, colours: Fixture, space: Space
) -> None:
    finding = KIND.measure(embed(colours(space)), chained, Options(seed=3))
    for path in finding.details["traversals"]:
        assert path["steps"][-1]["text"] == ROOT
    for way in finding.details["interpolations"]:
        first, last = way["steps"][0]["text"], way["steps"][-1]["text"]
        assert first.split()[0] == way["from"].removesuffix(".png")
        assert last.split()[0] == way["to"].removesuffix(".png")
        assert way["from"] != way["to"]
    has_radii = not isinstance(space, Euclidean)
    assert (finding.details["traversals"][0]["steps"][0]["radius"] is not None) is has_radii
    assert any("radii" in measure.name for measure in finding.measures) is has_radii
    json.dumps(finding.details)


@pytest.mark.parametrize("space", SPACES)
def test_points_of_a_geodesic_are_equally_spaced(space: Space) -> None:
    a, b = space.lift(np.random.default_rng(0).normal(size=(2, 6)))
    path = geodesic(a, b, np.linspace(0, 1, 5), space)
    assert path[0] == pytest.approx(a)
    assert path[-1] == pytest.approx(b)
    steps = space.paired_similarity(path[:-1], path[1:])
    assert steps == pytest.approx(np.full(4, steps[0]))
    if not isinstance(space, Euclidean):
        whole = space.paired_similarity(path[:1], path[-1:])
        assert steps.sum() == pytest.approx(float(whole[0]))


@pytest.mark.parametrize("space", SPACES)
def test_a_geodesic_to_itself_stays(space: Space) -> None:
    (a,) = space.lift(np.ones((1, 6)))
    path = geodesic(a, a, np.linspace(0, 1, 3), space)
    assert path == pytest.approx(np.stack([a, a, a]))


def test_one_picture_has_a_path_and_nowhere_to_go(
    chained: Dataset, embed: Fixture, colours: Fixture
) -> None:
    alone = replace(chained, records=chained.records[:1])
    finding = KIND.measure(embed(colours()), alone, Options())
    assert len(finding.details["traversals"]) == 1
    assert finding.details["interpolations"] == []


def test_broken_pictures_are_left_out(chained: Dataset, embed: Fixture, colours: Fixture) -> None:
    chained.records[1].image.write_bytes(b"broken")
    finding = KIND.measure(embed(colours()), chained, Options())
    assert "green.png" in finding.left_out[0]
    assert [path["picture"] for path in finding.details["traversals"]] == ["red.png", "blue.png"]
