"""Memory that a training on a CPU keeps between its operations."""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next tensor; elsewhere nothing is changed.

    It maps an allocation of more than 32 MB on its own and returns it when it is freed, so that
    the kernel clears every page of every large activation anew: a frozen network at 224 pixels took
    twice the time. Call it before tensors are made.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
