"""Everything that the records of a data set allow to be measured of one encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from core import lorentz
from core.errors import DataError
from core.evaluation import classification, entailment
from core.evaluation.encoder import Encoder, Tangents
from core.evaluation.metrics import mean_per_class_accuracy
from core.evaluation.names import Names
from core.evaluation.records import Box, Record, crop, load_image, unsquash
from core.evaluation.report import Measure
from core.evaluation.retrieval import retrieval
from core.image import Pixels, Preprocess, resize

Points = npt.NDArray[np.float64]

MAX_CROPS = 2_000
"""The most parts that are embedded, evenly spaced; the standard error of a share is then 1%."""

_TEXTS_AT_ONCE = 256


@dataclass(frozen=True)
class _Embedded:
    """The points of a data set."""

    wholes: Points
    captions: Points
    image_of_caption: list[int]
    crops: Points
    phrases: Points
    """One for each crop."""
    boxes: list[tuple[int, Box]]
    """Each crop's record and box."""


def evaluate(
    encoder: Encoder,
    records: Sequence[Record],
    names: Names | None,
    preprocess: Preprocess,
    progress: Progress,
) -> tuple[Measure, ...]:
    """Retrieval, naming, radii and entailments, as far as the records have what they need.

    Args:
        encoder: What is measured.
        records: Images with captions, boxes or both.
        names: The things that crops are named as; None leaves naming out.
        preprocess: How whole images become squares. Crops are always letterboxed.
        progress: Shows how far the embedding is.

    Raises:
        DataError: The records have neither captions nor boxes, or an image is missing.
    """
    if not any(record.captions or record.boxes for record in records):
        raise DataError("the records have neither captions nor boxes: nothing can be measured")
    embedded = _embed(encoder, records, preprocess, progress)
    measures = []
    if embedded.image_of_caption:
        measures += _retrieval(embedded, encoder.curvature)
    things: list[Measure] = []
    levels: dict[str, Points] = {}
    if names is not None:
        measures += _naming(encoder, embedded, names, progress)
        things, levels = _taxonomy(encoder, names, progress)
    measures += _radii(embedded, levels, encoder.curvature)
    return (*measures, *things, *_directions(embedded, encoder.curvature))


def _embed(
    encoder: Encoder, records: Sequence[Record], preprocess: Preprocess, progress: Progress
) -> _Embedded:
    boxes = _chosen_boxes(records)
    captions = [caption for record in records for caption in record.captions]
    wholes = encoder.images(
        progress.track(
            _wholes(records, encoder.side, preprocess), len(records), description="images"
        )
    )
    crops = _empty(encoder, wholes)
    if boxes:
        crops = encoder.images(
            progress.track(
                _crops(records, boxes, encoder.side), len(boxes), description="parts"
            )
        )
    texts = _texts(encoder, captions + [box.phrase for _, box in boxes], progress, "texts")
    return _Embedded(
        wholes=_lift(wholes, encoder),
        captions=texts[: len(captions)],
        image_of_caption=[row for row, record in enumerate(records) for _ in record.captions],
        crops=_lift(crops, encoder),
        phrases=texts[len(captions) :],
        boxes=boxes,
    )


def _retrieval(embedded: _Embedded, curvature: float) -> list[Measure]:
    recalls = retrieval(
        embedded.wholes, embedded.captions, embedded.image_of_caption, curvature
    )
    ways = (
        ("text to image", recalls.text_to_image, recalls.text_to_image_chance, recalls.texts),
        ("image to text", recalls.image_to_text, recalls.image_to_text_chance, recalls.images),
    )
    return [
        Measure(way, f"R@{k}", found[k], chance[k], count)
        for way, found, chance, count in ways
        for k in found
    ]


def _naming(
    encoder: Encoder, embedded: _Embedded, names: Names, progress: Progress
) -> list[Measure]:
    """Crops of trained things against the names of all of them."""
    trained = list(dict.fromkeys(thing.name for thing in names.trained))
    index = {name: row for row, name in enumerate(trained)}
    rows = [row for row, (_, box) in enumerate(embedded.boxes) if box.name in index]
    if not rows:
        return []
    templates = classification.NAMING_TEMPLATES
    tangents = _tangents(encoder, classification.prompts(trained, templates), progress, "names")
    classes = classification.class_points(tangents, len(templates), encoder.curvature)
    predicted = classification.classify(embedded.crops[rows], classes, encoder.curvature)
    actual = np.array([index[embedded.boxes[row][1].name or ""] for row in rows])
    chance = 1 / len(trained)
    per_class = mean_per_class_accuracy(predicted, actual, len(trained), "observed")
    group = f"naming of parts, {len(trained):,} names"
    return [
        Measure(group, "right", float(np.mean(predicted == actual)), chance, len(rows)),
        Measure(group, "right, mean over things", per_class, chance, len(rows)),
    ]


def _taxonomy(
    encoder: Encoder, names: Names, progress: Progress
) -> tuple[list[Measure], dict[str, Points]]:
    """Whether kingdoms entail groups, and groups names; and the points of each level."""
    things = names.trained
    words = list(
        dict.fromkeys(
            word
            for thing in things
            for word in (thing.kingdom, thing.group, thing.name)
            if word is not None
        )
    )
    points = dict(zip(words, _texts(encoder, words, progress, "taxonomy"), strict=True))
    links = {
        "group and name": dict.fromkeys((t.group, t.name) for t in things if t.group),
        "kingdom and group": dict.fromkeys(
            (t.kingdom, t.group) for t in things if t.kingdom and t.group
        ),
    }
    measures = []
    for title, pairs in links.items():
        general = [points[above] for above, _ in pairs if above is not None]
        specific = [points[below] for _, below in pairs if below is not None]
        if general:
            measures.append(_direction(title, np.stack(general), np.stack(specific), encoder))
    kingdoms = dict.fromkeys(thing.kingdom for thing in things if thing.kingdom)
    groups = dict.fromkeys(thing.group for thing in things if thing.group)
    members = {
        "kingdoms": kingdoms,
        "groups": groups,
        "names": dict.fromkeys(thing.name for thing in things),
    }
    levels = {
        level: np.stack([points[word] for word in found if word is not None])
        for level, found in members.items()
        if found
    }
    return measures, levels
