"""What a task kept beside its figures, as plots and listings."""

from collections.abc import Callable, Sequence
from typing import Any

from core.evaluation.report import plots
from core.evaluation.report.canvas import can_plot
from core.evaluation.report.document import Block, Cautions, Listing, Text, words
from core.evaluation.report.models import Model

Found = Sequence[tuple[int, Model, Any]]
"""Place, model and what it kept under a key, of the models that kept anything."""

_MOST_CLASSES = 40


def task_blocks(task: str, models: Sequence[Model]) -> list[Block]:
    """Of each key of the details that is known, what there is to see."""
    blocks: list[Block] = [Text(note) for note in _remarks(task, "notes", models)]
    lacking = tuple(f"not measured: {what}" for what in _remarks(task, "not_measured", models))
    blocks += [Cautions(lacking)] if lacking else []
    for key, show in _SHOWN.items():
        found = kept(task, key, models)
        if found:
            blocks += show(task, found)
    return blocks


def kept(task: str, key: str, models: Sequence[Model]) -> list[tuple[int, Model, Any]]:
    """What models kept under a key of a task's details, with their places."""
    return [
        (place, model, model.results[task].details[key])
        for place, model in enumerate(models)
        if task in model.results and model.results[task].details.get(key)
    ]


def plot_name(task: str, what: str) -> str:
    """A file's name."""
    text = "".join(
        letter if letter.isascii() and letter.isalnum() else "-" for letter in f"{task} {what}"
    )
    return "-".join(filter(None, text.lower().split("-")))


def _reasons(_: str, found: Found) -> list[Block]:
    return [Cautions(tuple(f"{model.name}: {reason}" for _, model, reason in found))]


def _remarks(task: str, key: str, models: Sequence[Model]) -> list[str]:
    """What models remark, each once; whose it is where not all of them say it."""
    having = [model.name for model in models if task in model.results]
    whose: dict[str, list[str]] = {}
    for _, model, remarks in kept(task, key, models):
        for remark in remarks:
            whose.setdefault(remark, []).append(model.name)
    return [
        remark if names == having else f"{', '.join(names)}: {remark}"
        for remark, names in whose.items()
    ]


def _recall_curve(task: str, found: Found) -> list[Block]:
    if not can_plot():
        return []
    ways = dict.fromkeys(way for *_, curve in found for way in curve)
    panels = {
        way: [
            plots.Series(
                place,
                model.name,
                [k for k, _ in curve[way]],
                [recall * 100 for _, recall in curve[way]],
            )
            for place, model, curve in found
            if curve.get(way)
        ]
        for way in ways
    }
    panels = {way: series for way, series in panels.items() if series}
    if not panels:
        return []
    most = max(k for series in panels.values() for each in series for k in each.x)
    ticks = [k for k in (1, 10, 100, 1000) if k <= most]
    caption = f"{task}: share of queries with a right answer among the k nearest."
    axes = plots.Axis("k", ticks, is_log=True), plots.Axis("recall, %", top=100)
    return [plots.curves(plot_name(task, "recall"), caption, panels, axes)]


def _radii(task: str, found: Found) -> list[Block]:
    if not can_plot():
        return []
    panels = {
        model.name: [
            plots.Histogram(level, each["edges"], each["counts"]) for level, each in radii.items()
        ]
        for _, model, radii in found
    }
    caption = f"{task}: distances from the origin by granularity; what is general should be near."
    return [plots.histograms(plot_name(task, "radii"), caption, panels, "radius")]


def _classes(task: str, found: Found) -> list[Block]:
    """Average precision by class, of the first variant of names."""
    by_model = [(place, model, known(next(iter(of.values())), "ap")) for place, model, of in found]
    first = sorted(by_model[0][2], key=lambda each: -float(each["ap"]))
    names = [str(each["name"]) for each in first]
    if can_plot() and 0 < len(names) <= _MOST_CLASSES:
        rows = {name: row for row, name in enumerate(names)}
        series = []
        for place, model, classes in by_model:
            own = [each for each in classes if each["name"] in rows]
            aps = [each["ap"] * 100 for each in own]
            series.append(plots.Series(place, model.name, aps, [rows[e["name"]] for e in own]))
        caption = f"{task}: average precision of each class."
        name = plot_name(task, "classes")
        return [plots.ranked(name, caption, names, series, "average precision, %")]
    found_by = [{str(each["name"]): each["ap"] for each in classes} for *_, classes in by_model]
    lines = tuple(
        f"{name}: {' / '.join(f'{aps[name] * 100:.1f}' if name in aps else '' for aps in found_by)}"
        for name in names
    )
    heading = " / ".join(model.name for _, model, _ in by_model)
    return [Listing("Average precision of each class, %", ((heading, lines),))]


def known(rows: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The rows that have a number; of nothing there is none."""
    return [row for row in rows if row[key] is not None]


def _histogram(task: str, found: Found) -> list[Block]:
    _, _, counts = found[0]  # of the data alone: every model's is the same
    numbers = {int(parts): count for parts, count in counts.items()}
    span = range(min(numbers), max(numbers) + 1)
    if can_plot():
        group = plots.Histogram(task, list(span), [numbers.get(parts, 0) for parts in span])
        caption = f"{task}: how many parts pictures have."
        axes = ("parts of a picture", "pictures, %")
        return [plots.bars(plot_name(task, "histogram"), caption, [group], axes)]
    rows = [(str(parts), f"{count:,}") for parts, count in sorted(numbers.items())]
    return [words(("parts", "pictures"), rows)]


def _traversals(task: str, found: Found) -> list[Block]:
    return [
        Listing(
            f"Texts from a picture to the root: {model.name}, {task}",
            (
                *((str(each["picture"]), _steps(each["steps"])) for each in walks if _meets(each)),
                *_alone(sum(not _meets(each) for each in walks)),
            ),
        )
        for _, model, walks in found
    ]


def _meets(walk: dict[str, Any]) -> bool:
    """Whether there is any text on the way to the root, which ends every path."""
    return len(walk["steps"]) > 1


def _alone(count: int) -> list[tuple[str, tuple[str, ...]]]:
    """What stands for the paths on which there is nothing."""
    paths = "path meets" if count == 1 else "paths meet"
    return [(f"{count:,} {paths} no text, the root alone", ())] if count else []


def _interpolations(task: str, found: Found) -> list[Block]:
    return [
        Listing(
            f"Texts from one picture to another: {model.name}, {task}",
            tuple((f"{each['from']} → {each['to']}", _steps(each["steps"])) for each in walks),
        )
        for _, model, walks in found
    ]


def _steps(steps: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(
        f"{step['text']} ({step['at']:.2f}"
        + ("" if step.get("radius") is None else f", radius {step['radius']:.3f}")
        + ")"
        for step in steps
    )


def _ties(_: str, found: Found) -> list[Block]:
    rows = [
        (model.name, rule, f"{each['distinct']:,.0f}", f"{each['most frequent'] * 100:.1f}",
         f"{each['zero'] * 100:.1f}")
        for _, model, ties in found
        for rule, each in ties.items()
        if isinstance(each, dict)
    ]  # fmt: skip
    if not rows:
        return []
    header = ("model", "score, negatives", "distinct scores", "the most frequent, %", "zero, %")
    return [Text("Ties, which the average precision depends on:"), words(header, rows)]


_SHOWN: dict[str, Callable[[str, Found], list[Block]]] = {
    "not_applicable": _reasons,
    "recall_curve": _recall_curve,
    "radii": _radii,
    "classes": _classes,
    "histogram": _histogram,
    "ties": _ties,
    "traversals": _traversals,
    "interpolations": _interpolations,
}
