"""A report from the results of models."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.evaluation.report import sweep
from core.evaluation.report.canvas import can_plot
from core.evaluation.report.cautions import Caution, find_cautions, told
from core.evaluation.report.compare import Baseline, task_table
from core.evaluation.report.details import task_blocks
from core.evaluation.report.document import (
    Block,
    Cautions,
    Code,
    Document,
    Section,
    Text,
    words,
)
from core.evaluation.report.families import family_blocks
from core.evaluation.report.gaps import is_measured, not_measured, paper_section
from core.evaluation.report.models import Model, data_title, families_of
from core.evaluation.report.names import TITLES, data_of
from core.evaluation.report.paper import MEANS, PAPER_TABLES
from core.evaluation.report.published import coverage, published
from core.evaluation.report.spreadsheet import render_csv
from core.evaluation.report.summary import summary
from core.evaluation.result import Result
from core.evaluation.suites import KINDS, SUITES

_INTRODUCTION = (
    "Shares are in percent. Brackets hold the 95% interval under redrawn pictures; ↓ marks what is "
    "better when small; chance is what guessing reaches."
)
_PUBLISHED = (
    "The last columns of the paper's tables are what others have published; where a cell is empty, "
    "no source that could be read had the number. † was read in notes of others on the paper. What "
    "was measured with other options than the usual ones stands in the section of its family."
)
_DIFFERENCES = (
    "Δ is a model less the baseline on the same pictures, with the interval and the two-sided p of "
    "a paired bootstrap where outcomes were kept. In the page green is better, red is worse, and "
    "bold has p under 0.05; where less is better a word says which it is. Tests are not corrected "
    "for their number: of twenty between equals one has p under 0.05."
)


@dataclass(frozen=True)
class Report:
    """All that is written."""

    document: Document
    spreadsheet: str
    cautions: tuple[str, ...]
    without_plots: bool


def build(models: Sequence[Model], baseline: Baseline | None, broken: Sequence[str] = ()) -> Report:
    """Headlines, tables of the paper, then every family, then what determined it all.

    Args:
        models: The columns.
        baseline: One of them, to which differences are taken; None without.
        broken: Of each result that could not be read why.
    """
    found = find_cautions(models, broken, baseline.model if baseline else None)
    shown = [part for part in PAPER_TABLES if is_measured(part, models)]
    glance = summary(models, baseline)
    sections = [_opening(models, baseline, found, has_published=bool(shown))]
    sections += [glance] if glance else []
    for part in shown:
        notes = told(found, SUITES[part.suite])
        blocks = paper_section(part, models, baseline)
        sections.append(Section(part.title, (*_noted(notes), *blocks)))
    sections += sweep.sections(models)
    sections += _families(models, baseline, found, shown=[part.suite for part in shown])
    missing = not_measured([part for part in PAPER_TABLES if part not in shown], models)
    sections += [missing] if missing else []
    sections += [_sources()] if shown else []
    sections.append(_provenance(models))
    names = ", ".join(model.name for model in models)
    return Report(
        Document(f"Evaluation of {names}", tuple(sections)),
        render_csv(models, MEANS),
        told(found),
        without_plots=not can_plot(),
    )


def _noted(texts: Sequence[str]) -> list[Block]:
    return [Cautions(tuple(texts))] if texts else []


def _opening(
    models: Sequence[Model],
    baseline: Baseline | None,
    found: Sequence[Caution],
    *,
    has_published: bool,
) -> Section:
    rows = [_model_row(model, baseline) for model in models]
    header = ("model", "space", "curvature", "logit scale", "fingerprint", "tasks", "about")
    said = [_INTRODUCTION, *([_DIFFERENCES] if baseline else [])]
    said += [_PUBLISHED] if has_published else []
    plots = (
        []
        if can_plot()
        else ["no plots: matplotlib is missing; pip install '.[eval]' in a checkout"]
    )
    return Section(
        "Models",
        (words(header, rows), *(Text(text) for text in said), *_noted([*told(found, []), *plots])),
    )


def _model_row(model: Model, baseline: Baseline | None) -> tuple[str, ...]:
    encoder, space = model.encoder, model.encoder["space"]
    is_base = baseline is not None and baseline.model.name == model.name
    curvature, scale = space.get("curvature"), encoder.get("logit_scale")
    if isinstance(curvature, list):
        text = f"{len(curvature)} of {min(curvature):.3g} to {max(curvature):.3g}"
    else:
        text = "" if curvature is None else f"{curvature:.3g}"
    return (
        f"{model.name} (baseline)" if is_base else model.name,
        str(space.get("geometry", "")),
        text,
        "" if scale is None else f"{scale:.4g}",
        str(encoder["fingerprint"])[:12],
        str(len(model.results)),
        ", ".join(f"{key} {value}" for key, value in encoder.get("about", {}).items()),
    )


def _families(
    models: Sequence[Model],
    baseline: Baseline | None,
    found: Sequence[Caution],
    *,
    shown: Sequence[str],
) -> Iterator[Section]:
    """A section a family: all figures of its tasks, with plots and listings."""
    in_tables = {task for suite in shown for task in SUITES[suite]}
    for family, tasks in families_of(models).items():
        blocks: list[Block] = (
            [Text(f"What is measured: {KINDS[family].about}.")] if family in KINDS else []
        )
        blocks += family_blocks(family, tasks, models)
        for task in tasks:
            blocks.append(Text(_heading(task, models), is_heading=True))
            blocks += [] if task in in_tables else _noted(told(found, [task]))
            blocks.append(task_table(task, models, baseline))
            blocks += task_blocks(task, models)
        yield Section(f"{family.capitalize()}: every figure", tuple(blocks))


def _heading(task: str, models: Sequence[Model]) -> str:
    data = next(m.results[task] for m in models if task in m.results).determined_by["data"]
    title = data_title(task, models)
    split = "" if data_of(task) in TITLES else f", split {data['split']}"
    return f"{title}{split}: {data['records']:,} records ({task})"


def _sources() -> Section:
    rows = list(
        dict.fromkeys(
            (
                row.table,
                f"{row.system}{f', {row.backbone}' if row.backbone else ''}",
                row.protocol,
                f"{row.source}{' †' if row.is_secondary else ''}",
            )
            for every in published().values()
            for row in every
        )
    )
    header = ("table", "system", "protocol", "source")
    return Section(
        "Sources: where the published numbers were read",
        (
            words(("table", "numbers read", "in no source that could be read"), coverage()),
            words(header, rows),
        ),
    )


def _provenance(models: Sequence[Model]) -> Section:
    blocks = [
        Code(
            f"{model.name} · {task}", json.dumps(_determined(result), indent=1, ensure_ascii=False)
        )
        for model in models
        for task, result in model.results.items()
    ]
    about = "Everything that determined each result. Equal keys, equal results."
    return Section("How it was measured", (Text(about), *blocks))


def _determined(result: Result) -> dict[str, object]:
    return {
        "key": result.key,
        "finished": result.finished,
        "seconds": round(result.seconds, 3),
        "left_out": list(result.left_out),
        **result.determined_by,
    }
