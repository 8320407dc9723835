"""Everything that the records of a data set allow to be measured of one encoder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from core.errors import DataError, ImageError
from core.evaluation import classification, entailment
from core.evaluation.encoder import Encoder, Tangents
from core.evaluation.metrics import mean_per_class_accuracy
from core.evaluation.names import Names
from core.evaluation.records import Box, Record, crop, load_image, unsquash
from core.evaluation.report import Measure
from core.evaluation.retrieval import retrieval
from core.image import Pixels, Preprocess, resize
from core.prompts import TEMPLATES, fill
from core.spaces import Euclidean, Ordered, Space

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
) -> tuple[tuple[Measure, ...], tuple[str, ...]]:
    """Retrieval, naming, radii and entailments, as far as the records have what they need.

    Where the space has no order, radii and entailments are left out. A record whose image cannot
    be read is left out, with its captions and boxes.

    Args:
        encoder: What is measured.
        records: Images with captions, boxes or both.
        names: The things that crops are named as; None leaves naming out.
        preprocess: How whole images become squares. Crops are always letterboxed.
        progress: Shows how far the embedding is.

    Returns:
        The figures, and of each image that was left out why it cannot be read.

    Raises:
        DataError: No image can be read, or the records have neither captions nor boxes.
    """
    _check_measurable(records)
    left_out: list[str] = []
    embedded = _embed(encoder, records, preprocess, progress, left_out)
    measures = []
    if embedded.image_of_caption:
        measures += _retrieval(embedded, encoder.space)
    if names is not None:
        measures += _naming(encoder, embedded, names, progress)
    if not isinstance(encoder.space, Euclidean):
        measures += _hierarchy(encoder, encoder.space, embedded, names, progress)
    return tuple(measures), tuple(left_out)


def _check_measurable(records: Sequence[Record]) -> None:
    if not any(record.captions or record.boxes for record in records):
        raise DataError("the records have neither captions nor boxes: nothing can be measured")


def _embed(
    encoder: Encoder,
    records: Sequence[Record],
    preprocess: Preprocess,
    progress: Progress,
    left_out: list[str],
) -> _Embedded:
    read: list[Record] = []
    squares = _wholes(records, encoder.side, preprocess, read, left_out)
    wholes = _images(encoder, squares, progress, len(records), "images")
    _check_measurable(read)
    chosen = _chosen_boxes(read)
    boxes: list[tuple[int, Box]] = []
    crops = wholes[:0]
    if chosen:
        squares = _crops(read, chosen, encoder.side, boxes, left_out)
        crops = _images(encoder, squares, progress, len(chosen), "parts")
    captions = [caption for record in read for caption in record.captions]
    phrases = [box.phrase for _, box in boxes]
    texts = _texts(encoder, captions + phrases, progress, "texts")
    return _Embedded(
        wholes=wholes,
        captions=texts[: len(captions)],
        image_of_caption=[row for row, record in enumerate(read) for _ in record.captions],
        crops=crops,
        phrases=texts[len(captions) :],
        boxes=boxes,
    )


def _retrieval(embedded: _Embedded, space: Space) -> list[Measure]:
    recalls = retrieval(embedded.wholes, embedded.captions, embedded.image_of_caption, space)
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
    texts = [fill(template, name) for name in trained for template in TEMPLATES]
    tangents = _tangents(encoder, texts, progress, "names")
    classes = classification.class_points(tangents, len(TEMPLATES), encoder.space)
    predicted = classification.classify(embedded.crops[rows], classes, encoder.space)
    actual = np.array([index[embedded.boxes[row][1].name or ""] for row in rows])
    chance = 1 / len(trained)
    per_class = mean_per_class_accuracy(predicted, actual, len(trained), "observed")
    group = f"naming of parts, {len(trained):,} names"
    return [
        Measure(group, "right", float(np.mean(predicted == actual)), chance, len(rows)),
        Measure(group, "right, mean over things", per_class, chance, len(rows)),
    ]


def _hierarchy(
    encoder: Encoder,
    space: Ordered,
    embedded: _Embedded,
    names: Names | None,
    progress: Progress,
) -> list[Measure]:
    """Mean radii, and whether the cones point from the general to the specific."""
    levels: dict[str, Points] = {}
    pairs: dict[str, tuple[Points, Points]] = {}
    if names is not None:
        levels, pairs = _taxonomy(encoder, names, progress)
    levels |= {
        "phrases": embedded.phrases,
        "captions": embedded.captions,
        "parts": embedded.crops,
        "wholes": embedded.wholes,
    }
    owners = [row for row, _ in embedded.boxes]
    pairs |= {
        "phrase and part": (embedded.phrases, embedded.crops),
        "part and whole": (embedded.crops, embedded.wholes[owners]),
        "caption and whole": (embedded.captions, embedded.wholes[embedded.image_of_caption]),
    }
    measures = [
        Measure("mean radius", level, entailment.mean_radius(points, space), None, len(points))
        for level, points in levels.items()
        if len(points)
    ]
    for title, (general, specific) in pairs.items():
        if len(general):
            found = entailment.direction(general, specific, space)
            group = "the general entails the specific"
            measures.append(Measure(group, title, found.right, 0.5, found.pairs))
    return measures


def _taxonomy(
    encoder: Encoder, names: Names, progress: Progress
) -> tuple[dict[str, Points], dict[str, tuple[Points, Points]]]:
    """The points of kingdoms, groups and names, and of the pairs between them."""
    words = names.levels()
    levels = {level: _texts(encoder, found, progress, level) for level, found in words.items()}
    point_of = {
        word: point
        for level, points in levels.items()
        for word, point in zip(words[level], points, strict=True)
    }
    pairs = {}
    for title, links in names.links().items():
        general = np.stack([point_of[above] for above, _ in links])
        specific = np.stack([point_of[below] for _, below in links])
        pairs[title] = general, specific
    return levels, pairs


def _chosen_boxes(records: Sequence[Record]) -> list[tuple[int, Box]]:
    """The boxes with the index of their record, thinned evenly to `MAX_CROPS`."""
    boxes = [(row, box) for row, record in enumerate(records) for box in record.boxes]
    if len(boxes) <= MAX_CROPS:
        return boxes
    return [boxes[len(boxes) * turn // MAX_CROPS] for turn in range(MAX_CROPS)]


def _wholes(
    records: Sequence[Record],
    side: int,
    preprocess: Preprocess,
    read: list[Record],
    left_out: list[str],
) -> Iterator[Pixels]:
    """The squares of the images that can be read, whose records go into ``read``."""
    for record in records:
        try:
            image = load_image(record, side)
            if preprocess != "retrieval":
                image = unsquash(image, image.size, record.orig_size)
        except (DataError, ImageError) as error:
            left_out.append(_fault(record, error))
            continue
        read.append(record)
        yield resize(image, side, preprocess)
    if not read:
        raise DataError(f"none of the {len(records):,} images can be read; {left_out[0]}")


def _crops(
    records: Sequence[Record],
    chosen: Sequence[tuple[int, Box]],
    side: int,
    cut: list[tuple[int, Box]],
    left_out: list[str],
) -> Iterator[Pixels]:
    """The squares of the boxes that can be cut, which go into ``cut``."""
    for row, group in groupby(chosen, key=itemgetter(0)):
        record = records[row]
        try:
            image = load_image(record)
            squares = [
                (entry, resize(crop(image, entry[1], record.orig_size), side, "letterbox"))
                for entry in group
            ]
        except (DataError, ImageError) as error:
            left_out.append(f"parts of {_fault(record, error)}")
            continue
        for entry, square in squares:
            cut.append(entry)
            yield square
    if not cut:
        raise DataError(f"no part can be cut from the images; {left_out[-1]}")


def _fault(record: Record, error: Exception) -> str:
    message = str(error)
    return message if str(record.image) in message else f"{record.image}: {message}"


def _images(
    encoder: Encoder, squares: Iterable[Pixels], progress: Progress, total: int, title: str
) -> Points:
    tangents = encoder.images(progress.track(squares, total, description=title))
    return encoder.space.lift(tangents.astype(np.float64))


def _texts(encoder: Encoder, texts: Sequence[str], progress: Progress, title: str) -> Points:
    tangents = _tangents(encoder, texts, progress, title)
    return encoder.space.lift(tangents.astype(np.float64))


def _tangents(encoder: Encoder, texts: Sequence[str], progress: Progress, title: str) -> Tangents:
    chunks = [texts[at : at + _TEXTS_AT_ONCE] for at in range(0, len(texts), _TEXTS_AT_ONCE)]
    return np.concatenate(
        [encoder.texts(chunk) for chunk in progress.track(chunks, description=title)]
    )
