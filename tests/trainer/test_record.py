"""What a run tells while it trains, and when it has ended."""

import json
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from core.cores import available_cores
from core.errors import ConfigError, DataError
from trainer.config import Recipe
from trainer.data.sample import Sample
from trainer.data.shard_writer import write_shard
from trainer.health.attention import Glance
from trainer.record.attention_picture import draw
from trainer.record.pace import Pace, Stretch, verdict
from trainer.record.weights_and_biases import begin, page_of
from trainer.run import train


def changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    dump = recipe.model_dump()
    for name, values in sections.items():
        dump[name] |= values
    return Recipe.model_validate(dump)


def said(recipe: Recipe) -> str:
    """All that a run prints where there is no screen."""
    console = Console(file=StringIO(), width=200)
    train(recipe, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def rows(recipe: Recipe) -> list[dict[str, Any]]:
    lines = (recipe.folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_tells_its_speed_memory_and_what_limits_it(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.record.record._QUIET_S", 0.0)
    output = said(recipe)
    row = rows(recipe)[0]
    assert row["speed/samples_per_second"] > 0
    assert row["speed/teraflops_per_second"] > 0
    assert 0.1 < row["speed/peak_memory_gib"] < 100
    assert "speed/mfu" not in row  # no peak is known of a CPU
    assert "step       2 of 6  loss" in output
    assert "bound" in output
    assert "is the bottleneck" in output
    assert json.loads((recipe.folder / "summary.json").read_text())["failed"] is None


def test_the_peak_of_memory_is_that_of_this_process_and_not_of_the_one_that_started_it() -> None:
    inner = "from trainer.record.pace import peak_memory as peak; import torch; "
    inner += "print(peak(torch.device('cpu')))"
    outer = "import subprocess, sys; x = bytes(3 * 2**30); "
    outer += f"subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    found = subprocess.run([sys.executable, "-c", outer], check=True, capture_output=True)
    assert 2**26 < int(found.stdout) < 2 * 2**30


def test_held_out_radii_and_attention_are_in_tensorboard(recipe: Recipe) -> None:
    train(changed(recipe, optim={"steps": 3}), Console(file=StringIO()))
    board = EventAccumulator(str(recipe.folder / "tensorboard"))
    board.Reload()
    kinds = {"image", "text", "part_image", "part_text", "query_image", "query_text"}
    assert set(board.Tags()["histograms"]) == {f"radius/{kind}" for kind in kinds}
    assert board.Histograms("radius/image")[0].histogram_value.num == 24
    picture = board.Images("val/attention")[0]
    assert picture.width > picture.height / 2 > 100


def test_a_run_that_fails_says_so_in_its_summary_and_one_that_begins_again_takes_it_back(
    recipe: Recipe, shards: Path
) -> None:
    bad = shards.parent / "bad"
    write_shard(bad / "0.tar", [Sample(f"{n}", b"none", "a caption", ()) for n in range(8)])
    broken = changed(recipe, data={"train": str(bad)})
    with pytest.raises(DataError):
        train(broken, Console(file=StringIO()))
    summary = recipe.folder / "summary.json"
    assert json.loads(summary.read_text())["failed"].startswith("DataError: no sample")
    train(changed(recipe, optim={"steps": 1}, data={"val": None}), Console(file=StringIO()))
    assert json.loads(summary.read_text())["failed"] is None


@pytest.mark.parametrize(
    ("share", "workers", "expected"),
    [
        (0.05, 1, r"the device is the bottleneck \(5% of the time waiting for data\)\.$"),
        (0.5, 0, r"the data is the bottleneck \(50% .* 2 times as fast with data\.workers=1"),
        (0.5, available_cores(), r"smaller pictures in the shards, or more than these"),
    ],
)
def test_the_bottleneck_is_named_with_a_remedy(
    recipe: Recipe, share: float, workers: int, expected: str
) -> None:
    pace = Pace(changed(recipe, data={"workers": workers}))
    pace.total = Stretch(seconds=10, waited=10 * share, samples=100)
    assert re.search(expected, pace.summary())


def test_more_workers_are_advised_where_there_are_cores(recipe: Recipe) -> None:
    if available_cores() < 2:
        pytest.skip("one core")
    pace = Pace(changed(recipe, data={"workers": 1}))
    pace.total = Stretch(seconds=10, waited=3, samples=100)
    assert "data.workers (now 1; try 2, of " in pace.summary()


def test_a_frozen_tower_is_advised_to_keep_its_features(recipe: Recipe) -> None:
    pace = Pace(changed(recipe, image_tower={"frozen": True}))
    pace.total = Stretch(seconds=10, waited=9, samples=100)
    assert "10 times as fast with data.features=FOLDER" in pace.summary()


def test_the_verdict_turns_at_a_tenth_of_the_time() -> None:
    assert verdict(0.09).startswith("the device")
    assert verdict(0.1).startswith("the data")


def test_the_wait_for_the_first_batch_is_that_of_the_workers_start(recipe: Recipe) -> None:
    pace = Pace(recipe)
    assert list(pace.waiting(iter([]))) == []
    pace.step(8, torch.device("cpu"))
    assert pace.report()["speed/share_waiting_for_data"] == 0


def test_what_a_query_looks_at_is_clear_in_the_drawing_and_the_rest_is_veiled() -> None:
    attention = np.zeros((1, 2, 2), np.float32)
    attention[0, 0, 1] = 1  # the upper right
    dark = np.full((1, 32, 32, 3), 10, np.uint8)
    sheet = draw(Glance(dark, attention, (0,), ((1, 2),)), ["a thing"])
    shown = sheet[10:160, 170:320].astype(float)  # the cell of the query
    assert shown[:20, -20:].mean() == pytest.approx(10, abs=8)
    assert shown[-50:, :50].mean() > 100
    assert sheet[10:160, 10:160].max() == 10  # the picture itself as it is


def test_weights_and_biases_that_are_missing_are_named_with_the_way_to_them(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"run\.wandb 'mine'.*hyper3-stack\[wandb\]"):
        train(changed(recipe, run={"wandb": "mine"}), Console(file=StringIO()))


def test_a_run_keeps_its_page_and_shares_it_with_no_other(recipe: Recipe, tmp_path: Path) -> None:
    page = page_of(recipe.folder, recipe)
    assert page == page_of(recipe.folder, changed(recipe, data={"workers": 2}))
    assert page != page_of(tmp_path / "other", recipe)
    assert page != page_of(recipe.folder, changed(recipe, run={"seed": 1}))


@pytest.mark.filterwarnings("ignore")  # theirs
def test_reports_go_to_weights_and_biases(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = begin(tmp_path, changed(recipe, run={"wandb": "mine"}))
    run.log({"step": 1, "train/loss": 2.5})
    run.log({"step": 1, "train/loss": 2.5})  # taken again
    run.finish()
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert page_of(tmp_path, changed(recipe, run={"wandb": "mine"})) in kept.name
    assert wandb.run is None
