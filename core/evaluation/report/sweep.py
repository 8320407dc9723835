"""Figure 2 of the paper: what more parts per picture bring."""

from collections.abc import Sequence

from core.evaluation.measure import Measure
from core.evaluation.report import plots
from core.evaluation.report.canvas import can_plot
from core.evaluation.report.document import Block, Section, Text, words
from core.evaluation.report.figures import Figure, shown
from core.evaluation.report.models import Model, tasks_of

_ALL = 64
"""What a recipe writes for all parts; no sample of GRIT has more than 20."""


def sections(models: Sequence[Model]) -> list[Section]:
    """The average recalls of models that differ in `max_parts`; nothing where there are no two."""
    caps = sorted({cap for model in models if (cap := _cap(model)) is not None})
    if len(caps) < 2:
        return []
    swept = sorted((m for m in models if _cap(m) is not None), key=lambda m: _cap(m) or 0)
    blocks: list[Block] = [
        Text(
            "Average recall of both ways over the models here that say with how many parts per "
            "picture they were trained, which the paper compares after 10,000 steps."
        )
    ]
    for task in tasks_of(swept):
        if task.startswith("retrieval/"):
            blocks += _of_task(task, swept)
    return [Section("Figure 2: parts per picture", tuple(blocks))] if len(blocks) > 1 else []


def _cap(model: Model) -> int | None:
    cap = model.encoder.get("about", {}).get("max_parts")
    return int(cap) if cap is not None else None


def _of_task(task: str, models: Sequence[Model]) -> list[Block]:
    recalls = {k: Figure(k, (task, "average", k)) for k in ("R@1", "R@10")}
    found = [
        (model, {k: m for k, figure in recalls.items() if (m := figure.of(model)) is not None})
        for model in models
    ]
    found = [(model, each) for model, each in found if len(each) == len(recalls)]
    if not found:
        return []
    rows = [
        (_say(_cap(model)), model.name, *(shown(each[k]) for k in recalls)) for model, each in found
    ]
    header = ("most parts", "model", *(f"average {k}" for k in recalls))
    blocks: list[Block] = [Text(task), words(header, rows)]
    if can_plot():
        places = list(range(len(found)))
        panels = {f"average {k}": [_series(k, [each[k] for _, each in found])] for k in recalls}
        blocks.append(
            plots.curves(
                f"sweep-{task.replace('/', '-')}",
                f"{task}: average recall by the most parts of a picture in training.",
                panels,
                (
                    plots.Axis("most parts", places, [_say(_cap(model)) for model, _ in found]),
                    plots.Axis("recall, %"),
                ),
            )
        )
    return blocks


def _say(cap: int | None) -> str:
    return "all" if cap is not None and cap >= _ALL else str(cap)


def _series(name: str, measures: Sequence[Measure]) -> plots.Series:
    values = [measure.value * 100 for measure in measures]
    bounds = [(measure.low, measure.high) for measure in measures]
    known = all(low is not None and high is not None for low, high in bounds)
    return plots.Series(
        0,
        name,
        list(range(len(values))),
        values,
        [(low or 0) * 100 for low, _ in bounds] if known else None,
        [(high or 0) * 100 for _, high in bounds] if known else None,
    )
