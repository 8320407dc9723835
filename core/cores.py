"""How many cores there are to work with."""

import os
from pathlib import Path

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Cores this process may use: the smaller of its affinity and its cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = _CGROUP_QUOTA.read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no cgroup of version 2
        return max(1, cores or 1)
    if quota == "max":
        return max(1, cores or 1)
    return max(1, min(cores or 1, int(quota) // int(period)))
