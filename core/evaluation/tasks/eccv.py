"""Retrieval where other pictures and captions are right too: ECCV Caption (arXiv:2204.03359).

COCO counts one picture as right for a caption, though others show the same. ECCV Caption names
the further right ones, for some of COCO's pictures and captions, among all of its test split.
Two of its 22,550 right captions are none of the 25,000 that are ranked. Its own program counts
them as missed; here they are left out, which is a matter of 0.001 points.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import DataError
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.metrics import chance_of_map_at_r, map_at_r, r_precision
from core.evaluation.records import Record
from core.evaluation.retrieval import places_of_right, retrieval
from core.evaluation.task import Kind, Options
from core.evaluation.tasks.retrieval import (
    KS,
    PICTURES,
    TIES,
    distinct_pictures,
    recalls_as_measures,
)

Indices = npt.NDArray[np.intp]


class Positives(BaseModel):
    """All right answers, the original ones among them."""

    model_config = ConfigDict(frozen=True)

    image_to_text: dict[str, tuple[int, ...]]
    """Of a picture's id, the ids of its captions."""
    text_to_image: dict[int, tuple[int | str, ...]]
    """Of a caption's id, the ids of its pictures."""


@dataclass(frozen=True)
class _Queries:
    """What is asked one way, by rows of the gallery."""

    asking: Indices
    right: list[Indices]
    cluster: Indices
    """``(queries,)``: the picture of the data set that each belongs to."""


def _protocol(_data: Dataset, options: Options) -> dict[str, Any]:
    return {
        "preprocess": options.preprocess or "retrieval",
        "gallery": "all pictures, and all of their captions",
        "pictures": PICTURES,
        "right answers": "those of the file of positives that are in the gallery",
        "queries": "those of the file of positives",
        "ties": TIES,
        "average": "mean over queries",
    }


def _measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """mAP@R, R-Precision and R@1 with all right answers, and COCO's recalls in the same gallery.

    A picture that cannot be read leaves the gallery with its captions. ``details``: ``queries``
    and ``positives``, how many there are each way.
    """
    if data.positives_file is None:
        raise DataError(f"{data.folder}: names no file of further right answers; fetch it again")
    positives = read_positives(data.positives_file)
    _check_captions(data)
    distinct, first = distinct_pictures(data.records)
    preprocess = options.preprocess or "retrieval"
    images = embedder.readable([data.picture(record, preprocess) for record in distinct])
    records, rows = [distinct[row] for row in images.rows], first[images.rows]
    captions = [caption for record in records for caption in record.captions]
    owner = np.repeat(np.arange(len(records)), [len(record.captions) for record in records])
    texts = embedder.text_points(captions, "captions")
    ways = _queries(positives, records, owner, rows)
    measures: list[Measure] = []
    for way, asks, of_what in _WAYS:
        queries = ways[way]
        if not len(queries.asking):
            raise DataError(
                f"{data.positives_file}: none of its {of_what} are among those of {data.folder}; "
                "ids of pictures and caption_ids must be COCO's"
            )
        some = (images.points[queries.asking], texts) if asks == "images" else (
            images.points, texts[queries.asking])  # fmt: skip
        places = places_of_right(*some, queries.right, embedder.space, asks)
        items = len(captions) if asks == "images" else len(records)
        measures += _figures(f"{way}, all right answers", places, queries, items)
    plain = retrieval(images.points, texts, owner, embedder.space, KS)
    measures += recalls_as_measures(plain, owner, rows)
    details = {
        "queries": {way: len(queries.asking) for way, queries in ways.items()},
        "positives": {way: sum(map(len, queries.right)) for way, queries in ways.items()},
    }
    return Finding(tuple(measures), details, images.left_out)


_WAYS: tuple[tuple[str, Literal["images", "texts"], str], ...] = (
    ("text to image", "texts", "captions"),
    ("image to text", "images", "pictures"),
)


def read_positives(file: Path) -> Positives:
    """The right answers of a file.

    Raises:
        DataError: It is missing or wrong.
    """
    try:
        return Positives.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise DataError(
            f"{file}: {where}: {fault['msg']}; run `hyper3 data fetch` again"
        ) from error


def _check_captions(data: Dataset) -> None:
    for number, record in enumerate(data.records, 1):
        if len(record.caption_ids) != len(record.captions):
            raise DataError(
                f"{data.folder}: record {number} ({record.id}): {len(record.captions)} captions "
                f"but {len(record.caption_ids)} caption_ids; there must be one for each"
            )


def _queries(
    positives: Positives, records: Sequence[Record], owner: Indices, rows: Indices
) -> dict[str, _Queries]:
    """The queries of both ways that are in the gallery with a right answer."""
    image_row = {record.id: row for row, record in enumerate(records)}
    ids = (number for record in records for number in record.caption_ids)
    text_row = {number: row for row, number in enumerate(ids)}
    to_text = _known(positives.image_to_text, image_row, text_row)
    by_text = {
        caption: [str(image) for image in images]
        for caption, images in positives.text_to_image.items()
    }
    to_image = _known(by_text, text_row, image_row)
    asking_texts, asking_images = (np.array([*way], np.intp) for way in (to_image, to_text))
    return {
        "text to image": _Queries(asking_texts, [*to_image.values()], rows[owner[asking_texts]]),
        "image to text": _Queries(asking_images, [*to_text.values()], rows[asking_images]),
    }


def _known(
    right: Mapping[Any, Sequence[Any]], query_row: Mapping[Any, int], item_row: Mapping[Any, int]
) -> dict[int, Indices]:
    """Rows of right items by the row of their query, as far as both are in the gallery."""
    known = {
        query_row[query]: np.unique([item_row[item] for item in items if item in item_row])
        for query, items in right.items()
        if query in query_row
    }
    return {query: items.astype(np.intp) for query, items in known.items() if len(items)}


def _figures(
    group: str, places: Sequence[Indices], queries: _Queries, items: int
) -> Iterator[Measure]:
    counts = [len(right) for right in queries.right]
    found: dict[str, tuple[Sequence[float], Sequence[float]]] = {
        "mAP@R": (
            [map_at_r(each) for each in places],
            [chance_of_map_at_r(items, right) for right in counts],
        ),
        "R-Precision": ([r_precision(each) for each in places], [n / items for n in counts]),
        "R@1": ([bool(each[0] == 0) for each in places], [n / items for n in counts]),
    }
    for name, (values, chances) in found.items():
        yield Measure(
            group,
            name,
            float(np.mean(values)),
            float(np.mean(chances)),
            len(values),
            is_headline=True,
            outcomes=Outcomes("mean", np.array(values), queries.cluster),
        )


KIND = Kind(
    "eccv",
    "retrieval where all that is right counts: mAP@R and R-Precision of ECCV Caption",
    lambda data: data.positives_file is not None,
    _protocol,
    _measure,
)
