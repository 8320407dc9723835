"""Large JSON files are read item by item, and say where they break off."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DataError
from trainer.prepare.sources import json_stream
from trainer.prepare.sources.json_stream import stream_items

Scalar = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e9, 1e9)
Values = st.recursive(
    Scalar | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


class Trickle(io.StringIO):
    """A text that comes a few letters at a time."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(3, size or 3))


def items_of(text: str) -> list[tuple[str, Any]]:
    reader = json_stream._Reader(Trickle(text), Path("x"))
    if reader.ahead() == "[":
        return [("", item) for item in reader.items()]
    return list(json_stream._lists_of_object(reader))


@given(st.lists(Values, max_size=5), st.sampled_from([None, 2]))
def test_the_items_of_a_list_are_those_that_the_standard_library_reads(
    values: list[Any], indent: int | None
) -> None:
    assert items_of(json.dumps(values, indent=indent)) == [("", value) for value in values]


@given(st.dictionaries(st.text(max_size=4), Values, max_size=4))
def test_the_lists_of_an_object_are_those_that_the_standard_library_reads(
    values: dict[str, Any],
) -> None:
    expected = [
        (key, item) for key, found in values.items() if isinstance(found, list) for item in found
    ]
    assert items_of(json.dumps(values)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2", '{"a": [1, 2}', "[1 2]", '{"a" 1}', "[nope]", '["', "[" * 100_000, "7"],
)
def test_what_is_not_json_is_a_data_error_that_says_where(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(DataError, match=r"file\.json: not JSON from letter"):
        list(stream_items(file))


def test_a_number_of_thousands_of_digits_spoils_no_other_item(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text("[" + "9" * 5_000 + ", 2]")
    assert [item for _, item in stream_items(file)] == [float("inf"), 2]


def test_a_file_that_is_missing_or_not_text_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(stream_items(tmp_path / "none.json"))
    (tmp_path / "file.json").write_bytes(b'["\xff\xfe"]')
    with pytest.raises(DataError, match="not UTF-8"):
        list(stream_items(tmp_path / "file.json"))
