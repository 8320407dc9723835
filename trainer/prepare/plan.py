"""All that decides the bytes of a prepared split, and how two such plans differ."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import PIL

from core.bundle import sha256
from core.errors import DataError
from trainer.prepare.jobs import tar_name
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.source import Source

_RULES = 3  # of this program: another number, and what was prepared before is made anew
MADE_BY = f"hyper3 data prepare, rules {_RULES}, Pillow {PIL.__version__}"

Plan = dict[str, Any]
"""Format, settings, folder of the pictures, and every input with its digest or size.

Where pictures are files, ``pictures`` is a digest of what their names, sizes and times are.
"""


def plan_of(source: Source, settings: PrepareSettings) -> Plan:
    """All that decides the bytes of a split, but for the pictures that are files.

    Of a tar it has the size, for it is hashed when it is read.

    Raises:
        DataError: A file is missing.
    """
    try:
        inputs = [_input(name, files) for name, files in source.files.items()]
        inputs += [{"file": tar_name(tar), "bytes": tar.stat().st_size} for tar in source.tars]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return {
        "format": source.format,
        "settings": asdict(settings) | dict(source.choices),
        "images": str(source.images),
        "inputs": inputs,
        "made_by": MADE_BY,
    }


def plan_in(entry: dict[str, Any]) -> Plan:
    """The plan that an entry of a manifest was made by."""
    keys = ("format", "settings", "images", "inputs", "made_by", "pictures")
    return {key: entry.get(key) for key in keys}


def differences(before: Plan, now: Plan) -> list[str]:
    """In words, what a plan has that another has not."""
    old, new = before.get("settings") or {}, now["settings"]
    found = [
        f"{key} was {old.get(key)}, is {new.get(key)}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    found += [
        f"{key} was {before.get(key)}, is {now[key]}"
        for key in ("format", "images")
        if before.get(key) != now[key]
    ]
    if before.get("made_by") != now["made_by"]:
        found.append(f"made by {before.get('made_by')}, and this is {now['made_by']}")
    pictures = before.get("pictures")
    if now.get("pictures") and pictures != now["pictures"]:
        what = "have come, gone or changed" if pictures else "were not noted before"
        found.append(f"pictures in {now['images']} {what}")
    files = [_digests(plan.get("inputs") or []) for plan in (before, now)]
    changed = [name for name in files[0] | files[1] if files[0].get(name) != files[1].get(name)]
    if changed:
        others = f", and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        found.append(f"{changed[0][0]} has changed{others}")
    return found


def _digests(inputs: Sequence[dict[str, Any]]) -> dict[tuple[str, int], Any]:
    """Digest or size of every input, by its name and how many of that name stand before it."""
    seen: Counter[str] = Counter()
    found = {}
    for item in inputs:
        name = item["file"]
        found[name, seen[name]] = item.get("bytes", item.get("sha256"))
        seen[name] += 1
    return found


def _input(name: str, files: Sequence[Path]) -> dict[str, Any]:
    """A file of the source, or a folder of many, with a digest."""
    if len(files) == 1:
        return {"file": name.encode(errors="replace").decode(), "sha256": sha256(files[0])}
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0{sha256(file)}\n".encode(errors="replace"))
    return {"file": name, "files": len(files), "sha256": digest.hexdigest()}
