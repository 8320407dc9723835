"""The list of runs and their curves, from what runs leave in their folders."""

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from core.errors import ConfigError, DataError
from core.lock import take_lock
from trainer.commands.runs import app
from trainer.runs.curves import panels, smoothed
from trainer.runs.find import named_runs, runs_below
from trainer.runs.listing import Listed, list_runs
from trainer.runs.named import legend, names, read_runs
from trainer.runs.plot import plot_runs
from trainer.runs.reports import read_reports


def write_run(
    folder: Path, steps: int = 30, last: int = 30, kind: str = "hyper3", **summary: Any
) -> Path:
    """A run that reported every ten steps, and held-out figures with them."""
    folder.mkdir(parents=True)
    recipe = {"name": folder.name, "objective": {"kind": kind}, "optim": {"steps": last}}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    with (folder / "metrics.jsonl").open("w") as lines:
        for step in range(10, steps + 1, 10):
            common = {
                "step": step,
                "time": 1000.0 + step,
                "radius/image": 1.0,
                "loss": 9 - step / 9,
            }
            speed = {"speed/samples_per_second": 50.0, "optim/lr": 1e-3}
            recall = {"recall/text_to_image@1": 40.0 - abs(step - 20)}
            lines.write(json.dumps({"split": "train"} | common | speed) + "\n")
            lines.write(json.dumps({"split": "val"} | common | recall) + "\n")
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def listed(folder: Path) -> Listed:
    (found,) = list_runs([folder])
    return found


def test_a_run_is_listed_with_its_last_and_best_figures(tmp_path: Path) -> None:
    found = listed(write_run(tmp_path / "mine"))
    assert (found.name, found.system, found.step, found.last_step) == ("mine", "hyper3", 30, 30)
    assert (found.recall, found.best_recall, found.best_step) == (30, 40, 20)
    assert found.loss == pytest.approx(9 - 30 / 9)
    assert found.samples_per_second == 50
    assert found.bytes == sum(path.stat().st_size for path in (tmp_path / "mine").iterdir())


@pytest.mark.parametrize(
    ("last", "summary", "state"),
    [
        (30, {"failed": None}, "complete"),
        (99, {"failed": None}, "stopped"),
        (99, {"failed": "TrainingDiverged: the gradient"}, "failed"),
        (99, {}, "killed"),
    ],
)
def test_the_state_of_a_run_is_that_of_its_end(
    tmp_path: Path, last: int, summary: dict[str, Any], state: str
) -> None:
    assert listed(write_run(tmp_path / "mine", last=last, **summary)).state == state


def test_a_run_whose_lock_is_held_is_running_and_is_left_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", last=99)
    with closing(take_lock(folder)):
        assert listed(folder).state == "running"


def test_the_run_that_told_something_last_comes_first(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"{steps}", steps) for steps in (10, 30, 20)]
    assert [Path(run.folder).name for run in list_runs(folders)] == ["30", "20", "10"]


@pytest.mark.parametrize("tail", ["", '{"split": "tr', "\x00\xff", "[1]\n", '{"step": "x"}\n'])
def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path, tail: str) -> None:
    folder = write_run(tmp_path / "mine")
    with (folder / "metrics.jsonl").open("a", encoding="latin-1") as lines:
        lines.write(tail)
    assert listed(folder).step == 30


def test_a_run_that_has_told_nothing_is_listed_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "recipe.json").write_text("{")
    found = listed(folder)
    assert (found.name, found.state, found.step, found.loss) == ("mine", "stopped", 0, None)


def test_of_two_reports_of_a_step_the_later_holds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine")
    with (folder / "metrics.jsonl").open("a") as lines:
        lines.write('{"split": "train", "step": 10, "time": 5, "loss": 1.5, "optim/lr": null}\n')
    reports = read_reports(folder)
    assert reports.series("loss")[1][0] == 1.5
    assert list(reports.train) == [10, 20, 30]
    assert reports.series("optim/lr")[0] == [20, 30]  # what was not finite is no figure


