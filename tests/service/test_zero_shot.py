"""Templates and articles."""

import pytest

from core.errors import RequestError
from core.prompts import fill


def test_a_template_says_where_the_label_belongs() -> None:
    assert fill("a photo of {a}", "owl") == "a photo of an owl"
    assert fill("the {}, {a}", "owl") == "the owl, an owl"
    with pytest.raises(RequestError, match="where the label belongs"):
        fill("a photo", "owl")
