"""A checkpoint as an encoder for the evaluation."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from core.image import ImageSpec, Pixels, normalise
from core.text import TextSpec, Tokenizer
from trainer.checkpoint import Checkpoint, find, load_model
from trainer.model import DualEncoder
from trainer.vocabulary import write_tokenizer

Item = TypeVar("Item")

_BATCH = 128


class CheckpointEncoder:
    """A trained model run by PyTorch (`core.evaluation.encoder.Encoder`)."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        recipe = checkpoint.recipe
        self.name = f"{recipe.name} at step {checkpoint.step:,}"
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = DualEncoder(recipe)
        load_model(checkpoint, self._model)
        self._model.to(self._device).eval()
        self.space = self._model.fixed_space()
        self._spec = ImageSpec(side=recipe.data.side)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json"
            write_tokenizer(file)
            spec = TextSpec(context_length=recipe.text_tower.context_length)
            self._tokenizer = Tokenizer(file, spec)

    @property
    def side(self) -> int:
        """Height and width of the squares it takes, in pixels."""
        return self._spec.side

    @torch.inference_mode()
    def images(self, pixels: Iterable[Pixels]) -> npt.NDArray[np.float32]:
        """Tangents, ``(n, dim)``, of squares ``(side, side, 3)`` of 0..255."""
        rows = [
            self._model.encode_images(
                torch.from_numpy(normalise(np.stack(batch), self._spec)).to(self._device)
            )
            for batch in _batches(pixels)
        ]
        return torch.cat(rows).cpu().numpy()

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Tangents, ``(n, dim)``, of texts as a user writes them."""
        rows = []
        for batch in _batches(texts):
            ids = [entry.ids for entry in self._tokenizer.encode(batch)]
            tokens = torch.from_numpy(self._tokenizer.pad(ids)).to(self._device)
            rows.append(self._model.encode_texts(tokens))
        return torch.cat(rows).cpu().numpy()


def open_checkpoint(target: str) -> CheckpointEncoder | None:
    """The encoder of a run's or checkpoint's folder; ``None`` for anything else."""
    path = Path(target)
    if not ((path / "checkpoints").is_dir() or (path / "state.json").is_file()):
        return None
    return CheckpointEncoder(find(path))


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
