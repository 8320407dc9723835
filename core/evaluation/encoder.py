"""What the evaluation measures: anything that embeds images and texts."""

from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.errors import ConfigError
from core.image import Pixels
from core.spaces import Space

Tangents = npt.NDArray[np.float32]


class Encoder(Protocol):
    """A trained model, wherever it runs. It makes its own batches."""

    @property
    def name(self) -> str:
        """What it is called in a report."""

    @property
    def space(self) -> Space:
        """What its tangents are lifted into, in float64 or plain numbers."""

    @property
    def side(self) -> int:
        """Height and width of the squares it takes, in pixels."""

    def images(self, pixels: Iterable[Pixels]) -> Tangents:
        """Tangents, ``(n, dim)``, of squares ``(side, side, 3)`` of 0..255."""

    def texts(self, texts: Sequence[str]) -> Tangents:
        """Tangents, ``(n, dim)``, of texts as a user writes them."""


def open_encoder(target: str) -> Encoder:
    """The encoder for a checkpoint, a bundle or whatever else a room can open.

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
        f"{target}: neither a checkpoint nor a bundle; name a file or folder that "
        f"`hyper3 train` or `hyper3 export` wrote{absent}"
    )
