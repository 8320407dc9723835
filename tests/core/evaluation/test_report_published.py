import tomllib
from importlib.resources import files

import pytest

from core.evaluation.measure import Measure
from core.evaluation.report.figures import number, printed
from core.evaluation.report.paper import PAPER_TABLES
from core.evaluation.report.published import (
    Published,
    coverage,
    official_counts,
    protocol_notes,
    published,
)
from core.evaluation.suites import KINDS, SUITES


def of(task: str, group: str, name: str, system: str) -> Published:
    return next(row for row in published()[task, group, name] if row.system == system)


def test_every_number_says_where_it_was_read_and_how_it_was_measured() -> None:
    rows = [row for every in published().values() for row in every]
    assert all(row.source and row.protocol and row.table and row.system for row in rows)
    assert len(rows) > 100


def test_no_system_has_two_numbers_for_one_figure() -> None:
    for rows in published().values():
        systems = [row.system for row in rows]
        assert len(systems) == len(set(systems))


def test_every_number_of_a_table_stands_in_one_of_its_rows() -> None:
    shown = {f.key for part in PAPER_TABLES for _, figures in part.groups for f in figures}
    in_tables = {
        key for key, rows in published().items() if any(row.table[0] in "23456" for row in rows)
    }
    assert in_tables <= shown


def test_the_tables_show_every_task_of_their_suite() -> None:
    for part in PAPER_TABLES:
        figures = [figure for _, group in part.groups for figure in group]
        figures += [each for figure in figures for each in figure.parts]
        keys = {key[0] for f in figures for key in (f.key, f.otherwise) if key}
        assert set(SUITES[part.suite]) <= keys


def test_the_numbers_that_the_paper_is_known_by_are_these() -> None:
    coco = of("retrieval/coco-karpathy", "text to image", "R@10", "Hyper3-CLIP")
    assert (coco.value, coco.decimals, coco.is_percent) == (0.732, 1, True)
    voc = of("multilabel/voc2007-all", "raw tokens", "mAP, ties in insertion order", "Hyper3-CLIP")
    assert (voc.value, voc.decimals) == (0.782, 2)  # printed 78.20
    group = "hierarchy, official prompts, names of torchvision"
    assert of("classification/imagenet", group, "TIE", "Hyper3-CLIP").value == 3.16
    assert of("table6", "official prompts", "mean of the three", "Hyper3-CLIP").value == 0.0326
    assert of("table3", "average", "prompts not known", "UNCHA").value == 0.4741


def test_an_average_of_unknown_prompts_stands_in_a_row_of_its_own() -> None:
    rows = published()["table3", "average", "as the paper has it"]
    assert [(row.system, row.value) for row in rows] == [("Hyper3-CLIP", 0.4784)]
    assert "not said" in of("table3", "average", "prompts not known", "UNCHA").protocol


def test_how_much_of_a_table_could_be_read_is_counted() -> None:
    said = {table: (read, missing) for table, read, missing in coverage()}
    assert said["3"][0] == "27 of 119"
    assert said["6"][0] == "3"
    assert {
        row.table for rows in published().values() for row in rows if row.table[0] in "23456F"
    } >= {*said}


def test_notes_and_counts_are_of_tasks_that_there_are() -> None:
    tasks = {task for _, tasks in protocol_notes() for task in tasks}
    assert tasks <= set(SUITES["paper"])
    names = {task.partition("/")[2] for task in (*SUITES["paper"], *SUITES["beyond"])}
    assert set(official_counts()) <= names
    assert all(
        key[0].partition("/")[0] in {*KINDS, "table3", "table5", "table6"} for key in published()
    )


def test_official_counts_are_those_that_are_fetched() -> None:
    text = (files("trainer.fetch") / "catalogue.toml").read_text(encoding="utf-8")
    catalogue = tomllib.loads(text)
    for name, count in official_counts().items():
        assert catalogue[name]["test"] == count


@pytest.mark.parametrize(
    ("value", "decimals", "is_percent", "in_percent", "expected"),
    [
        (0.757, 1, True, True, "75.7"),
        (0.782, 2, True, True, "78.20"),
        (3.16, 2, False, False, "3.16"),
        (0.82, 2, False, True, "82"),
        (0.8059, 4, False, True, "80.59"),
    ],
)
def test_a_published_number_keeps_its_decimals(
    value: float, decimals: int, is_percent: bool, in_percent: bool, expected: str
) -> None:
    row = Published("2", "x", value, decimals, is_percent, "", "p", "s", is_secondary=False)
    assert printed(row, in_percent=in_percent) == expected


def test_what_was_read_in_notes_of_others_is_marked() -> None:
    row = Published("2", "x", 0.5, 1, True, "", "p", "s", is_secondary=True)
    assert printed(row, in_percent=True) == "50.0†"


def test_a_figure_of_nothing_is_a_dash() -> None:
    assert number(Measure("a", "b", float("nan"), None, 0), float("nan")) == "\N{EN DASH}"
