"""What tells runs apart: their names beside one another, and how they are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from core.errors import DataError
from trainer.runs.reports import METRICS, Reports, read_reports

_COLOURS = 8  # that are told apart


@dataclass(frozen=True)
class Run:
    """A run among others."""

    name: str
    reports: Reports
    label: str  # of all that are drawn alike
    look: tuple[int, int]  # colour and stroke; when all colours are taken, a stroke begins


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs that have told anything.

    Raises:
        DataError: None has.
    """
    found = [read_reports(folder) for folder in folders]
    told = [
        (name, reports)
        for name, reports in zip(names(folders), found, strict=True)
        if reports.last_at is not None
    ]
    if not told:
        raise DataError(
            f"{', '.join(map(str, folders[:3]))}: no report yet; a run writes {METRICS} as it "
            "trains, every run.log_every steps"
        )
    labels = legend([name for name, _ in told])
    places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    return [
        Run(name, reports, label, divmod(places[label], _COLOURS)[::-1])
        for (name, reports), label in zip(told, labels, strict=True)
    ]


def names(folders: Sequence[Path]) -> list[str]:
    """Their paths without the parts that all have in common."""
    paths = [folder.resolve().parts for folder in folders]
    if len(paths) == 1:
        return ["/".join(paths[0][-2:])]
    own = [path[_alike(paths) :] for path in paths]
    tail = min(_alike([path[::-1] for path in own]), min(map(len, own)) - 1)
    return ["/".join(path[: len(path) - tail]) for path in own]


def legend(named: Sequence[str]) -> list[str]:
    """How each is labelled: seeds of a system, as SYSTEM/SEED says, alike beside other systems."""
    groups = [name.rpartition("/")[0] or name for name in named]
    if len(set(groups)) == 1:
        return list(named)
    counts = {group: groups.count(group) for group in groups}
    return [
        f"{group} ({counts[group]} runs)" if counts[group] > 1 else name
        for name, group in zip(named, groups, strict=True)
    ]


def _alike(paths: Sequence[Sequence[str]]) -> int:
    """How many parts at the beginning all have in common."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
