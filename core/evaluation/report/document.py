"""What a report is made of, before it becomes Markdown or HTML. All text in it is plain."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "better", "worse", "better sure", "worse sure"]
"""Of a difference: which way it goes, and whether it is more than chance."""


@dataclass(frozen=True)
class Row:
    """Cells of a table; a heading row has its first alone."""

    cells: tuple[str, ...]
    is_heading: bool = False
    tones: tuple[Tone, ...] = ()
    """Of the cells, as far as any has one."""


@dataclass(frozen=True)
class Table:
    """Figures, names in the first column."""

    header: tuple[str, ...]
    """After a line's end comes what need not be read in full."""
    rows: tuple[Row, ...]
    published_from: int | None = None
    """The first column of what others have published."""
    is_words: bool = False
    """Whether it holds words, which stand on the left."""
    code_columns: frozenset[int] = frozenset()
    """Columns of commands."""


@dataclass(frozen=True)
class Text:
    """A paragraph, or what stands over the blocks after it."""

    text: str
    is_heading: bool = False


@dataclass(frozen=True)
class Cautions:
    """What a reader must know before comparing."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Plot:
    """A picture."""

    name: str
    """Of its file, without the ending."""
    caption: str
    svg: str


@dataclass(frozen=True)
class Listing:
    """Things under a heading each, folded away where that is possible."""

    title: str
    items: tuple[tuple[str, tuple[str, ...]], ...]
    """A heading and its lines."""


@dataclass(frozen=True)
class Code:
    """Text as it is, folded away where that is possible."""

    title: str
    text: str


Block = Table | Text | Cautions | Plot | Listing | Code


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    sections: tuple[Section, ...] = field(default=())

    def plots(self) -> list[Plot]:
        """All pictures in their order."""
        return [
            block
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Plot)
        ]


def plain(text: str) -> str:
    """One line that shows what it holds: no control characters, no overrides of direction."""
    kept = (
        " " if character.isspace() else character
        for character in text
        if character.isprintable() or character.isspace()
    )
    return " ".join("".join(kept).encode("utf-8", "replace").decode("utf-8").split())


def words(header: Sequence[str], rows: Sequence[Sequence[str]], code: Sequence[int] = ()) -> Table:
    """A table of words, some columns of which are commands."""
    return Table(
        tuple(header),
        tuple(Row(tuple(row)) for row in rows),
        is_words=True,
        code_columns=frozenset(code),
    )
