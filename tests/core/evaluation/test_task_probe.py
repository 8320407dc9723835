"""The linear probe."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.statistics import compute
from core.evaluation.task import Options
from core.evaluation.tasks.probe import KIND

Colours = Callable[..., Any]
Embed = Callable[..., Embedder]
Prepared = Callable[..., Path]

TRAIN = ["red", "green", "blue"] * 5


def test_what_is_linear_is_learnt(prepared: Prepared, colours: Colours, embed: Embed) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is of the extra `eval`")
    data = open_dataset(prepared(train=TRAIN))
    assert KIND.applies(data)
    finding = KIND.measure(embed(colours()), data, Options())
    assert {measure.name: measure.value for measure in finding.measures} == {
        "mean per class": 1, "top-1": 1,
    }  # fmt: skip
    costs = [cost for cost, _ in finding.details["sweep"]]
    assert len(costs) == len(set(costs)) == 15
    assert finding.details["cost"] in costs
    headline = finding.measures[0]
    assert headline.outcomes is not None
    assert compute(headline.outcomes) == 1
    again = KIND.measure(embed(colours()), data, Options())
    assert again.details == finding.details


def test_a_probe_needs_a_training_split(prepared: Prepared) -> None:
    data = open_dataset(prepared())
    assert not KIND.applies(data)
    with pytest.raises(DataError, match=r"no train\.jsonl"):
        KIND.protocol(data, Options())


def test_too_few_pictures_are_counted(prepared: Prepared, colours: Colours, embed: Embed) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is of the extra `eval`")
    data = open_dataset(prepared(train=["red", "green"]))
    with pytest.raises(DataError, match="2 pictures to learn from, of 2 classes"):
        KIND.measure(embed(colours()), data, Options())


def test_pictures_of_either_split_that_cannot_be_read_are_named(
    prepared: Prepared, colours: Colours, embed: Embed
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is of the extra `eval`")
    folder = prepared(train=TRAIN)
    for split in ("test", "train"):
        with (folder / f"{split}.jsonl").open("a", encoding="utf-8") as file:
            file.write('\n{"image": "no.png", "class": "red"}')
    finding = KIND.measure(embed(colours()), open_dataset(folder), Options())
    assert [why.startswith("train: ") for why in finding.left_out] == [False, True]
    assert finding.measures[0].count == 3


def test_the_protocol_follows_the_training_split(prepared: Prepared) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is of the extra `eval`")
    folder = prepared(train=TRAIN)
    before = KIND.protocol(open_dataset(folder), Options())
    with (folder / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write('\n{"image": "red.png", "class": "red"}')
    after = KIND.protocol(open_dataset(folder), Options())
    assert before["train"]["digest"] != after["train"]["digest"]
    assert after["train"]["records"] == before["train"]["records"] + 1


def test_without_scikit_learn_the_command_that_gets_it_is_named(
    prepared: Prepared, colours: Colours, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # importing it then fails
    data = open_dataset(prepared(train=TRAIN))
    with pytest.raises(ConfigError, match=r"pip install '\.\[eval\]'"):
        KIND.measure(embed(colours()), data, Options())
