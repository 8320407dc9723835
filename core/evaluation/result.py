"""Results on disk: one JSON a task with all that determined it, its outcomes beside it as `.npz`.

::

    results/MODEL/
      embeddings/KEY.chunk        what was embedded (`core.evaluation.embedder`)
      retrieval/flickr30k.json    a result
      retrieval/flickr30k.npz     its outcomes, from which intervals and paired tests are computed
"""

import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import DataError
from core.evaluation.files import write_whole
from core.evaluation.measure import Finding, Measure, Outcomes

FORMAT = 1

_DAMAGED = (ValueError, KeyError, TypeError)


@dataclass(frozen=True)
class Result:
    """What a task found, and what determined it."""

    task: str
    """``family/data``, as `retrieval/flickr30k`."""
    determined_by: dict[str, Any]
    """JSON: ``encoder`` (name, fingerprint, space, about), ``data`` (name, split, digest, records,
    limit, pictures), ``protocol`` (of the family), ``seed``, ``versions``."""
    measures: tuple[Measure, ...]
    details: dict[str, Any]
    left_out: tuple[str, ...]
    seconds: float
    finished: str
    """ISO 8601, UTC."""
    title: str = ""
    """What the data are called."""
    source: str = ""
    """Where they lay."""

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
    task: str,
    determined_by: dict[str, Any],
    finding: Finding,
    seconds: float,
    finished: str,
    title: str = "",
    source: str = "",
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
        title,
        source,
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
        "title": result.title,
        "source": result.source,
        "key": result.key,
        "determined_by": result.determined_by,
        "measures": figures,
        "details": result.details,
        "left_out": result.left_out,
        "seconds": round(result.seconds, 3),
        "finished": result.finished,
    }
    outcomes = _packed(result.measures)
    whole = _finite(whole | {"outcomes": hashlib.sha256(outcomes).hexdigest()})
    write_whole(_beside(file), outcomes)
    write_whole(file, _json(whole | {"sha256": key_of(whole)}, indent=1))
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
    write_whole(file, _json(_finite(whole), indent=2))


def read_result(file: Path) -> Result:
    """A result with its outcomes.

    Raises:
        DataError: A file of it is missing, torn, changed by hand, or of another format.
    """
    try:
        content = json.loads(_read(file))
        if content["format_version"] != FORMAT:
            raise DataError(
                f"{file}: format {content['format_version']} where {FORMAT} is known; "
                "run `hyper3 eval` again"
            )
        if content.pop("sha256") != key_of(content):
            raise DataError(f"{file}: was changed after it was written; run `hyper3 eval` again")
        outcomes = _unpacked(_beside(file), content["outcomes"])
        measures = tuple(
            replace(_measure(figure), outcomes=outcomes.get(row))
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
            content["title"],
            content["source"],
        )
    except _DAMAGED as error:
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
    figure = asdict(replace(measure, outcomes=None))
    return {name: value for name, value in figure.items() if value is not None or name == "chance"}


def _measure(figure: dict[str, Any]) -> Measure:
    value = figure.pop("value")
    return Measure(value=math.nan if value is None else value, **figure)


def _json(content: Any, indent: int) -> bytes:
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _finite(content: Any) -> Any:
    """What every reader of JSON takes: null where a number is none."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.stem}.npz")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error


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


def _unpacked(file: Path, digest: str) -> dict[int, Outcomes]:
    """The outcomes by measure.

    Raises:
        DataError: They are missing, damaged, or of another result.
    """
    content = _read(file)
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{file}: damaged, or of another result; run `hyper3 eval` again")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
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
