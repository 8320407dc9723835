"""Results on disk: one JSON a task with all that determined it, its outcomes beside it as `.npz`.

::

    results/MODEL/
      embeddings/KEY.npy          what was embedded (`core.evaluation.embedder`)
      retrieval/flickr30k.json    a result
      retrieval/flickr30k.npz     its outcomes, from which intervals and paired tests are computed
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import DataError, StorageError
from core.evaluation.measure import Finding, Measure, Outcomes

FORMAT = 1


@dataclass(frozen=True)
class Result:
    """What a task found, and what determined it."""

    task: str
    """``family/data``, as `retrieval/flickr30k`."""
    determined_by: dict[str, Any]
    """JSON: ``encoder`` (name, fingerprint, space, about), ``data`` (name, title, split, digest,
    records, limit), ``protocol`` (of the family), ``seed``, ``versions``."""
    measures: tuple[Measure, ...]
    details: dict[str, Any]
    left_out: tuple[str, ...]
    seconds: float
    finished: str
    """ISO 8601, UTC."""

    @property
    def key(self) -> str:
        """sha256 over all that determined it: equal keys, equal results."""
        return key_of(self.determined_by)

    @property
    def family(self) -> str:
        """The kind of task."""
        return self.task.partition("/")[0]

    def find(self, group: str, name: str) -> Measure | None:
        """The measure of a name."""
        return next((m for m in self.measures if (m.group, m.name) == (group, name)), None)


def key_of(determined_by: dict[str, Any]) -> str:
    """sha256 (hex) of what determines a result."""
    return hashlib.sha256(json.dumps(determined_by, sort_keys=True).encode()).hexdigest()


def make_result(
    task: str, determined_by: dict[str, Any], finding: Finding, seconds: float, finished: str
) -> Result:
    """A finding as a result."""
    return Result(
        task,
        json.loads(json.dumps(determined_by)),
        finding.measures,
        finding.details,
        finding.left_out,
        seconds,
        finished,
    )


def write_result(folder: Path, result: Result) -> Path:
    """Write ``folder/TASK.json`` and the outcomes beside it; the JSON last, so that it is whole.

    Raises:
        StorageError: They cannot be written.
    """
    file = folder / f"{result.task}.json"
    figures = [_figure(measure) for measure in result.measures]
    whole = {
        "format_version": FORMAT,
        "task": result.task,
        "key": result.key,
        "determined_by": result.determined_by,
        "measures": figures,
        "details": result.details,
        "left_out": result.left_out,
        "seconds": round(result.seconds, 3),
        "finished": result.finished,
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file.with_suffix(".npz"), _packed(result.measures))
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=True) + "\n"
        _replace(file, text.encode())
    except OSError as error:
        raise StorageError(f"{file}: cannot be written: {error.strerror}") from error
    return file


def write_figures(file: Path, results: Sequence[Result]) -> None:
    """Write ``{TASK: {"left_out": n, "measures": {GROUP: {NAME: {value, chance, count, ...}}}}}``.

    Raises:
        StorageError: The file cannot be written.
    """
    whole: dict[str, Any] = {}
    for result in results:
        groups: dict[str, dict[str, Any]] = {}
        for measure in result.measures:
            figure = _figure(measure)
            groups.setdefault(figure.pop("group"), {})[figure.pop("name")] = figure
        whole[result.task] = {"left_out": len(result.left_out), "measures": groups}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise StorageError(f"{file}: cannot be written: {error.strerror}") from error


def read_result(file: Path) -> Result:
    """A result with its outcomes.

    Raises:
        DataError: The file is missing, torn, or of another format.
    """
    try:
        content = json.loads(file.read_bytes())
        if content["format_version"] != FORMAT:
            raise DataError(
                f"{file}: format {content['format_version']} where {FORMAT} is known; "
                "run `hyper3 eval` again"
            )
        outcomes = _unpacked(file.with_suffix(".npz"))
        measures = tuple(
            replace(Measure(**figure), outcomes=outcomes.get(row))
            for row, figure in enumerate(content["measures"])
        )
        return Result(
            content["task"],
            content["determined_by"],
            measures,
            content["details"],
            tuple(content["left_out"]),
            content["seconds"],
            content["finished"],
        )
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise DataError(f"{file}: not a result: {error}; run `hyper3 eval` again") from error


def read_results(folder: Path) -> list[Result]:
    """All results of a model's folder, by task.

    Raises:
        DataError: The folder holds none, or one is broken.
    """
    found = [read_result(file) for file in _result_files(folder)]
    if not found:
        raise DataError(f"{folder}: holds no results; `hyper3 eval` writes them")
    return sorted(found, key=lambda result: result.task)


def _result_files(folder: Path) -> Iterator[Path]:
    return folder.glob("*/*.json")


def _figure(measure: Measure) -> dict[str, Any]:
    return {name: v for name, v in asdict(replace(measure, outcomes=None)).items() if v is not None
            or name == "chance"}  # fmt: skip


def _packed(measures: Sequence[Measure]) -> bytes:
    arrays: dict[str, Any] = {}
    for row, measure in enumerate(measures):
        if measure.outcomes is not None:
            arrays[f"{row}.statistic"] = np.array(measure.outcomes.statistic)
            arrays[f"{row}.values"] = measure.outcomes.values
            arrays[f"{row}.cluster"] = measure.outcomes.cluster
            if measure.outcomes.labels is not None:
                arrays[f"{row}.labels"] = measure.outcomes.labels
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _unpacked(file: Path) -> dict[int, Outcomes]:
    with np.load(file, allow_pickle=False) as arrays:
        rows = [int(name.partition(".")[0]) for name in arrays if name.endswith(".values")]
        return {
            row: Outcomes(
                arrays[f"{row}.statistic"].item(),
                arrays[f"{row}.values"],
                arrays[f"{row}.cluster"],
                arrays.get(f"{row}.labels"),
            )
            for row in rows
        }


def _replace(file: Path, content: bytes) -> None:
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
