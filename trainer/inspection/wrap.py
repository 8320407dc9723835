"""Text broken into lines of so many columns; a wide letter, as of Chinese, takes two."""

import unicodedata
from collections.abc import Iterator

from core.evaluation.report.document import plain


def wrap(text: str, columns: int, most_lines: int) -> list[str]:
    """At least one line and no more than ``most_lines``, the last with an ellipsis if cut off."""
    lines = [""]
    for piece in _pieces(plain(text), columns):
        joined = f"{lines[-1]}{piece}"
        if lines[-1] and width(joined.rstrip()) > columns:
            lines.append(piece.lstrip())
        else:
            lines[-1] = joined
    lines = [line.rstrip() for line in lines]
    if len(lines) > most_lines:
        lines = [*lines[: most_lines - 1], f"{lines[most_lines - 1].rstrip('.,; ')} …"]
    return lines


def width(text: str) -> int:
    """Columns that a text takes."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _pieces(text: str, columns: int) -> Iterator[str]:
    """Words with the space after them; a wide letter stands alone, a long word is broken."""
    piece = ""
    for letter in text:
        is_wide = unicodedata.east_asian_width(letter) in "WF"
        if piece and (is_wide or piece[-1] == " " or width(piece) >= columns):
            if letter == " ":
                piece += letter
                continue
            yield piece
            piece = ""
        piece += letter
    if piece:
        yield piece
