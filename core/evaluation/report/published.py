"""What others have published, with where it was read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

Key = tuple[str, str, str]
"""Task, group and name of a figure; in a group ``*`` stands for any characters."""


@dataclass(frozen=True)
class Published:
    """One number."""

    table: str
    """Of the paper, "2" to "6", "Fig. 2", or "beyond"."""
    system: str
    value: float
    """A share of 0..1 where the figure is a share, else as printed."""
    decimals: int
    """After the point, as printed: 75.7 has one."""
    is_percent: bool
    """Whether it was printed in percent."""
    backbone: str
    protocol: str
    source: str
    is_secondary: bool
    """Whether it was read in notes of others, not at the authors' own place."""


_SYSTEMS = ("Hyper3-CLIP", "UNCHA", "PHyCLIP", "HyCoCLIP", "ATMG", "MERU", "CLIP")
"""Those that the paper compares."""


@cache
def published() -> Mapping[Key, tuple[Published, ...]]:
    """All published numbers by figure, in the order of the file."""
    found: dict[Key, list[Published]] = {}
    for row in _content()["rows"]:
        is_percent = row.get("percent", False)
        for name, value in row["figures"].items():
            task, group, figure = name.split(" | ")
            found.setdefault((task, group, figure), []).append(
                Published(
                    row["table"],
                    row["system"],
                    float(Decimal(value) / (100 if is_percent else 1)),
                    len(str(value).partition(".")[2]),
                    is_percent,
                    row["backbone"],
                    row["protocol"],
                    row["source"],
                    row.get("standing", "primary") == "secondary",
                )
            )
    return {key: tuple(rows) for key, rows in found.items()}


@cache
def official_counts() -> Mapping[str, int]:
    """How many pictures the full split of a data set has, by its name."""
    counts: dict[str, int] = _content()["official"]
    return counts


def protocol_notes() -> list[tuple[str, frozenset[str]]]:
    """How published figures were measured otherwise, with the tasks that it concerns."""
    return [(note["text"], frozenset(note["tasks"])) for note in _content()["notes"]]


def coverage() -> list[tuple[str, str, str]]:
    """Of each table of the paper how many numbers could be read, and what could not."""
    found = []
    for table, entry in _content()["tables"].items():
        rows = [row for every in published().values() for row in every if row.table == table]
        read = sum(row.system in _SYSTEMS for row in rows) if "of" in entry else len(rows)
        said = f"{read} of {entry['of']}" if "of" in entry else str(read)
        found.append((table, said, entry["missing"]))
    return found


@cache
def _content() -> dict[str, Any]:
    text = (files("core.evaluation.report") / "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Decimal)  # 78.20 keeps its zero
