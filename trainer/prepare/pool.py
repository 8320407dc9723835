"""Jobs over several processes that say how far they are, and end with the one that began them."""

import multiprocessing
import signal
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

from trainer.prepare.jobs import Finished, Job, Report, finished, run_job
from trainer.workers import follow_parent

_SECONDS = 0.3  # between two looks at how far the others are

_link: list[tuple["SimpleQueue[int]", Event]] = []
"""Of a worker, to the process that began it: how far it is, and whether to stop."""


class _Stopped(Exception):
    """The process that began this one wants no more."""


def run_jobs(jobs: Iterable[Job], workers: int, report: Report) -> list[Finished]:
    """Do what is not finished yet; the notes of all, in no order.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    notes: list[Finished] = []
    left = _left(jobs, notes, report)
    if workers <= 1:
        notes += [run_job(job, report) for job in left]
        return notes
    spawn = multiprocessing.get_context("spawn")
    told: SimpleQueue[int] = spawn.SimpleQueue()
    stop = spawn.Event()
    with ProcessPoolExecutor(workers, spawn, _begin, (told, stop)) as pool:
        waiting: set[Future[Finished]] = set()
        try:
            for job in left:
                waiting.add(pool.submit(_run, job))
                while len(waiting) > 2 * workers:
                    waiting = _settle(waiting, notes, told, report)
            while waiting:
                waiting = _settle(waiting, notes, told, report)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return notes


def _left(jobs: Iterable[Job], notes: list[Finished], report: Report) -> Iterable[Job]:
    for job in jobs:
        kept = finished(job)
        if kept is None:
            yield job
        else:
            notes.append(kept)
            report(job.work.weight)


def _settle(
    waiting: set[Future[Finished]],
    notes: list[Finished],
    told: "SimpleQueue[int]",
    report: Report,
) -> set[Future[Finished]]:
    """Wait a little; the jobs that are still going on."""
    done, going = wait(waiting, _SECONDS, FIRST_COMPLETED)
    notes += [future.result() for future in done]
    while not told.empty():
        report(told.get())
    return going


def _run(job: Job) -> Finished:
    told, stop = _link[0]

    def report(count: int) -> None:
        told.put(count)
        if stop.is_set():
            raise _Stopped

    return run_job(job, report)


def _begin(told: "SimpleQueue[int]", stop: Event) -> None:
    """Make ready a worker: Ctrl-C is for the first process, and its end is the worker's."""
    _link.append((told, stop))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    follow_parent()  # whose shards are another run's when it is killed
