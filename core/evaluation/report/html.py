"""A report as one HTML file that needs nothing else, on a phone as on a desk, by day and night."""

from html import escape as _escape
from importlib.resources import files

from core.evaluation.report.document import (
    Block,
    Cautions,
    Code,
    Document,
    Listing,
    Plot,
    Row,
    Section,
    Table,
    Text,
    plain,
)
from core.evaluation.report.svg import DARK_STYLE

_NARROW = 3
"""Columns that fit into every window."""


def render_html(document: Document) -> str:
    """The report as a page."""
    style = (files("core.evaluation.report") / "report.css").read_text(encoding="utf-8")
    links = "".join(
        f'<a href="#s{number}">{escape(section.title.partition(":")[0])}</a>'
        for number, section in enumerate(document.sections)
    )
    body = "\n".join(_section(number, part) for number, part in enumerate(document.sections))
    title = escape(document.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        f"<title>{title}</title>\n<style>\n{style}{DARK_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1></header>\n<nav>{links}</nav>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def escape(text: str) -> str:
    """Text that HTML shows as it is."""
    return _escape(plain(text), quote=True)


def _section(number: int, section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return f'<section id="s{number}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Text(text, is_heading):
            tag = "h3" if is_heading else "p"
            return f"<{tag}>{escape(text)}</{tag}>"
        case Table():
            return _table(block)
        case Cautions(texts):
            items = "".join(f"<li>{escape(text)}</li>" for text in texts)
            return f'<ul class="caution">{items}</ul>'
        case Plot(_, caption, svg):
            return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        case Listing(title, items):
            return _folded(title, "".join(_item(heading, lines) for heading, lines in items))
        case Code(title, text):
            return _folded(title, f"<pre>{_escape(text)}</pre>")


def _item(heading: str, lines: tuple[str, ...]) -> str:
    found = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h4>{escape(heading)}</h4><ol>{found}</ol>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _table(block: Table) -> str:
    words = ' class="words"' if block.is_words else ""
    header = "".join(
        f'<th scope="col"{_class(block, None, column)}{_tip(cell)}>{_heading(cell)}</th>'
        for column, cell in enumerate(block.header)
    )
    rows = "\n".join(_row(block, row) for row in block.rows)
    is_wide = len(block.header) > _NARROW and not block.is_words
    scroll = "scroll wide" if is_wide else "scroll"
    return (
        f'<div class="{scroll}" tabindex="0"><table{words}><thead><tr>{header}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _heading(cell: str) -> str:
    """A heading; its second line is small, and cut where it is too long."""
    first, _, second = cell.partition("\n")
    return f"{escape(first)} <small>{escape(second)}</small>" if second else escape(first)


def _tip(cell: str) -> str:
    return f' title="{escape(cell)}"' if "\n" in cell else ""


def _row(block: Table, row: Row) -> str:
    first = escape(row.cells[0])
    if row.is_heading:
        return f'<tr class="group"><th colspan="{len(block.header)}">{first}</th></tr>'
    cells = "".join(
        f"<td{_class(block, row, column)}{_label(block, column)}>{_cell(block, column, cell)}</td>"
        for column, cell in enumerate(row.cells[1:], 1)
    )
    return f'<tr><th scope="row">{_cell(block, 0, row.cells[0])}</th>{cells}</tr>'


def _cell(block: Table, column: int, cell: str) -> str:
    text = escape(cell)
    return f"<code>{text}</code>" if column in block.code_columns and text else text


def _class(block: Table, row: Row | None, column: int) -> str:
    theirs = block.published_from is not None and column >= block.published_from
    tone = row.tones[column] if row and column < len(row.tones) else ""
    name = "theirs" if theirs else tone
    return f' class="{name}"' if name else ""


def _label(block: Table, column: int) -> str:
    """The heading of a cell of words, for windows that are too narrow for columns."""
    return f' data-label="{escape(block.header[column])}"' if block.is_words else ""
