"""A checkpoint as an encoder for the evaluation."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from core.bundle import sha256
from core.errors import DataError, ImageError
from core.evaluation.encoder import Embedded, Tangents
from core.evaluation.pictures import Picture, squares
from core.image import ImageSpec, Pixels, normalise
from core.text import TextSpec, Tokenizer
from trainer.checkpoint import BEST, STATE, Checkpoint, find, load_model
from trainer.config import Recipe
from trainer.memory import freed_memory_is_kept
from trainer.model import DualEncoder
from trainer.vocabulary import write_tokenizer

Item = TypeVar("Item")

_BATCH = 128


class CheckpointEncoder:
    """A trained model run by PyTorch in fp32 (`core.evaluation.encoder.Encoder`)."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        recipe = checkpoint.recipe
        self.name = f"{recipe.name} at step {checkpoint.step:,}"
        self._device = pick_device()
        self._model = DualEncoder(recipe)
        load_model(checkpoint, self._model)
        self._model.to(self._device).eval()
        self._dim = recipe.model.dim
        self.space = self._model.fixed_space()
        self.logit_scale = float(self._model.scalars().whole.scale.detach())
        self._spec = recipe.image_spec
        text_spec = TextSpec(context_length=recipe.text_tower.context_length)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json"
            write_tokenizer(file)
            self._tokenizer = Tokenizer(file, text_spec)
            inputs = [self._spec.model_dump(), text_spec.model_dump(), sha256(file)]
        self.fingerprint = _fingerprint(checkpoint, inputs)
        self.about: Mapping[str, str | int | float] = about_torch(self._device) | {
            "kind": "checkpoint",
            "recipe": recipe.name,
            "objective": recipe.objective.kind,
            "seed": recipe.run.seed,
            "step": checkpoint.step,
            "side": self._spec.side,
            **_parts_of(recipe),
        }

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        """Tangents of pictures; a picture that cannot be read spoils no other."""
        return embed_squares(pictures, self._spec, self._dim, self._encode_images)

    def texts(self, texts: Sequence[str]) -> Tangents:
        """Tangents, ``(n, dim)``, of texts as a user writes them."""
        ids = [entry.ids for entry in self._tokenizer.encode(texts)]
        tangents = np.empty((len(ids), self._dim), np.float32)
        # Neighbours in length share a batch: it is padded to its longest, and padding costs.
        for rows in _batches(sorted(range(len(ids)), key=lambda row: len(ids[row]))):
            tangents[rows] = self._encode_texts(self._tokenizer.pad([ids[row] for row in rows]))
        return tangents

    @torch.inference_mode()
    def _encode_images(self, pixels: npt.NDArray[np.float32]) -> Tangents:
        return to_numpy(self._model.encode_images(torch.from_numpy(pixels).to(self._device)))

    @torch.inference_mode()
    def _encode_texts(self, tokens: npt.NDArray[np.int64]) -> Tangents:
        return to_numpy(self._model.encode_texts(torch.from_numpy(tokens).to(self._device)))


def open_checkpoint(target: str) -> CheckpointEncoder | None:
    """The encoder of a run's folder, its ``best`` or a checkpoint's; ``None`` for anything else.

    Raises:
        CheckpointError: It is one, and holds no whole checkpoint.
    """
    path = Path(target)
    run = path.parent if path.name == BEST else path
    if not ((run / "checkpoints").is_dir() or (path / STATE).is_file()):
        return None
    return CheckpointEncoder(find(path))


def pick_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def about_torch(device: torch.device) -> dict[str, str | int | float]:
    """What a result says of a model that PyTorch runs."""
    if device.type == "cuda":  # convolutions would round to ten bits
        torch.backends.cudnn.allow_tf32 = False
    return {"runtime": f"torch {torch.__version__}", "device": device.type, "precision": "fp32"}


def embed_squares(
    pictures: Sequence[Picture],
    spec: ImageSpec,
    dim: int,
    encode: Callable[[npt.NDArray[np.float32]], Tangents],
) -> Embedded:
    """Tangents of pictures, read ahead by all cores.

    Args:
        pictures: Any number.
        spec: The squares that the model takes.
        dim: Of a tangent.
        encode: Tangents of what `core.image.normalise` gives.
    """
    tangents = np.full((len(pictures), dim), np.nan, np.float32)
    faults: dict[int, str] = {}

    def readable() -> Iterator[tuple[int, Pixels]]:
        for row, square in enumerate(squares(pictures, spec.side)):
            if isinstance(square, DataError | ImageError):
                faults[row] = str(square)
            else:
                yield row, square

    with freed_memory_is_kept():
        for batch in _batches(readable()):
            pixels = np.stack([square for _, square in batch])
            tangents[[row for row, _ in batch]] = encode(normalise(pixels, spec))
    return Embedded(tangents, faults)


def to_numpy(tangents: Tensor) -> Tangents:
    """A model's result as the evaluation takes it."""
    result: Tangents = tangents.float().cpu().numpy()
    return result


def _parts_of(recipe: Recipe) -> dict[str, int]:
    return {"max_parts": recipe.data.max_parts} if recipe.objective.needs_parts else {}


def _fingerprint(checkpoint: Checkpoint, inputs: Sequence[object]) -> str:
    sections = {"image_tower", "text_tower", "model", "objective"}
    model = checkpoint.recipe.model_dump(mode="json", include=sections)
    what = json.dumps([checkpoint.weights_digest(), model, *inputs], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
