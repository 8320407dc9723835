"""What users send (texts, image files, vectors) to points, or to an error for each."""

import base64
import binascii
import io
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from core import lorentz
from core.bundle import Manifest
from core.errors import (
    BrokenImage,
    FingerprintMismatch,
    Hyper3Error,
    ImageError,
    TextError,
    UnsupportedImage,
    VectorError,
)
from core.image import ACCEPTED_TYPES, Pixels, Preprocess, decode, resize
from core.text import Tokens, check_text
from service.encoder import Embedded, Encoder, runs
from service.schemas import GivenFormat
from service.settings import Settings
from service.workers import Workers

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

Some = TypeVar("Some", Sequence[str], Sequence[bytes | str], Pixels)
Found = TypeVar("Found")

_IMAGES = 8  # that a thread takes on at once
_TEXTS = 32  # that it cuts into tokens
_TURNS = 4  # of every thread, so that none ends long after the others
_OFF_HYPERBOLOID = 1e-3  # relative, of the time; float16 keeps 5e-4
_MAX_SCALED_RADIUS = 40.0  # where `lorentz.lift` stops: beyond, float32 products overflow
_THUMBNAIL_SIDE = 256


class Vector(NamedTuple):
    """One embedded thing."""

    tangent: Floats
    """``(dim,)``"""
    point: Floats
    """``(dim + 1,)``, time first."""
    tokens: int | None = None
    """Of a text, before truncation."""
    truncated: bool = False
    picture: bytes | None = None
    """Of an image: what is to be stored of it."""


