"""Tables of models side by side, beside a baseline and what others have published."""

from collections.abc import Iterable, Sequence

from core.evaluation.measure import Measure
from core.evaluation.report.document import Row, Table, Tone
from core.evaluation.report.figures import (
    NOTHING,
    PAPER,
    Delta,
    Figure,
    delta,
    is_percent,
    marked,
    number,
    printed,
    shown,
)
from core.evaluation.report.models import Model
from core.evaluation.report.names import variant_of
from core.evaluation.report.published import Key, Published, published


class Baseline:
    """What models are compared with. It keeps what it has compared, for tests are slow."""

    def __init__(self, model: Model, seed: int = 0) -> None:
        """Of a model; ``seed`` of the draws of the paired tests."""
        self.model = model
        self._seed = seed
        self._cells: dict[tuple[str, Key], Delta] = {}

    def cell(self, model: Model, figure: Figure) -> Delta:
        """The model less the baseline, with the paired test where there is one."""
        at = (model.name, figure.key)
        if at not in self._cells:
            self._cells[at] = delta(figure, model, self.model, self._seed)
        return self._cells[at]


_ORDER = (PAPER, "UNCHA", "PHyCLIP", "HyCoCLIP", "ATMG", "MERU", "CLIP")

_MOST_DIFFERENCES = 2  # models whose differences to the paper stand in columns of their own

Groups = Sequence[tuple[str, Sequence[Figure]]]
"""Figures under headings."""


def paper_table(groups: Groups, models: Sequence[Model], baseline: Baseline | None) -> Table:
    """A table of the paper: models, differences, and the published systems."""
    figures = [figure for _, rows in groups for figure in rows]
    beside = {figure.key: figure.published for figure in figures}
    systems = _in_order({row.system: None for rows in beside.values() for row in rows})
    compared = _compared(models, baseline)
    to_paper = models if PAPER in systems and len(models) <= _MOST_DIFFERENCES else []
    header = [
        "",
        *_headings(models, baseline),
        *(_heading(model) for model in compared),
        *(f"{model.name}\nless {PAPER}" for model in to_paper),
        *systems,
    ]  # fmt: skip
    rows = []
    for heading, members in groups:
        if heading:
            rows.append(Row((heading,), is_heading=True))
        for figure in members:
            found = [figure.of(model) for model in models]
            theirs = beside[figure.key]
            cells, deltas = _ours(figure, models, baseline)
            deltas += [_to_paper(theirs, figure.of(model)) for model in to_paper]
            rows.append(_row(cells, deltas, [_theirs(theirs, name, found) for name in systems]))
    return Table(tuple(header), tuple(rows), published_from=len(header) - len(systems))


def overview(groups: Groups, models: Sequence[Model], baseline: Baseline | None) -> Table:
    """Figures of several tasks: models, differences and chance."""
    compared = _compared(models, baseline)
    header = ["", *_headings(models, baseline), *map(_heading, compared)]
    rows = []
    for heading, members in groups:
        rows.append(Row((heading,), is_heading=True))
        rows += [_row(*_ours(f, models, baseline), [_chance(f, models)]) for f in members]
    return Table((*header, "chance"), tuple(rows))


def task_table(task: str, models: Sequence[Model], baseline: Baseline | None) -> Table:
    """All figures of a task, with chance and how many they are of."""
    having = [model for model in models if task in model.results]
    compared = _compared(having, baseline)
    figures = [Figure(key[2], key) for key in _keys(task, having)]
    beside = {figure.key: _beside(figure) for figure in figures}
    systems = _in_order({row.system: None for rows in beside.values() for row in rows})
    header = [
        "",
        *_headings(having, baseline),
        *map(_heading, compared),
        "chance",
        "of",
        *systems,
    ]
    rows: list[Row] = []
    group = None
    for figure in figures:
        if figure.key[1] != group:
            group = figure.key[1]
            rows.append(Row((group,), is_heading=True))
        found = [figure.of(model) for model in having]
        cells, deltas = _ours(figure, having, baseline)
        rest = [_chance(figure, having), _count(found)]
        rest += [_theirs(beside[figure.key], system, found) for system in systems]
        rows.append(_row(cells, deltas, rest))
    return Table(tuple(header), tuple(rows), published_from=len(header) - len(systems))


