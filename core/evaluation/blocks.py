"""Work in blocks that all cores share."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

from core.cores import available_cores

T = TypeVar("T")


def each_block(work: Callable[[int], T], starts: Iterable[int]) -> Iterator[T]:
    """What the work makes of each block, in order.

    A thread a core does it, since numpy works on one core outside of matrix products. Those then
    stay on one core each: their own threads would wait for each other (six times slower).

    Args:
        work: Takes where a block starts.
        starts: Of all blocks.
    """
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(available_cores(), "blocks") as pool,
    ):
        yield from pool.map(work, starts)
