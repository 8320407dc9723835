import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ConfigError, DataError
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.report.build import Report, build
from core.evaluation.report.command import report_command
from core.evaluation.report.compare import Baseline
from core.evaluation.report.document import Cautions, Section, Table
from core.evaluation.report.models import read_models
from core.evaluation.report.paper import MEANS
from core.evaluation.report.spreadsheet import render_csv
from core.evaluation.result import make_result, write_result
from core.evaluation.suites import CLASSIFICATION

Details = dict[str, Any]


def share(group: str, name: str, hits: Sequence[bool], chance: float | None = 0.1) -> Measure:
    value = float(np.mean(hits))
    outcomes = Outcomes("mean", np.array(hits), np.arange(len(hits)))
    return Measure(
        group, name, value, chance, len(hits), is_headline=True, outcomes=outcomes,
        low=value - 0.05, high=value + 0.05,
    )  # fmt: skip


def put(
    folder: Path,
    task: str,
    measures: Sequence[Measure],
    *,
    details: Details | None = None,
    left_out: tuple[str, ...] = (),
    records: int = 1_000,
    model: str = "",
    protocol: Details | None = None,
    about: Details | None = None,
) -> None:
    name = task.partition("/")[2]
    determined_by = {
        "encoder": {
            "name": model or folder.name,
            "fingerprint": (model or folder.name).encode().hex(),
            "space": {"geometry": "lorentz", "curvature": 1.0},
            "logit_scale": 20.0,
            "about": about or {},
        },
        "data": {"name": name, "title": name, "split": "test", "digest": "0", "records": records},
        "protocol": protocol or {},
        "seed": 0,
        "versions": {},
    }
    finding = Finding(tuple(measures), details or {}, left_out)
    write_result(folder, make_result(task, determined_by, finding, 1.5, "2026-11-30T00:00:00"))


def recalls(share_of_hits: float) -> list[Measure]:
    hits = [row < share_of_hits * 200 for row in range(200)]
    found = [
        share(way, f"R@{k}", hits) for way in ("text to image", "image to text") for k in (5, 10)
    ]
    return [*found, share("average", "R@1", hits), share("average", "R@10", hits)]


def report_of(*folders: Path, baseline: Path | None = None) -> Report:
    models, _ = read_models([*folders, *([baseline] if baseline else [])])
    base = next((m for m in models if baseline and m.folder == baseline.resolve()), None)
    return build(models, Baseline(base) if base else None)


def section(report: Report, title: str) -> Section:
    return next(each for each in report.document.sections if each.title.startswith(title))


def rows_of(part: Section) -> dict[str, list[str]]:
    """Cells by the first one, of the first table; of equal ones the first."""
    tables = [block for block in part.blocks if isinstance(block, Table)]
    found: dict[str, list[str]] = {}
    for row in tables[0].rows:
        found.setdefault(row.cells[0], [*row.cells[1:]])
    return found


def column(part: Section, row: str, heading: str) -> str:
    table = next(block for block in part.blocks if isinstance(block, Table))
    headings = [cell.replace("\n", " ") for cell in table.header]
    return rows_of(part)[row][headings.index(heading) - 1]


def noted(part: Section) -> str:
    return " ".join(text for b in part.blocks if isinstance(b, Cautions) for text in b.texts)


def test_ours_stands_beside_what_was_published_with_its_interval_and_difference(
    tmp_path: Path,
) -> None:
    put(tmp_path / "mine", "retrieval/flickr30k", recalls(0.5))
    table2 = section(report_of(tmp_path / "mine"), "Table 2")
    row = next(b for b in table2.blocks if isinstance(b, Table)).rows
    texts = [r.cells for r in row if r.cells[0] == "text R@5"]
    assert texts[2][1:4] == ("50.0 [45.0, 55.0]", "-45.4", "95.4")


