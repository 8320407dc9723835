"""What parts are called, and whether the general lies nearer to the origin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation import classification
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder, Points
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import mean_per_class_accuracy
from core.evaluation.names import Names
from core.evaluation.pictures import Picture
from core.evaluation.records import Box, Record
from core.evaluation.task import Kind, Options
from core.prompts import TEMPLATES, fill
from core.spaces import Euclidean, Ordered

MAX_CROPS = 2_000
"""The most parts that are embedded, evenly spaced; the standard error of a share is then 1%."""


@dataclass(frozen=True)
class _Points:
    """The points of a data set."""

    wholes: Points
    captions: Points
    owner_of_caption: npt.NDArray[np.intp]
    parts: Points
    phrases: Points
    """One for each part."""
    boxes: list[Box]
    owner_of_part: npt.NDArray[np.intp]


def protocol(data: Dataset, options: Options) -> dict[str, Any]:
    """How pictures and parts become squares, and what names are embedded as."""
    return {
        "preprocess": options.preprocess or "retrieval",
        "parts": {"preprocess": "letterbox", "most": MAX_CROPS, "chosen": "evenly spaced"},
        "templates": list(TEMPLATES),
        "names": len(data.names.trained) if data.names else 0,
        "order": "the smaller exterior angle is at the general one; equal angles are wrong",
    }


def measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Naming of parts, mean radii and entailments, as far as the records have what they need.

    Where the space has no order, radii and entailments are left out.
    """
    points, left_out = _embed(embedder, data, options)
    measures = []
    if data.names is not None:
        measures += _naming(embedder, points, data.names)
    details: dict[str, Any] = {}
    if isinstance(embedder.space, Euclidean):
        details["not_applicable"] = "the sphere has no radii and no cones"
    else:
        measures += _order(embedder, embedder.space, points, data.names)
    return Finding(tuple(measures), details, left_out)


def _embed(embedder: Embedder, data: Dataset, options: Options) -> tuple[_Points, tuple[str, ...]]:
    preprocess = options.preprocess or "retrieval"
    found = embedder.pictures(data.pictures(preprocess))
    read = [row for row in range(len(data.records)) if row not in found.faults]
    records = [data.records[row] for row in read]
    left_out = list(found.faults.values())

    chosen = _chosen_boxes(records)
    pictures = [_part(data, records[row], box) for row, box in chosen]
    parts = embedder.pictures(pictures, "parts") if pictures else None
    cut = [at for at in range(len(chosen)) if parts and at not in parts.faults]
    left_out += [f"a part of {fault}" for fault in parts.faults.values()] if parts else []

    captions = [caption for record in records for caption in record.captions]
    phrases = [chosen[at][1].phrase for at in cut]
    texts = embedder.text_points(captions + phrases)

    def lift(tangents: npt.NDArray[np.float32]) -> Points:
        return embedder.space.lift(tangents.astype(np.float64))

    wholes = lift(found.tangents[read])
    return _Points(
        wholes=wholes,
        captions=texts[: len(captions)],
        owner_of_caption=np.array(
            [row for row, record in enumerate(records) for _ in record.captions], np.intp
        ),
        parts=lift(parts.tangents[cut]) if parts else wholes[:0],
        phrases=texts[len(captions) :],
        boxes=[chosen[at][1] for at in cut],
        owner_of_part=np.array([chosen[at][0] for at in cut], np.intp),
    ), tuple(left_out)


def _part(data: Dataset, record: Record, box: Box) -> Picture:
    name = str(record.image.relative_to(data.images))
    return Picture(record.image, name, "letterbox", box.xyxy, record.orig_size)


