"""Files that people have already: finding them, and saying what is wrong with them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import DataError


def read_json(file: Path) -> Any:
    """The content of a JSON file.

    Raises:
        DataError: It is missing or not JSON; the message names the line.
    """
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}:{error.lineno}: not JSON: {error.msg}; it may be cut off, get it again"
        ) from error


def read_text(file: Path) -> str:
    """The text of a file, without the mark that some programs put before it.

    Raises:
        DataError: It is missing or not UTF-8; the message names the line.
    """
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; check --from") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}:{line}: not UTF-8 text: {error.reason}; save it as UTF-8, or get it again"
        ) from error


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, without those that are blank.

    Raises:
        DataError: It is missing or not text.
    """
    return [line.strip() for line in read_text(file).splitlines() if line.strip()]


def field(item: Any, key: str, where: str) -> Any:
    """A key of a JSON object.

    Args:
        item: The object.
        key: What it must hold.
        where: Which it is, for the message.

    Raises:
        DataError: It is no object, or lacks the key.
    """
    if not isinstance(item, Mapping):
        raise DataError(f"{where}: must be an object with {key!r}; is this the right file?")
    if key not in item:
        there = ", ".join(map(str, list(item)[:6])) or "nothing"
        raise DataError(f"{where}: no {key!r} (it has {there}); is this the right file?")
    return item[key]


def items(content: Any, key: str, file: Path) -> list[Any]:
    """A list below a key of a JSON file.

    Raises:
        DataError: There is none, or it is empty.
    """
    found = field(content, key, str(file))
    if not (isinstance(found, list) and found):
        raise DataError(f"{file}: {key!r} must be a list that holds something; get it again")
    return found


def file_in(source: Path, *names: str) -> Path:
    """``source`` if it is a file, or the first of ``names`` that is below it.

    Raises:
        DataError: There is neither.
    """
    if source.is_file():
        return source
    found = next((source / name for name in names if (source / name).is_file()), None)
    if found is None:
        state = f"holds no {names[0]}" if source.is_dir() else "is not there"
        raise DataError(f"{source}: {state}; name it with --from")
    return found


def picture_in(folder: Path, *candidates: str) -> Path:
    """The first of some places that is a file; where none is, the first whose folder is there."""
    places = [folder / name for name in candidates]
    likely = next((place for place in places if place.parent.is_dir()), places[0])
    return next((place for place in places if place.is_file()), likely)
