"""JSON files that are larger than memory should hold: their items, one after the other.

COCO's instances and Visual Genome's regions are one JSON value of hundreds of megabytes. The
standard library parses each item; only the list around the items is walked here.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from core.errors import DataError

_CHUNK = 1 << 20  # letters
_GOES_ON = ("", *"0123456789+-.eE")  # what may follow half a number
_LONGEST_INT = 20  # digits; a longer one is nobody's id, and Python would refuse 4,300 of them


def stream_items(file: Path) -> Iterator[tuple[str, Any]]:
    """Each item of a list, or of every list in an object, with the key of its list.

    The key is "" for a list that is the whole file. Values of an object that are no lists are
    passed over. Memory is that of the largest item.

    Raises:
        DataError: The file is missing, or not JSON; the message says how far it could be read.
    """
    try:
        with file.open(encoding="utf-8-sig") as stream:
            reader = _Reader(stream, file)
            if reader.ahead() == "[":
                yield from (("", item) for item in reader.items())
            else:
                yield from _lists_of_object(reader)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason}; get it again") from error


def _lists_of_object(reader: "_Reader") -> Iterator[tuple[str, Any]]:
    reader.take("{")
    while reader.ahead() != "}":
        key = str(reader.value())
        reader.take(":")
        if reader.ahead() == "[":
            for item in reader.items():
                yield key, item
        else:
            reader.value()
        if reader.ahead() != "}":
            reader.take(",")


def _whole_number(digits: str) -> float:
    return int(digits) if len(digits) <= _LONGEST_INT else math.inf


class _Reader:
    """A place in a text of which only a stretch is held."""

    _decoder = json.JSONDecoder(parse_int=_whole_number)

    def __init__(self, stream: IO[str], file: Path) -> None:
        self._stream, self._file = stream, file
        self._text, self._at, self._passed = "", 0, 0
        self._is_whole = False  # nothing comes after `_text`

    def ahead(self) -> str:
        """The next letter that is no space, or "" at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if self._is_whole:
                return ""
            self._read_on()

    def take(self, letter: str) -> None:
        """Pass a letter that must come next."""
        if self.ahead() != letter:
            self._fail(f"{letter!r} is missing")
        self._at += 1

    def items(self) -> Iterator[Any]:
        """The items of the list that begins here; afterwards it is passed."""
        self.take("[")
        while self.ahead() != "]":
            yield self.value()
            if self.ahead() != "]":
                self.take(",")
        self.take("]")

    def value(self) -> Any:
        """The value that begins here; afterwards it is passed."""
        self.ahead()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._is_whole:
                    self._fail(error.msg)
            except RecursionError:
                self._fail("a value is nested too deeply")
            else:
                if self._is_whole or self._text[end : end + 1] not in _GOES_ON:
                    self._at = end
                    return value
            self._read_on()

    def _read_on(self) -> None:
        """Hold more, at least twice what is not passed; forget what is."""
        rest = self._text[self._at :]
        more = self._stream.read(max(_CHUNK, len(rest)))
        self._passed += self._at
        self._text, self._at, self._is_whole = rest + more, 0, not more

    def _fail(self, why: str) -> NoReturn:
        raise DataError(
            f"{self._file}: not JSON from letter {self._passed + self._at:,} on: {why}; it may be "
            "cut off, get it again"
        )
