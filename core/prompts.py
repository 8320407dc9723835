"""Labels to prompts: templates, and the English article that a label takes."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from core.errors import ConfigError, RequestError

TEMPLATES = ("{}", "{a}", "a photo of {a}")
"""What a label is embedded as, if nothing else is asked: their tangents are averaged."""

RESERVED = ("official", "photo")
"""Names of prompt sets that stand for shipped ones in a result."""

# Written with a vowel and spoken with a consonant, or the reverse.
_SPOKEN_CONSONANT = re.compile(
    r"uni(?!n|m|den)|us[ue]|ut[aei]|ur[aio]|uk|u-|eu|ewe|on(e|ce)\b", re.IGNORECASE
)
_SPOKEN_VOWEL = re.compile(r"hour|honest|honou?r|heir|x-ray", re.IGNORECASE)
_DETERMINERS = ("a ", "an ", "the ", "some ", "two ", "three ", "several ", "many ")


def article(noun: str) -> str:
    """The indefinite article of a noun or what stands before it, "a" or "an"."""
    if _SPOKEN_VOWEL.match(noun):
        return "an"
    vowel = noun[:1].lower() in ("a", "e", "i", "o", "u")
    return "an" if vowel and not _SPOKEN_CONSONANT.match(noun) else "a"


def with_article(label: str) -> str:
    """A label with "a" or "an" before it, unless it brings an article or is a plural."""
    word = label.strip().lower()
    if word.startswith(_DETERMINERS) or _is_plural(word):
        return label
    return f"{article(word)} {label}"


def _is_plural(word: str) -> bool:
    """A guess from the ending; glass, bus and tennis are not plurals."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os"))


def fill(template: str, label: str) -> str:
    """The prompt that a template makes of a label.

    Args:
        template: ``{}`` stands for the label, ``{a}`` for the label with its article.
        label: Underscores become spaces.

    Raises:
        RequestError: The template has no place for the label.
    """
    if "{}" not in template and "{a}" not in template:
        raise RequestError(f"template {template!r}: write {{}} or {{a}} where the label belongs")
    label = label.replace("_", " ")
    return template.replace("{a}", with_article(label)).replace("{}", label)


@cache
def prompt_sets() -> Mapping[str, tuple[str, ...]]:
    """The prompt sets of the evaluation by name, the official ones of each data set and "photo"."""
    text = (files("core") / "prompts.toml").read_text(encoding="utf-8")
    return {name: tuple(templates) for name, templates in tomllib.loads(text).items()}


def read_prompt_sets(file: Path) -> dict[str, tuple[str, ...]]:
    """Prompt sets of a user: TOML of ``name = ["a photo of a {}.", ...]``.

    Raises:
        ConfigError: The file is missing or wrong; the message names the set and the template.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    for name, templates in content.items():
        if name in RESERVED:
            raise ConfigError(f"{file}: {name}: is what a shipped set is called; choose another")
        if not (isinstance(templates, list) and templates):
            raise ConfigError(f"{file}: {name}: must be a list of templates")
        for template in templates:
            if not (isinstance(template, str) and ("{}" in template or "{a}" in template)):
                raise ConfigError(
                    f"{file}: {name}: {template!r}: write {{}} or {{a}} where the name belongs"
                )
    if not content:
        raise ConfigError(f'{file}: holds no prompt set; write name = ["a photo of a {{}}."]')
    return {name: tuple(templates) for name, templates in content.items()}
