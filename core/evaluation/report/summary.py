"""One figure a task, to see at a glance how models stand."""

from collections.abc import Sequence

from core.evaluation.report.compare import Baseline, Groups, overview
from core.evaluation.report.document import Section, Text
from core.evaluation.report.figures import Figure
from core.evaluation.report.models import Model, data_title, families_of
from core.evaluation.report.names import variant_of
from core.evaluation.report.published import Key

_CHOSEN = {
    "retrieval": ("average", "R@1"),
    "classification": ("*", "mean per class"),
    "multilabel": ("*", "mAP"),
    "chains": ("own captions against fixed negatives, signed margin", "AP"),
    "pairs": ("*", "mean over kinds"),
    "structure": ("the general entails the specific", "caption and whole"),
    "prompts": ("prompt sets", "official"),
    "probe": ("*", "mean per class"),
    "traversal": ("*", "own levels met on the way"),
}
"""Group and name by family; where a task has none such, its first headline stands for it."""

_MOST = 4
"""Tasks of a family that are shown one by one."""


def summary(models: Sequence[Model], baseline: Baseline | None) -> Section | None:
    """The headline of each task, families in their order; nothing where no task has any."""
    groups: Groups = [
        (family.capitalize(), figures)
        for family, tasks in families_of(models).items()
        if (figures := _figures(family, tasks, models))
    ]
    if not groups:
        return None
    about = "One figure of a task, or the mean of many tasks; the sections below have all of them."
    return Section("At a glance", (Text(about), overview(groups, models, baseline)))


def _figures(family: str, tasks: Sequence[str], models: Sequence[Model]) -> list[Figure]:
    """A figure a task; of many tasks with the same options, if a model did all, their mean."""
    found: list[Figure] = []
    for variant in dict.fromkeys(map(variant_of, tasks)):
        alike = [task for task in tasks if variant_of(task) == variant]
        found += _of_variant(family, variant, alike, models)
    return found


def _of_variant(
    family: str, variant: str, tasks: Sequence[str], models: Sequence[Model]
) -> list[Figure]:
    figures = [figure for task in tasks if (figure := _figure(task, models))]
    names = {figure.key[2] for figure in figures}
    if len(figures) <= _MOST or len(names) > 1:
        return figures
    (name,) = names
    label = ", ".join(filter(None, (name, variant, f"mean of {len(figures)} data sets")))
    mean = Figure(label, (family, f"mean {variant}", name), parts=tuple(figures))
    return [mean] if any(mean.of(model) for model in models) else figures


def _figure(task: str, models: Sequence[Model]) -> Figure | None:
    key = _key(task, models)
    if key is None:
        return None
    _, group, name = key
    said = name if group == "*" else f"{group}, {name}"
    return Figure(f"{data_title(task, models)}: {said}", key)


def _key(task: str, models: Sequence[Model]) -> Key | None:
    group, name = _CHOSEN.get(task.partition("/")[0], ("", ""))
    if any(model.find(task, group, name) for model in models):
        return task, group, name
    headlines = (
        (task, measure.group, measure.name)
        for model in models
        if task in model.results
        for measure in model.results[task].measures
        if measure.is_headline
    )
    return next(headlines, None)
