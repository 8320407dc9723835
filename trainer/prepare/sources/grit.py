"""GRIT as img2dataset downloads it: tars of pictures with captions, noun chunks and expressions.

Of each sample a tar holds ``KEY.jpg`` (or .png, .webp), ``KEY.json`` and ``KEY.txt``, in any
order. The JSON has ``caption``, and ``noun_chunks`` and ``ref_exps``, each a list of
``[start, end, x0, y0, x1, y1, score]``, or the same as a string of JSON: the phrase is
``caption[start:end]``, the box is in 0..1. Beside ``NNNNN.tar`` may lie ``NNNNN_stats.json``,
which says how many pictures could not be downloaded.
"""

import json
import mmap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from core.errors import DataError
from trainer.data.shards import find_shards, key_and_kind
from trainer.data.tar import check_end, members
from trainer.prepare.records import Record, Tally, is_number
from trainer.prepare.sources.source import GritRules, Request, Source

LOOKED_FOR = "tars of img2dataset: a folder with *.tar, a glob, or braces {00000..00099}.tar"

_PICTURES = ("jpg", "jpeg", "png", "webp")
_MOST_JSON = 1 << 22  # bytes of a sample's JSON
_KEYS = {
    "nouns": ("noun_chunks",),
    "expressions": ("ref_exps",),
    "both": ("noun_chunks", "ref_exps"),
}

Group = dict[str, tuple[int, int]]
"""Start and size in the tar of each member of a sample, by kind."""


def is_here(request: Request) -> bool:
    """Whether this is what the place holds."""
    if request.path.is_dir():
        return any(request.path.glob("*.tar"))
    is_pattern = any(letter in request.place for letter in "*?[{") and not request.path.exists()
    return request.place.endswith(".tar") or is_pattern


def find(request: Request) -> Source:
    """The tars as a source.

    Raises:
        DataError: There are none.
    """
    tars = tuple(find_shards(request.place))
    return Source(
        format="grit",
        split=request.split or "train",
        files={},
        images=tars[0].parent,
        tars=tars,
        grit=request.grit,
        choices={"phrases": request.grit.phrases, "min_score": request.grit.min_score},
    )


def read_tar(
    path: Path, name: str, rules: GritRules, most: int | None, tally: Tally
) -> Iterator[tuple[Record, bytes, int]]:
    """The record, unjudged, and the picture of each sample, and how far the tar was read.

    Args:
        path: The tar.
        name: Of the tar among the others; two folders may both have a 00000.tar.
        rules: Which boxes are taken.
        most: Samples to read at most.
        tally: Counts what is left out; a tar that breaks off is used up to there.
    """
    dead = 0
    for key, group, data, end in _samples(path, most, tally):
        where = f"{path.stem}/{key}"
        about = _about(data, group, where, tally)
        if about is None:
            continue
        place = next((group[kind] for kind in _PICTURES if kind in group), None)
        if place is not None:
            record = _record(about, data, group, where, rules, tally)
            yield record | {"id": f"{name}/{key}"}, _bytes(data, place), end
        elif about.get("status", "success") != "success" or about.get("error_message"):
            tally.skip("photos", "dead link", where)
            dead += 1
        else:
            tally.skip("photos", "picture is not in the tar", where)
    if most is None:
        _count_dead(path, dead, tally)


def count_samples(path: Path, most: int) -> int:
    """How many samples a tar holds, ``most`` if there are more."""
    return sum(1 for _ in _samples(path, most, Tally()))


def _samples(
    path: Path, most: int | None, tally: Tally
) -> Iterator[tuple[str, Group, mmap.mmap, int]]:
    """Key, members and tar of each sample, and the byte that it ends at."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from islice(_groups(path, data, tally), most)
    except (OSError, ValueError):
        tally.skip("shards", "cannot be read, or empty", path.name)


def _groups(
    path: Path, data: mmap.mmap, tally: Tally
) -> Iterator[tuple[str, Group, mmap.mmap, int]]:
    current, group, end = "", Group(), 0
    try:
        for name, start, size, _ in members(data, path):
            key, kind = key_and_kind(name)
            if key != current:
                if group:
                    yield current, group, data, end
                current, group = key, {}
            group[kind.lower()] = start, size
            end = start + size
        check_end(data, path)
    except DataError:
        tally.skip("shards", "breaks off, or is no tar; read up to there", path.name)
    if group:  # a sample whose members are there is whole, whatever comes after it
        yield current, group, data, end


def _about(data: mmap.mmap, group: Group, where: str, tally: Tally) -> dict[str, Any] | None:
    if "json" not in group:
        tally.skip("photos", "no JSON in the tar", where)
        return None
    try:
        if group["json"][1] > _MOST_JSON:
            raise ValueError("too long")  # noqa: TRY301 - one reason with what cannot be parsed
        about = json.loads(_bytes(data, group["json"]))
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        tally.skip("photos", "JSON cannot be read", where)
        return None
    return about


def _record(
    about: dict[str, Any],
    data: mmap.mmap,
    group: Group,
    where: str,
    rules: GritRules,
    tally: Tally,
) -> Record:
    caption = about.get("caption")
    if caption is None and "txt" in group:
        caption = _bytes(data, group["txt"]).decode("utf-8", "replace")
    record: Record = {"image": where, "captions": [caption]}
    if isinstance(caption, str):
        entries = [entry for key in _KEYS[rules.phrases] for entry in _entries(about.get(key))]
        strong = [entry for entry in entries if not _is_weak(entry, rules.min_score)]
        if len(strong) < len(entries):
            reason = f"score under {rules.min_score:g}"
            tally.skip("boxes", reason, where, len(entries) - len(strong))
        record["boxes"] = [_box(entry, caption) for entry in strong]
    size = [about.get("original_width"), about.get("original_height")]
    return record | {"true_size": size} if None not in size else record


def _entries(value: Any) -> list[Any]:
    """A list of phrases with boxes; what is none becomes one malformed entry."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return [None]
    if value is None:
        return []
    return value if isinstance(value, list) else [None]


def _is_weak(entry: Any, min_score: float) -> bool:
    score = entry[6] if isinstance(entry, list) and len(entry) > 6 else None
    return min_score > 0 and is_number(score) and score < min_score


def _box(entry: Any, caption: str) -> dict[str, Any]:
    """One phrase as a box of a record; {} is malformed."""
    if not isinstance(entry, list) or len(entry) < 6 or not all(map(is_number, entry[:6])):
        return {}
    start, end = int(entry[0]), int(entry[1])
    return {"phrase": caption[start:end], "xyxy": entry[2:6]} if 0 <= start < end else {}


def _count_dead(path: Path, seen: int, tally: Tally) -> None:
    """Pictures that could not be had, of which a tar of img2dataset holds nothing."""
    file = path.with_name(f"{path.stem}_stats.json")
    try:
        stats = json.loads(file.read_bytes())
        told = [stats.get(key, 0) for key in ("failed_to_download", "failed_to_resize")]
        dead, broken = (int(value) if is_number(value) else 0 for value in told)
    except (OSError, ValueError, RecursionError, AttributeError):
        return
    if dead > seen:
        tally.skip("photos", "dead link", file.name, dead - seen)
    if broken > 0:
        tally.skip("photos", "picture could not be resized", file.name, broken)


def _bytes(data: mmap.mmap, place: tuple[int, int]) -> bytes:
    start, size = place
    return data[start : start + size]
