"""Which results are of the same items, and in what they differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.evaluation.result import Result

_ITEMS = (
    "gallery", "right answers", "queries", "negatives", "levels", "pair", "pictures", "classes",
    "pool", "parts", "part", "caps",
)  # fmt: skip
"""What of the protocols decides which items there are; the rest decides how they are scored."""
_DRAWN = "seeded"
"""In the name of a group whose items are drawn by the seed."""


def why_not_paired(mine: Result, theirs: Result, group: str = "") -> str:
    """Why items of two results do not pair off, nothing where they do.

    Args:
        mine: Of a task.
        theirs: Of the same task.
        group: Of the figure; some have items that the seed draws.
    """
    ours, others = mine.determined_by, theirs.determined_by
    places = [
        f"data.{key}"
        for key in ("digest", "records", "limit")
        if ours["data"].get(key) != others["data"].get(key)
    ]
    places += [
        f"protocol.{key}"
        for key in _ITEMS
        if ours["protocol"].get(key) != others["protocol"].get(key)
    ]
    if _DRAWN in group and ours.get("seed") != others.get("seed"):
        places.append("seed")
    if places:
        return f"not of the same items, by {', '.join(places)}"
    if {*mine.left_out} != {*theirs.left_out}:
        return "not the same pictures were left out"
    return ""


def differing(a: Any, b: Any, place: str) -> Iterator[str]:
    """The keys under which two differ; where one has other keys, the place that holds them.

    Titles of data are names alone, and the times of change of pictures differ from machine to
    machine.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping) and place == "data":
        a, b = _without(a), _without(b)
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for key in a:
            yield from differing(a[key], b[key], f"{place}.{key}")
    elif a != b:
        yield place


def _without(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in ("title", "pictures")}
