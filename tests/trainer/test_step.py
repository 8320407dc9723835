"""What a step asks of the device: one wait, digits of float32, and layouts that stay."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from core.errors import ConfigError
from core.text import TextSpec, Tokenizer
from trainer.config import Recipe
from trainer.data.augment import normalise, to_float, together
from trainer.data.batch import Batch, Decoded, collate
from trainer.distributed import World, exchange
from trainer.model import DualEncoder
from trainer.optim import build_optimizer
from trainer.sections import ConvTower
from trainer.speed import ready, require_compiler
from trainer.step import Training, exact_products, train_step
from trainer.towers import build_image_tower
from trainer.vocabulary import write_tokenizer

SIDE = 32
VIT = {"kind": "timm", "name": "test_vit", "patch_dropout": 0.5}
CONV = {"kind": "conv", "widths": [8, 16]}

# What reads a value of a tensor to decide on the host, or makes a shape of values.
WAITS = {
    "aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero", "aten::equal",
    "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
}  # fmt: skip

STEPS: dict[str, dict[str, Any]] = {
    "hyper3": {"objective": {"kind": "hyper3", "mask_repeats": True}, "image_tower": VIT},
    "hyper3 in pieces": {"image_tower": VIT, "speed": {"micro_batch": 2}},
    "hyper3 recomputed": {"image_tower": VIT, "speed": {"checkpointing": True}},
    "hyper3 of means": {
        "objective": {"kind": "hyper3", "visual_nodes": "mean", "query_normaliser": "weight"},
        "image_tower": CONV,
    },
    "uncha": {"objective": {"kind": "uncha"}, "image_tower": CONV},
    "hycoclip": {"objective": {"kind": "hycoclip", "mask_repeats": True}, "image_tower": CONV},
    "phyclip": {"objective": {"kind": "phyclip", "factors": 4}, "image_tower": CONV},
    "meru": {"objective": {"kind": "meru"}, "image_tower": CONV},
    "atmg": {"objective": {"kind": "atmg", "mask_repeats": True}, "image_tower": CONV},
    "clip with queries": {"objective": {"kind": "clip", "query_weight": 1.0}, "image_tower": CONV},
    "siglip": {"objective": {"kind": "clip", "contrast": "sigmoid"}, "image_tower": CONV},
}  # fmt: skip


class Watch(TorchDispatchMode):
    """Notes what makes a host wait, and how exactly each product is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.products: list[str] = []

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # torch's signature
        name = func.name().partition(".")[0]
        by_mask = name == "aten::index" and any(
            one is not None and one.dtype in {torch.bool, torch.uint8} for one in args[1]
        )
        if name in WAITS or by_mask:
            self.waits.append(name)
        if name in {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"}:
            self.products.append(torch.backends.cuda.matmul.fp32_precision)
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    write_tokenizer(file)
    return Tokenizer(file, TextSpec())


def training_of(device: str = "cpu", **sections: Any) -> Training:
    recipe = Recipe.model_validate({
        "name": "tiny",
        "data": {"train": "nowhere", "side": SIDE},
        "text_tower": {"width": 32, "layers": 2, "heads": 2},
        "model": {"dim": 16, "pooling_heads": 4},
        "optim": {"batch_size": 4, "steps": 4, "warmup_steps": 1, "precision": "fp32"},
        **sections,
    })  # fmt: skip
    torch.manual_seed(0)
    model = DualEncoder(recipe).to(device)
    optimizer = build_optimizer(model, recipe.optim)
    return ready(Training(recipe, model, model, optimizer, World()), torch.device(device))


def batch_of(training: Training, tokenizer: Tokenizer) -> Batch:
    draw = np.random.default_rng(0)

    def picture() -> Any:
        return draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

    texts: tuple[tuple[str, list[str]], ...] = (
        ("A dog runs after a red ball on the beach. It is fast.", ["a dog", "a red ball"]),
        ("Two cats on a sofa", ["a cat", "a sofa", "a dog"]),
        ("A bus", []),
        ("A man who reads a newspaper beside a lamp. The lamp is on.", ["a lamp"]),
    )
    samples = [
        Decoded(picture(), text, [picture() for _ in names], names, names) for text, names in texts
    ]
    return collate(samples, tokenizer, training.recipe.needed, ())


def take(training: Training, batch: Batch, number: int) -> None:
    device = training.model.image_proj.weight.device
    shares = exchange(batch, training.world, query_images=True, stop=False)
    generator = torch.Generator(device).manual_seed(number)
    assert train_step(training, batch.to(device), shares, generator).taken


@pytest.fixture
def asked_for_tf32() -> Iterator[None]:
    """A process that asks for fast products, as many scripts do."""
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.usefixtures("asked_for_tf32")
def test_a_step_waits_once_and_all_its_products_keep_their_digits(
    name: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu = "trainer.data.augment.one_by_one"
    monkeypatch.setattr(as_on_a_gpu, lambda *given: normalise(together(*given[:2]), given[2]))
    training = training_of(**STEPS[name])
    batch = batch_of(training, tokenizer)
    with Watch() as watch:
        take(training, batch, 0)
    assert watch.waits == ["aten::_local_scalar_dense"]  # whether the gradient is finite
    assert len(watch.products) > 10
    assert set(watch.products) == {"ieee"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["hyper3", "hyper3 in pieces", "meru"])
def test_so_it_does_on_a_gpu(name: str, tokenizer: Tokenizer) -> None:
    training = training_of("cuda", **STEPS[name])
    batch = batch_of(training, tokenizer)
    take(training, batch, 0)  # brings constants to the device
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as said:
            take(training, batch, 1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(said) == 1


@pytest.mark.parametrize("asked", ["highest", "high"])
def test_what_a_process_asked_for_holds_again_behind_a_step(asked: str) -> None:
    torch.set_float32_matmul_precision(asked)
    try:
        before = torch.backends.cuda.matmul.fp32_precision
        with exact_products():
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.get_float32_matmul_precision() == asked
        assert torch.backends.cuda.matmul.fp32_precision == before
    finally:
        torch.set_float32_matmul_precision("highest")


def test_maps_of_convolutions_stay_channels_last() -> None:
    """As pictures come: otherwise each layer would turn its map around and back."""
    tower = build_image_tower(ConvTower(kind="conv", widths=(8, 16)), SIDE)
    layouts: list[bool] = []

    def note(_layer: nn.Module, _given: tuple[Tensor, ...], x: Tensor) -> None:
        layouts.append(x.is_contiguous(memory_format=torch.channels_last))

    for layer in tower.modules():
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
            layer.register_forward_hook(note)
    tower(to_float(torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8)))
    assert layouts == [True] * 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's
def test_compiled_towers_take_the_same_steps_and_are_compiled_a_few_times(
    tokenizer: Tokenizer,
) -> None:
    torch._dynamo.reset()
    image = {"kind": "timm", "name": "test_vit"}
    plain, compiled = (
        training_of(image_tower=image, speed={"compile": on}) for on in (False, True)
    )
    assert plain.model.state_dict().keys() == compiled.model.state_dict().keys()
    batch = batch_of(plain, tokenizer)
    other = collate(  # of other lengths, and another number of pictures
        [Decoded(np.zeros((SIDE, SIDE, 3), np.uint8), " ".join(["dog"] * n), [], [], [])
         for n in range(3, 13)],
        tokenizer, plain.recipe.needed, (),
    )  # fmt: skip
    for number, one in enumerate((batch, other, batch)):
        for training in (plain, compiled):
            take(training, one, number)
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(compiled.model.state_dict()[name], value, rtol=1e-4, atol=2e-4)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert 0 < graphs <= 8  # halves of a text's layer, and a layer of the image's, not one a batch


@pytest.mark.slow
def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    with pytest.raises(ConfigError, match=r"speed.compile: .* install a C\+\+ compiler"):
        require_compiler(torch.device("cpu"))
