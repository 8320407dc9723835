"""What all tasks of a family show together."""

from collections.abc import Callable, Sequence

from core.evaluation.report import plots
from core.evaluation.report.canvas import can_plot
from core.evaluation.report.details import kept, known
from core.evaluation.report.document import Block, Text, words
from core.evaluation.report.models import Model
from core.evaluation.report.names import label_of


def family_blocks(family: str, tasks: Sequence[str], models: Sequence[Model]) -> list[Block]:
    """What there is to see of all tasks of a family at once."""
    show = _SHOWN.get(family)
    return show(tasks, models) if show else []


def _naming(tasks: Sequence[str], models: Sequence[Model]) -> list[Block]:
    """Reliability diagrams, a panel a data set, of the first group of each."""
    panels = {}
    for task in tasks:
        series = []
        for place, model, groups in kept(task, "reliability", models):
            bins = [each for each in next(iter(groups.values())) if each["count"]]
            x = [each["confidence"] for each in bins]
            y = [each["accuracy"] for each in bins]
            series.append(plots.Series(place, model.name, x, y))
        if series:
            panels[label_of(task)] = series
    if not (panels and can_plot()):
        return []
    caption = (
        "How often the nearest class is right, by how sure the model is of it. On the dotted line "
        "confidence is what it should be; below it the model is too sure of itself."
    )
    axes = plots.Axis("confidence", (0, 0.5, 1), top=1), plots.Axis("accuracy", top=1)
    columns = min(3, max(2, len(panels)))
    return [plots.curves("reliability", caption, panels, axes, columns=columns, has_diagonal=True)]


def _prompts(tasks: Sequence[str], models: Sequence[Model]) -> list[Block]:
    """Every template of every data set, and the best and the worst of them by name."""
    rows, extremes = [], []
    for task in tasks:
        name = label_of(task)
        for place, model, listed in kept(task, "templates", models):
            templates = known(listed, "accuracy")
            label = f"{name}, {model.name}" if len(models) > 1 else name
            label = model.name if len(tasks) == 1 else label
            values = [each["accuracy"] * 100 for each in templates]
            sets = {
                measure.name: measure.value * 100
                for measure in model.results[task].measures
                if measure.group == "prompt sets" and " less " not in measure.name
            }
            rows.append(plots.Prompts(place, label, values, sets))
            ordered = sorted(templates, key=lambda each: float(each["accuracy"]))
            ends = (("best", ordered[-1]), ("worst", ordered[0])) if len(ordered) > 1 else ()
            extremes += [
                (f"{label}, {say}", f"{each['accuracy'] * 100:.1f}", str(each["template"]))
                for say, each in ends
            ]
    if not rows:
        return []
    blocks: list[Block] = []
    if can_plot():
        caption = (
            "Accuracy, mean over classes, by each template alone (dots) and by whole sets, whose "
            "tangents are averaged (marks)."
        )
        blocks.append(plots.prompt_dots("prompts", caption, rows, "accuracy, %"))
    if not extremes:
        return blocks
    header = ("", "accuracy, %", "template")
    return [*blocks, Text("The best and the worst template:"), words(header, extremes, code=[2])]


_SHOWN: dict[str, Callable[[Sequence[str], Sequence[Model]], list[Block]]] = {
    "classification": _naming,
    "prompts": _prompts,
}
