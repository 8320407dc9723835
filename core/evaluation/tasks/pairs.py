"""A right caption against a hard wrong one, as in SugarCrepe (arXiv:2306.14610)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.records import Record
from core.evaluation.task import Kind, Options

_GROUP = "the right caption is nearer"
_BLOCK = 1024  # pairs at once


@dataclass(frozen=True)
class _Asked:
    """The pairs whose picture could be read."""

    records: Sequence[Record]
    picture: npt.NDArray[np.intp]
    """Of each pair, the index of its picture in the data set."""
    better: npt.NDArray[np.float64]
    """How much nearer the right caption is; 0 where both are equally near."""


def protocol(_data: Dataset, options: Options) -> dict[str, Any]:
    """How pictures become squares, and when a pair is right."""
    return {
        "preprocess": options.preprocess or "retrieval",
        "right": "similarity to the right caption > similarity to the wrong one; a tie is wrong",
        "mean": "over kinds, each counts the same",
    }


def measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """The share of pairs that are right, by kind and the mean over kinds.

    The interval of the mean is of a mean over all kinds (`core.evaluation.statistics`): a kind of
    few pairs, which a draw of the pictures can miss, makes it wider.
    ``details["ties"]`` counts pairs by kind whose captions are equally near.
    """
    asked, left_out = _ask(embedder, data, options)
    kinds = list(dict.fromkeys(record.kind or "pairs" for record in asked.records))
    kind = np.array([kinds.index(record.kind or "pairs") for record in asked.records], np.intp)
    right, tied = asked.better > 0, asked.better == 0
    measures = []
    if len(kinds) > 1:
        shares = [float(np.mean(right[kind == row])) for row in range(len(kinds))]
        outcomes = Outcomes("per_class", right, asked.picture, kind)
        measures.append(_share("mean over kinds", float(np.mean(shares)), outcomes))
    for row, name in enumerate(kinds):
        own = kind == row
        outcomes = Outcomes("mean", right[own], asked.picture[own])
        measures.append(_share(name, float(np.mean(right[own])), outcomes))
    measures.append(
        Measure(
            "ties", "pairs", float(tied.sum()), None, len(tied), unit="number", is_lower_better=True
        )
    )
    ties = {name: int(tied[kind == row].sum()) for row, name in enumerate(kinds)}
    return Finding(tuple(measures), {"ties": ties}, left_out)


def _share(name: str, value: float, outcomes: Outcomes) -> Measure:
    count = len(outcomes.values)
    return Measure(_GROUP, name, value, 0.5, count, is_headline=True, outcomes=outcomes)


def _ask(embedder: Embedder, data: Dataset, options: Options) -> tuple[_Asked, tuple[str, ...]]:
    """Each picture is embedded once, however many pairs are of it."""
    records = [record for record in data.records if record.positive]
    index = {image: row for row, image in enumerate(dict.fromkeys(r.image for r in records))}
    first = {record.image: record for record in reversed(records)}
    preprocess = options.preprocess or "retrieval"
    found = embedder.readable([data.picture(first[image], preprocess) for image in index])
    place = {int(row): at for at, row in enumerate(found.rows)}
    kept = [record for record in records if index[record.image] in place]
    picture = np.array([index[record.image] for record in kept], np.intp)
    images = found.points[[place[row] for row in picture]]
    right = embedder.text_points([record.positive for record in kept], "right captions")
    wrong = embedder.text_points([record.negative for record in kept], "wrong captions")
    better = np.empty(len(kept))
    for start in range(0, len(kept), _BLOCK):
        at = slice(start, start + _BLOCK)
        nearer = embedder.space.paired_similarity(right[at], images[at])
        better[at] = nearer - embedder.space.paired_similarity(wrong[at], images[at])
    return _Asked(kept, picture, better), found.left_out


KIND = Kind(
    name="pairs",
    about="a right caption against a hard wrong one, by kind (SugarCrepe)",
    applies=lambda data: "pairs" in data.families,
    protocol=protocol,
    measure=measure,
)
