"""Where reports go: lines of JSON, TensorBoard, and Weights & Biases where it is asked for."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
from torch.utils.tensorboard import SummaryWriter

from trainer.config import Recipe
from trainer.record.weights_and_biases import WandbRun, begin
from trainer.storage import replacing, storage_errors

METRICS = "metrics.jsonl"


class Outputs:
    """The files of a run that grow with its reports.

    Args:
        folder: Of the run.
        recipe: Of the run.
        first: The step it begins after. Reports of later ones, of steps that are taken again
            after a crash, are taken out.

    Raises:
        ConfigError: Weights & Biases are asked for and cannot be had.
        StorageError: The folder cannot be written, or the disk is full.
    """

    def __init__(self, folder: Path, recipe: Recipe, first: int) -> None:
        self._folder = folder
        self._wandb: WandbRun | None = begin(folder, recipe) if recipe.run.wandb else None
        with storage_errors(folder):
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=first + 1)
            self._lines = _open_lines(folder / METRICS, first)

    def write(self, split: str, step: int, numbers: Mapping[str, float]) -> None:
        """A report, everywhere.

        Raises:
            StorageError: The folder cannot be written, or the disk is full.
        """
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        line: dict[str, Any] = {"split": split, "step": step, "time": time.time()}
        line |= dict.fromkeys(numbers) | finite  # JSON has no nan: it is null
        with storage_errors(self._folder):
            self._lines.write(json.dumps(line) + "\n")
            self._lines.flush()
            for name, value in finite.items():
                self._board.add_scalar(f"{split}/{name}", value, step)
        if self._wandb:
            named = {f"{split}/{name}": value for name, value in finite.items()}
            self._wandb.log({"step": step, **named})

    def histograms(self, step: int, values: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """How values are spread, in TensorBoard; those that are not finite are left out."""
        with storage_errors(self._folder):
            for name, found in values.items():
                kept = found[np.isfinite(found)]
                if len(kept):
                    self._board.add_histogram(name, kept, step)

    def picture(self, step: int, name: str, pixels: npt.NDArray[np.uint8]) -> None:
        """A picture, ``(height, width, 3)``, in TensorBoard."""
        with storage_errors(self._folder):
            self._board.add_image(name, pixels, step, dataformats="HWC")

    def close(self) -> None:
        """End all of them; a full disk has been told already."""
        with contextlib.suppress(OSError):
            self._board.close()
            self._lines.close()
        if self._wandb:
            self._wandb.finish()


def _open_lines(file: Path, first: int) -> TextIO:
    """The reports so far, without those of steps that are taken again after a crash."""
    if file.exists():
        kept = []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            with contextlib.suppress(ValueError, TypeError, KeyError):  # one that was cut off
                if json.loads(line)["step"] <= first:
                    kept.append(line)
        with replacing(file) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")
    return file.open("a", encoding="utf-8")
