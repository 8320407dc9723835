"""The threads that do the work of the CPU, and the admission of work to them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from core.errors import Hyper3Error, Overloaded

Task = TypeVar("Task")
Result = TypeVar("Result")


class Budget:
    """A count of what has been taken on and is not yet finished.

    Args:
        limit: The most units at once. A single claim above it is granted when nothing else is
            taken, so that nothing is refused forever.
        unit: What is counted, for the message of a refusal.
    """

    def __init__(self, limit: int, unit: str) -> None:
        self._limit, self._unit = limit, unit
        self._taken = 0
        self._lock = threading.Lock()

    @contextmanager
    def claim(self, units: int) -> Iterator[None]:
        """Hold units while the block runs.

        Raises:
            Overloaded: They would pass the limit.
        """
        with self._lock:
            if self._taken and self._taken + units > self._limit:
                raise Overloaded(
                    f"{self._taken} {self._unit} are being worked on and the limit is "
                    f"{self._limit}: ask again in a moment"
                )
            self._taken += units
        try:
            yield
        finally:
            with self._lock:
                self._taken -= units


class Workers:
    """A fixed number of threads, as many as there are cores, and a bounded queue before them.

    Each task decodes, prepares and runs one small batch; the runtimes inside use one thread, so
    that the cores are shared out here alone (measured faster than batches over many threads).

    Args:
        threads: How many.
        max_waiting: The most units that may wait or run at once.
    """

    def __init__(self, threads: int, max_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._budget = Budget(max_waiting, "images and texts")

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task], units: int | None = None
    ) -> list[Result | Hyper3Error]:
        """Results in the order of the tasks; one that cannot be done gives its error instead.

        Args:
            work: What is done for each task.
            tasks: Any number.
            units: How many they count for in the queue, if not one each.

        Raises:
            Overloaded: The queue is full; nothing was begun.
        """

        def attempt(task: Task) -> Result | Hyper3Error:
            try:
                return work(task)
            except Hyper3Error as error:
                return error

        with self._budget.claim(len(tasks) if units is None else units):
            return list(self._pool.map(attempt, tasks))

    def close(self) -> None:
        """Finish what was taken and end the threads."""
        self._pool.shutdown()
