"""Batches in the order of a schedule, made by worker processes ahead of time."""

import signal
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from core.errors import DataError, Hyper3Error, ProcessLost
from core.text import TextSpec, Tokenizer
from trainer.data.batch import Batch, collate, without_samples
from trainer.data.decode import decode_sample
from trainer.data.order import epoch_order
from trainer.data.shards import ShardIndex
from trainer.features.store import Features
from trainer.sections import DataSection
from trainer.workers import follow_parent

_AHEAD = 2
"""Batches of each worker: one being made, one waiting. Of the paper's size each takes 330 MB."""


class BatchDataset(Dataset["Batch | Hyper3Error"]):
    """Batches of the samples of a row of `epoch_order`.

    An error is returned, not raised: a worker's exception would arrive as its printed trace.
    """

    def __init__(
        self,
        index: ShardIndex,
        tokenizer: Path,
        spec: TextSpec,
        options: DataSection,
        seed: int,
        features: Features | None = None,
    ) -> None:
        self._index = index
        self._features = features
        self._options = options
        self._seed = seed
        self._file, self._spec = tokenizer, spec
        self._tokenizer: Tokenizer | None = None  # made by the process that uses it

    def __getitem__(self, request: tuple[int, Sequence[int]]) -> "Batch | Hyper3Error":
        try:
            return self._make(*request)
        except Hyper3Error as error:
            return error

    def _make(self, epoch: int, numbers: Sequence[int]) -> Batch:
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._file, self._spec)
        samples, skipped = [], []
        for number in numbers:
            rng = np.random.default_rng((self._seed, epoch, number))
            try:
                samples.append(
                    decode_sample(self._index, number, self._options, rng, self._features)
                )
            except DataError as error:
                skipped.append(str(error))
        if not samples:
            return without_samples(skipped, self._options.side, self._features)
        return collate(samples, self._tokenizer, self._options, skipped)


@dataclass(frozen=True)
class Schedule:
    """Requests for batches from one step to another, epoch after epoch."""

    index: ShardIndex
    batch_size: int
    seed: int
    first_step: int
    last_step: int
    rank: int = 0
    ranks: int = 1  # processes that share each batch
    _starts: list[int] = field(default_factory=list, init=False)  # step of each epoch so far

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        self._starts.clear()
        step, start, epoch = self.first_step, 0, 0
        while step < self.last_step:
            order = epoch_order(self.index, self.batch_size, self.seed, epoch)
            self._starts.append(start)
            for row in order[max(step - start, 0) :]:
                if step == self.last_step:
                    return
                yield epoch, row[self.rank :: self.ranks].tolist()
                step += 1
            start, epoch = start + len(order), epoch + 1

    def place(self, step: int) -> tuple[int, int]:
        """Epoch of a step's batch, from 0, and how many of it are taken with this one.

        Args:
            step: From 1, and not beyond what has been asked for.
        """
        epoch = bisect_left(self._starts, step) - 1
        return epoch, step - self._starts[epoch]

    def __len__(self) -> int:
        return self.last_step - self.first_step


def load_batches(
    dataset: BatchDataset,
    schedule: Schedule | Sequence[tuple[int, list[int]]],
    workers: int,
    *,
    pinned: bool = False,
) -> Generator[Batch, None, None]:
    """Batches in the order of the schedule, made by worker processes ahead of time.

    Close the iterator when it is left early, so that the workers end.

    Args:
        dataset: Makes them.
        schedule: Says of which samples each is made.
        workers: Processes; 0 makes each batch when it is asked for.
        pinned: Whether they are put where a GPU can fetch them while it computes.

    Raises:
        Hyper3Error: What stopped a worker.
    """
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        sampler=schedule,
        num_workers=workers,
        prefetch_factor=_AHEAD if workers else None,
        pin_memory=pinned,
        worker_init_fn=_begin_worker,
        collate_fn=_as_it_is,
    )
    iterator: Any = iter(loader)
    try:
        for made in iterator:
            if isinstance(made, Hyper3Error):
                raise made
            yield made
    finally:
        # Workers that ignore SIGTERM must be told to end: left to the interpreter's exit, they
        # would be waited for without end.
        if workers:
            iterator._shutdown_workers()  # noqa: SLF001 - there is no public way


@contextmanager
def lost_workers_named(workers: int) -> Iterator[None]:
    """A loader process that is killed ends whatever the loop does, with a message for people.

    Raises:
        ProcessLost: One has ended by itself.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ProcessLost(
            f"a loader process has ended ({error}); mostly the memory was full: lower data.workers "
            f"(now {workers}) or optim.batch_size, and give a container more shared memory "
            "(--shm-size). The same command goes on from the newest checkpoint"
        ) from error


def validation_rows(index: ShardIndex, batch_size: int) -> list[tuple[int, list[int]]]:
    """Requests for the first caption of every photo, in stored order, the last batch short."""
    _, first = np.unique(index.photo, return_index=True)
    first.sort()
    return [
        (0, first[start : start + batch_size].tolist())
        for start in range(0, len(first), batch_size)
    ]


def _begin_worker(_number: int) -> None:
    """A signal to the whole group must not end the workers before the loop has saved.

    When the loop is killed they end with it: they hold the lock of the run's folder too.
    """
    follow_parent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _as_it_is(batch: Any) -> Any:
    return batch  # the dataset has made the batch: there is nothing to collate


def reason(skipped: str) -> str:
    """Why a sample was left out, without the names of its shard and key."""
    words = skipped.split(": ")
    return words[2] if len(words) > 2 else skipped