def _naming(embedder: Embedder, points: _Points, names: Names) -> list[Measure]:
    """Parts that hold trained things against the names of all of them."""
    trained = list(dict.fromkeys(thing.name for thing in names.trained))
    index = {name: row for row, name in enumerate(trained)}
    rows = [row for row, box in enumerate(points.boxes) if box.name in index]
    if not rows:
        return []
    texts = [fill(template, name) for name in trained for template in TEMPLATES]
    tangents = embedder.texts(texts, "names")
    classes = classification.class_points(tangents, len(TEMPLATES), embedder.space)
    predicted = classification.classify(points.parts[rows], classes, embedder.space)
    actual = np.array([index[points.boxes[row].name or ""] for row in rows])
    owners = points.owner_of_part[rows]
    chance = 1 / len(trained)
    group = f"naming of parts, {len(trained):,} names"
    right = predicted == actual
    return [
        Measure(
            group, "right", float(np.mean(right)), chance, len(rows),
            is_headline=True, outcomes=Outcomes("mean", right, owners),
        ),
        Measure(
            group, "right, mean over things",
            mean_per_class_accuracy(predicted, actual, len(trained), "observed"),
            chance, len(rows), is_headline=True,
            outcomes=Outcomes("per_class", right, owners, actual),
        ),
    ]  # fmt: skip


def _order(
    embedder: Embedder, space: Ordered, points: _Points, names: Names | None
) -> list[Measure]:
    """Mean radii, and whether the cones point from the general to the specific."""
    levels: dict[str, Points] = {}
    pairs: dict[str, tuple[Points, Points, npt.NDArray[np.intp]]] = {}
    if names is not None:
        levels, pairs = _taxonomy(embedder, names)
    levels |= {
        "phrases": points.phrases,
        "captions": points.captions,
        "parts": points.parts,
        "wholes": points.wholes,
    }
    own, of_caption = points.owner_of_part, points.owner_of_caption
    pairs |= {
        "phrase and part": (points.phrases, points.parts, own),
        "part and whole": (points.parts, points.wholes[own], own),
        "caption and whole": (points.captions, points.wholes[of_caption], of_caption),
    }
    measures = [
        Measure("mean radius", level, float(np.mean(space.radius(found))), None, len(found),
                unit="number")
        for level, found in levels.items()
        if len(found)
    ]  # fmt: skip
    for title, (general, specific, cluster) in pairs.items():
        if len(general):
            back = space.exterior_angle(specific, general)
            right = space.exterior_angle(general, specific) < back  # angles: scores tie at 0
            group = "the general entails the specific"
            measures.append(
                Measure(
                    group, title, float(np.mean(right)), 0.5, len(right),
                    is_headline=True, outcomes=Outcomes("mean", right, cluster),
                )
            )  # fmt: skip
    return measures


def _taxonomy(
    embedder: Embedder, names: Names
) -> tuple[dict[str, Points], dict[str, tuple[Points, Points, npt.NDArray[np.intp]]]]:
    """The points of kingdoms, groups and names, and of the pairs between them."""
    words = names.levels()
    levels = {level: embedder.text_points(found, level) for level, found in words.items()}
    point_of = {
        word: point
        for level, found in levels.items()
        for word, point in zip(words[level], found, strict=True)
    }
    pairs = {}
    for title, links in names.links().items():
        general = np.stack([point_of[above] for above, _ in links])
        specific = np.stack([point_of[below] for _, below in links])
        pairs[title] = general, specific, np.arange(len(links))
    return levels, pairs


def _chosen_boxes(records: Sequence[Record]) -> list[tuple[int, Box]]:
    """The boxes with the index of their record, thinned evenly to `MAX_CROPS`."""
    boxes = [(row, box) for row, record in enumerate(records) for box in record.boxes]
    if len(boxes) <= MAX_CROPS:
        return boxes
    return [boxes[len(boxes) * turn // MAX_CROPS] for turn in range(MAX_CROPS)]


KIND = Kind(
    name="structure",
    about="naming of parts, radii by level, and which of two the cones call general",
    applies=lambda data: "structure" in data.families,
    protocol=protocol,
    measure=measure,
)
