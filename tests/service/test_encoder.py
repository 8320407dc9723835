"""The graphs of a bundle, and a bundle as the evaluation sees it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core import lorentz
from core.bundle import open_bundle
from core.errors import BundleError
from core.evaluation.encoder import open_encoder
from core.evaluation.pictures import Picture
from core.spaces import Lorentz
from service.encoder import BundleEncoder, Encoder, open_bundle_encoder, runs


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


@pytest.fixture
def opened(bundle: Path) -> Iterator[BundleEncoder]:
    encoder = open_bundle_encoder(str(bundle))
    assert encoder is not None
    yield encoder
    encoder.workers.close()


def draw(folder: Path, count: int) -> list[Picture]:
    """Pictures of noise, of many sizes."""
    rng = np.random.default_rng(1)
    for number in range(count):
        pixels = rng.integers(0, 256, (*rng.integers(16, 40, 2), 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [Picture(folder / f"{number}.png", f"{number}.png") for number in range(count)]


def test_a_bundle_says_what_it_is(opened: BundleEncoder, bundle: Path) -> None:
    manifest = open_bundle(bundle).manifest
    assert (opened.name, opened.space) == ("tiny at step 1 (bundle)", Lorentz(0.7))
    assert (opened.fingerprint, opened.logit_scale) == (manifest.fingerprint, 9.0)
    expected = {"kind": "bundle", "step": 1, "side": 16, "precision": "fp32", "family": "hyper3"}
    assert expected.items() <= opened.about.items()
    assert str(opened.about["runtime"]).startswith("onnxruntime ")


def test_a_bundle_encoder_keeps_the_order_of_texts_and_pictures(
    opened: BundleEncoder, tmp_path: Path
) -> None:
    texts = ["a dog", "a red apple on a house", "cat", "the blue dog"]
    together = opened.texts(texts)
    alone = np.concatenate([opened.texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    pictures = draw(tmp_path, 37)
    squares = np.stack([picture.square(16) for picture in pictures])
    expected = opened.encoder.images(squares).tangents
    np.testing.assert_allclose(opened.images(pictures).tangents, expected, rtol=1e-5, atol=1e-6)
    assert opened.texts([]).shape == opened.images([]).tangents.shape == (0, 6)


def test_a_picture_that_cannot_be_read_spoils_no_other_of_a_bundle(
    opened: BundleEncoder, tmp_path: Path
) -> None:
    pictures = draw(tmp_path, 20)
    expected = opened.images(pictures).tangents
    torn = [*range(8, 16), 17]  # a whole run of the graph, and one of another
    for row in torn:
        pictures[row].file.write_bytes(pictures[row].file.read_bytes()[:70])
    pictures[3].file.unlink()
    found = opened.images(pictures)
    assert sorted(found.faults) == [3, *torn]
    assert str(pictures[3].file) in found.faults[3]
    assert np.isnan(found.tangents[[3, *torn]]).all()
    good = np.setdiff1d(np.arange(20), [3, *torn])
    np.testing.assert_allclose(found.tangents[good], expected[good], rtol=1e-5, atol=1e-6)


def test_a_folder_that_is_no_bundle_has_no_bundle_encoder(tmp_path: Path) -> None:
    assert open_bundle_encoder(str(tmp_path)) is None
    (tmp_path / "manifest.json").write_text("{}")  # of a data set, say
    assert open_bundle_encoder(str(tmp_path)) is None


def test_the_evaluation_finds_the_encoder_of_a_bundle(bundle: Path) -> None:
    encoder = open_encoder(str(bundle))
    assert isinstance(encoder, BundleEncoder)
    encoder.workers.close()


def test_a_damaged_bundle_is_told_what_it_lacks(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    for name in ("image.onnx", "manifest.json"):
        (copy / name).unlink()
        with pytest.raises(BundleError, match=name.replace("image.onnx", "image.onnx is missing")):
            open_encoder(str(copy))


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
