"""A bundle's graphs as functions from pixels and tokens to vectors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

from core import lorentz
from core.bundle import Bundle, Manifest, open_bundle
from core.cores import available_cores
from core.errors import BundleError, Hyper3Error
from core.image import ImageSpec, Pixels, normalise
from core.spaces import Lorentz, Space
from core.text import Tokenizer, Tokens
from service.workers import Workers

Vectors = npt.NDArray[np.float32]

_TEXTS_PER_RUN = 32
_IMAGES_PER_RUN = 8
_RUNS_AT_ONCE = 32  # bounds the pixels that an evaluation holds
_CANARY_TEXT = "a"
_CANARY_GREY = 128
_CANARY_ERROR = 1e-4  # of a coordinate, relative where it is over 1


class Embedded(NamedTuple):
    """What a graph makes of a batch."""

    tangents: Vectors
    """``(n, dim)``"""
    points: Vectors
    """``(n, dim + 1)``, time first."""


class Encoder:
    """The two graphs of a bundle; any number of threads may call it at once.

    Args:
        bundle: An opened bundle.

    Raises:
        BundleError: A graph cannot be loaded, or what it gives for a canary does not fit the
            manifest's dim or curvature.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.spec: ImageSpec = bundle.manifest.image
        self.tokenizer = Tokenizer(bundle.tokenizer, bundle.manifest.text)
        self._image = _session(bundle.image_graph)
        self._text = _session(bundle.text_graph)
        self.dim = bundle.manifest.dim
        grey = np.full((1, self.spec.side, self.spec.side, 3), _CANARY_GREY, np.uint8)
        _check(bundle.image_graph, self.images(grey), bundle.manifest)
        (words,) = self.tokenizer.encode([_CANARY_TEXT])
        _check(bundle.text_graph, self.texts([words.ids]), bundle.manifest)

    def images(self, pixels: Pixels) -> Embedded:
        """Vectors of squares ``(n, side, side, 3)`` of 0..255."""
        return _run(self._image, normalise(pixels, self.spec))

    def texts(self, rows: Sequence[Sequence[int]]) -> Embedded:
        """Vectors of rows of tokens; rows of one length need no padding."""
        return _run(self._text, self.tokenizer.pad(rows))


def runs(tokens: Mapping[int, Tokens]) -> list[list[int]]:
    """The keys of texts that can run together: of one length, so that none is padded.

    The text graph is causal and pools at the end token, so a text at its own length gives what
    it gives at the full context, for a fraction of the work.
    """
    by_length: dict[int, list[int]] = {}
    for position, text in tokens.items():
        by_length.setdefault(len(text.ids), []).append(position)
    return [
        positions[start : start + _TEXTS_PER_RUN]
        for _, positions in sorted(by_length.items())
        for start in range(0, len(positions), _TEXTS_PER_RUN)
    ]


@dataclass(frozen=True)
class BundleEncoder:
    """A bundle as the evaluation sees a model: pixels and texts to tangent vectors."""

    name: str
    space: Space
    side: int
    encoder: Encoder
    workers: Workers

    def images(self, pixels: Iterable[Pixels]) -> Vectors:
        """Tangents ``(n, dim)`` of squares ``(side, side, 3)`` of 0..255."""
        tangents = [np.empty((0, self.encoder.dim), np.float32)]
        for window in _batches(pixels, _IMAGES_PER_RUN * _RUNS_AT_ONCE):
            starts = range(0, len(window), _IMAGES_PER_RUN)
            batches = [np.stack(window[start : start + _IMAGES_PER_RUN]) for start in starts]
            tangents.append(self._gather(self.workers.map(self.encoder.images, batches)))
        return np.concatenate(tangents)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Tangents ``(n, dim)`` of texts."""
        if not texts:
            return np.empty((0, self.encoder.dim), np.float32)
        tokens = self.encoder.tokenizer.encode(texts)
        groups = runs(dict(enumerate(tokens)))
        rows = [[tokens[position].ids for position in group] for group in groups]
        tangents = self._gather(self.workers.map(self.encoder.texts, rows))
        order = np.concatenate([np.asarray(group, np.int64) for group in groups])
        return tangents[np.argsort(order)]

    def _gather(self, results: list[Embedded | Hyper3Error]) -> Vectors:
        tangents = []
        for result in results:
            if isinstance(result, Hyper3Error):
                raise result
            tangents.append(result.tangents)
        return np.concatenate(tangents)


def open_bundle_encoder(target: str) -> BundleEncoder | None:
    """The encoder of a bundle folder; None if ``target`` is not one.

    Raises:
        BundleError: It is one, and cannot be used.
    """
    path = Path(target)
    if not (path / "manifest.json").is_file():
        return None
    bundle = open_bundle(path)
    manifest = bundle.manifest
    workers = Workers(available_cores(), max_waiting=1)
    return BundleEncoder(
        manifest.name, Lorentz(manifest.curvature), manifest.image.side, Encoder(bundle), workers
    )


def _batches(pixels: Iterable[Pixels], size: int) -> Iterator[list[Pixels]]:
    batch: list[Pixels] = []
    for square in pixels:
        batch.append(square)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime's errors share no narrower base
        raise BundleError(f"{path}: cannot be loaded: {error}") from error


def _check(graph: Path, canary: Embedded, manifest: Manifest) -> None:
    """Refuse a graph and a manifest that do not describe one model."""
    shapes = canary.tangents.shape, canary.points.shape
    if shapes != ((1, manifest.dim), (1, manifest.dim + 1)):
        raise BundleError(
            f"{graph}: gives vectors of shapes {shapes} where the manifest says dim = "
            f"{manifest.dim}; export the model again"
        )
    expected = lorentz.lift(canary.tangents, manifest.curvature)
    if not np.allclose(canary.points, expected, rtol=_CANARY_ERROR, atol=_CANARY_ERROR):
        raise BundleError(
            f"{graph}: gives points that are not its tangents lifted with the manifest's "
            f"curvature = {manifest.curvature:g}; export the model again"
        )


def _run(session: Any, batch: npt.NDArray[Any]) -> Embedded:
    (name,) = (node.name for node in session.get_inputs())
    tangents, points = session.run(["tangent", "point"], {name: batch})
    return Embedded(tangents, points)
