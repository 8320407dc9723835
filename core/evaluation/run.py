"""Doing tasks one after the other, each kept as soon as it is done."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from core.errors import DataError, Hyper3Error, StorageError, Unavailable
from core.evaluation.dataset import Dataset, open_dataset
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Encoder
from core.evaluation.result import Result, key_of, make_result, read_result, write_result
from core.evaluation.statistics import with_intervals
from core.evaluation.suites import Job
from core.evaluation.task import Kind, Options
from core.spaces import Euclidean, Product, Space


@dataclass(frozen=True)
class Done:
    """What became of a job."""

    job: Job
    state: Literal["measured", "kept", "missing", "failed"]
    """`kept`: the same had been measured before. `missing`: its data are not there."""
    result: Result | None = None
    message: str = ""


def run_jobs(
    jobs: Sequence[Job],
    embedder: Embedder,
    options: Options,
    folder: Path,
    open_data: Callable[[Path], Dataset] = open_dataset,
    *,
    again: bool = False,
) -> Iterator[Done]:
    """Do each job and write its result at once; a job that fails spoils no other.

    Args:
        jobs: What to do.
        embedder: The model.
        options: What the user chose.
        folder: Where results are read from and written to.
        open_data: How a data set is opened.
        again: Measure also what was measured before.

    Raises:
        Unavailable: The target is gone; what is finished stays.
        StorageError: A result cannot be kept.
    """
    for job in jobs:
        if job.is_missing:
            yield Done(job, "missing")
            continue
        if job.fault:
            yield Done(job, "failed", message=job.fault)
            continue
        try:
            yield _do(job, embedder, options, folder, open_data(job.path), again=again)
        except (Unavailable, StorageError):
            raise
        except Hyper3Error as error:
            yield Done(job, "failed", message=str(error))


def _do(
    job: Job, embedder: Embedder, options: Options, folder: Path, data: Dataset, *, again: bool
) -> Done:
    if not job.kind.applies(data):
        raise DataError(
            f"{job.path}: cannot be measured by {job.family} ({job.kind.about}): its records "
            f"allow {', '.join(data.families)}"
        )
    determined_by = {
        "encoder": describe(embedder.encoder),
        "data": {
            "name": data.name,
            "split": data.split,
            "digest": data.digest,
            "records": len(data.records),
            "limit": data.limit,
            "pictures": data.state(),
        },
        "protocol": job.kind.protocol(data, options),
        "seed": options.seed,
        "versions": {name: version(name) for name in ("hyper3-stack", "numpy", "pillow")},
    }
    task = job.task + _variant(job.kind, data, options)
    before = _before(folder / f"{task}.json")
    if before is not None:
        if data.is_bare and Path(before.source) != job.path.resolve():
            raise DataError(
                f"{folder / task}.json: is of {before.source}, which has the same name; name "
                "another --out, or delete it"
            )
        if not again and before.key == key_of(determined_by):
            return Done(job, "kept", before)
    start = time.perf_counter()
    finding = job.kind.measure(embedder, data, options)
    finding = replace(finding, measures=with_intervals(finding.measures, options.seed))
    seconds = time.perf_counter() - start
    now = datetime.now(UTC).isoformat(timespec="seconds")
    source = str(job.path.resolve())
    result = make_result(task, determined_by, finding, seconds, now, data.title, source)
    write_result(folder, result)
    return Done(job, "measured", result)


def _variant(kind: Kind, data: Dataset, options: Options) -> str:
    """What a task's name says of options that change it: a trial does not take a result's place."""
    protocol = kind.protocol(data, options)
    parts = [f"limit-{data.limit}"] if data.limit else []
    if kind.protocol(data, replace(options, preprocess=None)) != protocol:
        parts.append(str(options.preprocess))
    if options.prompts and kind.protocol(data, replace(options, prompts=None)) != protocol:
        parts.append(f"prompts-{'-'.join(options.prompts)}"[:60])
    if options.seed:
        parts.append(f"seed-{options.seed}")
    return "".join("~" + re.sub(r"[^\w.-]+", "-", part) for part in parts)


def describe(encoder: Encoder) -> dict[str, Any]:
    """An encoder as JSON."""
    return {
        "name": encoder.name,
        "fingerprint": encoder.fingerprint,
        "space": _describe_space(encoder.space),
        "logit_scale": encoder.logit_scale,
        "about": dict(encoder.about),
    }


def _describe_space(space: Space) -> dict[str, Any]:
    if isinstance(space, Euclidean):
        return {"geometry": "euclidean"}
    curvature = np.asarray(space.curvature, np.float64).tolist()
    if isinstance(space, Product):
        return {"geometry": "product", "curvature": curvature, "norm": space.norm}
    return {"geometry": "lorentz", "curvature": curvature, "score": space.score}


def _before(file: Path) -> Result | None:
    """The result of before; a damaged one does not count."""
    try:
        return read_result(file)
    except DataError:
        return None
