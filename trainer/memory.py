"""Memory that is kept between the operations of a network on a CPU."""

import contextlib
import ctypes
from collections.abc import Iterator

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_MAX = 128 * 1024, 65_536  # its defaults


@contextlib.contextmanager
def freed_memory_is_kept() -> Iterator[None]:
    """Within, glibc keeps what is freed for the next tensor; elsewhere nothing is changed.

    It maps an allocation of more than 32 MB on its own and returns it when it is freed, so that
    the kernel clears every page of every large activation anew: a convolutional network at 224
    pixels took twice the time. For a whole training it is not done: texts of ever other lengths
    leave holes, and the heap grows.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, trim = libc.mallopt, libc.malloc_trim
    except (OSError, AttributeError):  # another C library
        yield
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        mallopt(_M_MMAP_MAX, _MMAP_MAX)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
        trim(0)
