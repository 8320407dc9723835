"""A report as Markdown, its plots as files beside it."""

import re

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

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def render_markdown(document: Document) -> str:
    """The report as GitHub-flavoured Markdown."""
    parts = [f"# {escape(document.title)}"]
    for section in document.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no link that makes itself."""
    text = _MARKS.sub(r"\\\g<0>", plain(text))
    text = "".join(_ENTITIES.get(character, character) for character in text)
    text = _MENTION.sub("&#64;", text)
    text = text.replace("://", "&#58;//")
    return re.sub(r"\bwww\.", "www&#46;", text, flags=re.IGNORECASE)


def _begun(text: str) -> str:
    """Text that begins a block, and is no heading and no list."""
    text = escape(text)
    number = re.match(r"\d+(?=[.)])", text)
    if number:
        return f"{number[0]}\\{text[number.end() :]}"
    return f"\\{text}" if text.startswith(("-", "+", "#", "=")) else text


def _section(section: Section) -> list[str]:
    return [f"## {escape(section.title)}", *(_block(block) for block in section.blocks)]


def _block(block: Block) -> str:
    match block:
        case Text(text, is_heading):
            return f"### {escape(text)}" if is_heading else _begun(text)
        case Table():
            return _table(block)
        case Cautions(texts):
            return "\n".join(["> Before comparing:", ">", *(f"> - {_begun(t)}" for t in texts)])
        case Plot(name, caption):
            return f"![{escape(caption)}](plots/{name}.svg)"
        case Listing(title, items):
            lines = "\n".join(_item(heading, lines) for heading, lines in items)
            return _folded(title, lines)
        case Code(title, text):
            return _folded(title, _fenced(text))


def _item(heading: str, lines: tuple[str, ...]) -> str:
    return "\n".join([f"- **{escape(heading)}**", *(f"  - {_begun(line)}" for line in lines)])


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _table(block: Table) -> str:
    align = "|".join(["---", *("---:" for _ in block.header[1:])])
    if block.is_words:
        align = "|".join("---" for _ in block.header)
    lines = [_line(tuple(escape(cell) for cell in block.header)), f"|{align}|"]
    lines += [_line(_cells(block, row)) for row in block.rows]
    return "\n".join(lines)


def _cells(block: Table, row: Row) -> tuple[str, ...]:
    width = len(block.header)
    if row.is_heading:
        return (f"**{escape(row.cells[0])}**", *([""] * (width - 1)))
    return tuple(
        _command(cell) if column in block.code_columns and cell else escape(cell)
        for column, cell in enumerate(row.cells)
    )


def _command(text: str) -> str:
    """A span of code; within a table a bar ends the cell, even in code."""
    text = plain(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return f"{'`' * (longest + 1)} {text} {'`' * (longest + 1)}" if longest else f"`{text}`"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
