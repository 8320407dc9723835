"""TOML files with `section.key=value` overrides, read into pydantic sections."""

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import ConfigError


class Section(BaseModel):
    """A part of a configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Config = TypeVar("Config", bound=BaseModel)


class Layer(NamedTuple):
    """The values of one file; of none, if they are overrides."""

    source: Path | None
    values: dict[str, Any]


def load(
    kind: type[Config],
    path: Path,
    overrides: list[str] | None = None,
    shipped: Path | None = None,
) -> Config:
    """Read a TOML file and those that it extends, apply the overrides, and check everything.

    A file may begin with ``extends = "other.toml"``, or a list of files: their values hold
    where it sets none of its own, later ones before earlier ones. Tables merge key by key, but
    one that names another ``kind`` than the table below it replaces it whole.

    Args:
        kind: The pydantic model of the whole file.
        path: The TOML file.
        overrides: ``section.key=value`` each; the value is TOML (``1e-4``, ``true``,
            ``[1, 2]``), and anything that is not TOML is taken as a string. The last one holds.
        shipped: A folder where an extended file is looked for if it is not beside its user.

    Raises:
        ConfigError: A file is missing, not TOML or extends itself, an override has no ``=``, or
            a key is unknown or out of range. The message names the file and each key.
    """
    layers = [*_layers(path, shipped, ()), Layer(None, _tree(overrides or []))]
    values: dict[str, Any] = {}
    for layer in layers:
        values = _merged(values, layer.values)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}:\n{_explain(error, kind, layers, path)}") from error


def _layers(path: Path, shipped: Path | None, chain: tuple[Path, ...]) -> list[Layer]:
    """A file below all that it extends: in the order in which values take effect."""
    chain = (*chain, path)
    if path.resolve() in {before.resolve() for before in chain[:-1]}:
        raise ConfigError(f"{_arrows(chain)}: extends itself")
    values = _read(path, chain)
    extended = values.pop("extends", [])
    names = [extended] if isinstance(extended, str) else extended
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{_arrows(chain)}: extends {extended!r}: give a file, or a list of them")
    below: list[Layer] = []
    for name in names:
        if Path(name).is_absolute():
            raise ConfigError(
                f"{_arrows(chain)}: extends {name!r}: give the path from this file's own folder"
            )
        other = path.parent / name
        if shipped and not other.exists() and (shipped / name).exists():
            other = shipped / name
        below += _layers(other, shipped, chain)
    return [*below, Layer(path, values)]


def _read(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{_arrows(chain)}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{_arrows(chain)}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{_arrows(chain)}: not valid TOML: {error}") from error


def _arrows(chain: tuple[Path, ...]) -> str:
    return " -> ".join(map(str, chain))


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The values of ``above``, and those of ``below`` where it has none."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _of_another_kind(old, value):
            result[key] = _merged(old, value)
        else:
            result[key] = value
    return result


def _of_another_kind(below: dict[str, Any], above: dict[str, Any]) -> bool:
    return "kind" in below and "kind" in above and below["kind"] != above["kind"]


def _tree(overrides: list[str]) -> dict[str, Any]:
    """Overrides as the tables that a file would hold."""
    tree: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"override {override!r}: write it as section.key=value")
        *sections, last = key.strip().split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
        table[last] = _value(text.strip())
    return tree


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, kind: type[BaseModel], layers: list[Layer], path: Path) -> str:
    lines = []
    for fault in error.errors():
        location, sections = _resolve(kind, fault["loc"])
        key = ".".join(location)
        if fault["type"] == "extra_forbidden":
            line = f"{key}: unknown key; known here: {', '.join(sorted(sections[0].model_fields))}"
        elif fault["type"] == "union_tag_not_found":
            line = f"{key}: needs a kind, one of: {', '.join(str(_tag(each)) for each in sections)}"
        elif key:
            given = json.dumps(fault["input"], default=str)
            line = f"{key}: {fault['msg']} (got {given[:200]})"
        else:
            line = fault["msg"].removeprefix("Value error, ")
        source = _source(location, layers)
        lines.append(f"  {line}" if source in {None, path} else f"  {line} (set in {source})")
    return "\n".join(lines)


def _source(location: list[str], layers: list[Layer]) -> Path | None:
    """The last file that says something of a key; None for an override, or if nothing does."""
    for layer in layers[::-1]:
        found: Any = layer.values
        for part in location:
            if not isinstance(found, dict):
                break  # an element of a list
            found = found.get(part)
        if found is not None:
            return layer.source
    return None


def _resolve(
    kind: type[BaseModel], location: tuple[int | str, ...]
) -> tuple[list[str], list[type[BaseModel]]]:
    """A fault's key as the user writes it, and the section, or the alternatives, it stands in."""
    key: list[str] = []
    choices: list[type[BaseModel]] = [kind]
    for part in map(str, location):
        tagged = [choice for choice in choices if _tag(choice) == part]
        if len(choices) > 1 and tagged:
            choices = tagged  # a tag of pydantic's, which no one has written
            continue
        key.append(part)
        field = choices[0].model_fields.get(part)
        inner = _sections(field.annotation) if field else []
        if inner:
            choices = inner
    return key, choices


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The section, or the alternative sections, that a field holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections(inner)]


def _tag(section: type[BaseModel]) -> str | None:
    """What `kind` must be for this one of several sections."""
    field = section.model_fields.get("kind")
    return next(iter(get_args(field.annotation)), None) if field else None
