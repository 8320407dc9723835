"""Image-text retrieval both ways: the left half of the paper's Table 2, and the mean of Table 5."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import DataError
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.records import Record
from core.evaluation.retrieval import Recalls, retrieval
from core.evaluation.task import Kind, Options

Indices = npt.NDArray[np.intp]

KS = (1, 5, 10)
CURVE = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_AVERAGED = (1, 10)

TIES = "a wrong item as near as the right one comes first"
PICTURES = "records of one picture are one picture, with all their captions"


def _applies(data: Dataset) -> bool:
    return any(record.captions for record in data.records)


def _protocol(_data: Dataset, options: Options) -> dict[str, Any]:
    return {
        "preprocess": options.preprocess or "retrieval",
        "gallery": "all pictures, and all of their captions",
        "pictures": PICTURES,
        "right answers": "any of the picture's own captions; the caption's own picture",
        "ties": TIES,
        "average": "mean of both ways",
    }


def _measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Recalls at 1, 5 and 10, their means of both ways, and median ranks.

    A picture that cannot be read leaves the gallery with its captions. ``details`` holds
    ``recall_curve``: of each way ``[k, recall]`` up to the size of its gallery.
    """
    distinct, first = distinct_pictures(data.records)
    preprocess = options.preprocess or "retrieval"
    images = embedder.readable([data.picture(record, preprocess) for record in distinct])
    records = [distinct[row] for row in images.rows]
    captions = [caption for record in records for caption in record.captions]
    if not captions:
        raise DataError(
            f"{data.folder}: no picture that has a caption can be read; {images.left_out[0]}"
        )
    owner = np.repeat(np.arange(len(records)), [len(record.captions) for record in records])
    texts = embedder.text_points(captions, "captions")
    found = retrieval(images.points, texts, owner, embedder.space, CURVE)
    curve = {
        "text to image": [[k, found.text_to_image[k]] for k in CURVE if k <= len(records)],
        "image to text": [[k, found.image_to_text[k]] for k in CURVE if k <= len(captions)],
    }
    return Finding(
        tuple(recalls_as_measures(found, owner, first[images.rows])),
        {"recall_curve": curve},
        images.left_out,
    )


def distinct_pictures(records: Sequence[Record]) -> tuple[list[Record], Indices]:
    """The records with those of one picture merged, and which record is the first of each.

    A file of one caption a line would otherwise hold a picture several times, and each caption's
    own would tie with its copies.
    """
    groups: dict[Any, list[int]] = {}
    for row, record in enumerate(records):
        groups.setdefault((record.image, record.orig_size), []).append(row)
    merged = [
        records[rows[0]].model_copy(
            update={
                name: tuple(item for row in rows for item in getattr(records[row], name))
                for name in ("captions", "caption_ids")
            }
        )
        for rows in groups.values()
    ]
    return merged, np.array([rows[0] for rows in groups.values()], np.intp)


def recalls_as_measures(found: Recalls, owner: Indices, rows: Indices) -> list[Measure]:
    """Recalls of both ways with their outcomes, their means, and the median ranks.

    Args:
        found: With the recalls at `KS`.
        owner: The picture of each text, ``(texts,)``.
        rows: Which picture of the data set each picture is, ``(images,)``.
    """
    asked = np.flatnonzero(found.ranks.own > 0)
    ways = (
        ("text to image", found.ranks.images_before, rows[owner], found.text_to_image_chance),
        ("image to text", found.ranks.texts_before[asked], rows[asked], found.image_to_text_chance),
    )
    measures = []
    for way, before, cluster, chance in ways:
        measures += [_recall(way, k, before, cluster, chance[k]) for k in KS]
        median = float(np.median(before + 1))
        measures.append(
            Measure(way, "median rank", median, None, len(before), "number", is_lower_better=True)
        )
    return measures + [_average(k, found, rows[owner], rows[asked]) for k in _AVERAGED]


def _recall(way: str, k: int, before: Indices, cluster: Indices, chance: float) -> Measure:
    hits = before < k
    return Measure(
        way,
        f"R@{k}",
        float(np.mean(hits)),
        chance,
        len(hits),
        is_headline=True,
        outcomes=Outcomes("mean", hits, cluster),
    )


def _average(k: int, found: Recalls, of_text: Indices, of_image: Indices) -> Measure:
    """The mean of both ways, which are the two classes of its outcomes.

    Under resampling too each is one half, however many captions the drawn pictures have.
    """
    by_text = found.ranks.images_before < k
    by_image = found.ranks.texts_before[found.ranks.own > 0] < k
    hits = np.concatenate([by_text, by_image])
    way = np.repeat([0, 1], [len(by_text), len(by_image)])
    return Measure(
        "average",
        f"R@{k}",
        (found.text_to_image[k] + found.image_to_text[k]) / 2,
        (found.text_to_image_chance[k] + found.image_to_text_chance[k]) / 2,
        len(hits),
        is_headline=True,
        outcomes=Outcomes("per_class", hits, np.concatenate([of_text, of_image]), way),
    )


KIND = Kind(
    "retrieval",
    "pictures for captions and captions for pictures: R@1, R@5, R@10",
    _applies,
    _protocol,
    _measure,
)
