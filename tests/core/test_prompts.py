"""English articles."""

import pytest

from core.prompts import article, fill, with_article


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("apple", "an"),
        ("red apple", "a"),
        ("dog", "a"),
        ("hot dog", "a"),
        ("hourglass", "an"),
        ("unicorn", "a"),
        ("unidentified object", "an"),
        ("uninteresting wall", "an"),
        ("umbrella", "an"),
        ("usher", "an"),
        ("utility pole", "a"),
        ("urn", "an"),
        ("urinal", "a"),
        ("ukulele", "a"),
        ("UK flag", "a"),
        ("ewe", "a"),
        ("eagle", "an"),
        ("euro banknote", "a"),
        ("European robin", "a"),
        ("one-eyed cat", "a"),
        ("onion", "an"),
        ("X-ray image", "an"),
        ("American football", "an"),
        ("Eiffel tower", "an"),
    ],
)
def test_the_article_follows_the_sound(noun: str, expected: str) -> None:
    assert article(noun) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("owl", "an owl"),
        ("one-way street", "a one-way street"),
        ("glass", "a glass"),
        ("bus", "a bus"),
        ("grapes", "grapes"),
        ("the moon", "the moon"),
    ],
)
def test_plurals_and_labels_with_an_article_stay_as_they_are(label: str, expected: str) -> None:
    assert with_article(label) == expected


def test_a_template_takes_the_label_or_the_label_with_its_article() -> None:
    assert fill("a photo of {a}", "owl") == "a photo of an owl"
    assert fill("{} in the snow", "sea_lion") == "sea lion in the snow"
