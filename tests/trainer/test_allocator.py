"""Training keeps the memory that it frees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.allocator import is_hyper3

PROGRAM = """\
import os, sys
print(os.getpid())
from trainer.allocator import is_hyper3, keep_freed_memory
if is_hyper3():
    keep_freed_memory()
print(os.getpid(), os.environ.get("GLIBC_TUNABLES"), sys.argv[1:])
"""


def started(program: Path, **environment: str) -> list[str]:
    program.write_text(PROGRAM)
    given = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    command = [sys.executable, str(program), "train", "a b", "run.out=x"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=given | environment
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is another")
def test_the_program_begins_again_in_its_own_process_with_its_own_arguments(
    tmp_path: Path,
) -> None:
    before, again, after = started(tmp_path / "hyper3")
    pid, tunables, arguments = after.split(" ", 2)
    assert before == again == pid
    assert "trim_threshold" in tunables
    assert arguments == "['train', 'a b', 'run.out=x']"


def test_settings_of_the_user_stay(tmp_path: Path) -> None:
    own = "glibc.malloc.arena_max=1"
    before, after = started(tmp_path / "hyper3", GLIBC_TUNABLES=own)
    assert after == f"{before} {own} ['train', 'a b', 'run.out=x']"


def test_another_program_is_left_alone(tmp_path: Path) -> None:
    before, after = started(tmp_path / "other")
    assert after == f"{before} None ['train', 'a b', 'run.out=x']"
    assert not is_hyper3()
