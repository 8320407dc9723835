"""Trainings as processes of their own, some at a time, each going on where it stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress, TaskID

from core.cores import available_cores
from core.lock import holder_of
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.compare.plan import Planned
from trainer.config import difference
from trainer.storage import storage_errors

LOG = "train.log"
_POLL_S = 0.5


@dataclass(frozen=True)
class Trained:
    """How a training ended."""

    planned: Planned
    fault: str = ""


@dataclass
class _Running:
    planned: Planned
    process: "subprocess.Popen[bytes]"
    task: TaskID


def train_all(
    planned: Sequence[Planned], at_once: int, progress: Progress
) -> Generator[Trained, None, None]:
    """Train what is not trained yet; each is given as soon as it has ended.

    Left early, or interrupted, the trainings that run save a checkpoint and end. One that another
    process is at, such as what a comparison that was killed has left behind, is waited for.

    Args:
        planned: In the order in which they start; one waits for the run that it continues.
        at_once: Trainings that run together, each with its share of the cores.
        progress: Shows each that runs.
    """
    waiting, running = list(planned), list[_Running]()
    over: dict[Path, str] = {}  # the fault of each that has ended
    total = progress.add_task("trainings", total=len(planned))
    told = set[Path]()  # the folders that somebody else is known to train in
    try:
        while waiting or running:
            ended = []
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                progress.remove_task(run.task)
                ended.append(Trained(run.planned, _fault(run)))
            ready = [one for one in waiting if one.base is None or one.base in over]
            for one in [one for one in ready if not _is_held(one, told, progress)]:
                if len(running) == at_once:
                    break
                waiting.remove(one)
                found = checkpoint.newest(one.folder)
                fault = over.get(one.base, "") if one.base else ""
                fault = f"its base failed: {fault}" if fault else _unfit(one, found)
                if fault or _is_trained(one, found):
                    ended.append(Trained(one, fault))
                else:
                    running.append(_start(one, at_once, progress))
            # Given only now: what is done with one takes a while, in which the next ones train.
            for one_ended in ended:
                over[one_ended.planned.folder] = one_ended.fault
                progress.advance(total)
                yield one_ended
            for run in running:
                progress.update(run.task, completed=_step(run.planned.folder))
            if not ended:
                time.sleep(_POLL_S)
    finally:
        _end(running)
        progress.remove_task(total)


def _is_held(one: Planned, told: set[Path], progress: Progress) -> bool:
    """Whether another process trains there, which is told once."""
    owner = holder_of(one.folder)
    if owner and one.folder not in told:
        told.add(one.folder)
        progress.console.print(
            f"{one.title}: process {owner} is training it; waiting until it has ended"
        )
    return bool(owner)


def _is_trained(one: Planned, found: Checkpoint | None) -> bool:
    return found is not None and found.step == one.recipe.last_step


def _unfit(one: Planned, found: Checkpoint | None) -> str:
    """Why the folder cannot be gone on with."""
    if found is None:
        return ""
    changed = difference(found.recipe, one.recipe)
    if found.recipe.digest() != one.recipe.digest() or "data.train" in changed:
        return (
            f"{one.folder} holds a run of another recipe ({', '.join(changed)}); give another --out"
        )
    if found.step > one.recipe.last_step:
        return (
            f"{one.folder} holds a run that is beyond step {one.recipe.last_step:,}, at "
            f"{found.step:,}; give another --out"
        )
    return ""


def _start(one: Planned, at_once: int, progress: Progress) -> _Running:
    threads = str(max(1, available_cores() // at_once))
    environment = {"OMP_NUM_THREADS": threads} | os.environ | {"TERM": "dumb"}
    with storage_errors(one.folder):
        one.folder.mkdir(parents=True, exist_ok=True)
        with (one.folder / LOG).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "core", "train", str(one.contender.path), *one.overrides],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
    task = progress.add_task(f"  {one.title}", total=one.recipe.last_step)
    return _Running(one, process, task)


def _fault(run: _Running) -> str:
    """What the process said at its end, where that was not the last step."""
    code, log = run.process.returncode, run.planned.folder / LOG
    if code == 0:
        is_trained = _is_trained(run.planned, checkpoint.newest(run.planned.folder))
        return "" if is_trained else f"stopped before its last step; all it said: {log}"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}; all it said: {log}"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line for line in lines if line.strip()][-1:] or [""]
    return f"{said[0].removeprefix('error: ')} (exit status {code}; {log})"


def _step(folder: Path) -> int:
    """The step of the run's last report."""
    try:
        with (folder / "metrics.jsonl").open("rb") as lines:
            lines.seek(-min(65_536, lines.seek(0, os.SEEK_END)), os.SEEK_END)
            *_, last = lines.read().split(b"\n{")
        return int(json.loads(b"{" + last.removeprefix(b"{"))["step"])
    except (OSError, ValueError, KeyError):  # not there yet, or a line that is being written
        return 0


def _end(running: Sequence[_Running]) -> None:
    for run in running:
        run.process.terminate()
    for run in running:
        run.process.wait()
