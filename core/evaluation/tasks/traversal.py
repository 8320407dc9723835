"""What is said along a path: from a picture to the root, and from one picture to another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from core import lorentz
from core.evaluation.blocks import each_block
from core.evaluation.dataset import Dataset
from core.evaluation.embedder import Embedder, Points
from core.evaluation.measure import Finding, Measure
from core.evaluation.records import Record
from core.evaluation.task import Kind, Options
from core.spaces import Euclidean, Lorentz, Product, Space

STEPS = 50
ROOT = "[root]"
MAX_PICTURES = 500
MAX_TEXTS = 5_000
_SHOWN = 20
_INTERPOLATED = 10

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Pool:
    """The texts that a path can meet."""

    texts: list[str]
    points: Points
    apertures: npt.NDArray[np.float64] | None
    """Half apertures of their cones; None where there are none."""
    radii: npt.NDArray[np.float64] | None


@dataclass(frozen=True)
class _Walk:
    """What one path met: runs of the same text, from the picture inwards."""

    text: list[int]
    """Rows of the pool; -1 is the root."""
    at: list[float]
    """Where each run begins: 1 is the picture, 0 the root."""


def protocol(_data: Dataset, options: Options) -> dict[str, Any]:
    """The path, what is met on it, and how much is walked."""
    return {
        "preprocess": options.preprocess or "classification",
        "path": f"{STEPS} equally spaced points of the tangent segment from the picture to the "
        "root, which is the origin; on the sphere, the centre of pictures and texts",
        "met": "of the texts whose cone holds the point the nearest, or the root where that is "
        "nearer; on the sphere there are no cones",
        "pool": f"the first {MAX_TEXTS} distinct captions and levels of the data",
        "pictures": f"the first {MAX_PICTURES}",
        "interpolation": f"{STEPS} equally spaced points of the geodesic; the nearest text",
    }


def measure(embedder: Embedder, data: Dataset, options: Options) -> Finding:
    """Paths of MERU (arXiv:2304.09172, section 5) with figures over all of them.

    ``details["traversals"]`` holds of the first pictures ``picture`` and ``steps``, each with
    ``text``, ``at`` (1 the picture, 0 the root) and ``radius``; ``details["interpolations"]`` of
    a few drawn pairs ``from``, ``to`` and ``steps`` with ``at`` from 0 to 1; ``details["pool"]``
    how many texts there were.
    """
    records = [record for record in data.records if _said(record)]
    texts = list(dict.fromkeys(text for record in records for text in _said(record)))[:MAX_TEXTS]
    records = records[:MAX_PICTURES]
    preprocess = options.preprocess or "classification"
    found = embedder.pictures([data.picture(record, preprocess) for record in records])
    read = [row for row in range(len(records)) if row not in found.faults]
    records = [records[row] for row in read]
    tangents = found.tangents[read].astype(np.float64)
    text_tangents = embedder.texts(texts).astype(np.float64)
    space = _by_distance(embedder.space)
    pool = _pool(texts, text_tangents, space)
    root = _root(tangents, text_tangents, space)
    walks = _walk_all(embedder, tangents, root, pool, space)
    chosen = _pairs(len(records), options.seed)
    points = space.lift(tangents)
    details = {
        "traversals": [
            {"picture": record.id, "steps": _steps(walk, pool)}
            for record, walk in list(zip(records, walks, strict=True))[:_SHOWN]
        ],
        "interpolations": [
            {
                "from": records[a].id,
                "to": records[b].id,
                "steps": _steps(_between(points[a], points[b], pool, space), pool),
            }
            for a, b in chosen
        ],
        "pool": len(texts),
    }
    return Finding(tuple(_figures(records, walks, pool)), details, tuple(found.faults.values()))


def _said(record: Record) -> tuple[str, ...]:
    return record.captions + record.levels


def _by_distance(space: Space) -> Space:
    """The space with what is near measured by distance: every angle at the root is 0."""
    return replace(space, score="distance") if isinstance(space, Lorentz) else space


def _pool(texts: list[str], tangents: Points, space: Space) -> _Pool:
    points = space.lift(tangents)
    if isinstance(space, Euclidean):
        return _Pool(texts, points, None, None)
    return _Pool(texts, points, space.half_aperture(points), space.radius(points))


def _root(tangents: Points, text_tangents: Points, space: Space) -> Points:
    """The tangent where paths end, ``(dim,)``."""
    if isinstance(space, Euclidean):
        everything = np.concatenate([tangents, text_tangents])
        centre: Points = space.centre(everything[None])[0]
        return centre
    return np.zeros(tangents.shape[-1])


def _walk_all(
    embedder: Embedder, tangents: Points, root: Points, pool: _Pool, space: Space
) -> list[_Walk]:
    task = embedder.progress.add_task("paths", total=len(tangents))

    def walk(row: int) -> _Walk:
        found = _walk(tangents[row], root, pool, space)
        embedder.progress.advance(task)
        return found

    if isinstance(space, Euclidean):
        tangents = space.lift(tangents)
    walks = list(each_block(walk, range(len(tangents))))
    embedder.progress.remove_task(task)
    return walks


def _walk(tangent: Points, root: Points, pool: _Pool, space: Space) -> _Walk:
    """The texts met from one picture to the root."""
    at = np.linspace(1, 0, STEPS)
    path = space.lift(at[:, None] * tangent + (1 - at[:, None]) * root)
    nearness = space.ranking(pool.points, path)
    to_root = space.ranking(space.lift(root[None]), path)[0]
    if pool.apertures is not None and not isinstance(space, Euclidean):
        near = np.flatnonzero((nearness > to_root).any(axis=1))  # no other can be met
        angle = space.pairwise_exterior_angle(pool.points[near], path)
        outside = angle > pool.apertures[near, None]
        nearness[near] = np.where(outside, -np.inf, nearness[near])
    met = np.where(to_root >= nearness.max(axis=0), -1, nearness.argmax(axis=0))
    met[-1] = -1
    return _runs(met, at)


def _runs(met: Indices, at: npt.NDArray[np.float64]) -> _Walk:
    runs = [next(run) for _, run in groupby(range(len(met)), key=lambda step: int(met[step]))]
    return _Walk([int(met[step]) for step in runs], [float(at[step]) for step in runs])


def _between(a: Points, b: Points, pool: _Pool, space: Space) -> _Walk:
    """The nearest texts from one picture to another, ``at`` from 0 to 1."""
    at = np.linspace(0, 1, STEPS)
    path = geodesic(a, b, at, space)
    return _runs(space.ranking(pool.points, path).argmax(axis=0), at)


def geodesic(a: Points, b: Points, at: npt.NDArray[np.float64], space: Space) -> Points:
    """The points of the shortest way from ``a``, at 0, to ``b``, at 1.

    ``(sinh((1 - t) √c d) a + sinh(t √c d) b) / sinh(√c d)``, on the sphere with sines; in a
    product, of each factor.
    """
    t = at.reshape(-1, *[1] * (a.ndim - 1))
    if isinstance(space, Euclidean):
        length = np.arccos(np.clip(a @ b, -1, 1))
        wave: Any = np.sin
    else:
        length = _scaled_distance(a, b, space)
        wave = np.sinh
    apart = length > 0
    safe = np.where(apart, length, 1.0)
    start = np.where(apart, wave((1 - t) * safe) / wave(safe), 1 - t)
    end = np.where(apart, wave(t * safe) / wave(safe), t)
    points: Points = space.restore(start[..., None] * a + end[..., None] * b)
    return points


def _scaled_distance(a: Points, b: Points, space: Lorentz[Any] | Product[Any]) -> Any:
    return np.sqrt(space.curvature) * lorentz.distance(a, b, space.curvature)


def _pairs(pictures: int, seed: int) -> list[tuple[int, int]]:
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(pictures)[:2] for _ in range(_INTERPOLATED * (pictures > 1))]
    return [(int(a), int(b)) for a, b in drawn]


def _steps(walk: _Walk, pool: _Pool) -> list[dict[str, Any]]:
    def radius(row: int) -> float | None:
        if pool.radii is None:
            return None
        return 0.0 if row < 0 else round(float(pool.radii[row]), 4)

    return [
        {"text": ROOT if row < 0 else pool.texts[row], "at": round(at, 4), "radius": radius(row)}
        for row, at in zip(walk.text, walk.at, strict=True)
    ]


def _figures(records: Sequence[Record], walks: Sequence[_Walk], pool: _Pool) -> list[Measure]:
    index = {text: row for row, text in enumerate(pool.texts)}
    met = [[row for row in walk.text if row >= 0] for walk in walks]
    own = [{index.get(text) for text in _said(record)} for record in records]
    begins = [walk.text[0] in mine for walk, mine in zip(walks, own, strict=True)]
    group, count = "from picture to root", len(walks)
    measures = [
        Measure(
            group, "texts on a path", _mean([len(set(r)) for r in met]), None, count, unit="number"
        ),
        Measure(group, "paths that meet no text", _mean([not r for r in met]), None, count,
                is_lower_better=True),
        Measure(group, "paths that begin at an own caption", _mean(begins), None, count),
    ]  # fmt: skip
    levelled = [(record, set(rows)) for record, rows in zip(records, met, strict=True)]
    shares = [
        _mean([index.get(level) in rows for level in dict.fromkeys(record.levels)])
        for record, rows in levelled
        if record.levels
    ]
    if shares:
        name = "own levels met on the way"
        measures.append(Measure(group, name, _mean(shares), None, len(shares)))
    if pool.radii is not None:
        long = [pool.radii[rows] for rows in met if len(rows) > 1]
        falls = [bool((np.diff(radii) < 0).all()) for radii in long]
        if falls:
            name = "paths of two texts or more whose radii only fall"
            measures.append(Measure(group, name, _mean(falls), None, len(falls)))
    return measures


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


KIND = Kind(
    name="traversal",
    about="the texts met from a picture to the root, and between two pictures",
    applies=lambda data: any(_said(record) for record in data.records),
    protocol=protocol,
    measure=measure,
)
