"""Points to nearest points, exactly: a flat scan in float32 that is certified in float64.

For one curvature the Lorentz product falls as the distance grows, so the scan is FAISS's inner
product of the stored points with the query, whose time is mirrored. Rounding can misorder near
neighbours, so what the scan gives is only a set of candidates:

Let q be the query, p a stored point, n = dim + 1, u = 2⁻²⁴ and gamma(j) = ju / (1 - ju). Space
coordinates are stored as float32, so the stored row differs from p in its time alone, by a
factor within 1 ± u; the query is rounded once more in every coordinate. A sum of n products in
any order, fused or not, errs by at most gamma(n) times the sum of their absolute values (Higham,
Accuracy and Stability of Numerical Algorithms, section 3.1). So the scanned score differs from
the true Lorentz product by at most

    gamma(n + 2) |q| |p|                                               (Euclidean norms)

and gamma(n + 4) leaves ample room for the float64 arithmetic below. A point at distance d has a
radius of at most r(q) + d, hence a norm of at most sqrt(cosh(2√c(r(q) + d)) / c): one outlier
does not spoil the bound. With d the k-th distance among the candidates, in float64, every true
neighbour scores at least

    floor = -cosh(√c d) / c - gamma(n + 4) |q| min(largest norm, the bound at d).

If the last candidate scored below the floor, none was missed; otherwise a second scan fetches
all that reach it. Either way the survivors are ordered by `core.lorentz.distance` in float64,
ties by id.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import faiss
import numpy as np
import numpy.typing as npt

from core import lorentz

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_UNIT_ROUNDOFF = 2.0**-24
_SPARE = 32  # fetched beyond k: most searches are then certified by the first scan
_RESCORED_AT_ONCE = 4096
_SMALLEST_CAPACITY = 1024


class Neighbour(NamedTuple):
    """One hit."""

    id: str
    distance: float
    point: Doubles
    """``(dim + 1,)``, time first."""


@dataclass(frozen=True)
class _Snapshot:
    """What one search sees. The arrays are longer than ``len(points)``; nobody writes below it."""

    points: Floats
    ids: list[str]
    alive: npt.NDArray[np.uint8] | None
    """One bit a row, lowest first; None where all live."""
    count: int
    largest_norm: float


class Index:
    """The points of a store, in memory. One thread may write while any number search.

    Args:
        dim: Of the space; a point has one more.
        curvature: c > 0.
    """

    def __init__(self, dim: int, curvature: float) -> None:
        self._curvature = curvature
        self._lock = threading.Lock()  # between writers
        self._points: Floats = np.empty((_SMALLEST_CAPACITY, dim + 1), np.float32)
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._alive: npt.NDArray[np.uint8] | None = None
        self._largest_norm = 0.0
        self._snapshot = self._publish()

    def __len__(self) -> int:
        return self._snapshot.count

    def put(self, ids: Sequence[str], space: Floats) -> None:
        """Add points, or move those whose id is there.

        Args:
            ids: All different.
            space: Their space coordinates, ``(n, dim)``.
        """
        with self._lock:
            self._kill([self._rows[id_] for id_ in ids if id_ in self._rows])
            points = lorentz.from_space(space.astype(np.float64), self._curvature)
            start = len(self._ids)
            self._reserve(start + len(ids))
            self._points[start : start + len(ids)] = points
            self._ids.extend(ids)
            self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))
            norms = np.linalg.vector_norm(points, axis=-1)
            self._largest_norm = max(self._largest_norm, float(norms.max(initial=0)))
            self._compact()
            self._snapshot = self._publish()

    def delete(self, ids: Sequence[str]) -> None:
        """Take points out; those that are not there are passed over."""
        with self._lock:
            self._kill([self._rows.pop(id_) for id_ in ids if id_ in self._rows])
            self._compact()
            self._snapshot = self._publish()

    def nearest(self, query: Doubles, k: int) -> list[Neighbour]:
        """The k nearest points, nearest first, equal distances in the order of their ids.

        Args:
            query: A point ``(dim + 1,)`` in float64, time first.
            k: At least 1; fewer come back where fewer are stored.
        """
        snapshot = self._snapshot
        k = min(k, snapshot.count)
        if k == 0:
            return []
        faiss.omp_set_num_threads(1)  # a setting of the calling thread
        mirrored = lorentz.mirror(query).astype(np.float32)
        rows, scores = _best(snapshot, mirrored, min(k + _SPARE, snapshot.count))
        distances = self._distances(snapshot, query, rows)
        kth = float(np.partition(distances, k - 1)[k - 1])
        floor = self._floor(query, kth, snapshot.largest_norm)
        if len(rows) < snapshot.count and float(scores[-1]) >= floor:
            rows = _at_least(snapshot, mirrored, floor)
            distances = self._distances(snapshot, query, rows)
            kth = float(np.partition(distances, k - 1)[k - 1])
        near = np.flatnonzero(distances <= kth)
        found = sorted((float(distances[at]), snapshot.ids[rows[at]], int(rows[at])) for at in near)
        return [
            Neighbour(id_, distance, self._exact(snapshot, row)) for distance, id_, row in found[:k]
        ]

    def _floor(self, query: Doubles, kth: float, largest_norm: float) -> float:
        """The lowest score that a point within ``kth`` of the query can have in the scan."""
        root = math.sqrt(self._curvature)
        reach = float(lorentz.radius(query, self._curvature)) + kth
        norm = min(largest_norm, math.sqrt(math.cosh(2 * root * reach)) / root)
        terms = len(query) + 4
        gamma = terms * _UNIT_ROUNDOFF / (1 - terms * _UNIT_ROUNDOFF)
        error = gamma * float(np.linalg.vector_norm(query)) * norm
        return -math.cosh(root * kth) / self._curvature - error

    def _distances(self, snapshot: _Snapshot, query: Doubles, rows: Rows) -> Doubles:
        parts = [
            lorentz.distance(
                query, self._exact(snapshot, rows[at : at + _RESCORED_AT_ONCE]), self._curvature
            )
            for at in range(0, len(rows), _RESCORED_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _exact(self, snapshot: _Snapshot, rows: Rows | int) -> Doubles:
        """Stored points with their time taken anew from the space coordinates, in float64."""
        space = snapshot.points[rows, 1:].astype(np.float64)
        return lorentz.from_space(space, self._curvature)

    def _reserve(self, size: int) -> None:
        capacity = len(self._points)
        if size > capacity:
            grown = max(2 * capacity, size)
            self._points = _resized(self._points, grown)  # a snapshot keeps the old array
        if self._alive is not None and len(self._points) > 8 * len(self._alive):
            missing = -(-len(self._points) // 8) - len(self._alive)
            self._alive = np.concatenate([self._alive, np.full(missing, 255, np.uint8)])

    def _kill(self, rows: list[int]) -> None:
        if not rows:
            return
        if self._alive is None:
            self._alive = np.full(-(-len(self._points) // 8), 255, np.uint8)
        alive = self._alive.copy()  # a snapshot keeps the old bits
        dead = np.asarray(rows)
        np.bitwise_and.at(alive, dead >> 3, ~(1 << (dead & 7)).astype(np.uint8))
        self._alive = alive

    def _compact(self) -> None:
        """Leave dead rows behind once they are the most."""
        if len(self._ids) < max(_SMALLEST_CAPACITY, 2 * len(self._rows)):
            return
        kept = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        points = self._points[kept]
        self._points = _resized(points, max(_SMALLEST_CAPACITY, len(kept)))
        self._ids = list(self._rows)
        self._rows = {id_: row for row, id_ in enumerate(self._ids)}
        self._alive = None
        norms = np.linalg.vector_norm(points.astype(np.float64), axis=-1)
        self._largest_norm = float(norms.max(initial=0)) * (1 + 4 * _UNIT_ROUNDOFF)

    def _publish(self) -> _Snapshot:
        points = self._points[: len(self._ids)]
        return _Snapshot(points, self._ids, self._alive, len(self._rows), self._largest_norm)


def _best(snapshot: _Snapshot, mirrored: Floats, count: int) -> tuple[Rows, Floats]:
    """Rows of the highest scores, highest first, and the scores."""
    scores, rows = np.empty(count, np.float32), np.empty(count, np.int64)
    points = snapshot.points
    faiss.knn_inner_product(
        faiss.swig_ptr(mirrored), faiss.swig_ptr(points), points.shape[1], 1, len(points),
        count, faiss.swig_ptr(scores), faiss.swig_ptr(rows), _selector(snapshot),
    )  # fmt: skip
    return rows, scores


def _at_least(snapshot: _Snapshot, mirrored: Floats, floor: float) -> Rows:
    """Rows of all scores that reach a floor."""
    below = np.nextafter(np.float32(floor), np.float32(-np.inf))  # the library compares by >
    result = faiss.RangeSearchResult(1)
    points = snapshot.points
    faiss.range_search_inner_product(
        faiss.swig_ptr(mirrored), faiss.swig_ptr(points), points.shape[1], 1, len(points),
        float(below), result, _selector(snapshot),
    )  # fmt: skip
    count = int(faiss.rev_swig_ptr(result.lims, 2)[1])
    rows: Rows = faiss.rev_swig_ptr(result.labels, count).copy()
    return rows


def _selector(snapshot: _Snapshot) -> Any:
    """What tells FAISS the living rows; it borrows the snapshot's bits."""
    if snapshot.alive is None:
        return None
    # The wrapper takes an array; the annotations are those of the constructor underneath.
    return faiss.IDSelectorBitmap(snapshot.alive)  # type: ignore[call-arg, arg-type]


def _resized(points: Floats, capacity: int) -> Floats:
    larger = np.empty((capacity, points.shape[1]), np.float32)
    larger[: len(points)] = points
    return larger