def _keys(task: str, models: Sequence[Model]) -> list[Key]:
    """The figures of a task, those of a group together."""
    keys = dict.fromkeys(
        (task, measure.group, measure.name)
        for model in models
        for measure in model.results[task].measures
    )
    groups = dict.fromkeys(group for _, group, _ in keys)
    return [key for group in groups for key in keys if key[1] == group]


def _beside(figure: Figure) -> tuple[Published, ...]:
    """What is published for a figure that is in no table of the paper; of parts, GRIT's."""
    if figure.key[0].startswith("parts/") and not variant_of(figure.key[0]):
        return published().get(("parts/grit", *figure.key[1:]), ())
    return tuple(row for row in figure.published if row.table == "beyond")


def _in_order(systems: Iterable[str]) -> list[str]:
    """Whole systems from the newest to the oldest, then what is of other sizes or variants."""
    return sorted(systems, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def _compared(models: Sequence[Model], baseline: Baseline | None) -> list[Model]:
    if baseline is None:
        return []
    return [model for model in models if model.name != baseline.model.name]


def _heading(model: Model) -> str:
    return f"Δ\n{model.name}"


def _headings(models: Sequence[Model], baseline: Baseline | None) -> list[str]:
    base = baseline.model.name if baseline else None
    return [f"{m.name} (baseline)" if m.name == base else m.name for m in models]


def _ours(
    figure: Figure, models: Sequence[Model], baseline: Baseline | None
) -> tuple[list[str], list[Delta]]:
    """The name of a figure with each model's value, and the differences to the baseline."""
    found = [figure.of(model) for model in models]
    cells = [_label(figure, found), *("" if m is None else shown(m) for m in found)]
    compared = _compared(models, baseline)
    return cells, [baseline.cell(model, figure) for model in compared] if baseline else []


def _chance(figure: Figure, models: Sequence[Model]) -> str:
    found = [figure.of(model) for model in models]
    return _each([_said_chance(m) if m is not None else None for m in found])


def _said_chance(measure: Measure) -> str:
    return "" if measure.chance is None else number(measure, measure.chance)


def _label(figure: Figure, found: Sequence[Measure | None]) -> str:
    known = [measure.is_lower_better for measure in found if measure is not None]
    is_down = figure.is_lower_better or any(known)
    return f"{figure.label} ↓" if is_down else figure.label


def _count(found: Sequence[Measure | None]) -> str:
    return _each([f"{m.count:,}" if m is not None else None for m in found])


def _each(said: Sequence[str | None]) -> str:
    """What is the same for all models that have it, else of each in the order of the columns."""
    known = dict.fromkeys(each for each in said if each is not None)
    return next(iter(known)) if len(known) == 1 else " / ".join(each or NOTHING for each in said)


def _theirs(rows: Sequence[Published], system: str, found: Sequence[Measure | None]) -> str:
    row = next((row for row in rows if row.system == system), None)
    if row is None:
        return ""
    ours = {is_percent(measure) for measure in found if measure is not None} or {row.is_percent}
    return printed(row, in_percent=ours == {True})


def _to_paper(published: Sequence[Published], mine: Measure | None) -> Delta:
    rows = [row for row in published if row.system == PAPER]
    return marked(mine, mine.value - rows[0].value) if rows and mine is not None else Delta()


def _row(cells: Sequence[str], deltas: Sequence[Delta], rest: Sequence[str]) -> Row:
    tones: list[Tone] = ["" for _ in cells]
    return Row(
        (*cells, *(each.text for each in deltas), *rest),
        tones=(*tones, *(each.tone for each in deltas)),
    )
