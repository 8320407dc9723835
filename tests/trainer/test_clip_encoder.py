"""An open_clip model as an encoder: a small one, registered for these tests; no network."""

import json
import pickle
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from core.errors import CheckpointError, ConfigError
from core.evaluation.encoder import open_encoder
from core.evaluation.pictures import Picture
from core.spaces import Euclidean
from trainer.clip_encoder import ClipEncoder, open_clip_encoder

NAME = "hyper3-tiny"
CONFIG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {
        "context_length": 20, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def tiny(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("models") / f"{NAME}.json"
    file.write_text(json.dumps(CONFIG))
    open_clip.add_model_config(file)


@pytest.fixture
def encoder() -> ClipEncoder:
    found = open_clip_encoder(f"open_clip:{NAME}:random")
    assert found is not None
    return found


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    rng = np.random.default_rng(0)
    for number, size in enumerate([(32, 32), (50, 30), (20, 60)]):
        pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return [Picture(tmp_path / f"{number}.png", f"{number}.png") for number in range(3)]


def fresh_weights(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    model = open_clip.create_model(NAME)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_features_are_those_that_open_clip_gives(pictures: list[Picture], tmp_path: Path) -> None:
    weights = fresh_weights(3)
    save_file(weights, tmp_path / "three.safetensors")
    found = open_clip_encoder(f"open_clip:{NAME}:{tmp_path / 'three.safetensors'}")
    assert found is not None
    model, _, transform = open_clip.create_model_and_transforms(NAME)
    model.load_state_dict(weights)
    model.eval()
    with torch.inference_mode():
        pixels = transform(Image.open(pictures[0].file))[None]  # of its own side: not resized
        image = model.encode_image(pixels).numpy()
        text = model.encode_text(open_clip.get_tokenizer(NAME)(["A red dog, running."])).numpy()
    np.testing.assert_allclose(found.images(pictures).tangents[:1], image, atol=1e-5)
    np.testing.assert_allclose(found.texts(["A red dog, running."]), text, atol=1e-5)
    assert found.logit_scale == pytest.approx(1 / 0.07, rel=1e-5)


def test_it_says_what_it_is(encoder: ClipEncoder) -> None:
    assert encoder.name == f"{NAME} random"
    assert encoder.space == Euclidean()
    expected = {"kind": "open_clip", "model": NAME, "weights": "random", "side": 32}
    assert expected.items() <= encoder.about.items()
    assert open_encoder(f"open_clip:{NAME}:random").fingerprint == encoder.fingerprint


def test_a_bad_picture_spoils_no_other(encoder: ClipEncoder, pictures: list[Picture]) -> None:
    broken = pictures[0].file.with_name("broken.png")
    broken.write_bytes(pictures[0].file.read_bytes()[:100])
    gone = pictures[0].file.with_name("gone.png")
    mixed = [pictures[0], Picture(broken, "b"), pictures[1], Picture(gone, "g"), pictures[2]]
    found = encoder.images(mixed)
    assert np.isnan(found.tangents).all(axis=1).tolist() == [False, True, False, True, False]
    assert sorted(found.faults) == [1, 3]
    assert str(broken) in found.faults[1]
    assert str(gone) in found.faults[3]
    np.testing.assert_allclose(
        found.tangents[[0, 2, 4]], encoder.images(pictures).tangents, atol=1e-5
    )


def test_nothing_gives_no_rows(encoder: ClipEncoder) -> None:
    assert encoder.images([]).tangents.shape == encoder.texts([]).shape == (0, 24)


def test_the_fingerprint_is_that_of_the_weights(tmp_path: Path) -> None:
    weights = fresh_weights(1)
    torch.save(weights, tmp_path / "a.pt")
    save_file(weights, tmp_path / "b.safetensors")
    weights["logit_scale"] += 1e-3
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "c.pt")
    a, b, c = (
        open_encoder(f"open_clip:{NAME}:{tmp_path / name}").fingerprint
        for name in ("a.pt", "b.safetensors", "c.pt")
    )
    assert a == b
    assert a != c


class Explosive:
    """Pickled, it writes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.file,)


def test_a_file_that_would_run_code_is_refused_unread(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    torch.save({"state_dict": fresh_weights(0), "more": Explosive(trace)}, tmp_path / "evil.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Explosive(trace)))
    for name in ("evil.pt", "raw.pt"):
        with pytest.raises(CheckpointError, match=rf"{name}: no file of tensors alone.*state_dict"):
            open_clip_encoder(f"open_clip:{NAME}:{tmp_path / name}")
    assert not trace.exists()


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors", "w.npz", "w"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_a_file_that_holds_no_weights_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        open_clip_encoder(f"open_clip:{NAME}:{tmp_path / name}")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    weights = fresh_weights(0)
    del weights["logit_scale"], weights["visual.proj"]
    save_file(weights, tmp_path / "half.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({}, tmp_path / "empty.pt")
    for name in ("half.safetensors", "list.pt", "empty.pt"):
        with pytest.raises(CheckpointError, match=rf"{name}: not weights of {NAME}: "):
            open_clip_encoder(f"open_clip:{NAME}:{tmp_path / name}")
    with pytest.raises(CheckpointError, match=r"Missing key.*logit_scale"):
        open_clip_encoder(f"open_clip:{NAME}:{tmp_path / 'half.safetensors'}")


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("open_clip:ViT-B32:openai", r"no model 'ViT-B32'; near it: .*ViT-B-32"),
        ("open_clip:", r"no model ''"),
        ("open_clip:hf-hub:someone/model", r"no model 'hf-hub'"),
        (f"open_clip:{NAME}", rf"no weights are named; write open_clip:{NAME}:WEIGHTS .*random"),
        (f"open_clip:{NAME}:", r"no weights are named"),
        ("open_clip:ViT-B-32:opnai", r"no file and no tag 'opnai'; .*tags, such as openai"),
        (f"open_clip:{NAME}:lost.pt", r"no file and no tag 'lost.pt'"),
    ],
)
def test_a_wrong_name_says_what_is_right(target: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        open_encoder(target)


def test_weights_of_another_activation_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag's weights are at hand, as it were: the check comes before they are read."""
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *_, **__: "unread")
    with pytest.raises(ConfigError, match=r"QuickGELU mismatch.*with or without -quickgelu"):
        open_clip_encoder("open_clip:ViT-B-32:openai")


def test_a_download_that_fails_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(open_clip.factory, "download_pretrained", fail)
    with pytest.raises(
        ConfigError, match=r"RN50-quickgelu:openai: .*no network; without a network, name"
    ):
        open_clip_encoder("open_clip:RN50-quickgelu:openai")


def test_another_target_is_not_its_business() -> None:
    assert open_clip_encoder("runs/demo") is None
