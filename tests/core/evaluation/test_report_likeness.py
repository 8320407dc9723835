"""What may be tested against each other in a report, and what it does with what is broken."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import DataError
from core.evaluation.measure import Finding, Measure, Outcomes
from core.evaluation.report.build import Report, build
from core.evaluation.report.command import report_command
from core.evaluation.report.compare import Baseline
from core.evaluation.report.document import Row, Table
from core.evaluation.report.html import render_html
from core.evaluation.report.markdown import render_markdown
from core.evaluation.report.models import read_models
from core.evaluation.result import make_result, write_result

NO_TEST = "no paired test is made"


def hits(group: str, name: str, right: int, **changes: Any) -> Measure:
    """A share of a hundred pictures, the first ``right`` of which are hits."""
    values = np.arange(100) < right
    outcomes = Outcomes("mean", values, np.arange(100))
    return Measure(
        group, name, right / 100, 0.1, 100, outcomes=outcomes, **{"is_headline": True, **changes}
    )


def write(
    folder: Path,
    task: str,
    measures: Sequence[Measure],
    *,
    protocol: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    fingerprint: str = "",
    name: str = "",
    seed: int = 0,
    left_out: tuple[str, ...] = (),
    title: str = "",
) -> Path:
    determined_by = {
        "encoder": {
            "name": name or folder.name,
            "fingerprint": fingerprint or folder.name,
            "space": {"geometry": "euclidean"},
            "logit_scale": None,
            "about": {"step": 1},
        },
        "data": {"split": "test", "digest": "a", "records": 100_000, "limit": None, **(data or {})},
        "protocol": dict(protocol or {}),
        "seed": seed,
        "versions": {},
    }
    finding = Finding(tuple(measures), {}, left_out)
    return write_result(folder, make_result(task, determined_by, finding, 1.0, "now", title))


def report_of(*folders: Path, baseline: Path | None = None) -> Report:
    models, broken = read_models([*folders, *([baseline] if baseline else [])])
    base = [model for model in models if baseline and model.folder == baseline.resolve()]
    return build(models, Baseline(base[0]) if base else None, broken)


def tables(report: Report, title: str) -> list[Table]:
    (part,) = [each for each in report.document.sections if each.title.startswith(title)]
    return [block for block in part.blocks if isinstance(block, Table)]


def cells(table: Table, label: str) -> dict[str, str]:
    """Cells by their heading, of the last row under a label."""
    rows = [row.cells for row in table.rows if row.cells[0] == label]
    return dict(zip((cell.replace("\n", " ") for cell in table.header), rows[-1], strict=True))


def said(report: Report) -> str:
    return " ".join(report.cautions)


def delta(one: Path, other: Path, title: str, label: str = "R@1") -> tuple[str, str]:
    """The difference of two results of a family, and the cautions."""
    report = report_of(one, baseline=other)
    return cells(tables(report, title)[0], label)[f"Δ {one.name}"], said(report)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data": {"digest": "b"}}, "data.digest"),
        ({"data": {"limit": 50}}, "data.limit"),
        ({"protocol": {"gallery": "half"}}, "protocol.gallery"),
        ({"left_out": ("a.jpg: torn",)}, "not the same pictures were left out"),
    ],
)
def test_different_items_are_not_paired(
    tmp_path: Path, changes: Mapping[str, Any], why: str
) -> None:
    write(tmp_path / "a", "retrieval/own", [hits("average", "R@1", 80)], **changes)
    write(tmp_path / "b", "retrieval/own", [hits("average", "R@1", 40)])
    difference, cautions = delta(tmp_path / "a", tmp_path / "b", "Retrieval")
    assert difference == "+40.0"
    assert NO_TEST in cautions
    assert why in cautions.partition(NO_TEST)[2]


@pytest.mark.parametrize(
    "changes",
    [{"data": {"pictures": "b"}}, {"title": "other"}, {"data": {"title": "other"}}],
)
def test_titles_and_times_of_change_forbid_no_test_and_are_no_caution(
    tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    same = {"pictures": "a", "title": "own"} if "data" in changes else {}
    changed = {**changes, "data": {**same, **changes.get("data", {})}}
    write(tmp_path / "a", "retrieval/own", [hits("average", "R@1", 80)], **changed)
    write(tmp_path / "b", "retrieval/own", [hits("average", "R@1", 40)], data=same)
    difference, cautions = delta(tmp_path / "a", tmp_path / "b", "Retrieval")
    assert "] p" in difference
    assert cautions == ""


def test_other_seeds_forbid_the_tests_of_what_they_draw(tmp_path: Path) -> None:
    groups = [f"own captions against {rule} negatives, x" for rule in ("fixed", "seeded")]
    for folder, right, seed in (("a", 80, 0), ("b", 40, 1)):
        measures = [hits(group, f"AP {group.split()[3]}", right) for group in groups]
        write(tmp_path / folder, "chains/own", measures, seed=seed)
    fixed, cautions = delta(tmp_path / "a", tmp_path / "b", "Chains", "AP fixed")
    seeded, _ = delta(tmp_path / "a", tmp_path / "b", "Chains", "AP seeded")
    assert "] p" in fixed
    assert seeded == "+40.0"
    assert "where the seed draws" in cautions


def test_a_difference_is_marked_as_better_or_worse(tmp_path: Path) -> None:
    less = {"is_lower_better": True, "is_headline": False}
    for folder, right in (("a", 80), ("b", 40)):
        radius = Measure("radius", "mean", right, None, 9, unit="number")
        measures = [hits("x", "up", right), hits("x", "down", right, **less), radius]
        write(tmp_path / folder, "retrieval/own", measures)
    report = report_of(tmp_path / "a", baseline=tmp_path / "b")
    tones = {row.cells[0]: row.tones for row in tables(report, "Retrieval")[0].rows}
    assert tones["up"][-1] == "better sure"
    assert tones["down ↓"][-1] == "worse"
    assert tones["mean"][-1] == ""
    page, text = render_html(report.document), render_markdown(report.document)
    assert '<td class="worse">+40.0 worse</td>' in page
    assert ".worse { color" in page
    assert "| +40.0 worse |" in text


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_a_broken_result_is_named_and_the_others_are_shown(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "results" / "a", "pairs/own", [hits("x", "y", 50)])
    broken = write(tmp_path / "results" / "a", "retrieval/own", [hits("average", "R@1", 50)])
    alone = write(tmp_path / "results" / "b", "retrieval/own", [hits("average", "R@1", 50)])
    for file in (broken, alone):
        part = file.with_suffix(f".{ending}")
        part.write_bytes(part.read_bytes()[:30])
    report_command([tmp_path / "results"], out=tmp_path / "out")
    console = capsys.readouterr().out
    assert "a: 1 figures of 1 tasks" in console
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for file in (broken, alone):
        assert str(file.with_suffix(f".{ending}")) in console
        assert str(file.with_suffix(f".{ending}")) in page
    with pytest.raises(DataError, match="retrieval/own"):
        read_models([tmp_path / "results" / "b"])


def test_files_that_are_no_results_hide_none_that_are(tmp_path: Path) -> None:
    out = tmp_path / "results"
    write(out / "a", "pairs/own", [hits("x", "y", 50)])
    old = write(out / "a", "retrieval/own", [hits("average", "R@1", 50)])
    old.write_text(
        old.read_text(encoding="utf-8").replace('"format_version": 1', '"format_version": 0'),
        "utf-8",
    )
    foreign = [out / "notes" / "a.json", out / "a" / "plots" / "b.json", out / "a" / "c" / "d.json"]
    for file, text in zip(foreign, ("[]", '{"a": 1}', "\udcff"), strict=True):
        file.parent.mkdir(parents=True)
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    gone = write(out / "b", "pairs/own", [hits("x", "y", 50)]).with_suffix(".npz")
    gone.unlink()
    models, broken = read_models([out])
    assert [(model.name, [*model.results]) for model in models] == [("a", ["pairs/own"])]
    for file in (old, gone, *foreign):
        assert [why.startswith(f"{file}: ") for why in broken].count(True) == 1


def test_a_baseline_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        file = write(tmp_path / folder, "retrieval/own", [hits("average", "R@1", 50)])
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"b/retrieval/own\.json: not a result"):
        report_command([tmp_path / "a"], out=tmp_path / "out", baseline=tmp_path / "b")


@pytest.mark.parametrize(
    ("folders", "fingerprints", "names"),
    [
        (("x", "y"), ("1234567890", "abcdefghij"), ["same (12345678)", "same (abcdefgh)"]),
        (("x/a", "y/a"), ("1", "1"), ["same in x", "same in y"]),
        (("a/x", "a/y"), ("1", "1"), ["same in x", "same in y"]),
        (
            ("x/r/a", "y/r/a", "z/r/a"),
            ("1", "1", "1"),
            ["same in x", "same in y", "same in z"],
        ),
        (("x/a", "x/b", "y/a"), ("1", "1", "1"), ["same in x/a", "same in x/b", "same in y/a"]),
    ],
)
def test_models_of_one_name_are_told_apart_by_fingerprint_or_place(
    tmp_path: Path, folders: list[str], fingerprints: list[str], names: list[str]
) -> None:
    for folder, fingerprint in zip(folders, fingerprints, strict=True):
        measures = [hits("x", "y", 50)]
        write(tmp_path / folder, "pairs/own", measures, name="same", fingerprint=fingerprint)
    models, _ = read_models([tmp_path / folder for folder in folders])
    assert [model.name for model in models] == names


def test_the_summary_has_one_figure_a_task_and_the_mean_of_many(tmp_path: Path) -> None:
    for name in ("dtd", "pets", "cars", "food101", "eurosat"):
        measures = [hits("x", "top-1", 10), hits("x", "mean per class", 50)]
        write(tmp_path / "m", f"classification/{name}", measures)
    write(tmp_path / "m", "retrieval/own", [hits("average", "R@1", 20)], title="/a/b/own.jsonl")
    (table,) = tables(report_of(tmp_path / "m"), "At a glance")
    rows = [row.cells[:2] for row in table.rows if not row.is_heading]
    assert rows == [
        ("b/own.jsonl: average, R@1", "20.0"),
        ("mean per class, mean of 5 data sets", "50.0"),
    ]
    assert table.rows[0] == Row(("Retrieval",), is_heading=True)
