"""Strings to tokens: the one place that knows cleaning, the vocabulary and truncation."""

import functools
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ftfy
import numpy as np
import numpy.typing as npt
import tokenizers
from pydantic import Field

from core.config import Section
from core.errors import BundleError, TextError

START = "<|startoftext|>"
END = "<|endoftext|>"

_REMEMBERED = 50_000  # texts, of some hundred bytes each


class TextSpec(Section):
    """The tokens a model was trained on."""

    context_length: int = Field(77, ge=3, le=1024, description="Most tokens of a text.")
    cleaning: Literal["meru"] = Field(
        "meru", description="ftfy, HTML entities twice, whitespace, lower case."
    )
    pad_id: int = Field(0, ge=0, description="Fills short rows; never looked at.")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as the text graph takes it."""

    ids: list[int]
    """With the start and the end token; at most `TextSpec.context_length`."""
    count: int
    """How many there were before truncation, with start and end."""
    truncated: bool


class Tokenizer:
    """Turns texts into tokens.

    The text graph pools at the largest id of a row, which must be the end token: this is
    checked when the vocabulary is read.

    Args:
        file: A ``tokenizer.json``.
        spec: Cleaning and length.

    Raises:
        BundleError: The file is missing, is no tokenizer, or its end token is not the largest.
    """

    def __init__(self, file: Path, spec: TextSpec) -> None:
        self.spec = spec
        self._tokenizer = _read(file)
        size = self._tokenizer.get_vocab_size()
        start, end = self._tokenizer.token_to_id(START), self._tokenizer.token_to_id(END)
        if start is None or end != size - 1:
            raise BundleError(
                f"{file}: {END} must be the last of the {size} tokens, and {START} among them; "
                "export the model again"
            )
        self._start, self._end = start, end
        # Phrases and prompts come again and again.
        self._encode = functools.lru_cache(maxsize=_REMEMBERED)(self._encode_anew)

    @property
    def vocabulary_size(self) -> int:
        """How many different ids there are."""
        return self._end + 1

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of texts; a long one is cut, and its last token becomes the end."""
        # One call a text: a batch call would start threads, which do not survive the fork of
        # a data loader, and was no faster on captions when measured.
        return [self._encode(text) for text in texts]

    def pad(self, ids: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
        """Rows of one length, ``(n, longest)``, filled with `TextSpec.pad_id`."""
        longest = max((len(row) for row in ids), default=0)
        rows = np.full((len(ids), longest), self.spec.pad_id, np.int64)
        for row, values in zip(rows, ids, strict=True):
            row[: len(values)] = values
        return rows

    def _encode_anew(self, text: str) -> Tokens:
        return self._frame(self._tokenizer.encode(clean(text)).ids)

    def _frame(self, words: list[int]) -> Tokens:
        room = self.spec.context_length - 2
        ids = [self._start, *words[:room], self._end]
        return Tokens(ids, count=len(words) + 2, truncated=len(words) > room)


def clean(text: str) -> str:
    """Text as MERU's tokenizer cleans it (arXiv:2304.09172).

    Broken encodings mended, HTML entities resolved twice, runs of whitespace to one space,
    lower case.
    """
    if not text.isascii() or not text.isprintable() or "&" in text:  # else nothing to mend
        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split()).lower()


def check_text(text: str, max_chars: int = 10_000) -> None:
    """Refuse a text that cannot be embedded.

    Raises:
        TextError: It is blank, over ``max_chars`` characters, or holds a NUL or half of a
            surrogate pair.
    """
    if len(text) > max_chars:
        raise TextError(f"text of {len(text):,} characters: the limit is {max_chars:,}")
    if not text.strip():
        raise TextError("text is blank: send at least one word")
    if "\0" in text:
        raise TextError(f"text holds a NUL at character {text.index(chr(0))}: take it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"text holds half of a surrogate pair at character {error.start}: send valid Unicode"
        ) from error


def _read(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise BundleError(f"{file}: no such file; export the model again")
    try:
        return tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise BundleError(f"{file}: not a tokenizer: {error}") from error
