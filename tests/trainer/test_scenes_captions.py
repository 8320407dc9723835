"""The English of the demo data: grammar, and truth about the picture."""

import random
import re
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.queries import build_queries
from trainer.scenes import art
from trainer.scenes.captions import (
    caption,
    ground,
    noun_phrase,
    phrases,
    relations_of,
    size_word,
)
from trainer.scenes.compose import KINDS, Backdrop, Box, Group, Scene
from trainer.scenes.write import SceneSettings, scenes_of

THINGS = {thing.name: thing for thing in art.catalogue()}
SIDE = 64


def scene_of(*groups: Group, backdrop: Backdrop | None = None) -> Scene:
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    return Scene(pixels, groups, backdrop or Backdrop("plain", ("blue",)))


def boxes_strategy() -> st.SearchStrategy[Box]:
    return st.tuples(
        st.integers(0, 40), st.integers(0, 40), st.integers(8, 24), st.integers(8, 24)
    ).map(lambda v: (v[0], v[1], v[0] + v[2], v[1] + v[3]))


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("cat", 1, "a cat"),
        ("sheep", 3, "three sheep"),
        ("mouse", 2, "two mice"),
        ("fish", 5, "five fish"),
        ("maple leaf", 2, "two maple leaves"),
        ("kitchen knife", 2, "two kitchen knives"),
        ("strawberry", 4, "four strawberries"),
        ("bus", 2, "two buses"),
        ("cup of coffee", 2, "two cups of coffee"),
        ("scissors", 1, "a pair of scissors"),
        ("glasses", 2, "two pairs of glasses"),
        ("popcorn", 1, "some popcorn"),
        ("broccoli", 3, "three pieces of broccoli"),
    ],
)
def test_a_name_takes_the_form_of_its_count(name: str, count: int, expected: str) -> None:
    assert noun_phrase(THINGS[name], count) == expected


def test_a_size_word_is_said_when_it_is_true_of_every_box() -> None:
    small, large = (0, 0, 10, 8), (20, 20, 60, 50)
    assert size_word((small, small), SIDE) == "small"
    assert size_word((large,), SIDE) == "large"
    assert size_word((small, large), SIDE) is None


@given(one=boxes_strategy(), other=boxes_strategy())
def test_a_spatial_word_is_true_of_the_boxes(one: Box, other: Box) -> None:
    words = relations_of(Group(THINGS["cat"], (one,)), Group(THINGS["dog"], (other,)), SIDE)
    centre = [(box[0] + box[2], box[1] + box[3]) for box in (one, other)]
    if "above" in words:
        assert one[3] <= other[1] + 1
        assert centre[0][1] < centre[1][1]
    if "to the left of" in words:
        assert one[2] <= other[0] + 1
        assert centre[0][0] < centre[1][0]
    assert not {"above", "below"} <= set(words)
    assert not {"to the left of", "to the right of"} <= set(words)
    assert not ({"above", "below"} & set(words) and "next to" in words)


@given(one=boxes_strategy(), other=boxes_strategy())
def test_a_spatial_word_turns_round_with_its_things(one: Box, other: Box) -> None:
    opposite = {
        "above": "below",
        "below": "above",
        "to the left of": "to the right of",
        "to the right of": "to the left of",
        "next to": "next to",
    }
    cat, dog = Group(THINGS["cat"], (one,)), Group(THINGS["dog"], (other,))
    there, back = relations_of(cat, dog, SIDE), relations_of(dog, cat, SIDE)
    assert {opposite[word] for word in there} == set(back)


def test_an_exact_caption_names_every_thing_with_its_count_and_the_background() -> None:
    for rng, scene in islice(scenes_of(SceneSettings(), "val", 0), 300):
        text = caption(rng, scene, is_exact=True)
        for group in scene.groups:
            count = len(group.boxes)
            sized = [noun_phrase(group.thing, count, word) for word in (None, "small", "large")]
            assert any(phrase.lower() in text.lower() for phrase in sized), text
        assert all(colour in text for colour in scene.backdrop.colours)


def test_what_a_second_sentence_says_of_places_is_true_of_the_boxes() -> None:
    said = 0
    for rng, scene in islice(scenes_of(SceneSettings(), "train", 0), 400):
        text = caption(rng, scene, is_exact=True)
        found = re.search(
            r"\. The (.+) (?:is|are) (above|below|to the (?:left|right) of|next to) the (.+)\.$",
            text,
        )
        if not found:
            continue
        groups = {
            name: group
            for group in scene.groups
            for name in (group.thing.name, group.thing.plural, f"pieces of {group.thing.name}")
        }
        one, word, other = found.groups()
        assert word in relations_of(groups[one], groups[other], SIDE), text
        said += 1
    assert said > 20


def test_the_verb_agrees_with_what_follows_or_precedes_it() -> None:
    pair, many = (
        Group(THINGS["scissors"], ((0, 0, 20, 20),)),
        Group(THINGS["cat"], ((0, 40, 20, 60), (40, 40, 60, 60))),
    )
    for seed in range(80):
        text = caption(random.Random(seed), scene_of(pair, many), is_exact=True)
        assert "scissors is" not in text
        assert "cats is" not in text
        assert not re.search(r"there is two", text, re.IGNORECASE)
        assert not re.search(r"there are a ", text, re.IGNORECASE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_starts_with_a_capital_and_ends_with_a_full_stop(kind: str) -> None:
    group = Group(THINGS["orange book"], ((0, 0, 30, 30),))
    colours = ("orange",) if kind in {"plain", "noise"} else ("orange", "blue")
    for seed in range(40):
        scene = scene_of(group, backdrop=Backdrop(kind, colours))
        for sentence in caption(random.Random(seed), scene, is_exact=True).split(". "):
            assert sentence[0].isupper()
        assert "a orange" not in ground(scene.backdrop)


def test_the_order_of_things_is_shuffled() -> None:
    cat, dog = Group(THINGS["cat"], ((0, 0, 20, 20),)), Group(THINGS["dog"], ((40, 40, 60, 60),))
    texts = [caption(random.Random(s), scene_of(cat, dog), is_exact=True) for s in range(60)]
    first = [text.index("cat") < text.index("dog") for text in texts]
    assert 15 < sum(first) < 45


def test_three_phrases_in_ten_are_the_bare_name_or_a_photo_of_it() -> None:
    group = Group(THINGS["owl"], tuple((0, 0, 10, 10) for _ in range(1000)))
    texts = phrases(random.Random(0), group, SIDE, is_exact=True)
    assert 0.25 < np.mean([text in {"owl", "a photo of an owl"} for text in texts]) < 0.35
    assert set(texts) == {"owl", "a photo of an owl", "an owl", "a small owl"}


def test_a_general_phrase_is_the_group_or_the_kingdom_of_the_thing() -> None:
    group = Group(THINGS["lemon"], tuple((0, 0, 25, 25) for _ in range(500)))
    texts = set(phrases(random.Random(0), group, SIDE, is_exact=False))
    assert texts == {"lemon", "a photo of a lemon", "a lemon", "a kind of fruit", "some food"}


def test_a_caption_gives_the_query_hierarchy_phrases_of_its_own() -> None:
    found = 0
    for rng, scene in islice(scenes_of(SceneSettings(), "train", 1), 100):
        nodes = build_queries(caption(rng, scene, is_exact=False), [])
        found += any(node.kind == "phrase" for node in nodes)
    assert found > 50
