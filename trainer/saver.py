"""The checkpoints of a run: copied in the loop, written beside it, and removed again.

The loop waits while the tensors are copied in memory. A thread writes the copy, takes its sha256
and brings it to the disk, during all of which Python's lock is free; then it removes the
checkpoints that are no longer wanted. Until it is done there is no second one, so that one copy
of the state is all it takes.
"""

import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from core.errors import ConfigError, Hyper3Error
from trainer.checkpoint import BEST, Position, Tensors, held_out, path_of, stored, write
from trainer.config import Recipe
from trainer.storage import storage_errors

log = logging.getLogger(__name__)

_RECALL = "recall/"
_PATIENCE_S = 1.0  # that the loop waits for the disk before somebody is told


class Saver:
    """Saves in the background; the end of the block waits for the last write."""

    def __init__(self, recipe: Recipe, first: int, *, leads: bool = True) -> None:
        """Take up a run's folder.

        Args:
            recipe: Of the run: where, how many, and what is best.
            first: The step that the run goes on from. Checkpoints beyond it are torn.
            leads: Whether this process writes; of several one does.
        """
        self._recipe, self._folder, self._leads = recipe, recipe.folder, leads
        self._figure = recipe.run.best if recipe.data.val else ""
        self._copies: Tensors = {}
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._best: Path | None = None
        self._best_value = math.nan
        if leads:
            remove_leftovers(self._folder)
            for path in stored(self._folder):
                if int(path.name) <= first:
                    self.note(int(path.name), held_out(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except Hyper3Error as fault:
            if error is None:
                raise
            log.error("%s", fault)  # noqa: TRY400 - not what ends the run
        finally:
            self._thread.shutdown()

    def note(self, step: int, figures: Mapping[str, float]) -> bool:
        """Whether held-out figures of a step are the best so far; then it is to be saved.

        By ``run.best``: of recalls the highest, of losses the lowest; of equal ones the first.
        """
        if not self._figure or not math.isfinite(figures.get(self._figure, math.nan)):
            return False
        value = figures[self._figure]
        sign = 1 if self._figure.startswith(_RECALL) else -1
        if self._best and sign * value <= sign * self._best_value:
            return False
        self._best, self._best_value = path_of(self._folder, step), value
        return True

    @property
    def best(self) -> str:
        """The best checkpoint and its figure, for people; nothing where there is none."""
        if self._best is None:
            return ""
        return f"{self._best} ({self._figure} {self._best_value:.4g})"

    def save(
        self,
        position: Position,
        tensors: Tensors,
        figures: Mapping[str, float],
    ) -> None:
        """Copy a state and begin to write it; the loop may change it at once.

        Args:
            position: Of the state.
            tensors: As `trainer.checkpoint.tensors_of` gives them.
            figures: Of an evaluation at this step; none where there was none.

        Raises:
            StorageError: The checkpoint before this one could not be written.
        """
        start = time.perf_counter()
        self.wait()
        waited = time.perf_counter() - start
        if waited > _PATIENCE_S:
            log.warning(
                "step %s: waited %.1f s until the checkpoint before was written; a larger "
                "run.save_every, or a faster disk for run.out, saves that",
                f"{position.step:,}",
                waited,
            )
        if not self._leads:
            return
        self._copies = copied(tensors, self._copies)
        arrived = _arrival(tensors)
        kept = not self._figure and self._recipe.run.best  # data.val is not there this time
        best = _pointed_at(self._folder) if kept else self._best
        self._writing = self._thread.submit(self._write, arrived, position, figures, best)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be written after this step."""
        options = self._recipe.run
        return any(step % every == 0 for every in (options.save_every, options.keep_every) if every)

    def check(self, terms: Mapping[str, Tensor]) -> None:
        """Look, after a step, whether all is well; takes no time.

        Args:
            terms: Of the step's objective; an evaluation has the same, beside its recalls.

        Raises:
            StorageError: A checkpoint could not be written.
            ConfigError: ``run.best`` is not among the figures of an evaluation.
        """
        best = self._figure
        if best and not best.startswith(_RECALL) and best not in terms:
            raise ConfigError(
                f"run.best {best!r}: no such figure of held-out data; there are "
                f"{_RECALL}text_to_image@1 (5, 10), {_RECALL}image_to_text@1 (5, 10), "
                f"{', '.join(terms)}"
            )
        if self._writing and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint that is being written, if one is, is whole.

        Raises:
            StorageError: It could not be written.
        """
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def _write(
        self,
        arrived: Callable[[], None],
        position: Position,
        figures: Mapping[str, float],
        best: Path | None,
    ) -> None:
        arrived()
        path = write(self._folder, position, self._recipe, self._copies, figures)
        with storage_errors(self._folder):
            _prune(self._recipe, path, best)


@torch.no_grad()
def copied(tensors: Tensors, into: Tensors | None = None) -> Tensors:
    """Copies in the host's memory, each apart and contiguous, as safetensors wants them.

    Args:
        tensors: As `trainer.checkpoint.tensors_of` gives them. What lies on a GPU is copied in
            the order of its stream, and is there only when that has come so far.
        into: What an earlier call gave, whose memory is used again.
    """
    made: Tensors = {}
    for file, named in tensors.items():
        before = (into or {}).get(file, {})
        made[file] = {
            name: before[name]
            if name in before
            else torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            for name, tensor in named.items()
        }
        for name, tensor in named.items():
            made[file][name].copy_(tensor, non_blocking=True)
    return made


def _arrival(tensors: Tensors) -> Callable[[], None]:
    """What waits until copies from a GPU have come."""
    if not any(tensor.is_cuda for named in tensors.values() for tensor in named.values()):
        return lambda: None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize


def remove_leftovers(folder: Path) -> None:
    """Remove what was being written, or removed, when a run was killed."""
    for temporary in (folder / "checkpoints").glob(".*.tmp"):
        shutil.rmtree(temporary, ignore_errors=True)


def _prune(recipe: Recipe, written: Path, best: Path | None) -> None:
    """Point at the best checkpoint, and remove those that the recipe does not keep.

    Newer ones, which an earlier run left torn, are not counted: the one just written stays.
    """
    options = recipe.run
    _point_at(recipe.folder, best)
    older = [path for path in stored(recipe.folder) if path.name <= written.name]
    for path in older[: -options.keep]:
        at_interval = options.keep_every and int(path.name) % options.keep_every == 0
        if path != best and not at_interval:
            _remove(path)


def _pointed_at(folder: Path) -> Path | None:
    """The checkpoint that was the best when there still was a figure to tell by."""
    link = folder / BEST
    return folder / link.readlink() if link.is_symlink() else None


def _point_at(folder: Path, best: Path | None) -> None:
    """Let the folder's link mean the best checkpoint; a disk that has no links is told of."""
    link, new = folder / BEST, folder / f".{BEST}.tmp"
    try:
        if best is None:
            link.unlink(missing_ok=True)
            return
        new.unlink(missing_ok=True)
        new.symlink_to(best.relative_to(folder))
        new.replace(link)
    except OSError as error:
        log.warning("%s: cannot be made to mean the best checkpoint, %s: %s", link, best, error)


def _remove(path: Path) -> None:
    """Remove a checkpoint; when killed meanwhile, none that is torn stands at its place."""
    doomed = path.with_name(f".{path.name}.old.tmp")
    path.rename(doomed)
    shutil.rmtree(doomed)
