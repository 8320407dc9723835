"""A bundle: the folder that `hyper3 export` writes and a service serves, and nothing else.

::

    manifest.json    what the model is, and the sha256 of every other file
    image.onnx       pixels (batch, 3, side, side) float32
                     -> tangent (batch, dim), point (batch, dim + 1)
    text.onnx        tokens (batch, length) int64 -> the same
    tokenizer.json   for the `tokenizers` library

Both graphs take any batch, the text graph any length up to the context. ``pixels`` are what
`core.image.normalise` returns; ``tokens`` what `core.text.Tokenizer.pad` returns.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from core.config import Section
from core.errors import BundleError
from core.image import ImageSpec
from core.text import TextSpec

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
IMAGE_GRAPH = "image.onnx"
TEXT_GRAPH = "text.onnx"
TOKENIZER = "tokenizer.json"


class Parity(Section):
    """How far the exported graphs stand from the trained model, as measured by the export."""

    worst_error: float = Field(ge=0, description="Largest absolute difference of a coordinate.")
    mean_error: float = Field(ge=0, description="Mean absolute difference of coordinates.")
    rank_agreement: float = Field(
        ge=0, le=1, description="Share of queries whose nearest neighbour is the same."
    )
    samples: int = Field(ge=1, description="Images, and texts, that were compared.")


class Manifest(Section):
    """What a bundle is. Everything that changes an embedding enters its fingerprint."""

    format_version: Literal[1] = 1
    name: str = Field(description="The name of the recipe that was trained.")
    family: Literal["hyper3"] = "hyper3"
    geometry: Literal["lorentz"] = "lorentz"
    dim: int = Field(ge=1, description="Size of a tangent; a point has one more.")
    curvature: float = Field(gt=0, description="c: the space has constant curvature -c.")
    logit_scale: float = Field(gt=0, description="Zero-shot logits are -logit_scale * distance.")
    image: ImageSpec
    text: TextSpec
    precision: Literal["fp32"] = "fp32"
    recipe_digest: str = Field(description="sha256 of the training recipe.")
    weights_digest: str = Field(description="sha256 of the exported checkpoint's weights.")
    step: int = Field(ge=0, description="Optimizer steps of the exported checkpoint.")
    parity: Parity
    files: dict[str, str] = Field(description="sha256 of every other file, by name.")

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) over weights, geometry, preprocessing, tokenizer and precision.

        Vectors of two models may be compared only if their fingerprints are equal.
        """
        what = self.model_dump(
            mode="json",
            include={
                "format_version", "geometry", "dim", "curvature", "image", "text", "precision",
                "files",
            },
        )  # fmt: skip
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Bundle:
    """An opened bundle; its files exist, and are the ones the manifest was written for."""

    path: Path
    manifest: Manifest

    @property
    def image_graph(self) -> Path:
        """The image encoder, ONNX."""
        return self.path / IMAGE_GRAPH

    @property
    def text_graph(self) -> Path:
        """The text encoder, ONNX."""
        return self.path / TEXT_GRAPH

    @property
    def tokenizer(self) -> Path:
        """The vocabulary, for `core.text.Tokenizer`."""
        return self.path / TOKENIZER


def open_bundle(path: Path) -> Bundle:
    """Read and check a bundle.

    Raises:
        BundleError: The folder or a file is missing, the manifest is not one, or a file is not
            the one that was exported. The manifest lists the others' digests and has none itself:
            whoever loads the graphs compares what they give with it.
    """
    manifest = _read_manifest(path)
    for name in (IMAGE_GRAPH, TEXT_GRAPH, TOKENIZER):
        if name not in manifest.files:
            raise BundleError(f"{path / MANIFEST}: lists no {name}; export the model again")
    for name, digest in manifest.files.items():
        if Path(name).name != name:
            raise BundleError(f"{path / MANIFEST}: {name!r} is not a plain file name")
        if not (path / name).is_file():
            raise BundleError(f"{path}: {name} is missing; export the model again")
        if sha256(path / name) != digest:
            raise BundleError(f"{path / name}: altered since its export; export the model again")
    return Bundle(path, manifest)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into a folder."""
    (path / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def sha256(path: Path) -> str:
    """The sha256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> Manifest:
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
        return Manifest.model_validate_json(text)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleError(
            f"{path}: not a bundle (no {MANIFEST}); make one with `hyper3 export`"
        ) from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{path / MANIFEST}: not JSON; export the model again") from error
    except ValidationError as error:
        faults = "; ".join(_explain(fault) for fault in error.errors())
        raise BundleError(f"{path / MANIFEST}: {faults}; export the model again") from error


def _explain(fault: ErrorDetails) -> str:
    """What is wrong with the manifest, without its values."""
    key = ".".join(map(str, fault["loc"]))
    if fault["type"] == "json_invalid":
        return "not JSON"
    if fault["type"] == "missing":
        return f"{key} is missing"
    if fault["type"] == "extra_forbidden":
        return f"{key} is no key of a manifest"
    return f"{key}: {fault['msg']}" if key else "not a JSON object"
