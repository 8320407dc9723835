"""TOML files with `section.key=value` overrides, read into pydantic sections."""

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import ConfigError


class Section(BaseModel):
    """A part of a configuration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Config = TypeVar("Config", bound=BaseModel)


def load(kind: type[Config], path: Path, overrides: list[str] | None = None) -> Config:
    """Read a TOML file, apply the overrides in order, and check everything.

    Args:
        kind: The pydantic model of the whole file.
        path: The TOML file.
        overrides: ``section.key=value`` each; the value is TOML (``1e-4``, ``true``,
            ``[1, 2]``), and anything that is not TOML is taken as a string.

    Raises:
        ConfigError: The file is missing or not TOML, an override has no ``=``, or a key is
            unknown or out of range. The message names the file and each key.
    """
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for override in overrides or []:
        _apply(values, override)
    return parse(kind, values, source=str(path))


def parse(kind: type[Config], values: dict[str, Any], source: str) -> Config:
    """Check values against a model; ``source`` names them in the message.

    Raises:
        ConfigError: A key is unknown, missing or out of range.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}:\n{_explain(error, kind)}") from error


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r}: write it as section.key=value")
    *sections, last = key.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
    values[last] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, kind: type[BaseModel]) -> str:
    lines = []
    for fault in error.errors():
        location, section = _resolve(kind, fault["loc"])
        key = ".".join(location)
        if fault["type"] == "extra_forbidden":
            known = ", ".join(sorted(section.model_fields))
            lines.append(f"  {key}: unknown key; known here: {known}")
        else:
            given = json.dumps(fault["input"], default=str)
            lines.append(f"  {key}: {fault['msg']} (got {given[:200]})")
    return "\n".join(lines)


def _resolve(
    kind: type[BaseModel], location: tuple[int | str, ...]
) -> tuple[list[str], type[BaseModel]]:
    """A fault's key as the user writes it, and the section that it stands in."""
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
    return key, choices[0]


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The section, or the alternative sections, that a field holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections(inner)]


def _tag(section: type[BaseModel]) -> str | None:
    """What `kind` must be for this one of several sections."""
    field = section.model_fields.get("kind")
    return next(iter(get_args(field.annotation)), None) if field else None
