"""An open_clip model as an encoder for the evaluation: what a hyperbolic one is compared with."""

import hashlib
import json
import math
import pickle
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import torch
from safetensors import SafetensorError
from torch import nn

from core.errors import CheckpointError, ConfigError
from core.evaluation.encoder import Embedded, Tangents
from core.evaluation.pictures import Picture
from core.image import ImageSpec
from core.spaces import Euclidean
from trainer.encoder import about_torch, embed_squares, pick_device, to_numpy

_SCHEME = "open_clip:"
_RANDOM = "random"
_TEXTS = 128  # of one run
_TAGS = 5  # that a message lists

# What open_clip raises where a download fails, a library is missing, or a file is not what it
# should be; its errors share no narrower base.
_FAULTS = (
    RuntimeError, OSError, EOFError, ImportError, SafetensorError, LookupError, ValueError,
    TypeError, AttributeError, AssertionError, StopIteration,
)  # fmt: skip


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
        self._model = _load(name, weights)
        self._tokenize = _tokenizer(name)
        self._spec = _image_spec(name, self._model)
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
    if not target.startswith(_SCHEME):
        return None
    name, _, weights = target.removeprefix(_SCHEME).partition(":")
    known = open_clip.list_models()
    if name not in known:
        near = get_close_matches(name, known, n=5, cutoff=0.4)
        said = f"; near it: {', '.join(near)}" if near else ""
        raise ConfigError(f"{target}: open_clip has no model {name!r}{said}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights != _RANDOM and weights not in tags and not Path(weights).is_file():
        what = f"no file and no tag {weights!r}" if weights else "no weights are named"
        near = get_close_matches(weights, tags, n=_TAGS, cutoff=0.4) or tags[:_TAGS]
        raise ConfigError(
            f"{target}: {what}; write {_SCHEME}{name}:WEIGHTS with a .safetensors or .pt file, "
            f"{_RANDOM} (untrained, for chance levels) or one of its {len(tags)} tags"
            + (f", such as {', '.join(near)}" if near else "")
        )
    return ClipEncoder(name, weights)


def _load(name: str, weights: str) -> Any:
    """The model with its weights, on the CPU; nothing in a file of weights is run.

    Raises:
        ConfigError: The weights of a tag cannot be fetched, or are of another activation.
        CheckpointError: A file holds more than tensors, or those of another model.
    """
    is_file = Path(weights).is_file()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.manual_seed(0)
        # The wrong activation gives numbers that are a little too low, and no other sign.
        warnings.filterwarnings("error", "QuickGELU mismatch", UserWarning)
        warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
        try:
            return open_clip.create_model(
                name,
                pretrained=None if weights == _RANDOM else weights,
                pretrained_text=False,
                weights_only=True,
            )
        except UserWarning as error:
            raise ConfigError(
                f"{_SCHEME}{name}:{weights}: {error}; name the model with or without -quickgelu"
            ) from error
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{weights}: no file of tensors alone, and the rest could only be read by running "
                "its code; save the model's state_dict, best as .safetensors"
            ) from error
        except _FAULTS as error:
            reason = " ".join(str(error).split())[:250] or type(error).__name__
            if is_file:
                raise CheckpointError(f"{weights}: not weights of {name}: {reason}") from error
            raise ConfigError(
                f"{_SCHEME}{name}:{weights}: {reason}; without a network, name a file of weights"
            ) from error


def _tokenizer(name: str) -> Any:
    try:
        return open_clip.get_tokenizer(name)
    except _FAULTS as error:
        raise ConfigError(f"{_SCHEME}{name}: its tokenizer cannot be had: {error}") from error


def _image_spec(name: str, model: Any) -> ImageSpec:
    found = open_clip.get_model_preprocess_cfg(model)
    size = found["size"]
    height, width = size if isinstance(size, tuple | list) else (size, size)
    if height != width:
        raise ConfigError(f"{_SCHEME}{name}: takes pictures of {width} x {height}, not squares")
    return ImageSpec(side=height, mean=tuple(found["mean"]), std=tuple(found["std"]))


def _fingerprint(name: str, model: nn.Module, spec: ImageSpec) -> str:
    digest = hashlib.sha256(json.dumps([name, spec.model_dump()]).encode())
    for key, value in sorted(model.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        raw = value.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
