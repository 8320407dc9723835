"""An open_clip model as an encoder for the evaluation: what a hyperbolic one is compared with."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import torch
from torch import nn

from core.errors import ConfigError
from core.evaluation.encoder import Embedded, Tangents
from core.evaluation.pictures import Picture
from core.image import ImageSpec
from core.spaces import Euclidean
from trainer.clip_model import FAULTS, SCHEME, image_spec, load_clip, split_target
from trainer.encoder import about_torch, embed_squares, pick_device, to_numpy

_TEXTS = 128  # of one run


class ClipEncoder:
    """A model of open_clip run in fp32 (`core.evaluation.encoder.Encoder`).

    Mean, deviation, side and tokenizer are the model's own. How a picture becomes a square is the
    task's choice, as for every encoder.

    Args:
        name: As open_clip lists it.
        weights: A tag of open_clip, a file, or ``random``.
    """

    space = Euclidean()

    def __init__(self, name: str, weights: str) -> None:
        self._device = pick_device()
        self._model = load_clip(name, weights)
        self._tokenize = _tokenizer(name)
        self._spec = image_spec(name, self._model)
        self._model.to(self._device).eval()
        self.name = f"{name} {Path(weights).stem if Path(weights).is_file() else weights}"
        self.logit_scale = math.exp(float(self._model.logit_scale.detach()))
        (probe,) = self.texts(["a photo"])
        self._dim = len(probe)
        self.fingerprint = _fingerprint(name, self._model, self._spec)
        self.about: Mapping[str, str | int | float] = about_torch(self._device) | {
            "kind": "open_clip",
            "open_clip": open_clip.__version__,
            "model": name,
            "weights": weights,
            "side": self._spec.side,
        }

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        """Features of pictures before they are normalised; one that cannot be read is NaN."""
        return embed_squares(pictures, self._spec, self._dim, self._encode)

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Tangents:
        """Features, ``(n, dim)``, of texts as a user writes them, before they are normalised."""
        rows = [
            to_numpy(self._model.encode_text(self._tokens(texts[start : start + _TEXTS])))
            for start in range(0, len(texts), _TEXTS)
        ]
        return np.concatenate(rows) if rows else np.empty((0, self._dim), np.float32)

    def _tokens(self, texts: Sequence[str]) -> torch.Tensor:
        tokens: torch.Tensor = self._tokenize(list(texts))
        return tokens.to(self._device)

    @torch.inference_mode()
    def _encode(self, pixels: npt.NDArray[np.float32]) -> Tangents:
        return to_numpy(self._model.encode_image(torch.from_numpy(pixels).to(self._device)))


def open_clip_encoder(target: str) -> ClipEncoder | None:
    """The encoder of ``open_clip:NAME:WEIGHTS``; None for anything else.

    Raises:
        ConfigError: There is no such model or tag, or no weights are named.
        CheckpointError: The file does not hold them, or would run code when it is read.
    """
    if not target.startswith(SCHEME):
        return None
    return ClipEncoder(*split_target(target))


def _tokenizer(name: str) -> Any:
    try:
        return open_clip.get_tokenizer(name)
    except FAULTS as error:
        raise ConfigError(f"{SCHEME}{name}: its tokenizer cannot be had: {error}") from error


def _fingerprint(name: str, model: nn.Module, spec: ImageSpec) -> str:
    digest = hashlib.sha256(json.dumps([name, spec.model_dump()]).encode())
    for key, value in sorted(model.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        raw = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
