"""Figure 2 of the paper: what more parts per picture bring."""

import json
import re
from collections.abc import Sequence

from core.evaluation.measure import Measure
from core.evaluation.report import plots
from core.evaluation.report.canvas import can_plot
from core.evaluation.report.details import plot_name
from core.evaluation.report.document import Block, Section, Text, words
from core.evaluation.report.figures import Figure, shown
from core.evaluation.report.models import Model, tasks_of

_ALL = 64
"""What a recipe writes for all parts; no sample of GRIT has more than 20."""

_ENDING = re.compile(r"-(\d+|all)(?=-smoke$|$)")
"""Of the recipes of a sweep: `parts-2` to `parts-all`."""

_OF_MACHINES = ("pictures", "title")
"""What of the data says where they lie, not what they are."""


def sections(models: Sequence[Model]) -> list[Section]:
    """The average recalls of models that differ in `max_parts` alone; nothing without any."""
    blocks: list[Block] = []
    for task in tasks_of(models):
        if task.startswith("retrieval/"):
            alike: dict[str, list[Model]] = {}
            for model in models:
                if task in model.results and _cap(model) is not None:
                    alike.setdefault(_likeness(model, task), []).append(model)
            for place, members in enumerate(alike.values(), 1):
                blocks += _of_task(task, sorted(members, key=lambda m: _cap(m) or 0), place)
    about = (
        "Average recall of both ways over models that differ in nothing but with how many parts "
        "per picture they were trained, which the paper compares after 10,000 steps."
    )
    return [Section("Figure 2: parts per picture", (Text(about), *blocks))] if blocks else []


def _likeness(model: Model, task: str) -> str:
    """What models of one sweep share: recipe but for its last part, training, data, protocol."""
    about = dict(model.encoder.get("about", {}))
    about.pop("max_parts")
    about.pop("recipe", None)
    determined = model.results[task].determined_by
    data = {key: value for key, value in determined["data"].items() if key not in _OF_MACHINES}
    return json.dumps([about, _stem(model), data, determined["protocol"]], sort_keys=True)


def _cap(model: Model) -> int | None:
    cap = model.encoder.get("about", {}).get("max_parts")
    return int(cap) if cap is not None else None


def _of_task(task: str, models: Sequence[Model], place: int) -> list[Block]:
    recalls = {k: Figure(k, (task, "average", k)) for k in ("R@1", "R@10")}
    found = [
        (model, {k: m for k, figure in recalls.items() if (m := figure.of(model)) is not None})
        for model in models
    ]
    found = [(model, each) for model, each in found if len(each) == len(recalls)]
    if len({_cap(model) for model, _ in found}) < 2:
        return []
    rows = [
        (_say(_cap(model)), model.name, *(shown(each[k]) for k in recalls)) for model, each in found
    ]
    header = ("most parts", "model", *(f"average {k}" for k in recalls))
    blocks: list[Block] = [Text(f"{task}, by {_stem(found[0][0])}:"), words(header, rows)]
    if can_plot():
        ticks = list(range(len(found)))
        panels = {f"average {k}": [_series(k, [each[k] for _, each in found])] for k in recalls}
        blocks.append(
            plots.curves(
                plot_name(f"sweep {task}", str(place)),
                f"{task}: average recall by the most parts of a picture in training.",
                panels,
                (
                    plots.Axis("most parts", ticks, [_say(_cap(model)) for model, _ in found]),
                    plots.Axis("recall, %"),
                ),
            )
        )
    return blocks


def _stem(model: Model) -> str:
    return _ENDING.sub("", str(model.encoder["about"].get("recipe", model.name)))


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
