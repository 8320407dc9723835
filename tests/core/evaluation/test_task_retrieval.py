"""Retrieval both ways, and where several answers are right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import DataError
from core.evaluation.dataset import open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.metrics import chance_of_map_at_r, map_at_r, r_precision
from core.evaluation.records import Record
from core.evaluation.retrieval import places_of_right, rank, retrieval
from core.evaluation.statistics import compute
from core.evaluation.task import Options
from core.evaluation.tasks.retrieval import KIND, distinct_pictures, recalls_as_measures
from core.evaluation.weighted import weighted
from core.spaces import Euclidean, Lorentz, Product, Space

Colours = Callable[..., Any]
Embed = Callable[..., Embedder]

SPACES = (
    Euclidean(),
    Lorentz(0.7),
    Lorentz(0.7, "angle"),
    Product(np.array([0.5, 1.0]), "l1"),
    Product(np.array([0.5, 1.0]), "l2"),
)


def name_of(space: Space) -> str:
    return f"{type(space).__name__}{getattr(space, 'score', '')}{getattr(space, 'norm', '')}"


def test_a_model_that_knows_finds_everything_both_ways(
    data: Path, colours: Colours, embed: Embed
) -> None:
    finding = KIND.measure(embed(colours()), open_dataset(data), Options())
    value = {(measure.group, measure.name): measure for measure in finding.measures}
    assert [name for group, name in value if group == "text to image"] == [
        "R@1", "R@5", "R@10", "median rank",
    ]  # fmt: skip
    for group in ("text to image", "image to text", "average"):
        assert value[group, "R@1"].value == value[group, "R@10"].value == 1
        assert value[group, "R@1"].chance == pytest.approx(1 / 3)
        assert value[group, "R@10"].chance == 1
    assert value["image to text", "median rank"].value == 1
    assert finding.details["recall_curve"]["text to image"] == [[1, 1], [2, 1], [3, 1]]
    assert finding.left_out == ()


def test_every_headline_can_be_computed_from_its_outcomes(
    data: Path, colours: Colours, embed: Embed
) -> None:
    data.write_text(
        '{"image": "red.png", "captions": ["all blue", "green"]}\n'
        '{"image": "green.png", "captions": ["green"]}\n'
        '{"image": "blue.png", "captions": []}',
        encoding="utf-8",
    )
    finding = KIND.measure(embed(colours()), open_dataset(data), Options())
    headlines = [measure for measure in finding.measures if measure.is_headline]
    assert [measure.name for measure in headlines] == [*["R@1", "R@5", "R@10"] * 2, "R@1", "R@10"]
    for measure in headlines:
        assert measure.outcomes is not None
        assert compute(measure.outcomes) == pytest.approx(measure.value, abs=1e-12)
    texts, images = headlines[0], headlines[3]
    assert texts.value == pytest.approx(1 / 3)
    assert texts.outcomes is not None
    assert texts.outcomes.cluster.tolist() == [0, 0, 1]
    assert images.count == 2  # a picture without a caption is never asked for one
    assert images.value == 0  # two equal captions, one of them another's: the wrong one is first


def test_records_of_one_picture_are_one_picture(data: Path, colours: Colours, embed: Embed) -> None:
    data.write_text(
        '{"image": "red.png", "captions": ["red"]}\n'
        '{"image": "green.png", "captions": ["green"]}\n'
        '{"image": "red.png", "captions": ["red red"]}\n'
        '{"image": "blue.png", "captions": ["blue"]}',
        encoding="utf-8",
    )
    finding = KIND.measure(embed(colours()), open_dataset(data), Options())
    value = {(measure.group, measure.name): measure for measure in finding.measures}
    texts, images = value["text to image", "R@1"], value["image to text", "R@1"]
    assert texts.chance == pytest.approx(1 / 3)
    assert (texts.value, texts.count) == (1, 4)
    assert (images.value, images.count) == (1, 3)
    assert texts.outcomes is not None
    assert texts.outcomes.cluster.tolist() == [0, 0, 1, 3]  # of the first record of each


def test_pictures_of_other_proportions_stay_apart() -> None:
    records = [
        Record(image=Path("a"), captions=(str(row),), caption_ids=(row,), orig_size=size)
        for row, size in enumerate([(2, 1), None, (2, 1)])
    ]
    merged, first = distinct_pictures(records)
    assert [(record.captions, record.caption_ids) for record in merged] == [
        (("0", "2"), (0, 2)),
        (("1",), (1,)),
    ]
    assert first.tolist() == [0, 1]


def test_the_average_of_both_ways_is_half_and_half_in_every_draw() -> None:
    random = np.random.default_rng(0)
    space = Euclidean()
    owner = np.repeat(np.arange(20), [1, 5] * 10)
    images = space.lift(random.normal(size=(20, 3)))
    texts = space.lift(images[owner] + 0.3 * random.normal(size=(len(owner), 3)))
    measures = recalls_as_measures(retrieval(images, texts, owner, space), owner, np.arange(20))
    counts = random.multinomial(20, np.full(20, 1 / 20), 50).astype(float)
    drawn = {
        measure.group: weighted(measure.outcomes)(counts)
        for measure in measures
        if measure.name == "R@1" and measure.outcomes is not None
    }
    both = (drawn["text to image"] + drawn["image to text"]) / 2
    assert drawn["average"] == pytest.approx(both)


def test_a_picture_that_cannot_be_read_leaves_with_its_captions(
    data: Path, colours: Colours, embed: Embed
) -> None:
    (data.parent / "red.png").write_bytes(b"no picture")
    finding = KIND.measure(embed(colours()), open_dataset(data), Options())
    (why,) = finding.left_out
    assert "red.png" in why
    recall = finding.measures[0]
    assert (recall.value, recall.chance, recall.count) == (1, 0.5, 2)
    assert recall.outcomes is not None
    assert recall.outcomes.cluster.tolist() == [1, 2]


def test_when_no_picture_with_a_caption_is_left_the_first_that_cannot_be_read_is_named(
    data: Path, colours: Colours, embed: Embed
) -> None:
    data.write_text(
        '{"image": "none.png", "captions": ["red"]}\n{"image": "green.png"}', encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"no picture that has a caption can be read; .*none\.png"):
        KIND.measure(embed(colours()), open_dataset(data), Options())


@pytest.mark.parametrize("space", SPACES, ids=name_of)
def test_ranks_are_those_of_the_similarities_across_tiles(space: Space) -> None:
    random = np.random.default_rng(0)
    owner = random.integers(0, 299, 1_300)  # of 300 pictures, the last without a text
    tangents = 0.3 * random.normal(size=(300, 6))
    images = space.lift(tangents)
    texts = space.lift(tangents[owner] + 0.3 * random.normal(size=(1_300, 6)))
    similarity = space.similarity(space.restore(texts), space.restore(images))
    is_own = owner[:, None] == np.arange(300)
    own = similarity[np.arange(1_300), owner]
    nearest_own = np.where(is_own, similarity, -np.inf).max(axis=0)
    ranks = rank(images, texts, owner, space)
    before = ((similarity > own[:, None]) & ~is_own).sum(axis=1)
    assert ranks.images_before.tolist() == before.tolist()
    before = ((similarity > nearest_own) & ~is_own).sum(axis=0)
    assert ranks.texts_before[:299].tolist() == before[:299].tolist()
    assert ranks.own[299] == 0
    assert ranks.own.sum() == 1_300


@pytest.mark.parametrize("space", SPACES, ids=name_of)
def test_a_model_that_sends_everything_to_one_point_ranks_the_right_last(space: Space) -> None:
    same = space.lift(np.full((200, 6), 0.3))
    ranks = rank(same, same, range(200), space)
    assert set(ranks.images_before) == set(ranks.texts_before) == {199}
    (places, *_) = places_of_right(same, same, [np.arange(3)] * 200, space, "images")
    assert places.tolist() == [197, 198, 199]


@pytest.mark.parametrize("space", SPACES, ids=name_of)
def test_one_far_picture_does_not_make_others_tie(space: Space) -> None:
    random = np.random.default_rng(0)
    near = 0.3 * random.normal(size=(100, 6))
    far = near.copy()
    far[0] *= 40 / np.linalg.norm(far[0])
    texts = space.lift(0.9 * near)
    right = [np.array([row]) for row in range(100)]
    before = rank(space.lift(near), texts, range(100), space)
    after = rank(space.lift(far), texts, range(100), space)
    # The far one itself may be as near as another, within the rounding of its own pairs.
    assert (after.images_before - before.images_before)[1:].max() <= 1
    assert after.texts_before[1:].tolist() == before.texts_before[1:].tolist()
    for queries in ("images", "texts"):
        places = places_of_right(space.lift(far), texts, right, space, queries)
        known = after.texts_before if queries == "images" else after.images_before
        assert [place.item() for place in places] == known.tolist()


@pytest.mark.parametrize("space", SPACES, ids=name_of)
@pytest.mark.parametrize("queries", ["images", "texts"])
def test_places_of_right_answers_are_those_in_the_sorted_list(space: Space, queries: Any) -> None:
    random = np.random.default_rng(1)
    images, texts = (space.lift(random.normal(size=(count, 6))) for count in (150, 140))
    similarity = space.similarity(texts, images)
    rows = similarity.T if queries == "images" else similarity
    right = [random.choice(rows.shape[1], 1 + row % 7, replace=False) for row in range(len(rows))]
    found = places_of_right(images, texts, right, space, queries)
    for row, own, places in zip(rows, right, found, strict=True):
        in_order = np.argsort(-row)
        assert places.tolist() == np.flatnonzero(np.isin(in_order, own)).tolist()


def test_precision_at_r_counts_what_stands_among_the_r_nearest() -> None:
    # By hand: right at ranks 1, 3 and 9 of which R = 3 are looked at.
    places = np.array([0, 2, 8])
    assert r_precision(places) == pytest.approx(2 / 3)
    assert map_at_r(places) == pytest.approx((1 / 1 + 2 / 3) / 3)
    assert r_precision(np.arange(4)) == map_at_r(np.arange(4)) == 1
    assert r_precision(np.array([5, 6])) == map_at_r(np.array([5, 6])) == 0


def test_the_chance_of_map_at_r_is_its_mean_over_random_orders() -> None:
    random = np.random.default_rng(0)
    drawn = [
        map_at_r(np.sort(random.choice(10, 4, replace=False))) for _ in range(20_000)
    ]  # a standard error of 0.001
    assert np.mean(drawn) == pytest.approx(chance_of_map_at_r(10, 4), abs=0.006)
    assert chance_of_map_at_r(5, 5) == 1


def test_recalls_rise_with_k() -> None:
    random = np.random.default_rng(2)
    space = Lorentz(1.0)
    images, texts = (space.lift(random.normal(size=(60, 3))) for _ in range(2))
    found = retrieval(images, texts, range(60), space, range(1, 61))
    shares = [found.text_to_image[k] for k in range(1, 61)]
    assert shares == sorted(shares)
    assert shares[-1] == 1