class Embedder:
    """Embeds on the workers, within the limits of the settings."""

    def __init__(self, encoder: Encoder, workers: Workers, settings: Settings) -> None:
        self._encoder, self._workers, self._settings = encoder, workers, settings

    def texts(self, texts: Sequence[str], *, truncate: bool = True) -> list[Vector | Hyper3Error]:
        """The vector or the error of each text.

        Args:
            texts: As a user writes them.
            truncate: Whether texts over the context are cut; otherwise they are errors.
        """
        tokens = self._share_out(
            lambda some: [self._tokens(text, truncate=truncate) for text in some], texts, _TEXTS
        )
        found: dict[int, Vector | Hyper3Error] = {
            at: got for at, got in enumerate(tokens) if isinstance(got, Hyper3Error)
        }
        ready = {at: got for at, got in enumerate(tokens) if isinstance(got, Tokens)}
        groups = runs(ready)
        batches = self._workers.map(
            self._encoder.texts, [[ready[at].ids for at in group] for group in groups]
        )
        for group, batch in zip(groups, batches, strict=True):
            for row, at in enumerate(group):
                found[at] = (
                    batch
                    if isinstance(batch, Hyper3Error)
                    else _row(batch, row, ready[at].count, truncated=ready[at].truncated)
                )
        return [found[at] for at in range(len(texts))]

    def images(
        self, files: Sequence[bytes | str], preprocess: Preprocess, *, keep: bool = False
    ) -> list[Vector | Hyper3Error]:
        """The vector or the error of each image.

        Args:
            files: The bytes of image files, or base64 or data URIs of them.
            preprocess: How each becomes a square.
            keep: Whether the vectors carry what the settings want stored of an image.
        """
        return self._share_out(
            lambda some: self._images(some, preprocess, keep=keep), files, _IMAGES
        )

    def squares(self, pixels: Pixels) -> list[Vector | Hyper3Error]:
        """The vectors of squares ``(n, side, side, 3)`` of 0..255."""
        return self._share_out(self._squares, pixels, _IMAGES)

    def _share_out(
        self,
        work: Callable[[Some], list[Found | Hyper3Error]],
        items: Some,
        most: int,
    ) -> list[Found | Hyper3Error]:
        """Results of work that takes a few items at once: the fewer, the fewer there are.

        A thread that waits for each item alone would cost more than a small model's work.
        """
        size = max(1, min(most, len(items) // (_TURNS * self._settings.workers)))
        portions = [items[start : start + size] for start in range(0, len(items), size)]
        results: list[Found | Hyper3Error] = []
        for portion, found in zip(
            portions, self._workers.map(work, portions, units=len(items)), strict=True
        ):
            results += [found] * len(portion) if isinstance(found, Hyper3Error) else found
        return results

    def _tokens(self, text: str, *, truncate: bool) -> Tokens | Hyper3Error:
        try:
            check_text(text, self._settings.max_text_chars)
        except TextError as error:
            return error
        (tokens,) = self._encoder.tokenizer.encode([text])
        if tokens.truncated and not truncate:
            return TextError(
                f"text of {tokens.count} tokens: the model reads "
                f"{self._encoder.tokenizer.spec.context_length}; shorten it, or allow truncate"
            )
        return tokens

    def _images(
        self, files: Sequence[bytes | str], preprocess: Preprocess, *, keep: bool
    ) -> list[Vector | Hyper3Error]:
        """A few images in one run of the graph."""
        side = self._encoder.spec.side
        found: dict[int, Vector | Hyper3Error] = {}
        squares: dict[int, tuple[Pixels, bytes | None]] = {}
        for at, file in enumerate(files):
            try:
                data = file if isinstance(file, bytes) else _from_base64(file)
                image = decode(data, self._settings.image_limits, side)
            except ImageError as error:
                found[at] = error
            else:
                kept = self._picture(data, image) if keep else None
                squares[at] = resize(image, side, preprocess), kept
        if squares:
            batch = self._encoder.images(np.stack([square for square, _ in squares.values()]))
            for row, (at, (_, kept)) in enumerate(squares.items()):
                found[at] = Vector(batch.tangents[row], batch.points[row], picture=kept)
        return [found[at] for at in range(len(files))]

    def _squares(self, pixels: Pixels) -> list[Vector | Hyper3Error]:
        batch = self._encoder.images(pixels)
        return [Vector(*row) for row in zip(batch.tangents, batch.points, strict=True)]

    def _picture(self, data: bytes, image: Image.Image) -> bytes | None:
        """What the settings want stored of an image."""
        if self._settings.keep_images == "none":
            return None
        return data if self._settings.keep_images == "full" else _thumbnail(image)


def check_claim(manifest: Manifest, fingerprint: str | None, curvature: float | None) -> None:
    """Refuse vectors that claim to come from another model or space.

    Raises:
        FingerprintMismatch: Of another model.
        VectorError: Of another curvature.
    """
    if fingerprint is not None and fingerprint != manifest.fingerprint:
        raise FingerprintMismatch(
            f"vectors of the model {fingerprint}: this service serves {manifest.fingerprint}; "
            "embed them here"
        )
    if curvature is not None and not np.isclose(curvature, manifest.curvature, rtol=1e-6):
        raise VectorError(f"vectors of curvature {curvature}: this space has {manifest.curvature}")


def space_of(values: Sequence[float], given: GivenFormat, manifest: Manifest) -> Floats:
    """Space coordinates ``(dim,)`` of a vector that a user sent.

    Raises:
        VectorError: It has another size, a value that is not finite, or is no point of the
            space; the message names the rule.
    """
    size = manifest.dim + 1 if given == "lorentz" else manifest.dim
    if len(values) != size:
        raise VectorError(
            f"vector of {len(values)} values: the format {given} has {size} for this model"
        )
    vector = np.asarray(values, np.float64)
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise VectorError(f"vector holds {vector[at]} at position {at}: send finite numbers")
    root = manifest.curvature**0.5
    scaled = root * math.hypot(*(vector[1:] if given == "lorentz" else vector))
    limit = _MAX_SCALED_RADIUS if given == "tangent" else math.sinh(_MAX_SCALED_RADIUS)
    if not scaled <= limit:
        raise VectorError(
            f"vector of norm {scaled / root:.3g}: beyond {limit / root:.3g} float32 cannot hold it"
        )
    if given == "tangent":
        return lorentz.lift(vector, manifest.curvature)[1:].astype(np.float32)
    if given == "space":
        return vector.astype(np.float32)
    point = lorentz.from_space(vector[1:], manifest.curvature)
    if abs(vector[0] - point[0]) > _OFF_HYPERBOLOID * point[0]:
        raise VectorError(
            f"vector is off the hyperboloid: its time (first) is {vector[0]:.6g}, and "
            f"sqrt(1/c + |space|²) is {point[0]:.6g}"
        )
    return vector[1:].astype(np.float32)


def media_type(picture: bytes) -> str:
    """The media type of a stored picture, which was decoded before it was stored."""
    starts = {
        b"\xff\xd8\xff": "jpeg", b"\x89PNG": "png", b"RIFF": "webp", b"GIF8": "gif", b"BM": "bmp",
    }  # fmt: skip
    kind = next((kind for start, kind in starts.items() if picture.startswith(start)), "tiff")
    return f"image/{kind}"


def _row(batch: Embedded, row: int, tokens: int | None, *, truncated: bool) -> Vector:
    return Vector(batch.tangents[row], batch.points[row], tokens, truncated)


def _from_base64(text: str) -> bytes:
    if text[:8].lower().startswith(("http://", "https://")):
        raise UnsupportedImage("image by URL is refused: send its bytes as base64 or a data URI")
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise UnsupportedImage(
                "data URI without base64: write data:image/png;base64,... with one of "
                f"{', '.join(ACCEPTED_TYPES)}"
            )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BrokenImage(f"image is not base64: {error}") from error


def _thumbnail(image: Image.Image) -> bytes:
    small = image.copy()
    small.thumbnail((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=85)
    return out.getvalue()
