"""Embeddings that were computed elsewhere, as an encoder for the evaluation.

A folder::

    encoder.json   what made them (`StoredSpec`), for example
                   {"name": "my model", "vectors": "tangent",
                    "space": {"geometry": "lorentz", "curvature": 0.7}}
    images.npy     vectors of pictures, any float type; a row of NaN is a picture that the model
                   could not read
    images.txt     their names, one a line: as the data set names them, below its folder of images
    texts.npy      vectors of texts
    texts.txt      the texts, one a line, each as a JSON string, so that it may hold a line break

Tangents are ``(n, dim)`` in every space; in Euclidean space they are features, of any length. Of a
product they lie factor after factor. Points are ``(n, dim + 1)`` with the time first, of a product
``(n, factors, dim + 1)``.

A picture or text that is asked for and not stored is an error, and not left out like a picture
that cannot be read: a figure over the pictures that somebody happened to embed compares with
nothing. Parts of pictures are not stored, and how a picture became a square was decided when it
was embedded.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from core import lorentz
from core.bundle import sha256
from core.config import Section
from core.errors import DataError
from core.evaluation.encoder import Embedded, Tangents
from core.evaluation.pictures import Picture
from core.spaces import Euclidean, Lorentz, Product, Space

SPEC = "encoder.json"

_ROWS = 65_536  # that are checked at once
_OFF_HYPERBOLOID = 1e-3  # relative, of the time; float16 keeps 5e-4

Curvature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EuclideanSpec(Section):
    """The unit sphere, compared by the cosine."""

    geometry: Literal["euclidean"]


class LorentzSpec(Section):
    """One hyperboloid."""

    geometry: Literal["lorentz"]
    curvature: Curvature = Field(description="c: the space has constant curvature -c.")
    score: Literal["distance", "angle"] = "distance"


class ProductSpec(Section):
    """Hyperboloids side by side."""

    geometry: Literal["product"]
    curvature: tuple[Curvature, ...] = Field(min_length=1, description="c of each factor.")
    norm: Literal["l1", "l2"] = "l1"


class StoredSpec(Section):
    """What made the vectors."""

    name: str = Field(min_length=1)
    space: Annotated[EuclideanSpec | LorentzSpec | ProductSpec, Field(discriminator="geometry")]
    vectors: Literal["tangent", "point"] = "tangent"
    logit_scale: float | None = Field(
        None, gt=0, description="What similarities are multiplied by to become logits."
    )

    def build_space(self) -> Space:
        """The space of the tangents."""
        if isinstance(self.space, EuclideanSpec):
            return Euclidean()
        if isinstance(self.space, LorentzSpec):
            return Lorentz(self.space.curvature, self.space.score)
        return Product(np.array(self.space.curvature), self.space.norm)


@dataclass(frozen=True)
class Table:
    """Vectors by name, left on the disk until they are asked for."""

    file: Path
    vectors: npt.NDArray[Any]
    row_of: Mapping[str, int]

    def rows(self, names: Sequence[str], what: str) -> npt.NDArray[np.float64]:
        """The vectors of names, in their order.

        Raises:
            DataError: Some are not stored; the message names the first and counts them.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self.row_of]
        if missing:
            raise DataError(
                f"{self.file}: {len(missing):,} of {len(set(names)):,} {what} that were asked for "
                f"are not stored, the first {missing[0][:200]!r}; embed them, or measure fewer "
                "records"
            )
        return self.vectors[[self.row_of[name] for name in names]].astype(np.float64)


@dataclass(frozen=True)
class StoredEncoder:
    """Stored embeddings as the evaluation sees a model (`core.evaluation.encoder.Encoder`)."""

    spec: StoredSpec
    space: Space
    fingerprint: str
    pictures: Table
    sentences: Table

    @property
    def name(self) -> str:
        """As ``encoder.json`` says."""
        return self.spec.name

    @property
    def logit_scale(self) -> float | None:
        """As ``encoder.json`` says."""
        return self.spec.logit_scale

    @property
    def about(self) -> Mapping[str, str | int | float]:
        """What else a result says of it."""
        return {"runtime": "stored", "kind": "stored", "preprocess": "as it was embedded"}

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        """Tangents of pictures; a row of NaN is a picture that could not be read.

        Raises:
            DataError: One is not stored, or is a part of a picture.
        """
        part = next((picture for picture in pictures if picture.box is not None), None)
        if part is not None:
            raise DataError(
                f"{self.pictures.file}: holds whole pictures, and a part of {part.name} is asked "
                "for; measure parts on a checkpoint, a bundle or a service"
            )
        names = [picture.name for picture in pictures]
        tangents = self._tangents(self.pictures.rows(names, "pictures"))
        unread = np.flatnonzero(np.isnan(tangents).any(axis=1)).tolist()
        return Embedded(tangents, {row: f"{names[row]}: stored as unreadable" for row in unread})

    def texts(self, texts: Sequence[str]) -> Tangents:
        """Tangents, ``(n, dim)``, of texts.

        Raises:
            DataError: One is not stored.
        """
        return self._tangents(self.sentences.rows(texts, "texts"))

    def _tangents(self, vectors: npt.NDArray[np.float64]) -> Tangents:
        if self.spec.vectors == "point" and not isinstance(self.space, Euclidean):
            vectors = lorentz.log_map(vectors, self.space.curvature)
        return vectors.reshape(len(vectors), math.prod(vectors.shape[1:])).astype(np.float32)


