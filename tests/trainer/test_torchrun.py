"""The command with torchrun before it: two processes, one run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.errors import ConfigError
from core.lock import take_lock
from trainer.config import Recipe
from trainer.data.sample import Sample
from trainer.data.shard_writer import write_shard
from trainer.distributed import join
from trainer.run import train


def without_batch_norm(recipe: Recipe, **changes: dict[str, Any]) -> Recipe:
    """A recipe whose steps do not depend on the number of processes: no augmentation either."""
    dump = recipe.model_dump() | {
        "image_tower": {"kind": "timm", "name": "test_vit"},
        "augment": {
            "crop_scale": (1.0, 1.0), "jitter_probability": 0.0, "grayscale_probability": 0.0,
        },
    }  # fmt: skip
    for section, values in changes.items():
        dump[section] |= values
    return Recipe.model_validate(dump)


@contextmanager
def two_processes(recipe: Recipe, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command of the manual, and its end whatever happens."""
    file = folder / "recipe.toml"
    file.write_text(f'name = "{recipe.name}"\n')
    overrides = [
        f"{section}.{key}={json.dumps(value)}"
        for section, values in recipe.model_dump(mode="json", exclude={"name"}).items()
        for key, value in values.items()
        if value is not None
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "core", "train", str(file), *overrides],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def reported(folder: Path, split: str = "train") -> list[tuple[int, float]]:
    """Step and loss of every report."""
    file = folder / "metrics.jsonl"
    rows = [json.loads(row) for row in file.read_text().splitlines()] if file.exists() else []
    return [(row["step"], row["loss"]) for row in rows if row["split"] == split]


def test_two_processes_take_the_steps_of_one_and_end_with_a_checkpoint_that_one_goes_on_from(
    recipe: Recipe, tmp_path: Path
) -> None:
    def endless(name: str, **run: Any) -> Recipe:
        return without_batch_norm(
            recipe,
            optim={"steps": 100_000},
            run={"out": tmp_path / name, "save_every": 100_000, **run},
        )

    train(endless("alone", stop_at=6), Console(file=StringIO()))
    together = endless("together")
    with two_processes(together, tmp_path) as process:
        deadline = time.monotonic() + 120
        while len(reported(together.folder)) < 6:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # to torchrun, which passes it on
        output, _ = process.communicate(timeout=60)
    assert output.count("x 2 processes") == 1
    last = reported(together.folder)[-1][0]
    assert max(path.name for path in (together.folder / "checkpoints").iterdir()) == f"{last:08d}"

    train(endless("together", stop_at=last + 2), Console(file=StringIO()))
    steps = [step for step, _ in reported(together.folder)]
    assert steps == list(range(1, last + 3))
    for split, count in (("train", 6), ("val", 2)):
        alone = reported(tmp_path / "alone", split)
        assert len(alone) == count
        for (step, expected), (same_step, loss) in zip(
            alone, reported(together.folder, split), strict=False
        ):
            assert step == same_step
            assert loss == pytest.approx(expected, rel=1e-4)


def test_two_processes_that_share_weights_leave_a_checkpoint_that_one_goes_on_from(
    recipe: Recipe, tmp_path: Path
) -> None:
    def of(name: str, stop_at: int, **speed: Any) -> Recipe:
        run = {"out": tmp_path / name, "stop_at": stop_at}
        return without_batch_norm(recipe, speed=speed, run=run)

    train(of("alone", 5), Console(file=StringIO()))
    together = of("together", 3, shard=True, micro_batch=2)
    with two_processes(together, tmp_path) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    train(of("together", 5), Console(file=StringIO()))
    for split in ("train", "val"):
        steps, losses = zip(*reported(together.folder, split), strict=True)
        alone_steps, alone = zip(*reported(tmp_path / "alone", split), strict=True)
        assert steps == alone_steps
        assert losses == pytest.approx(alone, rel=1e-4)


def test_a_broken_picture_that_is_the_share_of_a_process_is_left_out_and_a_failure_ends_both(
    recipe: Recipe, shards: Path, tmp_path: Path
) -> None:
    broken = Sample("bad", b"no picture", "a caption", ())
    write_shard(shards / "00002.tar", [broken])
    write_shard(tmp_path / "val" / "0.tar", [broken])  # which the first process meets at step 5
    pairs = without_batch_norm(recipe, optim={"batch_size": 2, "steps": 100_000})
    alone = without_batch_norm(
        pairs, data={"val": None}, run={"out": tmp_path / "alone", "stop_at": 5}
    )
    train(alone, Console(file=StringIO()))
    together = without_batch_norm(pairs, data={"val": str(tmp_path / "val")}, run={"eval_every": 5})
    with two_processes(together, tmp_path) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "left out a sample" in output
    assert "no held-out sample can be used" in output
    with closing(take_lock(together.folder)):
        assert "another process of this run has ended" in output
    steps, losses = zip(*reported(together.folder), strict=True)
    assert steps == tuple(range(1, 6))
    assert losses == pytest.approx([loss for _, loss in reported(alone.folder)], rel=1e-4)


def test_two_processes_share_stored_features_and_one_of_them_computes_these(
    recipe: Recipe, shards: Path, tmp_path: Path
) -> None:
    write_shard(shards / "00002.tar", [Sample("bad", b"no picture", "a caption", ())])
    frozen = without_batch_norm(
        recipe,
        image_tower={"frozen": True},
        optim={"batch_size": 2, "steps": 12, "warmup_steps": 2},  # one of 12 has the broken picture
        run={"out": tmp_path / "alone", "eval_every": 12, "save_every": 12},
    )
    train(frozen, Console(file=StringIO()))
    together = without_batch_norm(
        frozen,
        image_tower={"frozen": True},
        data={"features": tmp_path / "features"},
        run={"out": tmp_path / "together"},
    )
    with two_processes(together, tmp_path) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("were computed now") == 1
    for split in ("train", "val"):
        alone = reported(tmp_path / "alone", split)
        for (step, expected), (same_step, loss) in zip(
            alone, reported(together.folder, split), strict=True
        ):
            assert step == same_step
            assert loss == pytest.approx(expected, rel=1e-3)


def test_an_environment_that_names_no_other_process_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ConfigError, match="torchrun --nproc-per-node N -m core train"), join("cpu"):
        pass
