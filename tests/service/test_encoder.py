"""The graphs of a bundle, and a bundle as the evaluation sees it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import lorentz
from core.bundle import open_bundle
from core.errors import BundleError
from core.evaluation.encoder import open_encoder
from core.spaces import Lorentz
from service.encoder import Encoder, open_bundle_encoder, runs


def test_a_text_at_its_own_length_equals_the_text_padded_to_the_context(bundle: Path) -> None:
    encoder = Encoder(open_bundle(bundle))
    (tokens,) = encoder.tokenizer.encode(["a red apple"])
    padded = [*tokens.ids, *[0] * (12 - len(tokens.ids))]
    alone, full = encoder.texts([tokens.ids]), encoder.texts([padded])
    np.testing.assert_allclose(alone.points, full.points, rtol=1e-6)


def test_the_points_of_a_graph_are_its_tangents_lifted(bundle: Path) -> None:
    opened = open_bundle(bundle)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)
    got = Encoder(opened).images(pixels)
    expected = lorentz.lift(got.tangents.astype(np.float64), opened.manifest.curvature)
    np.testing.assert_allclose(got.points, expected, rtol=1e-5)


def test_texts_run_with_those_of_their_length_and_each_once(bundle: Path) -> None:
    encoder = Encoder(open_bundle(bundle))
    texts = ["a dog", "a red apple", "dog", "the cat"] * 40
    tokens = encoder.tokenizer.encode(texts)
    groups = runs(dict(enumerate(tokens)))
    assert sorted(position for group in groups for position in group) == list(range(len(texts)))
    for group in groups:
        assert len({len(tokens[position].ids) for position in group}) == 1


def test_a_bundle_encoder_keeps_the_order_of_texts_and_pixels(bundle: Path) -> None:
    encoder = open_bundle_encoder(str(bundle))
    assert encoder is not None
    assert (encoder.name, encoder.space, encoder.side) == ("tiny", Lorentz(0.7), 16)
    texts = ["a dog", "a red apple on a house", "cat", "the blue dog"]
    together = encoder.texts(texts)
    alone = np.concatenate([encoder.texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    pixels = np.random.default_rng(1).integers(0, 256, (300, 16, 16, 3), np.uint8)
    np.testing.assert_allclose(
        encoder.images(iter(pixels)), encoder.encoder.images(pixels).tangents, rtol=1e-5, atol=1e-6
    )
    assert encoder.texts([]).shape == encoder.images([]).shape == (0, 6)
    encoder.workers.close()


def test_a_folder_that_is_no_bundle_has_no_bundle_encoder(tmp_path: Path) -> None:
    assert open_bundle_encoder(str(tmp_path)) is None


def test_the_evaluation_finds_the_encoder_of_a_bundle(bundle: Path) -> None:
    encoder = open_encoder(str(bundle))
    assert (encoder.name, encoder.side) == ("tiny", 16)


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json"])
def test_an_altered_or_missing_file_is_named(bundle: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    with pytest.raises(BundleError, match=f"{name}: altered"):
        open_bundle(copy)
    (copy / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is missing"):
        open_bundle(copy)


def change_manifest(bundle: Path, copy: Path, **changes: Any) -> Path:
    """A copy of a bundle, some of whose manifest's keys are changed, or with None taken out."""
    shutil.copytree(bundle, copy)
    values = json.loads((copy / "manifest.json").read_text()) | changes
    kept = {key: value for key, value in values.items() if value is not None}
    (copy / "manifest.json").write_text(json.dumps(kept))
    return copy


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"curvature": 3.5}, r"image\.onnx: .* not its tangents lifted .* curvature = 3\.5"),
        ({"curvature": 0.701}, r"image\.onnx: .* curvature = 0\.701; export the model again"),
        ({"dim": 5}, r"image\.onnx: gives vectors of shapes .* dim = 5; export the model again"),
    ],
)
def test_a_manifest_that_does_not_fit_its_graphs_is_refused(
    bundle: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    copy = change_manifest(bundle, tmp_path / "copy", **changes)
    with pytest.raises(BundleError, match=complaint):
        Encoder(open_bundle(copy))
    with pytest.raises(BundleError, match=complaint):
        open_bundle_encoder(str(copy))


@pytest.mark.parametrize("raw", [b"", b"{", b"curvature = 1", b"\xff\xfe"])
def test_a_manifest_that_is_not_json_is_refused_in_a_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(raw)
    with pytest.raises(BundleError) as caught:
        open_bundle(tmp_path)
    assert str(caught.value) == f"{path}: not JSON; export the model again"


def test_missing_unknown_and_wrong_keys_of_a_manifest_are_named(
    bundle: Path, tmp_path: Path
) -> None:
    copy = change_manifest(bundle, tmp_path / "copy", curvature=None, colour="secret", dim=0)
    with pytest.raises(BundleError) as caught:
        open_bundle(copy)
    message = str(caught.value)
    assert message.endswith("; export the model again")
    for part in ("curvature is missing", "colour is no key of a manifest", "dim: Input should be"):
        assert part in message
    for noise in ("secret", "http", "pydantic", "\n"):
        assert noise not in message
    (copy / "manifest.json").write_text("[]")
    with pytest.raises(BundleError, match=r"manifest\.json: not a JSON object; export"):
        open_bundle(copy)
