"""`hyper3 eval`: results that are kept, data that are missing, faults that spoil nothing."""

import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from core.errors import ConfigError, DataError, StorageError, Unavailable, VectorError
from core.evaluation.commands import app, folder_name
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Embedded, Encoder
from core.evaluation.measure import Finding, Measure
from core.evaluation.pictures import Picture
from core.evaluation.result import make_result, read_result, read_results, write_result
from core.evaluation.suites import SUITES, plan
from core.prompts import read_prompt_sets

Colours = Callable[..., Any]
Opened = Callable[[Encoder], None]


def run(*words: str | Path) -> str:
    """What the command prints; its errors are raised."""
    answer = CliRunner().invoke(app, ["eval", *map(str, words)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def results(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def test_each_family_that_the_records_allow_gives_a_result(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    encoder = colours()
    opened(encoder)
    said = run("colours", data, "--out", tmp_path / "results", "--json", tmp_path / "all.json")
    folder = results(tmp_path / "results")
    assert folder.name == folder_name(encoder)
    assert f"hyper3 report {folder}" in said
    found = {result.task: result for result in read_results(folder)}
    assert list(found) == ["retrieval/paint-test", "structure/paint-test"]
    recall = found["retrieval/paint-test"].find("text to image", "R@1")
    assert recall is not None
    assert recall.value == 1
    assert (recall.low, recall.high) == pytest.approx((0.4385, 1), abs=1e-4)
    determined = found["retrieval/paint-test"].determined_by
    assert determined["encoder"]["fingerprint"] == encoder.fingerprint
    assert determined["data"]["records"] == 3
    assert determined["protocol"]["preprocess"] == "retrieval"
    figures = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    chance = figures["retrieval/paint-test"]["measures"]["text to image"]["R@1"]["chance"]
    assert chance == pytest.approx(1 / 3)


def test_what_was_measured_is_kept_until_something_that_determines_it_changes(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    words = "colours", f"retrieval/{data}", "--out", tmp_path / "results"
    assert "measured before" not in run(*words)
    opened(encoder := colours())
    assert "measured before" in run(*words)
    assert encoder.embedded == []
    assert "measured before" not in run(*words, "--preprocess", "letterbox")
    assert encoder.embedded == ["red.png", "green.png", "blue.png"]
    data.write_text(data.read_text().replace("all red", "quite red"), encoding="utf-8")
    assert "measured before" not in run(*words)
    assert encoder.embedded[3:] == ["quite red", "all green", "all blue"]
    assert "measured before" not in run(*words, "--again")
    assert encoder.embedded[6:9] == ["red.png", "green.png", "blue.png"]


def test_another_picture_of_the_same_name_is_measured(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    words = "colours", f"retrieval/{data}", "--out", tmp_path / "results"
    run(*words)
    file = data.parent / "red.png"
    results_file = results(tmp_path / "results") / "retrieval/paint-test.json"
    red = file.read_bytes()
    file.write_bytes((data.parent / "blue.png").read_bytes() + b" ")
    assert "measured before" not in run(*words)
    assert recall(results_file) == (1 / 3, 3)
    file.unlink()
    assert "left out: 1" in run(*words)
    assert recall(results_file) == (1, 2)
    file.write_bytes(red)
    assert "left out" not in run(*words)
    assert recall(results_file) == (1, 3)


def recall(file: Path) -> tuple[float, int]:
    measure = read_result(file).find("text to image", "R@1")
    assert measure is not None
    return measure.value, measure.count


def test_a_torn_result_and_a_torn_chunk_are_made_again(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    words = "colours", f"retrieval/{data}", "--out", tmp_path / "results"
    run(*words)
    folder = results(tmp_path / "results")
    (folder / "retrieval/paint-test.json").write_text("{", encoding="utf-8")
    for chunk in (folder / "embeddings").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:-5] + b"\0" * 5)
    opened(encoder := colours())
    assert "measured before" not in run(*words)
    assert len(encoder.embedded) == 6
    assert read_result(folder / "retrieval/paint-test.json").measures
    outcomes = folder / "retrieval/paint-test.npz"
    whole = outcomes.read_bytes()
    for damaged in (whole[:300], b"", whole[:-30] + b"x" * 30):
        outcomes.write_bytes(damaged)
        with pytest.raises(DataError, match=r"paint-test\.npz: damaged, or of another result"):
            read_results(folder)
        assert "measured before" not in run(*words)
    by_hand = folder / "retrieval/paint-test.json"
    by_hand.write_text(by_hand.read_text().replace('"value": 1.0', '"value": 0.5', 1))
    with pytest.raises(DataError, match="was changed after it was written"):
        read_results(folder)
    assert "measured before" not in run(*words)
    outcomes.unlink()
    with pytest.raises(DataError, match=r"paint-test\.npz: cannot be read: No such file"):
        read_results(folder)
    (folder / "retrieval/paint-test.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="not a result"):
        read_results(folder)


def test_missing_data_skip_their_rows_and_say_how_to_get_them(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    said = run("colours", data, "table2", "--root", tmp_path / "none", "--out", tmp_path / "r")
    assert f"skipped, for want of data: {len(SUITES['table2'])} tasks" in said
    assert "hyper3 data fetch flickr30k --from" in said
    with pytest.raises(ConfigError, match="nothing was measured"):
        run("colours", "table2", "--root", tmp_path / "none", "--out", tmp_path / "r")


def test_a_task_that_fails_spoils_no_other(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    wrong = data.with_name("wrong.jsonl")
    wrong.write_text('{"image": "red.png", "class": "red"}\n{"image": "green.png", "label": 7}\n')
    broken = data.with_name("broken.jsonl")
    broken.write_text("{", encoding="utf-8")
    failed = f"2 of 4 tasks failed: {broken}, classification/paint-wrong"
    with pytest.raises(ConfigError, match=failed):
        run("colours", broken, wrong, data, "--out", tmp_path / "r")
    tasks = [result.task for result in read_results(results(tmp_path / "r"))]
    assert tasks == ["retrieval/paint-test", "structure/paint-test"]


class Leaving:
    """An encoder whose service goes away after some pictures."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        if any(picture.box for picture in pictures):
            raise Unavailable("http://127.0.0.1:1: cannot be reached")
        found: Embedded = self._encoder.images(pictures)
        return found


def test_what_was_finished_before_the_target_went_away_is_there_and_is_not_done_again(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(Leaving(colours()))
    with pytest.raises(Unavailable, match="cannot be reached"):
        run("colours", data, "--out", tmp_path / "r")
    (kept,) = read_results(results(tmp_path / "r"))
    assert kept.task == "retrieval/paint-test"
    opened(encoder := colours())
    assert "measured before" in run("colours", data, "--out", tmp_path / "r")
    assert encoder.embedded.count("red.png") == 1  # the part; the whole was kept


def test_pictures_that_are_left_out_are_told(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    (data.parent / "blue.png").unlink()
    said = run("colours", f"retrieval/{data}", "--out", tmp_path / "r")
    assert "left out: 1 pictures cannot be read; the first: " in said
    assert "blue.png: cannot be read: No such file" in said
    (result,) = read_results(results(tmp_path / "r"))
    assert len(result.left_out) == 1
    recall = result.find("text to image", "R@1")
    assert recall is not None
    assert (recall.count, recall.chance) == (2, 0.5)


def test_words_that_mean_nothing_list_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tabel2: means nothing here; .*table2"):
        plan(["tabel2"], tmp_path)
    missing, folder = plan(["none.jsonl", str(tmp_path)], tmp_path)
    assert "none.jsonl: cannot be read" in missing.fault
    assert "no manifest.json there" in folder.fault


def test_suites_are_planned_once_each_and_the_list_shows_them(tmp_path: Path) -> None:
    jobs = plan(["table5", "table2", "flickr30k"], tmp_path)
    tasks = [job.task for job in jobs]
    assert len(tasks) == len(set(tasks)) == 5
    said = run("--list", "--root", tmp_path)
    assert all(suite in said for suite in SUITES)


def test_outcomes_and_figures_come_back_from_disk(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    run("colours", f"structure/{data}", "--out", tmp_path / "r")
    (result,) = read_results(results(tmp_path / "r"))
    measure = result.find("the general entails the specific", "caption and whole")
    assert measure is not None
    assert measure.outcomes is not None
    assert np.mean(measure.outcomes.values) == measure.value
    assert measure.outcomes.cluster.tolist() == [0, 1, 2]


def test_prompts_are_a_shipped_set_or_a_file(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    file = data.with_name("classes.jsonl")
    file.write_text('{"image": "red.png", "class": "red"}\n{"image": "blue.png", "class": "blue"}')
    mine = tmp_path / "mine.toml"
    mine.write_text('short = ["{}"]\nlong = ["a wall of {}", "much {}"]', encoding="utf-8")
    for given, sets in ((mine, {"short": 1, "long": 2}), ("cifar10", {"cifar10": 18})):
        run("colours", f"prompts/{file}", "--prompts", given, "--out", tmp_path / "r")
        task = f"paint-classes~prompts-{'-'.join(sets)}"
        result = read_result(results(tmp_path / "r") / "prompts" / f"{task}.json")
        own = [entry["set"] for entry in result.details["templates"] if entry["set"] != "photo"]
        assert {name: own.count(name) for name in own} == sets
    mine.write_text('short = ["red"]', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"short: 'red': write \{\}"):
        run("colours", file, "--prompts", mine, "--out", tmp_path / "r")
    with pytest.raises(ConfigError, match="--prompts cifra10: neither a shipped set"):
        run("colours", file, "--prompts", "cifra10", "--out", tmp_path / "r")


def test_two_files_of_one_name_do_not_take_each_others_place(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    other = tmp_path / "elsewhere" / "paint" / "test.jsonl"
    shutil.copytree(data.parent, other.parent)
    with pytest.raises(ConfigError, match="would both be retrieval/paint-test"):
        run("colours", f"retrieval/{data}", f"retrieval/{other}", "--out", tmp_path / "r")
    run("colours", f"retrieval/{data}", "--out", tmp_path / "r")
    with pytest.raises(ConfigError, match="1 of 1 tasks failed"):
        run("colours", f"retrieval/{other}", "--out", tmp_path / "r")
    (kept,) = read_results(results(tmp_path / "r"))
    assert kept.source == str(data)


def test_an_encoder_that_gives_no_numbers_is_named(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    encoder = colours()
    broken = encoder.texts

    def texts(texts: Sequence[str]) -> Any:
        return np.where(np.array([["green" in text] for text in texts]), np.nan, broken(texts))

    encoder.texts = texts
    opened(encoder)
    with pytest.raises(ConfigError, match="2 of 2 tasks failed"):
        run("colours", data, "--out", tmp_path / "r")
    reason = "not finite for 1 of 2 items, the first 'green'"
    with Progress(disable=True) as progress, pytest.raises(VectorError, match=reason):
        Embedder(encoder, None, progress).texts(["red", "green"])


def test_figures_that_are_none_are_null_in_json(tmp_path: Path) -> None:
    nothing = Measure("group", "name", float("nan"), None, 0)
    finding = Finding((nothing,), {"curve": [[1, float("inf")]]})
    result = make_result("retrieval/none", {"seed": 0}, finding, 1.0, "now")
    file = write_result(tmp_path, result)
    content = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert content["measures"][0]["value"] is None
    assert content["details"] == {"curve": [[1, None]]}
    (measure,) = read_result(file).measures
    assert np.isnan(measure.value)


def test_names_of_shipped_prompt_sets_are_not_for_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('official = ["{}"]', encoding="utf-8")
    with pytest.raises(ConfigError, match="official: is what a shipped set is called"):
        read_prompt_sets(file)


def test_a_trial_does_not_take_the_place_of_a_result(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    words = "colours", f"retrieval/{data}", "--out", tmp_path / "r"
    trials = (
        (),
        ("--limit", "2"),
        ("--preprocess", "letterbox", "--seed", "1"),
        ("--preprocess", "retrieval"),
    )
    for options in trials:
        run(*words, *options)
    tasks = [result.task for result in read_results(results(tmp_path / "r"))]
    assert tasks == [
        "retrieval/paint-test",
        "retrieval/paint-test~letterbox~seed-1",
        "retrieval/paint-test~limit-2",
    ]
    assert "measured before" in run(*words)


def test_pictures_may_lie_elsewhere(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    file = tmp_path / "lists" / "test.jsonl"
    file.parent.mkdir()
    data.rename(file)
    said = run("colours", f"retrieval/{file}", "--images", data.parent, "--out", tmp_path / "r")
    assert "left out" not in said


def test_near_words_are_suggested_and_unknown_data_are_not_merely_missing(tmp_path: Path) -> None:
    for word, meant in (("tabel2", "table2"), ("flickr30", "flickr30k")):
        with pytest.raises(ConfigError, match=f"{word}: .*did you mean {meant}"):
            plan([word], tmp_path)
    with pytest.raises(ConfigError, match=r"no data set cifar-10, .*did you mean cifar10"):
        plan(["classification/cifar-10"], tmp_path)
    (job,) = plan(["cifar10"], tmp_path)
    assert (job.task, job.is_missing) == ("classification/cifar10", True)


def test_results_that_cannot_be_kept_say_why(
    data: Path, tmp_path: Path, colours: Colours, opened: Opened
) -> None:
    opened(colours())
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match=r"cannot be written: Not a directory; .*another folder"):
        run("colours", data, "--out", file)


def test_without_a_terminal_long_work_is_told(
    colours: Colours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.evaluation.embedder._QUIET_S", -1.0)
    console = Console(file=io.StringIO(), force_terminal=False)
    with Progress(console=console) as progress:
        Embedder(colours(), None, progress).texts(["red", "green"])
    assert isinstance(console.file, io.StringIO)
    assert "texts: 2 of 2" in console.file.getvalue()