def open_stored(target: str) -> StoredEncoder | None:
    """The encoder of a folder of stored embeddings; None for anything else.

    Raises:
        DataError: It is one, and a file of it is missing or wrong.
    """
    path = Path(target)
    if not (path / SPEC).is_file():
        return None
    spec = _read_spec(path / SPEC)
    space = spec.build_space()
    pictures = _open_table(path / "images.npy", lambda line: line)
    sentences = _open_table(path / "texts.npy", json.loads)
    for table in (pictures, sentences):
        _check_shape(table, spec, space)
        _check_values(table, spec, space)
    if pictures.vectors.shape[1:] != sentences.vectors.shape[1:]:
        raise DataError(
            f"{path}: vectors of pictures are {pictures.vectors.shape[1:]} and of texts "
            f"{sentences.vectors.shape[1:]}; they must be of one model"
        )
    files = [SPEC, "images.npy", "images.txt", "texts.npy", "texts.txt"]
    digests = json.dumps([sha256(path / name) for name in files])
    fingerprint = hashlib.sha256(digests.encode()).hexdigest()
    return StoredEncoder(spec, space, fingerprint, pictures, sentences)


def _read_spec(file: Path) -> StoredSpec:
    try:
        return StoredSpec.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg']}"
            for fault in error.errors()[:3]
        )
        raise DataError(f"{file}: {faults}") from error


def _open_table(file: Path, parse: Callable[[str], Any]) -> Table:
    lines_file = file.with_suffix(".txt")
    try:
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
        lines = lines_file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError, EOFError) as error:
        where = error.filename if isinstance(error, OSError) and error.filename else file
        raise DataError(f"{where}: cannot be read: {error}") from error
    if not isinstance(vectors, np.ndarray):
        raise DataError(f"{file}: an archive of arrays; save the one array with numpy.save")
    if lines[-1] == "":
        lines.pop()
    row_of: dict[str, int] = {}
    for row, line in enumerate(lines):
        name = _parse(parse, line, f"{lines_file}:{row + 1}")
        if row_of.setdefault(name, row) != row:
            raise DataError(
                f"{lines_file}:{row + 1}: {name[:200]!r} is there already, in line "
                f"{row_of[name] + 1}"
            )
    if vectors.ndim == 0 or len(vectors) != len(lines):
        raise DataError(
            f"{file}: {vectors.shape} for the {len(lines):,} lines of {lines_file.name}; give a "
            "row a line"
        )
    return Table(file, vectors, row_of)


def _parse(parse: Callable[[str], Any], line: str, where: str) -> str:
    try:
        name = parse(line.removesuffix("\r"))
    except ValueError as error:
        raise DataError(f"{where}: not a JSON string: {error}") from error
    if not isinstance(name, str):
        raise DataError(f"{where}: {type(name).__name__} where a JSON string belongs")
    return name


def _check_shape(table: Table, spec: StoredSpec, space: Space) -> None:
    shape, is_point = table.vectors.shape, spec.vectors == "point"
    factors = len(space.curvature) if isinstance(space, Product) else 1
    expected = "(n, dim)"
    fits = len(shape) == 2 and shape[1] >= 1 and shape[1] % factors == 0
    if isinstance(space, Product) and is_point:
        expected = f"(n, {factors}, dim + 1)"
        fits = len(shape) == 3 and shape[1] == factors and shape[2] >= 2
    elif isinstance(space, Lorentz) and is_point:
        expected = "(n, dim + 1)"
        fits = len(shape) == 2 and shape[1] >= 2
    elif factors > 1:
        expected = f"(n, {factors} * dim)"
    if not fits or table.vectors.dtype.kind != "f":
        raise DataError(
            f"{table.file}: {table.vectors.dtype} of shape {shape}; {spec.vectors}s of this space "
            f"are floats of shape {expected}"
        )


def _check_values(table: Table, spec: StoredSpec, space: Space) -> None:
    """Refuse values that are not finite, and points that are not on their hyperboloid."""
    for start in range(0, len(table.vectors), _ROWS):
        block = np.asarray(table.vectors[start : start + _ROWS], np.float64)
        flat = block.reshape(len(block), -1)
        unread = np.isnan(flat).all(axis=1) & (table.file.stem == "images")
        wrong = ~np.isfinite(flat).all(axis=1) & ~unread
        if wrong.any():
            raise DataError(
                f"{table.file}: row {start + int(wrong.argmax())} (from 0) holds values that are "
                "not finite"
            )
        if spec.vectors == "point" and not isinstance(space, Euclidean):
            time = lorentz.from_space(block[..., 1:], space.curvature)[..., 0]
            off = np.abs(block[..., 0] - time) > _OFF_HYPERBOLOID * time
            rows = off.reshape(len(block), -1).any(axis=1)
            if rows.any():
                raise DataError(
                    f"{table.file}: row {start + int(rows.argmax())} (from 0) is off the "
                    "hyperboloid; the time comes first and is sqrt(1/c + |space|²), with the c of "
                    f"{SPEC}"
                )
