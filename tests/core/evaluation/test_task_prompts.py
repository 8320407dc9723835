"""The audit of prompts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Tangents
from core.evaluation.statistics import compute, interval
from core.evaluation.task import Options
from core.evaluation.tasks.prompts import KIND
from core.spaces import Euclidean, Lorentz, Product, Space

Colours = Callable[..., Any]
Embed = Callable[..., Embedder]
Prepared = Callable[..., Path]

LYING = "no {}."


def misled(encoder: Any) -> Any:
    """The encoder, taking each colour for the next one where a text says "no"."""
    honest = encoder.texts

    def texts(asked: Sequence[str]) -> Tangents:
        tangents = honest(asked)
        lies = np.array([text.startswith("no ") for text in asked])
        answered: Tangents = np.where(lies[:, None], np.roll(tangents, 1, axis=1), tangents)
        return answered

    encoder.texts = texts
    return encoder


@pytest.mark.parametrize(
    "space", [Lorentz(1.0), Euclidean(), Product(np.array([0.5, 1.0, 2.0]), "l1")], ids=repr
)
def test_every_template_is_measured_alone_and_the_extremes_are_named(
    space: Space, prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(prepared(prompts="food101"))
    options = Options(prompts={"mixed": ("a photo of a {}.", LYING)})
    finding = KIND.measure(embed(misled(colours(space))), data, options)
    value = {(measure.group, measure.name): measure.value for measure in finding.measures}
    for prompts in ("official", "photo"):
        assert value["prompt sets", prompts] == 1
    assert value["prompt sets", "official less photo"] == 0
    accuracy = {
        (each["set"], each["template"]): each["accuracy"] for each in finding.details["templates"]
    }
    assert list(accuracy) == [
        ("official", "food : {}."), ("official", "food porn : {}."), ("photo", "a photo of a {}."),
        ("mixed", "a photo of a {}."), ("mixed", LYING),
    ]  # fmt: skip
    assert list(accuracy.values()) == [1, 1, 1, 1, 0]
    group = "single templates, all sets"
    assert (value[group, "best"], value[group, "worst"], value[group, "spread"]) == (1, 0, 1)
    assert value[group, "deviation"] == pytest.approx(np.std([1, 1, 1, 0]))
    assert finding.details["extremes"][group]["worst"]["template"] == LYING
    assert ("single templates, photo set", "best") not in value


def test_the_difference_of_official_and_photo_is_paired_by_picture(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(prepared(["red", "red", "green", "blue"], prompts="food101"))
    options = Options(prompts={"photo": (LYING,)})
    finding = KIND.measure(embed(misled(colours())), data, options)
    found = {measure.name: measure for measure in finding.measures if measure.is_headline}
    assert list(found) == ["official", "photo", "official less photo"]
    difference = found["official less photo"]
    assert (found["official"].value, found["photo"].value, difference.value) == (1, 0, 1)
    assert difference.outcomes is not None
    assert compute(difference.outcomes) == pytest.approx(difference.value)
    assert interval(difference.outcomes, 0) == (1, 1)


def test_a_data_set_without_official_prompts_is_audited_under_the_others(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(prepared())
    assert KIND.applies(data)
    finding = KIND.measure(embed(colours()), data, Options())
    assert [measure.name for measure in finding.measures] == ["photo"]
    assert finding.details["extremes"] == {}


def test_no_text_and_no_picture_is_embedded_twice(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    encoder = colours()
    options = Options(prompts={"again": ("a photo of a {}.", "food : {}.")})
    KIND.measure(embed(encoder), open_dataset(prepared(prompts="food101")), options)
    assert len(encoder.embedded) == len(set(encoder.embedded)) == 3 + 3 * 3


def test_the_protocol_holds_every_template_and_the_names(prepared: Prepared) -> None:
    data = open_dataset(prepared(prompts="food101"))
    protocol = KIND.protocol(data, Options(prompts={"mine": ("{}",)}))
    assert list(protocol["prompts"]) == ["official", "photo", "mine"]
    assert protocol["names"]["plain"]["count"] == 3
    assert protocol != KIND.protocol(data, Options(prompts={"mine": ("a {}",)}))
