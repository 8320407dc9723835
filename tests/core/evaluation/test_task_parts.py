from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.evaluation.dataset import open_dataset
from core.evaluation.task import Options
from core.evaluation.tasks.parts import KIND


def test_parts_are_counted_without_a_model(
    data: Path, embed: Callable[..., Any], colours: Callable[..., Any]
) -> None:
    dataset = open_dataset(data)
    records = [
        record.model_copy(update={"boxes": record.boxes * parts})
        for record, parts in zip(dataset.records, (0, 1, 5), strict=True)
    ]
    encoder = colours()
    finding = KIND.measure(embed(encoder), replace(dataset, records=tuple(records)), Options())
    value = {(measure.group, measure.name): measure.value for measure in finding.measures}
    assert encoder.embedded == []
    assert value["parts", "all"] == 6
    assert value["parts", "mean of a picture"] == 2
    assert value["parts", "most of a picture"] == 5
    assert value["pictures", "with one part"] == pytest.approx(1 / 3)
    assert value["parts kept", "cap 2"] == pytest.approx(3 / 6)
    assert value["pictures kept whole", "cap 4"] == pytest.approx(2 / 3)
    assert value["parts kept", "cap 5"] == 1
    assert finding.details["histogram"] == {"0": 1, "1": 1, "5": 1}


def test_records_without_boxes_are_not_asked_for_parts(data: Path) -> None:
    dataset = open_dataset(data)
    assert KIND.applies(dataset)
    bare = [record.model_copy(update={"boxes": ()}) for record in dataset.records]
    assert not KIND.applies(replace(dataset, records=tuple(bare)))
