"""Which figures may stand beside each other: by what prompts they are, and of which items."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.evaluation.result import Result
from core.evaluation.zero_shot import OFFICIAL, PHOTO
from core.prompts import prompt_sets

_ITEMS = (
    "gallery", "right answers", "queries", "negatives", "levels", "pair", "pictures", "classes",
    "pool", "parts", "part", "caps",
)  # fmt: skip
"""What of the protocols decides which items there are; the rest decides how they are scored."""
_DRAWN = "seeded"
"""In the name of a group whose items are drawn by the seed."""


def other_prompts(result: Result) -> list[str]:
    """The prompt sets that are not those of the family on this data set, by what they say."""
    usual = _usual(result)
    sets = _sets(result)
    others = [name for name, templates in sets.items() if not _is_usual(name, templates, usual)]
    if result.family == "prompts":  # which has the usual ones beside those of the user
        return [name for name in others if name in usual]
    has_own = OFFICIAL not in usual or usual[OFFICIAL] in sets.values()
    return others if has_own else list(sets)


def is_like_published(result: Result) -> bool:
    """Whether figures under the names of the shipped prompts are by these prompts."""
    usual, sets = _usual(result), _sets(result)
    if result.family == "multilabel":  # whose groups do not name a set that is the only one
        return all(templates == usual[PHOTO] for templates in sets.values())
    return all(sets[name] == usual[name] for name in sets.keys() & usual.keys())


def called_here(result: Result, group: str) -> str:
    """A group under the names of the shipped prompts, by the names that this result gives them."""
    usual = _usual(result)
    for name, templates in _sets(result).items():
        for shipped in (OFFICIAL, PHOTO):
            if name not in usual and usual.get(shipped) == templates:
                group = group.replace(f"{shipped} prompts", f"{name} prompts")
    return group


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


def _sets(result: Result) -> dict[str, tuple[str, ...]]:
    prompts: Mapping[str, Sequence[str]] = result.determined_by["protocol"].get("prompts", {})
    return {name: tuple(templates) for name, templates in prompts.items()}


def _usual(result: Result) -> dict[str, tuple[str, ...]]:
    """The shipped prompts by the names that families give them; official ones if there are any."""
    shipped = prompt_sets()
    official = shipped.get(result.task.partition("/")[2])
    if result.family == "multilabel" or official is None:
        return {PHOTO: shipped[PHOTO]}
    return {OFFICIAL: official, PHOTO: shipped[PHOTO]}


def _is_usual(name: str, templates: tuple[str, ...], usual: Mapping[str, tuple[str, ...]]) -> bool:
    if name in usual:
        return templates == usual[name]
    if name == OFFICIAL:  # of a data set of one's own, whose manifest says which set it is of
        return templates in prompt_sets().values()
    return templates in usual.values()
