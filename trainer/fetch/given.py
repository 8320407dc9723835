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
        return json.loads(file.read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}:{error.lineno}: not JSON: {error.msg}; it may be cut off, get it again"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason}; get it again") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; check --from") from error


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, without those that are blank.

    Raises:
        DataError: It is missing or not text.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}; check --from") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text: {error.reason}; get it again") from error
    return [line.strip() for line in lines if line.strip()]


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
    """The first of some places that is a file; the first of all where none is."""
    return next(
        (folder / name for name in candidates if (folder / name).is_file()),
        folder / candidates[0],
    )
