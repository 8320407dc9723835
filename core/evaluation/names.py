"""The names of things that boxes hold, with their groups and kingdoms."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from core.errors import DataError


class Thing(BaseModel):
    """A nameable thing and what it is a kind of."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: str = ""
    kingdom: str = ""


class Names(BaseModel):
    """The things that were seen in training, and those that were kept from it."""

    model_config = ConfigDict(frozen=True)

    trained: tuple[Thing, ...]
    held_out: tuple[Thing, ...] = ()

    def levels(self) -> dict[str, list[str]]:
        """The trained words of each level that is filled, the most general first."""
        levels = {
            "kingdoms": [thing.kingdom for thing in self.trained],
            "groups": [thing.group for thing in self.trained],
            "names": [thing.name for thing in self.trained],
        }
        return {
            level: list(dict.fromkeys(filter(None, words)))
            for level, words in levels.items()
            if any(words)
        }

    def links(self) -> dict[str, list[tuple[str, str]]]:
        """Pairs of a general and a specific word among the trained things, by their levels."""
        links = {
            "kingdom and group": [(thing.kingdom, thing.group) for thing in self.trained],
            "group and name": [(thing.group, thing.name) for thing in self.trained],
        }
        return {
            title: list(dict.fromkeys(pair for pair in pairs if all(pair)))
            for title, pairs in links.items()
            if any(all(pair) for pair in pairs)
        }


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
