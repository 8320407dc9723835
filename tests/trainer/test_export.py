"""A bundle computes what the checkpoint does, or is not written."""

from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from rich.console import Console

from core.bundle import open_bundle
from core.errors import BundleError, CheckpointError, ParityError
from trainer import checkpoint
from trainer import export as exporter
from trainer.config import Recipe
from trainer.encoder import open_checkpoint
from trainer.model import DualEncoder
from trainer.run import train


@pytest.fixture
def run(recipe: Recipe) -> Path:
    train(recipe, Console(file=StringIO()))
    return recipe.folder


def test_a_bundle_is_whole_and_without_the_pooling(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    manifest = exporter.export(checkpoint.find(run), out)
    bundle = open_bundle(out)
    assert bundle.manifest == manifest
    assert manifest.parity.worst_error <= exporter.PARITY_BOUND
    assert manifest.parity.samples == 24
    assert sorted(path.name for path in out.iterdir()) == [
        "image.onnx", "manifest.json", "text.onnx", "tokenizer.json",
    ]  # fmt: skip
    for graph in (bundle.image_graph, bundle.text_graph):
        names = {weight.name for weight in onnx.load(graph).graph.initializer}
        assert names
        assert not any("pool" in name for name in names)


def test_graphs_take_any_batch_and_any_length(run: Path, tmp_path: Path) -> None:
    import onnxruntime  # noqa: PLC0415

    out = tmp_path / "bundle"
    exporter.export(checkpoint.find(run), out)
    encoder = open_checkpoint(str(run))
    assert encoder is not None
    image = onnxruntime.InferenceSession(out / "image.onnx")
    text = onnxruntime.InferenceSession(out / "text.onnx")
    rng = np.random.default_rng(0)
    for count in (1, 3, 17):
        pixels = rng.normal(size=(count, 3, 32, 32)).astype(np.float32)
        tangent, point = image.run(["tangent", "point"], {"pixels": pixels})
        assert tangent.shape == (count, 16)
        np.testing.assert_allclose(point, encoder.space.lift(tangent), atol=1e-5)
    for length in (2, 5, 40, 77):
        tokens = rng.integers(1, 49_000, (3, length))
        tokens[:, -1] = 49_407
        (alone,) = text.run(["point"], {"tokens": tokens[:1]})
        padded = np.zeros((3, 77), np.int64)
        padded[:, :length] = tokens
        (together,) = text.run(["point"], {"tokens": padded})
        np.testing.assert_allclose(alone[0], together[0], atol=1e-5)


def test_a_graph_that_differs_is_refused_and_nothing_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter is made to write the graph of a model that was altered on the way."""
    write = exporter._write_graphs

    def altered(model: DualEncoder, probe: exporter._Probe, folder: Path) -> None:
        bias = model.image_proj.weight.data.clone()
        model.image_proj.weight.data.mul_(1.01)
        write(model, probe, folder)
        model.image_proj.weight.data.copy_(bias)

    monkeypatch.setattr(exporter, "_write_graphs", altered)
    with pytest.raises(ParityError, match="no bundle was written"):
        exporter.export(checkpoint.find(run), tmp_path / "bundle")
    assert list(tmp_path.glob("*bundle*")) == []


def test_what_is_no_bundle_is_never_removed(run: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="not a bundle alone"):
        exporter.export(checkpoint.find(run), taken, force=True)
    assert (taken / "thesis.txt").read_text() == "years of work"


def test_a_folder_that_holds_more_than_a_bundle_is_never_removed(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    exporter.export(checkpoint.find(run), out)
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"thesis\.txt"):
        exporter.export(checkpoint.find(run), out, force=True)
    data = tmp_path / "data"
    (data / "train").mkdir(parents=True)
    (data / "manifest.json").write_text("{}")
    with pytest.raises(BundleError, match="train"):
        exporter.export(checkpoint.find(run), data, force=True)
    assert (data / "train").is_dir()


def test_a_bundle_of_the_same_weights_is_left_and_of_others_kept_unless_forced(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bundle"
    first, last = (checkpoint.read(path) for path in sorted((run / "checkpoints").iterdir()))
    manifest = exporter.export(first, out)
    written = (out / "manifest.json").stat().st_mtime_ns
    assert exporter.export(first, out) == manifest
    assert (out / "manifest.json").stat().st_mtime_ns == written
    with pytest.raises(BundleError, match="--force"):
        exporter.export(last, out)
    assert exporter.export(last, out, force=True).step == last.step


def test_an_altered_file_of_a_bundle_is_named(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    exporter.export(checkpoint.find(run), out)
    with (out / "text.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BundleError, match=r"text\.onnx: altered"):
        open_bundle(out)


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        checkpoint.find(tmp_path)
