"""Memory that is kept when it is freed, for as long as the process lives.

The C library gives large blocks back to the system as soon as they are free, and a training step
frees nearly all it has taken: the next one waits for the system to clear the same pages again. The
C library reads what it is told otherwise when a program starts.
"""

import os
import sys
from pathlib import Path

import core

_TUNABLES = "GLIBC_TUNABLES"
_KEPT = (
    "glibc.malloc.mmap_threshold=33554432"  # the most there is: larger blocks come from the system
    ":glibc.malloc.trim_threshold=1099511627776"
    ":glibc.malloc.hugetlb=1"  # pages of 2 MB where the system leaves that to programs
)


def keep_freed_memory() -> None:
    """Start this program again, in its own process, with an allocator that keeps what is freed.

    Nothing happens where the environment has settings of its own, or where the C library is not
    glibc.
    """
    if _TUNABLES in os.environ or not _has_glibc():
        return
    os.environ[_TUNABLES] = _KEPT
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError, OSError):
        return False


def is_hyper3() -> bool:
    """Whether this process is the command, and not another program that has imported it."""
    program = Path(sys.argv[0])
    return program.name == "hyper3" or program == Path(core.__file__).with_name("__main__.py")
