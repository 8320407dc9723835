"""ECCV Caption, in its official form: ids of pictures to ids of captions, and back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.statistics import compute
from core.evaluation.task import Options
from core.evaluation.tasks.eccv import KIND

Colours = Callable[..., Any]
Embed = Callable[..., Embedder]
Prepared = Callable[..., Path]

RECORDS = (
    {"id": "10", "image": "red.png", "captions": ["red", "blue"], "caption_ids": [1, 2]},
    {"id": "20", "image": "green.png", "captions": ["green"], "caption_ids": [3]},
    {"id": "30", "image": "blue.png", "captions": ["all blue blue"], "caption_ids": [4]},
)
POSITIVES = {
    "image_to_text": {"10": [1], "30": [4, 2, 999]},
    "text_to_image": {"2": [10, 30], "77": [20]},
}


@pytest.fixture
def folder(prepared: Prepared) -> Path:
    made = prepared(families=["retrieval"], positives="positives.json")
    (made / "test.jsonl").write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    (made / "positives.json").write_text(json.dumps(POSITIVES), encoding="utf-8")
    return made


def test_further_right_answers_count_beside_the_original_ones(
    folder: Path, colours: Colours, embed: Embed
) -> None:
    data = open_dataset(folder)
    assert KIND.applies(data)
    finding = KIND.measure(embed(colours()), data, Options())
    found = {(measure.group, measure.name): measure for measure in finding.measures}
    # "blue" is right for the blue picture too: of its two pictures that one is first, and the
    # red one ties with the green one, which is wrong and comes first.
    way = "text to image, all right answers"
    assert found[way, "R@1"].value == 1
    assert found[way, "R-Precision"].value == found[way, "mAP@R"].value == 0.5
    way = "image to text, all right answers"
    assert found[way, "mAP@R"].value == found[way, "R-Precision"].value == 1
    assert found[way, "R@1"].chance == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert finding.details["queries"] == {"text to image": 1, "image to text": 2}
    assert finding.details["positives"] == {"text to image": 2, "image to text": 3}
    # COCO's own recall counts the blue caption's own picture, the red one, alone.
    assert found["text to image", "R@1"].value == 0.75
    for measure in finding.measures:
        if measure.is_headline:
            assert measure.outcomes is not None
            assert compute(measure.outcomes) == pytest.approx(measure.value)


def test_one_caption_a_line_gives_the_same_figures(
    folder: Path, colours: Colours, embed: Embed
) -> None:
    def figures() -> list[float]:
        return [m.value for m in KIND.measure(embed(colours()), open_dataset(folder), Options())
                .measures]  # fmt: skip

    whole = figures()
    lines = [
        {**record, "captions": [caption], "caption_ids": [number]}
        for record in RECORDS
        for caption, number in zip(record["captions"], record["caption_ids"], strict=True)
    ]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert figures() == whole


def test_queries_leave_with_the_picture_that_cannot_be_read(
    folder: Path, colours: Colours, embed: Embed
) -> None:
    (folder / "red.png").unlink()
    data = open_dataset(folder)
    with pytest.raises(DataError, match="none of its captions are among those"):
        KIND.measure(embed(colours()), data, Options())
    positives = {**POSITIVES, "text_to_image": {"4": [10, 30]}}
    (folder / "positives.json").write_text(json.dumps(positives), encoding="utf-8")
    finding = KIND.measure(embed(colours()), open_dataset(folder), Options())
    assert finding.details["queries"] == {"text to image": 1, "image to text": 1}
    assert finding.details["positives"] == {"text to image": 1, "image to text": 1}
    assert finding.measures[0].outcomes is not None
    assert finding.measures[0].outcomes.cluster.tolist() == [2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "JSON"),
        ('{"image_to_text": {}}', "text_to_image: Field required"),
        ('{"image_to_text": {"1": ["x"]}, "text_to_image": {}}', r"image_to_text\.1\.0: "),
    ],
)
def test_a_wrong_file_of_positives_is_named(
    folder: Path, colours: Colours, embed: Embed, content: str, reason: str
) -> None:
    (folder / "positives.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=rf"positives\.json: .*{reason}"):
        KIND.measure(embed(colours()), open_dataset(folder), Options())


def test_captions_without_ids_are_named(folder: Path, colours: Colours, embed: Embed) -> None:
    wrong = {**RECORDS[0], "caption_ids": [1]}
    (folder / "test.jsonl").write_text(json.dumps(wrong), encoding="utf-8")
    with pytest.raises(DataError, match=r"record 1 \(10\): 2 captions but 1 caption_ids"):
        KIND.measure(embed(colours()), open_dataset(folder), Options())
