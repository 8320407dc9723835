"""What is wrong with one sample: a reason of a fixed set, and the details."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from core.errors import ImageError
from core.image import decode

Fault = tuple[str, str]
"""Reason and details."""

_PART = re.compile(r"parent(\d{3,})\.(?:jpg|txt)")
_SLACK = 1e-6  # by which a box may lie outside, for its rounding


def faults_of(held: Mapping[str, bytes], *, decodes: bool) -> Iterator[Fault]:
    """All that is wrong with a sample.

    Args:
        held: Its members by kind, as ``child.jpg``.
        decodes: Whether pictures are decoded too.
    """
    numbers = sorted({int(found[1]) for kind in held if (found := _PART.fullmatch(kind))})
    if "child.jpg" not in held:
        yield "no picture", "child.jpg is missing"
    yield from _text(held, "child.txt", "no caption", "empty caption")
    yield from _count(held.get("numparents.txt"), numbers)
    boxes, faults = _of_parts(held.get("json", b"{}"), len(numbers))
    yield from faults
    for place, number in enumerate(numbers):
        stem = f"parent{number:03d}"
        yield from _text(held, f"{stem}.txt", "no phrase", "empty phrase")
        if boxes and boxes[place] is not None:
            yield from _box(boxes[place], stem)
        elif f"{stem}.jpg" not in held and not faults:
            yield "no crop or box", stem
    if decodes:
        yield from _pictures(held)


def _text(held: Mapping[str, bytes], kind: str, missing: str, empty: str) -> Iterator[Fault]:
    if kind not in held:
        yield missing, f"{kind} is missing"
        return
    try:
        if not held[kind].decode("utf-8").strip():
            yield empty, kind
    except UnicodeDecodeError as error:
        yield "text is not UTF-8", f"{kind}, byte {error.start}"


def _count(digits: bytes | None, numbers: list[int]) -> Iterator[Fault]:
    """Whether numparents.txt says how many parts there are, numbered from 0."""
    if digits is None:
        yield "no numparents.txt", f"{len(numbers)} parts"
        return
    try:
        said = int(digits)
    except ValueError:
        yield "numparents.txt is no number", repr(digits[:20])
        return
    if len(numbers) != said or numbers != list(range(said)):
        there = ", ".join(f"{number:03d}" for number in numbers) or "none"
        yield "numparents.txt and parts differ", f"it says {said}, there are {there}"


def _of_parts(content: bytes, parts: int) -> tuple[list[Any] | None, list[Fault]]:
    """The boxes of the JSON, where it has as many as there are parts, and what is wrong."""
    try:
        about = json.loads(content)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        return None, [("broken json", "not a JSON object")]
    faults = [
        ("broken json", f"{what} are not one for each of {parts} parts")
        for what in ("names", "boxes")
        if (found := about.get(what)) is not None
        and not (isinstance(found, list) and len(found) == parts)
    ]
    if not faults and not all(map(_is_text, about.get("names") or [])):
        faults.append(("broken json", "a name is not valid text"))
    return (None if faults else about.get("boxes")), faults


def _box(box: Any, stem: str) -> Iterator[Fault]:
    if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
        yield "malformed box", f"{stem}: {str(box)[:60]} is not [left, top, right, bottom]"
        return
    left, top, right, bottom = box
    said = f"{stem}: [{left:.4g}, {top:.4g}, {right:.4g}, {bottom:.4g}]"
    if not (left < right and top < bottom):
        yield "empty box", said
    elif min(left, top) < -_SLACK or max(right, bottom) > 1 + _SLACK:
        yield "box outside the picture", said


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return is_plain and abs(value) <= sys.float_info.max  # a whole number can be beyond any float


def _is_text(name: Any) -> bool:
    try:
        str(name).encode()
    except UnicodeEncodeError:
        return False
    return True


def _pictures(held: Mapping[str, bytes]) -> Iterator[Fault]:
    for kind, content in held.items():
        if kind.endswith(".jpg"):
            try:
                decode(content, side=1)  # at an eighth of its size: each byte is read all the same
            except ImageError as error:
                yield "undecodable picture", f"{kind}: {error}"
