"""The scan gives what a brute force in float64 gives, to the last tie."""

import threading

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import lorentz
from service.index import Index

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def brute_force(
    space: Floats, ids: list[str], query: Doubles, k: int, curvature: float
) -> list[tuple[str, float]]:
    points = lorentz.from_space(space.astype(np.float64), curvature)
    distances = lorentz.distance(query, points, curvature)
    ordered = sorted(zip(distances.tolist(), ids, strict=True))
    return [(id_, distance) for distance, id_ in ordered[:k]]


def found(index: Index, query: Doubles, k: int) -> list[tuple[str, float]]:
    return [(hit.id, hit.distance) for hit in index.nearest(query, k)]


def cloud(
    rng: np.random.Generator, count: int, dim: int, *, scale: float, clusters: int, spread: float
) -> Floats:
    """Points around a few centres, some of them the same."""
    centres = rng.normal(size=(clusters, dim)) * scale / dim**0.5
    space = centres[rng.integers(clusters, size=count)]
    space = space + rng.normal(size=(count, dim)) * spread / dim**0.5
    space[: count // 10] = space[count // 2 : count // 2 + count // 10]
    return np.asarray(space, np.float32)


@given(
    seed=st.integers(0, 2**32 - 1),
    dim=st.sampled_from([1, 2, 17, 128]),
    count=st.integers(1, 400),
    k=st.integers(1, 30),
    curvature=st.floats(0.05, 5),
    log_scale=st.floats(-3, 4),
    log_spread=st.floats(-6, 1),
    own=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_neighbours_are_those_of_a_float64_brute_force(
    *,
    seed: int,
    dim: int,
    count: int,
    k: int,
    curvature: float,
    log_scale: float,
    log_spread: float,
    own: bool,
) -> None:
    rng = np.random.default_rng(seed)
    space = cloud(rng, count, dim, scale=10**log_scale, clusters=5, spread=10**log_spread)
    ids = [f"{number:x}" for number in rng.permutation(count)]
    index = Index(dim, curvature)
    index.put(ids, space)
    start = space[rng.integers(count)].astype(np.float64)
    query = lorentz.from_space(start if own else start + rng.normal(size=dim) * 1e-5, curvature)
    assert found(index, query, k) == brute_force(space, ids, query, k, curvature)


@pytest.mark.parametrize("radius", [0.5, 3.0, 30.0])
def test_near_duplicates_come_in_their_true_order(radius: float) -> None:
    rng = np.random.default_rng(1)
    dim, count = 512, 3000
    space = cloud(rng, count, dim, scale=radius, clusters=1, spread=1e-4)
    ids = [f"{number:05}" for number in range(count)]
    index = Index(dim, 1.0)
    index.put(ids, space)
    points = lorentz.from_space(space.astype(np.float64), 1.0)
    rounded = points.astype(np.float32)
    for query in points[:20]:
        scores = rounded @ lorentz.mirror(query.astype(np.float32))
        naive = {ids[row] for row in np.argsort(-scores)[:10]}
        true = brute_force(space, ids, query, 10, 1.0)
        assert found(index, query, 10) == true
        if radius > 1:  # what this guards against does happen here
            assert naive != {id_ for id_, _ in true}


def test_equal_distances_are_in_the_order_of_their_ids() -> None:
    index = Index(3, 1.0)
    space = np.tile(np.array([[0.3, -0.2, 0.9]], np.float32), (200, 1))
    ids = [f"{number:03}" for number in range(200)]
    index.put(ids[::-1], space)
    query = lorentz.from_space(np.array([1.0, 2.0, 3.0]), 1.0)
    assert [hit.id for hit in index.nearest(query, 7)] == ids[:7]


def test_a_point_is_at_distance_zero_from_itself() -> None:
    space = np.random.default_rng(2).normal(size=(50, 8)).astype(np.float32)
    index = Index(8, 0.3)
    index.put([str(row) for row in range(50)], space)
    for row in range(50):
        (hit,) = index.nearest(lorentz.from_space(space[row].astype(np.float64), 0.3), 1)
        assert (hit.id, hit.distance) == (str(row), 0.0)


def test_one_far_point_does_not_spoil_the_bound_for_the_others() -> None:
    rng = np.random.default_rng(3)
    space = rng.normal(size=(500, 16)).astype(np.float32)
    space[0] *= 1e12
    ids = [f"{number:03}" for number in range(500)]
    index = Index(16, 1.0)
    index.put(ids, space)
    query = lorentz.from_space(space[7].astype(np.float64), 1.0)
    assert found(index, query, 500) == brute_force(space, ids, query, 500, 1.0)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=60))
@settings(deadline=None)
def test_what_was_deleted_or_moved_is_not_found_where_it_was(steps: list[tuple[bool, int]]) -> None:
    rng = np.random.default_rng(4)
    index, stored = Index(4, 1.0), dict[str, Floats]()
    for put, number in steps:
        if put:
            stored[str(number)] = rng.normal(size=4).astype(np.float32)
            index.put([str(number)], stored[str(number)][None])
        else:
            stored.pop(str(number), None)
            index.delete([str(number)])
    query = lorentz.from_space(rng.normal(size=4), 1.0)
    assert len(index) == len(stored)
    space = np.array(list(stored.values()), np.float32).reshape(-1, 4)
    assert found(index, query, 20) == brute_force(space, list(stored), query, 20, 1)


def test_deleting_most_of_many_points_leaves_the_rest_to_be_found() -> None:
    space = np.random.default_rng(5).normal(size=(5000, 4)).astype(np.float32)
    ids = [f"{number:04}" for number in range(5000)]
    index = Index(4, 1.0)
    for start in range(0, 5000, 700):
        index.put(ids[start : start + 700], space[start : start + 700])
    for start in range(0, 4900, 350):
        index.delete(ids[start : start + 350])
    index.put(ids[4900:4950], space[:50])
    now = np.concatenate([space[:50], space[4950:]])
    query = lorentz.from_space(space[3].astype(np.float64), 1.0)
    assert found(index, query, 30) == brute_force(now, ids[4900:], query, 30, 1.0)


def test_a_search_during_writes_sees_every_item_that_stays() -> None:
    rng = np.random.default_rng(6)
    index = Index(8, 1.0)
    stay = [f"stay{number}" for number in range(50)]
    space = rng.normal(size=(50, 8)).astype(np.float32)
    index.put(stay, space)
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            index.put(stay, space)  # moved in place: never absent
            index.put([f"x{number}"], 9 + rng.normal(size=(1, 8)).astype(np.float32))
            index.delete([f"x{number - 3}"])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    query = lorentz.from_space(np.zeros(8), 1.0)
    while not done.is_set():
        assert {hit.id for hit in index.nearest(query, 50)} == set(stay)
    writer.join()


def test_an_empty_index_finds_nothing() -> None:
    assert Index(2, 1.0).nearest(np.array([1.0, 0.0, 0.0]), 5) == []
