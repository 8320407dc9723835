"""A run that is killed goes on, and ends in the bytes of one that was not."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import StorageError
from core.lock import take_lock
from trainer.prepare.run import is_complete
from trainer.prepare.samples import PrepareSettings
from trainer.prepare.sources.find import find_source
from trainer.prepare.sources.source import Request

Run = Callable[..., dict[str, Any]]

PREPARE = [sys.executable, "-m", "core", "data", "prepare"]


def write_source(folder: Path, photos: int, captions: int = 5) -> Path:
    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(0)
    for number in range(photos):
        pixels = noise.integers(0, 255, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=80)
    (folder / "0.jpg").write_bytes(b"torn")
    boxes = [{"phrase": f"part {i}", "xyxy": [0.1 * i, 0.1, 0.6 + 0.1 * i, 0.9]} for i in range(2)]
    boxes.append({"phrase": "tiny", "xyxy": [0, 0, 0.01, 0.01]})
    lines = [
        {
            "id": f"p{number}",
            "image": f"{number}.jpg",
            "captions": [f"photo {number}, caption {i}" for i in range(captions)],
            "boxes": boxes,
        }
        for number in range(photos)
    ]
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file, hidden ones too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.split()[0] != "Z"


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes through /proc")
def test_a_run_that_is_killed_ends_in_the_same_bytes(tmp_path: Path, run: Run) -> None:
    records = write_source(tmp_path / "photos", 500)  # 3 shards
    command = [*PREPARE, str(records), "--out", str(tmp_path / "out")]
    command += ["--crops", "boxes", "--side", "48"]
    staging = tmp_path / "out" / ".train.partial"
    process = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(staging.glob("notes/*.json")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = children_of(process.pid)
    process.kill()
    process.wait()
    while any(map(is_alive, workers)):  # a worker that outlives it would write on
        assert time.monotonic() < deadline
        time.sleep(0.02)
    finished = [staging / "shards" / f"{note.stem}.tar" for note in staging.glob("notes/*.json")]
    kept = {path.name: path.stat().st_mtime_ns for path in finished}
    said: list[str] = []
    run(records, tmp_path / "out", crops="boxes", side=48, part_side=48, say=said.append)
    assert said == [f"going on with what an earlier run left: {len(kept)} shards are finished"]
    for name, written in kept.items():
        assert (tmp_path / "out/train" / name).stat().st_mtime_ns == written
    run(records, tmp_path / "whole", crops="boxes", side=48, part_side=48)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert set(digests(tmp_path / "out")) == {
        "manifest.json", "train/00000.tar", "train/00001.tar", "train/00002.tar",
    }  # fmt: skip


@pytest.mark.parametrize("calls", range(1, 12))
def test_wherever_it_stops_while_publishing_the_end_is_the_same(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The disk is let fail at the n-th change of a name, which is where a kill could matter."""
    records = write_source(tmp_path / "photos", 6)
    run(records, tmp_path / "whole")
    write_source(tmp_path / "old", 2)
    run(tmp_path / "old/train.jsonl", tmp_path / "out")  # a split that will be replaced
    left = [calls]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        return change

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(Path, name, failing(getattr(Path, name)))
        patch.setattr("shutil.rmtree", failing(__import__("shutil").rmtree))
        try:
            run(records, tmp_path / "out")
        except KeyboardInterrupt:
            assert left[0] == 0
    run(records, tmp_path / "out")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_another_setting_starts_anew_and_says_which(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = write_source(tmp_path / "photos", 6)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.prepare.run.publish", stop)
        with pytest.raises(KeyboardInterrupt):
            run(records, tmp_path / "out", side=48)
    said: list[str] = []
    run(records, tmp_path / "out", side=64, say=said.append)
    assert said == ["side was 48, is 64: what no longer fits is made anew"]
    run(records, tmp_path / "whole", side=64)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_a_changed_file_starts_anew_and_is_named(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = write_source(tmp_path / "photos", 6)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.prepare.run.publish", stop)
        with pytest.raises(KeyboardInterrupt):
            run(records, tmp_path / "out")
    records.write_text(records.read_text().replace("photo 3", "picture 3"))
    said: list[str] = []
    run(records, tmp_path / "out", say=said.append)
    assert said[0].startswith("train.jsonl has changed: ")
    assert not (tmp_path / "out/.train.partial").exists()


def test_a_shard_that_was_torn_is_made_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = write_source(tmp_path / "photos", 6)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.prepare.run._entry", stop)
        with pytest.raises(KeyboardInterrupt):
            run(records, tmp_path / "out")
    os.truncate(tmp_path / "out/.train.partial/shards/00000.tar", 1_000)
    run(records, tmp_path / "out")
    run(records, tmp_path / "whole")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_two_processes_do_not_write_one_split(tmp_path: Path, run: Run) -> None:
    records = write_source(tmp_path / "photos", 2)
    with (
        take_lock(tmp_path / "out/.train.partial"),
        pytest.raises(StorageError, match="in use by another process"),
    ):
        run(records, tmp_path / "out")


def test_a_split_that_waits_to_be_published_is_not_complete(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = write_source(tmp_path / "photos", 2)
    settings = PrepareSettings(side=48, part_side=24)
    source = find_source(Request(str(records)))
    run(records, tmp_path / "out")
    assert is_complete(source, tmp_path / "out", settings)
    with monkeypatch.context() as patch:
        patch.setattr("trainer.prepare.run.publish", stop)
        with pytest.raises(KeyboardInterrupt):
            run(records, tmp_path / "out", side=64)
    assert not is_complete(source, tmp_path / "out", settings)


def stop(*_: Any) -> None:
    raise KeyboardInterrupt
