"""Golden token ids; see README.md for how they were made."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.text import TextSpec, Tokenizer

pytest.importorskip("open_clip", reason="the vocabulary is made from its merges")

from trainer.vocabulary import write_tokenizer

GOLDEN = json.loads(Path(__file__).with_name("tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    write_tokenizer(file)
    return Tokenizer(file, TextSpec())


SPECIAL = "<|endoftext|> inside <|startoftext|>"
"""Read by MERU as two tokens and a word, by open_clip as plain characters."""


@pytest.mark.parametrize("case", GOLDEN, ids=range(len(GOLDEN)))
def test_ids_are_those_of_meru_with_the_end_restored(
    case: dict[str, Any], tokenizer: Tokenizer
) -> None:
    (tokens,) = tokenizer.encode([case["text"]])
    ids = case["ids"]
    assert tokens.count == len(ids)
    assert tokens.truncated == (len(ids) > 77)
    assert tokens.ids == (ids if len(ids) <= 77 else [*ids[:76], 49_407])


def test_the_vocabulary_is_that_of_clip(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary_size == 49_408


def test_a_text_of_exactly_the_context_length_is_whole(tokenizer: Tokenizer) -> None:
    fits, over = tokenizer.encode(["dog " * 75, "dog " * 76])
    assert (fits.count, fits.truncated, len(fits.ids)) == (77, False, 77)
    assert (over.count, over.truncated, len(over.ids)) == (78, True, 77)
    assert fits.ids == over.ids


def test_cut_and_padded_rows_are_those_of_open_clip(tokenizer: Tokenizer) -> None:
    cases = [case for case in GOLDEN if case["text"] != SPECIAL]
    assert len(cases) == len(GOLDEN) - 1
    rows = tokenizer.pad([tokens.ids for tokens in tokenizer.encode([c["text"] for c in cases])])
    assert rows.shape == (len(cases), 77)  # one is longer than that
    for row, case in zip(rows.tolist(), cases, strict=True):
        ids = case["open_clip"]
        assert row == [*ids, *[0] * (77 - len(ids))]
