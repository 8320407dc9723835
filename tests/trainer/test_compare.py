"""`hyper3 compare`: trained once, measured alike, and what fails spoils nothing else."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from threading import Timer

import pytest
from rich.console import Console
from rich.progress import Progress

from core.errors import ConfigError, DataError, StorageError
from core.evaluation.result import read_results
from core.lock import holder_of, take_lock
from trainer import checkpoint
from trainer.compare.plan import read_plan, runs
from trainer.compare.run import compare
from trainer.compare.train import train_all
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.saver import copied

pytestmark = pytest.mark.timeout(600)  # trainings are processes, each of which imports torch

SYSTEMS = """\
recipe = "tiny.toml"
seeds = 2
on = ["{records}"]

[systems.clip.objective]
kind = "clip"

[systems.meru.objective]
kind = "meru"
"""

TINY = """\
name = "tiny"
data = {{ train = "{shards}", side = 32, workers = 0 }}
image_tower = {{ kind = "conv", widths = [8, 16] }}
text_tower = {{ width = 32, layers = 1, heads = 2 }}
model = {{ dim = 16, pooling_heads = 4 }}
optim = {{ batch_size = 8, steps = 4, warmup_steps = 1, precision = "fp32" }}
run = {{ device = "cpu", log_every = 1, save_every = 2 }}
"""


@pytest.fixture
def folder(shards: Path, tmp_path: Path) -> Path:
    """A recipe, a comparison of two systems, and twelve photos with chains to measure on."""
    lines = []
    for number in range(12):
        colour = ("red", "green", "blue")[number % 3]
        caption = f"a {colour} square, number {number}"
        levels = ["thing", "square", f"{colour} square", caption]
        record = {"image": "photo.png", "captions": [caption], "levels": levels}
        lines.append(json.dumps(record) + "\n")
    from PIL import Image  # noqa: PLC0415

    Image.new("RGB", (32, 32), (200, 30, 30)).save(tmp_path / "photo.png")
    records = tmp_path / "test.jsonl"
    records.write_text("".join(lines))
    (tmp_path / "tiny.toml").write_text(TINY.format(shards=shards))
    (tmp_path / "two.toml").write_text(SYSTEMS.format(records=records))
    return tmp_path


def run(folder: Path, *what: str, seeds: int | None = None, at_once: int = 2) -> Path:
    out = folder / "out"
    words = what or (str(folder / "two.toml"),)
    compare(words, seeds=seeds, on=(), out=out, baseline=None, at_once=at_once)
    return out


def table(out: Path) -> list[dict[str, str]]:
    with (out / "report" / "report.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def states(out: Path) -> dict[str, int]:
    """When each checkpoint was written."""
    return {
        str(path.relative_to(out)): path.stat().st_mtime_ns
        for path in sorted(out.glob("runs/*/*/checkpoints/*/state.json"))
    }


def test_a_table_of_what_each_seed_reached_and_nothing_is_trained_twice(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = states(run(folder, seeds=1))
    out = run(folder)
    both = states(out)
    assert first
    assert len(both) == 2 * len(first)
    assert {name: both[name] for name in first} == first
    found = table(out)
    recalls = [row for row in found if (row["group"], row["figure"]) == ("text to image", "R@5")]
    assert [row["system"] for row in recalls] == ["clip", "meru"]
    for row in recalls:
        values = []
        for seed in range(2):
            (results,) = [
                result
                for result in read_results(out / "results" / row["system"] / f"seed-{seed}")
                if result.family == "retrieval"
            ]
            measure = results.find("text to image", "R@5")
            assert measure is not None
            values.append(measure.value)
        assert [float(row["seed 0"]), float(row["seed 1"])] == pytest.approx(values)
        assert float(row["mean"]) == pytest.approx(sum(values) / 2)
    assert {row["system"] for row in found if row["task"].startswith("chains")} == {"meru"}
    assert float(recalls[1]["p"]) <= 1
    said = capsys.readouterr().out
    assert "test · text to image (against clip)" in said
    page = (out / "report" / "report.html").read_text()
    assert "4 x 8" in page
    assert "<svg" in page


def test_stopped_by_a_signal_it_goes_on_and_ends_as_one_that_was_not(folder: Path) -> None:
    whole = table(run(folder, seeds=1, at_once=1))
    out = folder / "stopped"
    command = [sys.executable, "-m", "core", "compare", str(folder / "two.toml")]
    command += ["--seeds", "1", "--out", str(out)]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    while not states(out) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(stopped.pid, signal.SIGTERM)
    said, _ = stopped.communicate(timeout=60)
    assert stopped.returncode == 130, said
    assert b"run the same command again" in said
    assert len(states(out)) < len(states(folder / "out"))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert table(out) == whole


def test_a_system_that_cannot_be_trained_is_named_and_the_others_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "two.toml").read_text()
    (folder / "two.toml").write_text(text + "\n[systems.broken.optim]\nbatch_size = 999\n")
    with pytest.raises(ConfigError, match="1 of 3 failed"):
        run(folder, seeds=1)
    assert {row["system"] for row in table(folder / "out")} == {"clip", "meru"}
    said = capsys.readouterr().out
    assert "broken, seed 0:" in said
    assert "lower optim.batch_size" in said


def test_continuations_start_from_the_base_of_their_own_seed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SYSTEMS.partition("[systems")[0].format(records=folder / "test.jsonl")
    (folder / "rows.toml").write_text(
        text
        + '[common.objective]\nkind = "hyper3"\n'
        + "[systems.base]\nobjective.query_weight = 0.0\nrun.stop_at = 2\n"
        + '[systems.full]\nrun.base = "base"\n'
    )
    for one in runs(read_plan([str(folder / "rows.toml")]), folder / "out", 3):
        expected = folder / "out" / "runs" / "base" / f"seed-{one.seed}"
        assert one.base == (expected if one.contender.name == "full" else None)
    out = run(folder, str(folder / "rows.toml"), seeds=1)
    assert {row["system"] for row in table(out)} == {"full"}
    log = (out / "runs" / "full" / "seed-0" / "train.log").read_text()
    assert "runs/base/seed-0/checkpoints/00000002" in log.replace("\n", "")
    before = states(out)
    monkeypatch.chdir(folder)
    spelt = Path("..") / folder.name / "out"
    compare([str(folder / "rows.toml")], seeds=1, on=(), out=spelt, baseline=None, at_once=1)
    assert states(out) == before


def test_a_training_that_another_process_is_at_is_waited_for(folder: Path) -> None:
    """What a comparison that was killed has left behind goes on by itself."""
    (folder / "two.toml").write_text('recipe = "tiny.toml"\n[systems.a]\noptim.batch_size = 999\n')
    (one,) = runs(read_plan([str(folder / "two.toml")]), folder / "out", 1)
    console = Console(file=StringIO(), width=200)
    lock = take_lock(one.folder)
    assert holder_of(one.folder) == str(os.getpid())
    Timer(1.5, lock.close).start()
    with Progress(console=console) as progress:
        (ended,) = train_all([one], 4, progress)
    assert isinstance(console.file, StringIO)
    assert f"process {os.getpid()} is training it; waiting" in console.file.getvalue()
    assert "lower optim.batch_size" in ended.fault
    assert holder_of(one.folder) == holder_of(folder) == ""


def test_a_run_of_other_data_or_of_more_steps_is_not_taken_for_the_one_that_is_meant(
    folder: Path,
) -> None:
    (folder / "two.toml").write_text('recipe = "tiny.toml"\n[systems.a]\nrun.stop_at = 2\n')
    words = [str(folder / "two.toml")]
    (one,) = runs(read_plan(words), folder / "out", 1)
    model = DualEncoder(one.recipe)
    tensors = copied(checkpoint.tensors_of(model, build_optimizer(model, one.recipe.optim)))
    checkpoint.write(one.folder, checkpoint.Position(2, 24), one.recipe, tensors, {})
    for word, fault in (
        ("run.stop_at=2", ""),
        ("run.stop_at=1", "beyond step 1, at 2; give another --out"),
        ("data.train=other", "of another recipe (data.train); give another --out"),
        ("optim.peak_lr=1e-5", "of another recipe (optim.peak_lr); give another --out"),
    ):
        with Progress(console=Console(file=StringIO())) as progress:
            (ended,) = train_all(runs(read_plan([*words, word]), folder / "out", 1), 1, progress)
        assert ended.fault.endswith(fault)
        assert bool(ended.fault) == bool(fault)


def test_what_is_missing_is_said_before_anything_is_trained(folder: Path) -> None:
    words = [str(folder / "tiny.toml")]
    for on, error, message in (
        ([], ConfigError, "--on retrieval/"),
        ([str(folder / "nowhere.jsonl")], DataError, "nowhere.jsonl: cannot be read"),
        (["coco-karpathy"], DataError, "hyper3 data fetch coco-karpathy"),
    ):
        with pytest.raises(error, match=message):
            compare(words, seeds=1, on=on, out=folder / "o", baseline=None, at_once=1)
    with pytest.raises(ConfigError, match="--baseline best: not one of clip, meru"):
        compare(
            [str(folder / "two.toml")], seeds=1, on=(), out=folder / "o", baseline="best", at_once=1
        )
    with pytest.raises(DataError, match="no shards"):
        compare(
            [str(folder / "two.toml"), f"data.train={folder / 'empty*'}"],
            seeds=1, on=(), out=folder / "o", baseline=None, at_once=1,
        )  # fmt: skip
    told = folder / "told.toml"
    text = (folder / "two.toml").read_text()
    told.write_text('needs = "`make photos`"\n' + text)
    gone = str(folder / "gone.jsonl")
    with pytest.raises(DataError, match="told needs `make photos`") as raised:
        compare(
            [str(told)], seeds=1, on=(f"retrieval/{gone}", f"chains/{gone}"), out=folder / "o",
            baseline=None, at_once=1,
        )  # fmt: skip
    assert str(raised.value).count("gone.jsonl") == 1
    assert not (folder / "o").exists()


def test_a_second_comparison_of_a_folder_is_kept_out(folder: Path) -> None:
    lock = take_lock(folder / "out")
    with pytest.raises(StorageError, match="in use by another process"):
        run(folder)
    lock.close()
