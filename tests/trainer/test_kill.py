"""Trainings that are killed or stopped at any moment, and go on as if nothing had been."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from trainer import checkpoint
from trainer.config import Recipe
from trainer.run import train

SAVE_EVERY = 3
PATIENCE_S = 250  # for a process that starts on a busy machine
COMMAND = ("-m", "core", "train")
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *COMMAND)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums are taken in the order of the processes that the tests start."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def of(recipe: Recipe, **changes: dict[str, Any]) -> Recipe:
    """The recipe with some keys of sections changed; a ``kind`` makes a section anew."""
    dump = recipe.model_dump()
    for section, values in changes.items():
        dump[section] = values if "kind" in values else dump[section] | values
    return Recipe.model_validate(dump)


def saving(recipe: Recipe, folder: Path, steps: int) -> Recipe:
    run = {"out": folder, "save_every": SAVE_EVERY, "eval_every": steps, "keep": 2}
    return of(recipe, optim={"steps": steps}, run=run)


@contextmanager
def started(recipe: Recipe, workers: int, how: tuple[str, ...] = COMMAND) -> Iterator[Any]:
    """The training as a process in a group of its own, which ends with the block."""
    file = recipe.folder.with_suffix(".toml")
    file.write_text(f'name = "{recipe.name}"\n')
    values = of(recipe, data={"workers": workers}).model_dump(mode="json", exclude={"name"})
    overrides = [
        f"{section}.{key}={json.dumps(value)}"
        for section, keys in values.items()
        for key, value in keys.items()
        if value is not None
    ]
    with recipe.folder.with_suffix(".log").open("a+") as log:
        process = subprocess.Popen(
            [sys.executable, *how, str(file), *overrides],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def said(recipe: Recipe) -> str:
    return recipe.folder.with_suffix(".log").read_text()


def reports(folder: Path, split: str = "train") -> dict[int, dict[str, Any]]:
    """By step, what was reported and does not depend on the clock."""
    file = folder / "metrics.jsonl"
    found = {}
    for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
        if line.endswith("\n"):  # not one that is just being written
            row = json.loads(line)
            if row.pop("split") == split:
                found[row["step"]] = {
                    name: value for name, value in row.items() if not name.startswith(TIMES)
                }
    return found


TIMES = ("time", "speed/")


def last_step(recipe: Recipe) -> int:
    """Of the last whole line."""
    file = recipe.folder / "metrics.jsonl"
    *_, last, _ = b"", *(file.read_bytes() if file.exists() else b"").split(b"\n")
    return int(json.loads(last)["step"]) if last else 0


def reached(recipe: Recipe, step: int) -> bool:
    return last_step(recipe) >= step


def wait_for(
    moment: Callable[[], bool], process: "subprocess.Popen[bytes]", recipe: Recipe
) -> None:
    """Wait for a moment that comes before the process ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not moment():
        assert process.poll() is None, said(recipe)
        assert time.monotonic() < deadline, said(recipe)
        time.sleep(0.002)


def is_writing(recipe: Recipe) -> bool:
    return any((recipe.folder / "checkpoints").glob(".*.tmp"))


def kill_and_go_on(recipe: Recipe, kills: list[str], rng: random.Random) -> None:
    """Kill the run at moments of these kinds, start it again each time, and let it end at last.

    Each time another number of workers loads.
    """
    for number, kind in enumerate(kills):
        with started(recipe, workers=1 + number % 2) as process:
            if kind == "early":
                time.sleep(rng.uniform(0, 4))
            else:
                further = partial(reached, recipe, last_step(recipe) + rng.randint(1, 4))
                wait_for(further, process, recipe)
            if kind == "writing":
                wait_for(partial(is_writing, recipe), process, recipe)
                os.killpg(process.pid, signal.SIGKILL)
            elif kind == "step":
                time.sleep(rng.uniform(0, 0.02))
                process.kill()  # its workers have to end by themselves
            else:
                os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL, said(recipe)  # it had not ended before
        newest = checkpoint.newest(recipe.folder)
        lost = last_step(recipe) - (newest.step if newest else 0)
        assert lost <= 2 * SAVE_EVERY  # the interval, and what is done while the next is written
    with started(recipe, workers=1 + len(kills) % 2) as process:
        assert process.wait(PATIENCE_S) == 0, said(recipe)


