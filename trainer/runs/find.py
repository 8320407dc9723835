"""Where runs lie."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from core.errors import DataError

RECIPE = "recipe.json"
"""What a folder holds that is a run's."""

_DEPTH = 5  # folders below the one that is named: COMPARISON/runs/SYSTEM/seed-N and one more


def runs_below(folder: Path | None) -> list[Path]:
    """The folders of the runs in a folder, or itself; else those where training puts them.

    Args:
        folder: What is looked through; None for ``runs`` and ``comparisons/*/runs`` here.

    Raises:
        DataError: There is no such folder, or no run in it.
    """
    if folder is None:
        looked = [Path("runs"), *sorted(Path("comparisons").glob("*/runs"))]
        found = [run for place in looked for run in _walk(place, _DEPTH)]
        where = "runs and comparisons/*/runs"
        remedy = "name another folder, or begin a run: hyper3 train RECIPE"
    elif folder.is_dir():
        found, where = list(_walk(folder, _DEPTH)), str(folder)
        remedy = "name the folder of a run, or one with runs in it"
    else:
        raise DataError(f"{folder}: no such folder; name that of a run, or one with runs in it")
    if not found:
        here = "" if folder else f" (of {Path.cwd()})"
        raise DataError(f"no run below {where}{here}: a run has a {RECIPE}; {remedy}")
    return found


def named_runs(folders: Sequence[Path]) -> list[Path]:
    """Those that are named, and those in folders that are named, each once.

    Raises:
        DataError: One of them is no folder, or has no run in it.
    """
    found = [run for folder in folders for run in runs_below(folder)]
    return list({run.resolve(): run for run in found}.values())


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Runs in the order of their names; what lies within a run is not looked at."""
    if (folder / RECIPE).is_file():
        yield folder
        return
    if depth == 0:
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:  # not there, or not ours to read
        return
    for path in inside:
        if not path.name.startswith(".") and not path.is_symlink():
            yield from _walk(path, depth - 1)
