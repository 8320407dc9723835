"""Our own format: a JSONL file of records, its pictures beside it."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import DataError
from trainer.prepare.records import Tally
from trainer.prepare.sources.source import Request, Source

LOOKED_FOR = "a file NAME.jsonl of records, its pictures beside it"


def is_here(request: Request) -> bool:
    """Whether this is what the place holds."""
    return request.path.is_file() and request.path.suffix in (".jsonl", ".ndjson")


def find(request: Request) -> Source:
    """The file as a source.

    Raises:
        DataError: It is not there.
    """
    file = request.path
    if not file.is_file():
        raise DataError(f"{file}: no such file; name a JSONL file of records")
    return Source(
        format="jsonl",
        split=request.split or file.stem,
        files={file.name: [file]},
        images=request.images or file.parent,
        read=partial(_read, file),
    )


def _read(file: Path, tally: Tally) -> Iterator[tuple[str, Any]]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                where = f"line {number}"
                try:
                    yield where, json.loads(line)
                except (ValueError, RecursionError):
                    tally.skip("photos", "line is not JSON", where)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
