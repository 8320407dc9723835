"""Templates and articles."""

import pytest

from core.errors import RequestError
from service.zero_shot import fill, with_article


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("apple", "an apple"),
        ("dog", "a dog"),
        ("unicorn", "a unicorn"),
        ("hourglass", "an hourglass"),
        ("hot dog", "a hot dog"),
        ("one-way street", "a one-way street"),
        ("umbrella", "an umbrella"),
        ("glass", "a glass"),
        ("bus", "a bus"),
        ("grapes", "grapes"),
        ("the moon", "the moon"),
        ("Eiffel tower", "an Eiffel tower"),
        ("European robin", "a European robin"),
    ],
)
def test_a_label_gets_the_article_that_is_spoken(label: str, expected: str) -> None:
    assert with_article(label) == expected


def test_a_template_says_where_the_label_belongs() -> None:
    assert fill("a photo of {a}", "owl") == "a photo of an owl"
    assert fill("the {}, {a}", "owl") == "the owl, an owl"
    with pytest.raises(RequestError, match="where the label belongs"):
        fill("a photo", "owl")