def assert_equal(one: Path, other: Path) -> None:
    """All reports are equal to the last bit, and so are the weights."""
    for split in ("train", "val"):
        assert reports(one, split) == reports(other, split)
    weights, others = (checkpoint.read_model(checkpoint.find(folder)) for folder in (one, other))
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_a_run_that_is_killed_three_times_has_the_losses_of_one_that_was_not(
    recipe: Recipe, tmp_path: Path
) -> None:
    recipe = of(recipe, data={"val": None})
    train(saving(recipe, tmp_path / "whole", 32), Console(file=StringIO()))
    killed = saving(recipe, tmp_path / "killed", 32)
    kill_and_go_on(killed, ["step", "writing", "step"], random.Random(0))
    assert_equal(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_that_is_killed_twenty_times_has_the_losses_of_one_that_was_not(
    recipe: Recipe, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    kills = ["step"] * 10 + ["writing"] * 6 + ["early"] * 4
    rng.shuffle(kills)
    if seed:  # all that draws at random, and all that may keep something between steps
        recipe = of(
            recipe,
            image_tower={"kind": "timm", "name": "test_vit", "patch_dropout": 0.5},
            speed={"micro_batch": 3, "checkpointing": True},
        )
    train(saving(recipe, tmp_path / "whole", 400), Console(file=StringIO()))
    killed = saving(recipe, tmp_path / "killed", 400)
    kill_and_go_on(killed, kills, rng)
    assert_equal(tmp_path / "whole", tmp_path / "killed")


def test_sigterm_saves_and_ends(recipe: Recipe, tmp_path: Path) -> None:
    run = {"out": tmp_path / "run", "save_every": 100_000, "eval_every": 100_000}
    endless = of(recipe, optim={"steps": 100_000}, run=run)
    with started(endless, workers=1) as process:
        wait_for(partial(reached, endless, 1), process, endless)
        os.killpg(process.pid, signal.SIGTERM)  # as a shell or a scheduler does, workers too
        assert process.wait(PATIENCE_S) == 0, said(endless)
    saved = checkpoint.newest(endless.folder)
    assert saved is not None
    assert saved.step == last_step(endless)


@pytest.mark.slow
def test_one_process_and_then_two_take_the_same_steps(recipe: Recipe, tmp_path: Path) -> None:
    """A tower of layer norms, and no augmentation: nothing depends on who has which sample."""
    recipe = of(
        recipe,
        image_tower={"kind": "timm", "name": "test_vit"},
        augment={"crop_scale": (1.0, 1.0), "jitter_probability": 0.0, "grayscale_probability": 0.0},
        optim={"eps": 1e-3},  # or AdamW would make a step of the rounding of a tiny gradient
    )
    whole = of(recipe, run={"out": tmp_path / "whole"})
    train(whole, Console(file=StringIO()))
    shared = of(recipe, run={"out": tmp_path / "shared"})
    train(of(shared, run={"stop_at": 3}), Console(file=StringIO()))
    with started(shared, workers=0, how=TWO) as process:
        assert process.wait(PATIENCE_S) == 0, said(shared)
    alone, both = reports(whole.folder), reports(shared.folder)
    assert alone.keys() == both.keys() == set(range(1, 7))
    for step, report in alone.items():
        assert both[step]["loss"] == pytest.approx(report["loss"], rel=1e-6)
    assert checkpoint.find(shared.folder).position == checkpoint.find(whole.folder).position