def test_runs_are_found_where_training_puts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "comparisons" / "c" / "runs" / "b" / "seed-0")
    write_run(tmp_path / "elsewhere" / "d")
    write_run(tmp_path / "runs" / "a" / "checkpoints" / "inner")
    monkeypatch.chdir(tmp_path)
    assert [str(run) for run in runs_below(None)] == ["runs/a", "comparisons/c/runs/b/seed-0"]
    assert runs_below(Path("elsewhere")) == [Path("elsewhere/d")]
    assert named_runs([Path("runs"), Path("runs/a"), Path("./runs")]) == [Path("runs/a")]


def test_where_there_is_no_run_it_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"runs and comparisons/\*/runs \(of {tmp_path}\)"):
        runs_below(None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no run below empty: a run has a recipe\.json"):
        runs_below(Path("empty"))
    with pytest.raises(DataError, match="nowhere: no such folder"):
        runs_below(Path("nowhere"))


def test_the_command_lists_without_a_name_and_prints_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "one", last=99, failed="DataError: [no] shards")
    monkeypatch.chdir(tmp_path)
    table = CliRunner().invoke(app, []).output
    assert "one" in table
    assert "runs/one failed: DataError: [no] shards" in table
    (run,) = json.loads(CliRunner().invoke(app, ["runs", "--json"]).output)
    assert (run["folder"], run["state"], run["best_recall"]) == ("runs/one", "failed", 40)
    assert "plot" in CliRunner().invoke(app, ["--help"]).output


def test_listing_hundreds_of_reports_takes_no_time(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", steps=20_000, last=500_000)
    start = time.process_time()
    list_runs([folder])
    assert time.process_time() - start < 1


def test_runs_over_one_another_are_drawn_in_every_panel_that_has_their_figures(
    tmp_path: Path,
) -> None:
    runs = read_runs([write_run(tmp_path / name) for name in ("a", "b")])
    found = {panel.title: panel for panel in panels(runs)}
    assert set(found) == {
        "loss", "R@1 text to image, held out, %", "mean radius of images", "learning rate",
        "samples/s",
    }  # fmt: skip
    assert {line.colour for line in found["loss"].lines} == {0, 1}
    (one,) = [panel for panel in panels(runs[:1]) if panel.title == "mean radius"]
    assert one.has_names


def test_smoothing_keeps_a_straight_line_and_few_values() -> None:
    line = np.linspace(0, 5, 400)
    assert smoothed(line) == pytest.approx(line)
    assert np.array_equal(smoothed(line[:30]), line[:30])
    noisy = line + np.random.default_rng(0).normal(size=400)
    assert np.abs(smoothed(noisy) - line).mean() < 0.5 * np.abs(noisy - line).mean()


def test_a_picture_lies_in_the_run_or_beside_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = write_run(tmp_path / "runs" / "a"), write_run(tmp_path / "runs" / "b")
    monkeypatch.chdir(tmp_path)
    assert plot_runs([one], None) == one / "plot.png"
    file = plot_runs([one, other], None)
    assert file == Path("runs/plot.png")
    with Image.open(file) as picture:
        assert picture.width > 1000


def test_a_page_holds_its_curves_and_needs_nothing_else(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name / "seed-0") for name in ("one", "two")]
    page = plot_runs(runs, tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert ">one<" in page
    assert "src=" not in page


def test_a_plot_of_nothing_or_as_something_else_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", steps=0)
    with pytest.raises(DataError, match="no report yet"):
        plot_runs([folder], None)
    with pytest.raises(ConfigError, match=r"\.png, \.svg or \.html"):
        plot_runs([folder], tmp_path / "curves.jpeg")


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["c/runs/a/seed-0", "c/runs/b/seed-0"], ["a", "b"]),
        (["c/runs/a/seed-0", "c/runs/b/seed-1"], ["a/seed-0", "b/seed-1"]),
        (["x/a", "a"], ["x/a", "a"]),
        (["runs/a"], ["runs/a"]),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(folders: list[str], expected: list[str]) -> None:
    assert names([Path(os.sep, *folder.split("/")) for folder in folders]) == expected


def test_seeds_of_a_system_are_drawn_alike_beside_other_systems() -> None:
    assert legend(["a/seed-0", "a/seed-1", "b/seed-0"]) == ["a (2 runs)", "a (2 runs)", "b/seed-0"]
    assert legend(["seed-0", "seed-1"]) == ["seed-0", "seed-1"]
    assert legend(["a/seed-0", "a/seed-1"]) == ["a/seed-0", "a/seed-1"]