def test_published_numbers_stand_at_the_split_they_were_measured_on(tmp_path: Path) -> None:
    put(tmp_path / "mine", "retrieval/coco-karpathy", recalls(0.5), records=5_000)
    table2 = section(report_of(tmp_path / "mine"), "Table 2")
    table = next(block for block in table2.blocks if isinstance(block, Table))
    headings = [row.cells[0] for row in table.rows if row.is_heading]
    assert headings[:2] == ["COCO, Karpathy test", "COCO, val2017"]
    texts = [
        dict(zip(table.header, row.cells, strict=True))
        for row in table.rows
        if row.cells[0] == "text R@5"
    ]
    assert (texts[0]["Hyper3-CLIP"], texts[0]["UNCHA"]) == ("75.7", "")
    assert (texts[1]["Hyper3-CLIP"], texts[1]["UNCHA"]) == ("", "72.7")
    assert "two splits" in noted(table2)


def test_what_is_missing_from_a_table_says_which_command_gets_it(tmp_path: Path) -> None:
    put(tmp_path / "mine", "retrieval/flickr30k", recalls(0.5))
    table2 = section(report_of(tmp_path / "mine"), "Table 2")
    commands = [b for b in table2.blocks if isinstance(b, Table)][1]
    assert commands.rows[0].cells[1].startswith("hyper3 data fetch coco-karpathy --from")
    assert commands.rows[-1].cells == ("then", "hyper3 eval TARGET table2")


def test_tables_of_which_nothing_was_measured_come_last_with_their_commands(
    tmp_path: Path,
) -> None:
    put(tmp_path / "mine", "retrieval/own-test", recalls(0.5))
    report = report_of(tmp_path / "mine")
    titles = [each.title for each in report.document.sections]
    assert not any(title.startswith("Table ") for title in titles)
    assert "Not measured: tables of the paper" in titles


def test_the_mean_of_sixteen_is_there_when_all_are(tmp_path: Path) -> None:
    audited = ("food101", "cub2011", "flowers102")
    hits = [True, False]
    for name in CLASSIFICATION:
        measures = [share("official prompts, names of open_clip", "mean per class", hits)]
        if name in audited:
            measures.append(share("photo prompts, names of x", "mean per class", [True, True]))
        put(tmp_path / "mine", f"classification/{name}", measures)
    table3 = section(report_of(tmp_path / "mine"), "Table 3")
    printed = rows_of(table3)["average, Food-101, CUB and Flowers by the photo prompt"][0]
    assert printed == "59.4 [58.1, 60.6]"  # (13 * 50 + 3 * 100) / 16, 5 / sqrt(16)
    assert rows_of(table3)["average, official prompts throughout"][0] == "50.0 [48.8, 51.2]"
    (tmp_path / "mine" / "classification" / "dtd.json").unlink()
    table3 = section(report_of(tmp_path / "mine"), "Table 3")
    assert rows_of(table3)["average, official prompts throughout"][0] == ""


def test_a_difference_to_the_baseline_has_a_paired_test(tmp_path: Path) -> None:
    put(tmp_path / "better", "retrieval/own-test", recalls(0.8))
    put(tmp_path / "base", "retrieval/own-test", recalls(0.4))
    report = report_of(tmp_path / "better", baseline=tmp_path / "base")
    part = section(report, "Retrieval")
    assert column(part, "R@5", "base (baseline)").startswith("40.0")
    assert column(part, "R@5", "Δ better").startswith("+40.0 [+")
    assert column(part, "R@5", "Δ better").endswith("p≤0.002")


def test_results_of_other_pictures_differ_without_a_test(tmp_path: Path) -> None:
    put(tmp_path / "mine", "retrieval/own-test", recalls(0.8), left_out=("a.jpg: broken",))
    fewer = replace(
        share("average", "R@1", [True, False]),
        outcomes=Outcomes("mean", np.array([1, 0]), np.array([7, 8])),
    )
    put(tmp_path / "base", "retrieval/own-test", [fewer])
    report = report_of(tmp_path / "mine", baseline=tmp_path / "base")
    assert column(section(report, "Retrieval"), "R@1", "Δ mine") == "+30.0"
    assert "no paired test is made: retrieval/own-test" in " ".join(report.cautions)


