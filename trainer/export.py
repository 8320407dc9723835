"""A checkpoint -> a bundle: the pooling left out, two ONNX graphs, and proof that they agree."""

import contextlib
import io
import logging
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch
from torch import Tensor, nn

from core import lorentz
from core.bundle import (
    IMAGE_GRAPH,
    MANIFEST,
    TEXT_GRAPH,
    TOKENIZER,
    Manifest,
    Parity,
    open_bundle,
    sha256,
    write_manifest,
)
from core.errors import BundleError, DataError, ParityError
from core.image import ImageSpec, normalise
from core.text import TextSpec, Tokenizer
from trainer.checkpoint import Checkpoint, load_model
from trainer.data.batch import Decoded
from trainer.data.decode import decode_sample
from trainer.data.loader import validation_rows
from trainer.data.shards import find_shards, index_shards
from trainer.model import DualEncoder
from trainer.storage import storage_errors
from trainer.vocabulary import write_tokenizer

log = logging.getLogger(__name__)

OPSET = 20
"""Of the ONNX graphs; ONNX Runtime 1.17 and newer run it."""

PARITY_BOUND = 1e-4
"""Largest absolute difference of a point's coordinate that fp32 may show."""

_PROBES = 256
_EXAMPLES = (
    "a dog",
    "two small red apples next to a bicycle on a blue background",
    "A photo of a lighthouse above the sea, with birds around it; the sky is grey and it rains.",
)


