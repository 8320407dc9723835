"""The names of things that boxes hold, with their groups and kingdoms."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from core.errors import DataError


class Thing(BaseModel):
    """A nameable thing and what it is a kind of."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: str | None = None
    kingdom: str | None = None


class Names(BaseModel):
    """The things that were seen in training, and those that were kept from it."""

    model_config = ConfigDict(frozen=True)

    trained: tuple[Thing, ...]
    held_out: tuple[Thing, ...] = ()


_FILE: TypeAdapter[Names | tuple[Thing, ...]] = TypeAdapter(Names | tuple[Thing, ...])


def read_names(file: Path) -> Names:
    """Read a JSON list of things (all of them trained), or an object with `Names`' keys.

    Raises:
        DataError: The file is missing, is neither, or names nothing.
    """
    try:
        content = _FILE.validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise DataError(
            f'{file}: must be a list of {{"name", "group", "kingdom"}}, or an object that holds '
            f"one as {'trained'!r}: {error.errors()[0]['msg']}"
        ) from error
    names = content if isinstance(content, Names) else Names(trained=content)
    if not names.trained:
        raise DataError(f"{file}: names nothing that was trained")
    return names