@pytest.mark.parametrize(
    ("task", "changes", "said"),
    [
        ("retrieval/flickr30k", {"records": 200}, "retrieval/flickr30k 200 of 1,000"),
        (
            "retrieval/own",
            {"left_out": ("a.jpg: torn", "b.jpg: torn")},
            "retrieval/own 2, the first a.jpg: torn",
        ),
        ("classification/imagenet", {}, "362 of the 1,000 names differ"),
        ("multilabel/voc2007", {}, "names neither year nor split of VOC"),
        ("chains/hierarcaps", {}, "signed margin"),
    ],
)
def test_what_makes_figures_differ_is_said(
    tmp_path: Path, task: str, changes: Details, said: str
) -> None:
    put(tmp_path / "mine", task, [share("a", "b", [True, False])], **changes)
    assert said in " ".join(report_of(tmp_path / "mine").cautions)


def test_models_that_were_measured_otherwise_are_named(tmp_path: Path) -> None:
    for name, preprocess in (("one", "retrieval"), ("two", "letterbox")):
        protocol = {"preprocess": preprocess, "ties": "same", "prompts": {name: "a {}"}}
        put(tmp_path / name, "retrieval/own", recalls(0.5), protocol=protocol)
    said = " ".join(report_of(tmp_path / "one", tmp_path / "two").cautions)
    assert "retrieval/own, one and two in protocol.preprocess, protocol.prompts" in said
    assert "ties" not in said


def test_every_figure_is_a_row_of_the_csv_and_reads_back_exactly(tmp_path: Path) -> None:
    measure = share("image to text", "R@5", [True, True, False])
    put(tmp_path / "mine", "retrieval/flickr30k", [measure])
    put(tmp_path / "mine", "structure/own", [Measure("=1+1", "@x", 1 / 3, None, 3, "number")])
    models, _ = read_models([tmp_path / "mine"])
    rows = list(csv.DictReader(render_csv(models, MEANS).splitlines()))
    assert [float(row["value"]) for row in rows] == [measure.value, 1 / 3]
    assert [row["published Hyper3-CLIP"] for row in rows] == ["0.954", ""]
    assert (rows[0]["task"], rows[0]["data"], rows[0]["count"]) == ("retrieval", "flickr30k", "3")
    assert (rows[0]["low"], rows[1]["low"]) == (repr(measure.low), "")
    assert rows[0]["key"] == models[0].results["retrieval/flickr30k"].key
    assert (rows[1]["group"], rows[1]["name"]) == ("'=1+1", "'@x")


def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        put(tmp_path / folder, "retrieval/own", recalls(0.5), model="same")
    names = [model.name for model in read_models([tmp_path / "a", tmp_path / "b"])[0]]
    assert len(set(names)) == 2


def test_a_folder_of_models_stands_for_all_of_them(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        put(tmp_path / folder, "retrieval/own", recalls(0.5))
    assert [model.name for model in read_models([tmp_path])[0]] == ["a", "b"]


def test_the_command_writes_all_files_for_a_folder_of_two_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        tmp_path / "mine",
        "retrieval/own",
        recalls(0.5),
        details={"recall_curve": {"a": [[1, 0.5]]}},
    )
    put(tmp_path / "mine", "pairs/own", [share("a", "b", [True])])
    report_command([tmp_path / "mine"], out=tmp_path / "out")
    said = capsys.readouterr().out
    assert "7 figures of 2 tasks" in said
    for name in ("report.html", "report.md", "report.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 0
        assert name in said
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "&quot;fingerprint&quot;: &quot;" in page


def test_a_baseline_must_be_one_model(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        put(tmp_path / "all" / folder, "retrieval/own", recalls(0.5))
    with pytest.raises(ConfigError, match="a baseline is one model; name one of a, b"):
        report_command([tmp_path / "all"], out=tmp_path / "out", baseline=tmp_path / "all")


def test_a_folder_of_one_model_is_that_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a", "retrieval/own", recalls(0.8))
    put(tmp_path / "all" / "b", "retrieval/own", recalls(0.5))
    report_command([tmp_path / "a"], out=tmp_path / "out", baseline=tmp_path / "all")
    assert "b: 6 figures of 1 tasks" in capsys.readouterr().out
    assert "b (baseline)" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_folder_without_results_says_what_writes_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results; `hyper3 eval` writes them"):
        read_models([tmp_path])
    with pytest.raises(DataError, match="no such folder"):
        read_models([tmp_path / "none"])
