"""What the evaluation measures: anything that embeds pictures and texts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.errors import ConfigError
from core.evaluation.pictures import Picture
from core.spaces import Space

Tangents = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """What became of pictures."""

    tangents: Tangents
    """``(n, dim)``, one row a picture; NaN where it could not be read."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """By row, why a picture could not be read; the message names the file."""


class Encoder(Protocol):
    """A trained model, wherever it runs. It makes its own batches."""

    @property
    def name(self) -> str:
        """What it is called in a report."""

    @property
    def fingerprint(self) -> str:
        """A digest (hex) of all that changes an embedding: weights, geometry, preprocessing."""

    @property
    def space(self) -> Space:
        """What its tangents are lifted into, in float64 or plain numbers."""

    @property
    def logit_scale(self) -> float | None:
        """What similarities are multiplied by to become logits; None if it is not known."""

    @property
    def about(self) -> Mapping[str, str | int | float]:
        """What else a result should say of it: runtime, precision, step, recipe, max_parts."""

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        """Tangents of pictures; a picture that cannot be read spoils no other."""

    def texts(self, texts: Sequence[str]) -> Tangents:
        """Tangents, ``(n, dim)``, of texts as a user writes them."""


def open_encoder(target: str) -> Encoder:
    """The encoder for a checkpoint, a bundle, an address or whatever else a room can open.

    Each entry point of the group ``hyper3.encoders`` is a callable that takes the target and
    returns an encoder, or None where it is not of its kind. The first that takes it wins.

    Raises:
        ConfigError: None takes it; the message says which could not be asked, and why.
    """
    missing = []
    for entry in sorted(entry_points(group="hyper3.encoders"), key=lambda entry: entry.name):
        try:
            opener = entry.load()
        except ModuleNotFoundError as error:
            missing.append(f"{entry.name} needs {error.name}")
            continue
        encoder: Encoder | None = opener(target)
        if encoder is not None:
            return encoder
    absent = f" (not asked: {'; '.join(missing)})" if missing else ""
    raise ConfigError(
        f"{target}: nothing that can be measured ({_look(target)}); name a folder that "
        "`hyper3 train` or `hyper3 export` wrote, the address of a service (http://host:port), an "
        f"open_clip model (open_clip:NAME:WEIGHTS) or a folder of stored embeddings{absent}"
    )


def _look(target: str) -> str:
    """What stands where a target was looked for."""
    path = Path(target)
    if path.is_dir():
        is_empty = next(path.iterdir(), None) is None
        return "an empty folder" if is_empty else "a folder of something else"
    if path.is_file():
        return "a file"
    if re.fullmatch(r"[\w.-]+:\d+(/.*)?", target):
        return f"no such folder, and an address begins with its scheme: http://{target}"
    return "no such file or folder"
