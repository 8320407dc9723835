"""Processes that outlive a killed parent would hold memory and files for ever."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

_PARENT = """
import time
from trainer.inspection.pool import over

if __name__ == "__main__":
    for _ in over(time.sleep, [0, 0, 60, 60], 2):
        print("ready", flush=True)
"""


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes through /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(_PARENT)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text("ascii")
        workers = [int(worker) for worker in listed.split()]
        assert len(workers) >= 2
        parent.kill()
    deadline = time.monotonic() + 50  # a worker that sleeps on is seen
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