class _ImageGraph(nn.Module):
    def __init__(self, model: DualEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        tangent = self.model.encode_images(pixels)
        return tangent, lorentz.lift(tangent, self.model.curvature)


class _TextGraph(nn.Module):
    def __init__(self, model: DualEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        tangent = self.model.encode_texts(tokens)
        return tangent, lorentz.lift(tangent, self.model.curvature)


@dataclass(frozen=True)
class _Probe:
    """What both sides embed when they are compared."""

    pixels: npt.NDArray[np.float32]  # (n, 3, side, side)
    tokens: list[npt.NDArray[np.int64]]  # groups of (texts, length)


def export(checkpoint: Checkpoint, out: Path, *, force: bool = False) -> Manifest:
    """Write the bundle of a checkpoint; the folder appears whole or not at all.

    A bundle of the same weights that is there already is left as it is.

    Raises:
        BundleError: ``out`` holds something else, and ``force`` is not given.
        ParityError: The graphs differ from the model by more than 1e-4; no bundle is written.
    """
    recipe, weights = checkpoint.recipe, checkpoint.weights_digest()
    if out.exists():
        before = _bundle_before(out)
        if before and before.weights_digest == weights:
            return before
        if not force:
            raise BundleError(
                f"{out}: holds other weights already; --force replaces it, or give another --out"
            )
    if recipe.objective.kind in {"clip", "atmg", "phyclip"}:
        raise BundleError(
            f"{checkpoint.path}: a bundle holds points of one hyperboloid that are compared by "
            f"distance, and {recipe.objective.kind} has others (meru, hycoclip, uncha and hyper3 "
            f"have them); measure it by `hyper3 eval {checkpoint.path} RECORDS.jsonl`"
        )
    model = DualEncoder(recipe)
    load_model(checkpoint, model)
    model.eval()
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with storage_errors(out):
            manifest = _write_bundle(checkpoint, model, temporary, out, weights)
            if out.exists():
                shutil.rmtree(out)
            temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def _write_bundle(
    checkpoint: Checkpoint, model: DualEncoder, temporary: Path, out: Path, weights: str
) -> Manifest:
    """All files of the bundle, in a folder beside its place."""
    recipe = checkpoint.recipe
    temporary.mkdir(parents=True)
    write_tokenizer(temporary / TOKENIZER)
    text_spec = TextSpec(context_length=recipe.text_tower.context_length)
    image_spec = recipe.image_spec
    probe = _probe(checkpoint, image_spec, Tokenizer(temporary / TOKENIZER, text_spec))
    _write_graphs(model, probe, temporary)
    parity = measure_parity(model, probe.pixels, probe.tokens, temporary)
    if parity.worst_error > PARITY_BOUND:
        raise ParityError(
            f"{out}: the exported graphs differ from the model by {parity.worst_error:.2e} "
            f"(bound {PARITY_BOUND:.0e}); no bundle was written"
        )
    manifest = Manifest(
        name=recipe.name,
        dim=recipe.model.dim,
        curvature=float(model.curvature.detach()),
        logit_scale=float(model.scalars().whole.scale.detach()),
        image=image_spec,
        text=text_spec,
        recipe_digest=recipe.digest(),
        weights_digest=weights,
        step=checkpoint.step,
        parity=parity,
        files={file.name: sha256(file) for file in sorted(temporary.iterdir()) if file.is_file()},
    )
    write_manifest(temporary, manifest)
    return manifest


def _bundle_before(out: Path) -> Manifest | None:
    """The bundle that would be replaced; ``None`` where it is broken, or the folder is empty.

    Raises:
        BundleError: It is no bundle, or holds more than one: that is not ours to remove.
    """
    ours = {MANIFEST, IMAGE_GRAPH, TEXT_GRAPH, TOKENIZER}
    held = {path.name for path in out.iterdir()} if out.is_dir() else {"a file"}
    if held - ours or (held and MANIFEST not in held):
        strange = ", ".join(sorted(held - ours)[:3]) or f"no {MANIFEST}"
        raise BundleError(f"{out}: not a bundle alone ({strange}); give another --out")
    with contextlib.suppress(BundleError):
        return open_bundle(out).manifest
    return None


def measure_parity(
    model: DualEncoder,
    pixels: npt.NDArray[np.float32],
    tokens: Sequence[npt.NDArray[np.int64]],
    folder: Path,
) -> Parity:
    """Compare the graphs in a folder with the model, on the same pixels and tokens."""
    with torch.no_grad():
        curvature = float(model.curvature)
        expected = [
            lorentz.lift(model.encode_images(torch.from_numpy(pixels)), model.curvature),
            *(
                lorentz.lift(model.encode_texts(torch.from_numpy(group)), model.curvature)
                for group in tokens
            ),
        ]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    run = {
        name: onnxruntime.InferenceSession(folder / name, options, ["CPUExecutionProvider"])
        for name in (IMAGE_GRAPH, TEXT_GRAPH)
    }
    got = [
        run[IMAGE_GRAPH].run(["point"], {"pixels": pixels})[0],
        *(run[TEXT_GRAPH].run(["point"], {"tokens": group})[0] for group in tokens),
    ]
    images, texts = expected[0].numpy(), torch.cat(expected[1:]).numpy()
    got_images, got_texts = got[0], np.concatenate(got[1:])
    error = np.concatenate(
        [np.abs(images - got_images).ravel(), np.abs(texts - got_texts).ravel()]
    ).astype(np.float64)
    return Parity(
        worst_error=float(error.max()),
        mean_error=float(error.mean()),
        rank_agreement=_agreement(texts, images, got_texts, got_images, curvature),
        samples=len(images),
    )


def _agreement(
    texts: npt.NDArray[Any],
    images: npt.NDArray[Any],
    got_texts: npt.NDArray[Any],
    got_images: npt.NDArray[Any],
    curvature: float,
) -> float:
    """Share of texts that find the same nearest image on both sides."""
    expected = lorentz.pairwise_distance(texts, images, curvature).argmin(1)
    got = lorentz.pairwise_distance(got_texts, got_images, curvature).argmin(1)
    return float((expected == got).mean())


def _probe(checkpoint: Checkpoint, spec: ImageSpec, tokenizer: Tokenizer) -> _Probe:
    """Held-out pictures and captions where the recipe's shards are at hand; noise otherwise."""
    recipe = checkpoint.recipe
    samples: list[Decoded] = []
    try:
        shards = find_shards(recipe.data.val or recipe.data.train, recipe.data.cache)
        index = index_shards(shards)
        for _, (number,) in validation_rows(index, 1)[:_PROBES]:
            with contextlib.suppress(DataError):  # a bad sample is not the model's fault
                samples.append(
                    decode_sample(index, number, recipe.data, np.random.default_rng(number))
                )
    except DataError as error:
        log.warning("the recipe's shards cannot be used: %s", error)
    if len(samples) < 2:
        log.warning("parity is measured on noise and a few captions")
        noise = np.random.default_rng(0).integers(0, 256, (_PROBES, spec.side, spec.side, 3))
        return _Probe(normalise(noise.astype(np.uint8), spec), _group(_EXAMPLES, tokenizer))
    pixels = np.stack([sample.image for sample in samples])
    texts = [*_EXAMPLES, *(sample.caption for sample in samples)]
    return _Probe(normalise(pixels, spec), _group(texts, tokenizer))


def _group(texts: Sequence[str], tokenizer: Tokenizer) -> list[npt.NDArray[np.int64]]:
    """One group padded to its longest, and the first texts again at their own lengths.

    So a graph that minds its padding, or takes but one length, is found out.
    """
    ids = [entry.ids for entry in tokenizer.encode(texts)]
    return [tokenizer.pad(ids), *(tokenizer.pad([row]) for row in ids[: len(_EXAMPLES)])]


def _write_graphs(model: DualEncoder, probe: _Probe, folder: Path) -> None:
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length", min=2, max=model.text_tower.context_length)
    pixels, tokens = torch.from_numpy(probe.pixels[:2]), torch.from_numpy(probe.tokens[0][:2])
    _write_graph(_ImageGraph(model), pixels, "pixels", {0: batch}, folder / IMAGE_GRAPH)
    _write_graph(_TextGraph(model), tokens, "tokens", {0: batch, 1: length}, folder / TEXT_GRAPH)


def _write_graph(
    module: nn.Module, example: Tensor, name: str, dynamic: dict[int, Any], file: Path
) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the exporter's remarks on its own internals
        torch.onnx.export(
            module.eval(),
            (example,),
            file,
            input_names=[name],
            output_names=["tangent", "point"],
            dynamic_shapes=({**dynamic},),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
