"""Tables of the paper as far as they were measured, and how to get the rest."""

from collections.abc import Sequence

from core.evaluation.listing import how_to_get
from core.evaluation.report.compare import Baseline, paper_table
from core.evaluation.report.document import Block, Section, Text, words
from core.evaluation.report.figures import Figure
from core.evaluation.report.models import Model
from core.evaluation.report.names import TITLES, data_of
from core.evaluation.report.paper import PaperTable
from core.evaluation.report.published import Key
from core.evaluation.suites import SUITES


def paper_section(
    part: PaperTable, models: Sequence[Model], baseline: Baseline | None
) -> list[Block]:
    """A table, and how to get what is missing from it."""
    groups = [(_titled(heading, rows, models), rows) for heading, rows in part.groups]
    blocks: list[Block] = [Text(part.about), paper_table(groups, models, baseline)]
    missing, lacking = missing_tasks(part, models), _lacking(part, models)
    if missing or lacking:
        blocks += [
            Text("Not measured; these commands get the data, and measure:"),
            how_to_fill(part, missing, lacking),
        ]
    return blocks


def _titled(heading: str, figures: Sequence[Figure], models: Sequence[Model]) -> str:
    """A heading that says beside empty rows what would fill them."""
    if any(figure.of(model) for figure in figures for model in models):
        return heading
    whats = [what for figure in figures for what in _lacked(figure.key, models)]
    return "; ".join((heading, *(f"not measured: {what}" for what in dict.fromkeys(whats))))


def _lacked(key: Key, models: Sequence[Model]) -> list[str]:
    """What models say that they lacked for a figure: ``hierarchy: COMMAND``."""
    lacking = (
        str(what)
        for model in models
        if key[0] in model.results
        for what in model.results[key[0]].details.get("not_measured", ())
    )
    return [what for what in dict.fromkeys(lacking) if key[1].startswith(what.partition(":")[0])]


def _lacking(part: PaperTable, models: Sequence[Model]) -> list[tuple[str, str]]:
    """Of figures that no model has, though it did their task: what they are, and the command."""
    found = [
        (data_of(figure.key[0]), what)
        for _, figures in part.groups
        for figure in figures
        if not any(figure.of(model) for model in models)
        for what in _lacked(figure.key, models)
    ]
    split = [(data, *what.partition(": ")[::2]) for data, what in dict.fromkeys(found)]
    return [(f"{TITLES.get(data, data)}, {what}", command) for data, what, command in split]


def is_measured(part: PaperTable, models: Sequence[Model]) -> bool:
    """Whether a model has any figure that belongs to this table first of all."""
    own = [
        figure
        for _, figures in part.groups
        for figure in figures
        if part.suite != "table5" or figure.key[0] == "chains/hierarcaps"
    ]
    return any(figure.of(model) is not None for figure in own for model in models)


def missing_tasks(part: PaperTable, models: Sequence[Model]) -> list[str]:
    """Tasks of the suite that no model did."""
    return [
        task for task in SUITES[part.suite] if not any(task in model.results for model in models)
    ]


def how_to_fill(
    part: PaperTable, missing: Sequence[str], lacking: Sequence[tuple[str, str]] = ()
) -> Block:
    """Which command gets the data of each task, and what tasks lack; the last one measures."""
    names = list(dict.fromkeys(task.partition("/")[2] for task in missing))
    rows = [(TITLES.get(name, name), how_to_get(name)) for name in names] + [*lacking]
    rows.append(("then", f"hyper3 eval TARGET {part.suite}"))
    return words(("data", "command"), rows, code=[1])


def not_measured(parts: Sequence[PaperTable], models: Sequence[Model]) -> Section | None:
    """The tables of which nothing was measured, and how to get their data."""
    if not parts:
        return None
    blocks: list[Block] = []
    for part in parts:
        missing, lacking = missing_tasks(part, models), _lacking(part, models)
        blocks += [Text(f"{part.title}."), how_to_fill(part, missing, lacking)]
    return Section("Not measured: tables of the paper", tuple(blocks))
