from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from core.errors import BundleError, TextError
from core.text import END, START, TextSpec, Tokenizer, check_text, clean

WORDS = ["?", "a", "red", "dog"]


def written(path: Path, words: list[str]) -> Path:
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    path.write_text(tokenizer.to_str(), encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    file = written(tmp_path / "tokenizer.json", [*WORDS, START, END])
    return Tokenizer(file, TextSpec(context_length=5))


def test_a_text_is_framed_by_start_and_end(tokenizer: Tokenizer) -> None:
    (tokens,) = tokenizer.encode(["A  red\ndog"])
    assert (tokens.ids, tokens.count, tokens.truncated) == ([4, 1, 2, 3, 5], 5, False)


def test_a_long_text_is_cut_and_still_ends(tokenizer: Tokenizer) -> None:
    (tokens,) = tokenizer.encode(["a a a dog"])
    assert (tokens.ids, tokens.count, tokens.truncated) == ([4, 1, 1, 1, 5], 6, True)


def test_rows_are_padded_to_the_longest(tokenizer: Tokenizer) -> None:
    rows = tokenizer.pad([[4, 5], [4, 1, 5]])
    assert rows.dtype == np.int64
    assert rows.tolist() == [[4, 5, 0], [4, 1, 5]]
    assert tokenizer.pad([]).shape == (0, 0)


def test_the_end_must_be_the_largest_id(tmp_path: Path) -> None:
    file = written(tmp_path / "tokenizer.json", [END, START, *WORDS])
    with pytest.raises(BundleError, match="must be the last"):
        Tokenizer(file, TextSpec())


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    with pytest.raises(BundleError, match=r"tokenizer\.json: no such file"):
        Tokenizer(file, TextSpec())
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(BundleError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer(file, TextSpec())


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("A  Red\tDog ", "a red dog"),
        ("fish &amp;amp; chips", "fish & chips"),
        ("â€œhelloâ€\x9d", '"hello"'),
        ("\uff26\uff55\uff4c\uff4c", "full"),
    ],
)
def test_cleaning_mends_spaces_case_entities_and_encodings(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "blank"), (" \n\u00a0", "blank"), ("a\0b", "NUL"), ("a\ud800", "surrogate"),
     ("a" * 10_001, "limit is 10,000")],
)  # fmt: skip
def test_a_text_that_cannot_be_embedded_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TextError, match=reason):
        check_text(text)


def test_other_texts_pass() -> None:
    check_text("Grüße, 世界 🦊")
