"""A report as CSV: one row a figure of a model."""

import csv
import io
import math
from collections.abc import Iterator, Sequence

from core.evaluation.measure import Measure
from core.evaluation.report.figures import Figure
from core.evaluation.report.models import Model
from core.evaluation.report.published import Published, published

_OWN = (
    "task", "data", "group", "name", "model", "value", "low", "high", "chance", "count", "unit",
    "is_lower_better",
)  # fmt: skip


def render_csv(models: Sequence[Model], means: Sequence[Figure]) -> str:
    """All figures of all models, and the means that tables show, as shares of 0..1 and numbers.

    Columns ``published NAME`` hold what a system has published for the same figure; ``key`` is
    that of the result, equal where all that determined it is equal.
    """
    systems = list(dict.fromkeys(row.system for rows in published().values() for row in rows))
    stream = io.StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow([*_OWN, *(f"published {system}" for system in systems), "key"])
    for model in models:
        for task, measure, rows, key in _figures(model, means):
            theirs = {row.system: row.value for row in rows}
            values = [_exact(theirs.get(system)) for system in systems]
            out.writerow([*_row(task, model, measure), *values, key])
    return stream.getvalue()


def _figures(
    model: Model, means: Sequence[Figure]
) -> Iterator[tuple[str, Measure, tuple[Published, ...], str]]:
    theirs = {id(model.find(*key)): rows for key, rows in published().items()}
    for task, result in model.results.items():
        for measure in result.measures:
            yield task, measure, theirs.get(id(measure), ()), result.key
    for figure in means:
        mean = figure.of(model)
        if mean is not None:
            yield figure.key[0], mean, figure.published, ""


def _row(task: str, model: Model, measure: Measure) -> list[str]:
    family, _, data = task.partition("/")
    return [
        family,
        guarded(data),
        guarded(measure.group),
        guarded(measure.name),
        guarded(model.name),
        _exact(measure.value),
        _exact(measure.low),
        _exact(measure.high),
        _exact(measure.chance),
        str(measure.count),
        measure.unit,
        str(measure.is_lower_better).lower(),
    ]


def _exact(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
