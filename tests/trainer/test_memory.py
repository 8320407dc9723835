"""Freed memory is kept for the next tensor, and given back at the end."""

import platform
from pathlib import Path

import pytest
import torch

from trainer.memory import freed_memory_is_kept

PAGES = Path("/proc/self/statm")
BIG = 2**24  # floats, 64 MB: beyond what glibc keeps by itself


def resident() -> int:
    """Bytes in memory."""
    return int(PAGES.read_text().split()[1]) * 4096


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not PAGES.exists(), reason="of glibc on Linux"
)
def test_a_large_tensor_leaves_its_memory_to_the_next_one_until_the_end() -> None:
    start = resident()
    torch.ones(BIG)
    assert resident() - start < 2 * BIG
    with freed_memory_is_kept():
        torch.ones(BIG)
        assert resident() - start > 3 * BIG
    assert resident() - start < 2 * BIG


def test_what_is_computed_is_the_same() -> None:
    values = torch.arange(1000.0)
    with freed_memory_is_kept():
        inside = (values * 2).sum()
    assert inside == (values * 2).sum()
