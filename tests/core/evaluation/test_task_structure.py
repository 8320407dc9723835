from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.errors import DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Encoder
from core.evaluation.names import Names, Thing
from core.evaluation.task import Options
from core.evaluation.tasks.structure import KIND
from core.spaces import Euclidean, Product, Space

Embed = Callable[..., Embedder]
Colours = Callable[..., Encoder]

PAINTS = Names(trained=tuple(Thing(name=name, group="paint") for name in ("red", "green", "blue")))


@pytest.mark.parametrize(
    ("space", "has_order"),
    [(None, True), (Euclidean(), False), (Product(np.array([0.5, 1, 2]), "l1"), True)],
)
def test_parts_are_named_and_the_general_is_told_from_the_specific(
    data: Path, embed: Embed, colours: Colours, space: Space | None, has_order: bool
) -> None:
    encoder = colours(space)
    dataset = replace(open_dataset(data), names=PAINTS)
    finding = KIND.measure(embed(encoder), dataset, Options())
    assert finding.left_out == ()
    value = {(measure.group, measure.name): measure.value for measure in finding.measures}
    assert value["naming of parts, 3 names", "right"] == 1
    assert value["naming of parts, 3 names", "right, mean over things"] == 1
    assert (("mean radius", "groups") in value) is has_order
    if has_order:
        assert value["mean radius", "groups"] < value["mean radius", "names"]
        assert value["the general entails the specific", "caption and whole"] == 1
    else:
        assert "sphere" in finding.details["not_applicable"]


def test_pictures_that_cannot_be_read_are_left_out_with_all_that_hangs_on_them(
    data: Path, embed: Embed, colours: Colours
) -> None:
    (data.parent / "red.png").write_bytes(b"\x89PNG\r\n\x1a\n....")
    finding = KIND.measure(embed(colours()), open_dataset(data), Options("letterbox"))
    (red,) = finding.left_out
    assert "red.png: image cannot be decoded" in red
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    assert found["the general entails the specific", "part and whole"].count == 2
    for path in data.parent.glob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match=r"none of the 3 pictures can be read; .*red\.png"):
        KIND.measure(embed(colours()), open_dataset(data), Options())


def test_at_most_2000_parts_are_embedded_evenly_spaced(
    data: Path, embed: Embed, colours: Colours
) -> None:
    dataset = open_dataset(data)
    many = [record.model_copy(update={"boxes": record.boxes * 1_000}) for record in dataset.records]
    finding = KIND.measure(embed(colours()), replace(dataset, records=tuple(many)), Options())
    found = {measure.name: measure.count for measure in finding.measures}
    assert found["part and whole"] == found["parts"] == 2_000
