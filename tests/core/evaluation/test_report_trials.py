"""What was measured with other options, on other data or in part, and how figures are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.report.build import Report, build
from core.evaluation.report.compare import Baseline
from core.evaluation.report.document import Cautions, Table, Text
from core.evaluation.report.html import render_html
from core.evaluation.report.markdown import render_markdown
from core.evaluation.report.models import read_models
from core.evaluation.report.names import data_of, label_of, variant_of
from core.evaluation.result import make_result, write_result

TREE = "hierarchy, official prompts, names of torchvision"
NO_TREE = {"not_measured": ["hierarchy: hyper3 data fetch imagenet-tree"]}


def write(
    folder: Path, task: str, measures: Sequence[Measure], details: dict[str, Any] | None = None
) -> Path:
    determined_by = {
        "encoder": {"name": folder.name, "fingerprint": folder.name, "space": {}, "about": {}},
        "data": {"split": "test", "digest": "a", "records": 100_000},
        "protocol": {},
        "seed": 0,
    }
    finding = Finding(tuple(measures), details or {})
    write_result(folder, make_result(task, determined_by, finding, 1.0, "now"))
    return folder


def recall(count: int = 100, right: int = 50, chance: float = 0.1) -> Measure:
    outcomes = Outcomes("mean", np.arange(count) < right, np.arange(count))
    return Measure("image to text", "R@5", right / count, chance, count, is_headline=True,
                   outcomes=outcomes)  # fmt: skip


def report_of(*folders: Path, baseline: Path | None = None) -> Report:
    models, broken = read_models(folders)
    base = [model for model in models if model.folder == baseline]
    return build(models, Baseline(base[0]) if base else None, broken)


def tables(report: Report, title: str) -> list[Table]:
    (part,) = [each for each in report.document.sections if each.title.startswith(title)]
    return [block for block in part.blocks if isinstance(block, Table)]


def cells(table: Table, label: str) -> dict[str, str]:
    """Cells by their heading, of the last row under a label."""
    rows = [row.cells for row in table.rows if row.cells[0] == label]
    return dict(zip((cell.replace("\n", " ") for cell in table.header), rows[-1], strict=True))


def tree(jaccard: float = 0.8213, tie: float = 3.5) -> list[Measure]:
    return [
        Measure(TREE, "Jaccard", jaccard, None, 9),
        Measure(TREE, "TIE", tie, None, 9, unit="number", is_lower_better=True),
    ]


@pytest.mark.parametrize(
    ("task", "data", "variant"),
    [
        ("retrieval/coco-val2017", "coco-val2017", ""),
        ("retrieval/coco-val2017~limit-300~seed-1", "coco-val2017", "limit 300, seed 1"),
        ("classification/pets~letterbox~prompts-my-set", "pets", "letterbox, prompts my-set"),
    ],
)
def test_a_task_says_on_what_data_and_with_what_options_it_was_done(
    task: str, data: str, variant: str
) -> None:
    assert (data_of(task), variant_of(task)) == (data, variant)
    assert label_of(task) == (f"{data}, {variant}" if variant else data)


def test_a_trial_fills_no_row_of_the_paper_and_says_what_it_is(tmp_path: Path) -> None:
    task = "retrieval/flickr30k~limit-300"
    report = report_of(write(tmp_path / "a", task, [recall()]))
    titles = [part.title for part in report.document.sections]
    assert not any(title.startswith("Table ") for title in titles)
    (part,) = [each for each in report.document.sections if each.title.startswith("Retrieval")]
    headings = [block.text for block in part.blocks if isinstance(block, Text) and block.is_heading]
    assert headings == [f"Flickr30k, Karpathy test, limit 300: 100,000 records ({task})"]
    assert not any(row.split(",")[12] for row in report.spreadsheet.splitlines()[1:])


def test_a_trial_of_parts_has_nothing_published_beside_it(tmp_path: Path) -> None:
    measure = Measure("parts", "mean of a picture", 2.0, None, 9, unit="number")
    for task, has in (("parts/grit", True), ("parts/grit~limit-9", False)):
        report = report_of(write(tmp_path / str(has), task, [measure]))
        assert ("GRIT" in tables(report, "Parts")[0].header) is has


def test_trials_have_a_mean_of_their_own_in_the_summary(tmp_path: Path) -> None:
    for name in ("dtd", "pets", "cars", "food101", "eurosat"):
        for task, value in ((name, 0.5), (f"{name}~limit-9", 0.25)):
            measure = Measure("x", "mean per class", value, None, 9)
            write(tmp_path / "a", f"classification/{task}", [measure])
    (table,) = tables(report_of(tmp_path / "a"), "At a glance")
    assert [row.cells[:2] for row in table.rows if not row.is_heading] == [
        ("mean per class, mean of 5 data sets", "50.0"),
        ("mean per class, limit 9, mean of 5 data sets", "25.0"),
    ]


def test_chance_and_counts_that_differ_are_of_each_model(tmp_path: Path) -> None:
    for name, count, chance in (("a", 100, 0.01), ("b", 40, 0.025), ("c", 100, 0.01)):
        write(tmp_path / name, "retrieval/own", [recall(count, 20, chance)])
    places = [tmp_path / name for name in "abc"]
    found = cells(tables(report_of(*places), "Retrieval")[0], "R@5")
    assert (found["chance"], found["of"]) == ("1.0 / 2.5 / 1.0", "100 / 40 / 100")
    found = cells(tables(report_of(*places[::2]), "Retrieval")[0], "R@5")
    assert (found["chance"], found["of"]) == ("1.0", "100")


def test_rows_of_the_tree_are_written_as_published_whether_measured_or_not(
    tmp_path: Path,
) -> None:
    write(tmp_path / "without", "retrieval/flickr30k", [recall()])
    write(tmp_path / "with", "retrieval/flickr30k", [recall()])
    write(tmp_path / "with", "classification/imagenet", tree())
    measured, other = (
        tables(report_of(tmp_path / name), "Table 2")[0] for name in ("with", "without")
    )
    for table in (measured, other):
        assert cells(table, "Jaccard")["Hyper3-CLIP"] == "0.82"
        assert cells(table, "TIE ↓")["Hyper3-CLIP"] == "3.16"
    assert cells(measured, "Jaccard")["with"] == "0.821"
    assert cells(measured, "Jaccard")["with less Hyper3-CLIP"] == "+0.001"
    every = tables(report_of(tmp_path / "with"), "Classification")[0]
    assert cells(every, "Jaccard")["with"] == "0.821"


def test_a_tree_that_was_not_there_is_named_beside_its_rows_and_among_the_commands(
    tmp_path: Path,
) -> None:
    top = Measure("official prompts, names of torchvision", "mean per class", 0.5, None, 9)
    write(tmp_path / "a", "classification/imagenet", [top], NO_TREE)
    command = "hyper3 data fetch imagenet-tree"
    first = tables(report_of(tmp_path / "a"), "Not measured")[0]
    assert ("ImageNet, hierarchy", command) in [row.cells for row in first.rows]
    write(tmp_path / "a", "retrieval/flickr30k", [recall()])
    report = report_of(tmp_path / "a")
    table, commands = tables(report, "Table 2")
    headings = [row.cells[0] for row in table.rows if row.is_heading and "tree" in row.cells[0]]
    assert len(headings) == 2
    assert all(h.endswith(f"not measured: hierarchy: {command}") for h in headings)
    rows = [row.cells for row in commands.rows]
    assert ("ImageNet, hierarchy", command) in rows
    (part,) = [p for p in report.document.sections if p.title.startswith("Classification")]
    said = [text for b in part.blocks if isinstance(b, Cautions) for text in b.texts]
    assert any("imagenet-tree" in text for text in said)
    write(tmp_path / "a", "classification/imagenet", [top, *tree()])
    table, commands = tables(report_of(tmp_path / "a"), "Table 2")
    assert "imagenet-tree" not in str(table.rows) + str(commands.rows)


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (975.0, 1_000.0, "-25"),
        (2_001_234.0, 1_000.0, "+2,000,234"),
        (0.8213, 0.8198, "+0.001500"),
        (1.0, 1.0, "+0"),
    ],
)
def test_differences_of_numbers_are_written_like_other_numbers(
    tmp_path: Path, mine: float, theirs: float, said: str
) -> None:
    for name, value in (("a", mine), ("b", theirs)):
        median = Measure("rank", "median", value, None, 9, unit="number")
        write(tmp_path / name, "retrieval/own", [median])
    report = report_of(tmp_path / "a", tmp_path / "b", baseline=tmp_path / "b")
    assert cells(tables(report, "Retrieval")[0], "median")["Δ a"] == said


def test_the_heading_of_differences_is_short_and_names_the_model_below(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, "retrieval/own", [recall()])
    report = report_of(tmp_path / "a", tmp_path / "b", baseline=tmp_path / "b")
    page = render_html(report.document)
    assert '<th scope="col" title="Δ a">Δ <small>a</small></th>' in page
    assert 'class="scroll wide"' in page
    assert "| Δ a |" in render_markdown(report.document)
