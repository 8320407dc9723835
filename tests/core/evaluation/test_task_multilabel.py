import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import DataError
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.metrics import mean_average_precision
from core.evaluation.task import Options
from core.evaluation.tasks.multilabel import KIND
from core.spaces import Euclidean, Lorentz, Product, Space

Fixture = Callable[..., Any]

PAINTS = {
    "r": ((255, 0, 0), [0]),
    "g": ((0, 255, 0), [1]),
    "rg": ((140, 140, 0), [0, 1]),
    "k": ((90, 90, 255), []),
}


@pytest.fixture
def paints(tmp_path: Path) -> Path:
    """Pictures of red, green, both and none; no label is blue."""
    lines = []
    for name, (rgb, labels) in PAINTS.items():
        Image.new("RGB", (8, 8), rgb).save(tmp_path / f"{name}.png")
        lines.append(json.dumps({"image": f"{name}.png", "labels": labels}))
    (tmp_path / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "categories.json").write_text('["red", "green", "blue"]', encoding="utf-8")
    return tmp_path / "test.jsonl"


@pytest.mark.parametrize("space", [Lorentz(1.0), Euclidean(), Product(np.array([0.5, 1, 2]), "l1")])
def test_classes_are_ranked_over_pictures_and_those_without_one_are_left_out(
    paints: Path, embed: Fixture, colours: Fixture, space: Space
) -> None:
    finding = KIND.measure(embed(colours(space)), open_dataset(paints), Options())
    found = {measure.name: measure for measure in finding.measures}
    assert found["mAP"].value == 1
    assert found["mAP"].count == 4
    assert found["mAP"].chance == pytest.approx(1 / 2)
    assert found["mAP, pictures with a label alone"].count == 3
    assert found["mAP, pictures with a label alone"].chance == pytest.approx(2 / 3)
    assert finding.details["pictures"] == {
        "all": 4,
        "without a label": 1,
        "classes without a picture": 1,
    }
    assert [row["name"] for row in finding.details["classes"]["as given"]] == ["red", "green"]


def test_a_model_that_sees_no_difference_has_the_precision_of_guessing(
    paints: Path, embed: Fixture, colours: Fixture
) -> None:
    sets = {"blind": ("{} on blue blue",), "reversed": ("{}",)}
    for name in PAINTS:
        Image.new("RGB", (8, 8), (7, 7, 7)).save(paints.parent / f"{name}.png")
    finding = KIND.measure(embed(colours()), open_dataset(paints), Options(prompts=sets))
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    for prompts in sets:
        group = f"as given, prompts {prompts}"
        assert found[group, "mAP"].value == pytest.approx(1 / 2)
        ordered = found[group, "mAP, ties in insertion order"].value
        red, green = (1 / 1 + 2 / 3) / 2, (1 / 2 + 2 / 3) / 2
        assert ordered == pytest.approx((red + green) / 2)


def test_every_variant_of_the_names_is_measured(
    paints: Path, embed: Fixture, colours: Fixture
) -> None:
    classes = {"plain": ("red", "green", "blue"), "raw": ("x",) * 3}
    dataset = replace(open_dataset(paints), classes=classes)
    finding = KIND.measure(embed(colours()), dataset, Options())
    value = {m.group: m.value for m in finding.measures if m.name == "mAP"}
    assert value["plain"] == 1 > value["raw"]
    assert KIND.protocol(dataset, Options())["prompts"] == {"photo": ["a photo of a {}."]}


def test_outcomes_give_the_figure_again(paints: Path, embed: Fixture, colours: Fixture) -> None:
    finding = KIND.measure(embed(colours()), open_dataset(paints), Options())
    for measure in finding.measures:
        if measure.outcomes is not None:
            labels = measure.outcomes.labels
            assert labels is not None
            again = mean_average_precision(measure.outcomes.values, labels)
            assert again == measure.value


def test_a_broken_picture_is_left_out(paints: Path, embed: Fixture, colours: Fixture) -> None:
    (paints.parent / "rg.png").unlink()
    finding = KIND.measure(embed(colours()), open_dataset(paints), Options())
    assert "rg.png" in finding.left_out[0]
    assert finding.measures[0].count == 3
    assert finding.measures[0].outcomes is not None
    assert finding.measures[0].outcomes.cluster.tolist() == [0, 1, 3]


def test_when_no_labelled_picture_is_left_the_first_that_cannot_be_read_is_named(
    paints: Path, embed: Fixture, colours: Fixture
) -> None:
    paints.write_text(
        '{"image": "none.png", "labels": [0]}\n{"image": "k.png", "labels": []}', encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"no picture that has a label can be read; .*none\.png"):
        KIND.measure(embed(colours()), open_dataset(paints), Options())


def test_what_is_wrong_with_the_labels_is_said(
    paints: Path, embed: Fixture, colours: Fixture
) -> None:
    def measure(dataset: Dataset) -> None:
        KIND.measure(embed(colours()), dataset, Options())

    paints.write_text('{"image": "r.png", "labels": [7]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"labels \[7\] go beyond the 3 classes"):
        measure(open_dataset(paints))
    paints.write_text('{"image": "r.png", "labels": []}', encoding="utf-8")
    with pytest.raises(DataError, match="none of the 1 pictures has a label"):
        measure(open_dataset(paints))
    paints.with_name("categories.json").unlink()
    with pytest.raises(DataError, match=r"write them as a list into categories\.json"):
        measure(open_dataset(paints))
