"""A bundle's graphs as functions from pixels and tokens to vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

from core import lorentz
from core.bundle import (
    IMAGE_GRAPH,
    MANIFEST,
    TEXT_GRAPH,
    TOKENIZER,
    Bundle,
    Manifest,
    open_bundle,
)
from core.cores import available_cores
from core.errors import BundleError, DataError, Hyper3Error, ImageError
from core.evaluation import encoder as evaluation
from core.evaluation.pictures import Picture
from core.image import ImageSpec, Pixels, normalise
from core.spaces import Lorentz, Space
from core.text import Tokenizer, Tokens
from service.workers import Workers

Vectors = npt.NDArray[np.float32]

_TEXTS_PER_RUN = 32
_IMAGES_PER_RUN = 8
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
    """A bundle as the evaluation sees a model (`core.evaluation.encoder.Encoder`)."""

    bundle: Bundle
    encoder: Encoder
    workers: Workers

    @property
    def name(self) -> str:
        """The recipe's name and the step."""
        return f"{self.bundle.manifest.name} at step {self.bundle.manifest.step:,} (bundle)"

    @property
    def fingerprint(self) -> str:
        """The manifest's."""
        return self.bundle.manifest.fingerprint

    @property
    def space(self) -> Space:
        """One hyperboloid."""
        return Lorentz(self.bundle.manifest.curvature)

    @property
    def logit_scale(self) -> float:
        """What similarities are multiplied by to become logits."""
        return self.bundle.manifest.logit_scale

    @property
    def about(self) -> Mapping[str, str | int | float]:
        """What else a result says of it."""
        manifest = self.bundle.manifest
        return {
            "runtime": f"onnxruntime {onnxruntime.__version__}",
            "kind": "bundle",
            "family": manifest.family,
            "recipe": manifest.name,
            "step": manifest.step,
            "side": manifest.image.side,
            "precision": manifest.precision,
        }

    def images(self, pictures: Sequence[Picture]) -> evaluation.Embedded:
        """Tangents of pictures; a picture that cannot be read spoils no other."""
        starts = range(0, len(pictures), _IMAGES_PER_RUN)
        few = [pictures[start : start + _IMAGES_PER_RUN] for start in starts]
        tangents = np.full((len(pictures), self.encoder.dim), np.nan, np.float32)
        faults: dict[int, str] = {}
        for start, found in zip(starts, self.workers.map(self._read_and_run, few), strict=True):
            if isinstance(found, Hyper3Error):
                raise found
            tangents[start : start + len(found.tangents)] = found.tangents
            faults |= {start + row: fault for row, fault in found.faults.items()}
        return evaluation.Embedded(tangents, faults)

    def texts(self, texts: Sequence[str]) -> Vectors:
        """Tangents ``(n, dim)`` of texts."""
        tokens = self.encoder.tokenizer.encode(texts)
        groups = runs(dict(enumerate(tokens)))
        rows = [[tokens[position].ids for position in group] for group in groups]
        tangents = np.empty((len(texts), self.encoder.dim), np.float32)
        for group, found in zip(groups, self.workers.map(self.encoder.texts, rows), strict=True):
            if isinstance(found, Hyper3Error):
                raise found
            tangents[group] = found.tangents
        return tangents

    def _read_and_run(self, pictures: Sequence[Picture]) -> evaluation.Embedded:
        """A few pictures, read by the worker that runs the graph: no core waits for another."""
        tangents = np.full((len(pictures), self.encoder.dim), np.nan, np.float32)
        faults: dict[int, str] = {}
        squares: dict[int, Pixels] = {}
        for row, picture in enumerate(pictures):
            try:
                squares[row] = picture.square(self.encoder.spec.side)
            except (DataError, ImageError) as error:
                faults[row] = str(error)
        if squares:
            tangents[list(squares)] = self.encoder.images(np.stack(list(squares.values()))).tangents
        return evaluation.Embedded(tangents, faults)


def open_bundle_encoder(target: str) -> BundleEncoder | None:
    """The encoder of a bundle folder; None if ``target`` is not one.

    Raises:
        BundleError: It is one, and cannot be used.
    """
    path = Path(target)
    files = {MANIFEST, IMAGE_GRAPH, TEXT_GRAPH, TOKENIZER}
    # Other folders have a manifest.json too, and a damaged bundle should hear what it lacks.
    if len([name for name in files if (path / name).is_file()]) < 2:
        return None
    bundle = open_bundle(path)
    workers = Workers(available_cores(), max_waiting=1)
    return BundleEncoder(bundle, Encoder(bundle), workers)


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
