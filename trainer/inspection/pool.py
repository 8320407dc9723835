"""One function over many shards, in several processes."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from trainer.workers import follow_parent

Job = TypeVar("Job")
Found = TypeVar("Found")


def over(
    function: Callable[[Job], Found], jobs: Sequence[Job], workers: int
) -> Iterator[tuple[int, Found]]:
    """The place of each job and what the function makes of it, as they become ready.

    Args:
        function: Of a module, so that another process finds it.
        jobs: Its arguments.
        workers: Processes; with one, or a single job, this process does it all.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        yield from enumerate(map(function, jobs))
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, follow_parent) as pool:
        waiting = {pool.submit(function, job): place for place, job in enumerate(jobs)}
        try:
            for future in as_completed(waiting):
                yield waiting.pop(future), future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
