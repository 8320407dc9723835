"""Golden towers: form, first weights and states; see README.md for how they were made."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainer.sections import TextTower as TextSection
from trainer.sections import TimmTower as TimmSection
from trainer.towers import TextTower, TimmTower, sincos_positions

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("towers.json").read_text())

MERUS_NAMES = {
    "posit_embed": "positional_embedding",
    "attn_mask": "attn_mask",
    "token_embed.weight": "token_embedding.weight",
    "ln_final.weight": "ln_final.weight",
    "ln_final.bias": "ln_final.bias",
}  # those of the blocks get a prefix


@pytest.fixture(scope="module", params=["vit_base_patch16_224", "vit_small_mocov3_patch16_224"])
def vit(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Any]:
    """What the family's model is, and ours; its small one is timm's with twelve heads."""
    golden = GOLDEN["vit"][request.param]
    name = request.param.replace("_mocov3", "")
    torch.manual_seed(0)
    section = TimmSection(kind="timm", name=name, heads=golden["heads"])
    return golden, TimmTower(section, 224).backbone


def test_a_vision_transformer_has_the_form_of_the_family(vit: tuple[dict[str, Any], Any]) -> None:
    golden, ours = vit
    state = ours.state_dict()
    assert len(state) == golden["keys"]
    assert {name: list(state[name].shape) for name in golden["shapes"]} == golden["shapes"]
    assert sum(parameter.numel() for parameter in ours.parameters()) == golden["params"]
    assert {block.attn.num_heads for block in ours.blocks} == {golden["heads"]}
    norms = [module for module in ours.modules() if isinstance(module, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {golden["norm_eps"]}


def test_the_positions_are_fixed_and_those_of_the_family(vit: tuple[dict[str, Any], Any]) -> None:
    golden, ours = vit[0]["positions"], vit[1]
    assert not ours.pos_embed.requires_grad
    table = ours.pos_embed[0].double().numpy()
    rows, width = golden["shape"]
    np.testing.assert_array_equal(table, sincos_positions(width, (14, 14), 1)[0].numpy())
    assert table.shape == (rows, width)
    columns = [0, 1, 2, width // 4, width // 4 + 1, width // 2, width // 2 + 1, 3 * width // 4, -1]
    for row, values in golden["rows"].items():
        np.testing.assert_allclose(table[int(row), columns], values, atol=1e-6)
    assert table.sum() == pytest.approx(golden["sum"], rel=1e-6)
    assert np.abs(table).sum() == pytest.approx(golden["abs_sum"], rel=1e-6)
    assert not table[0].any()


def test_a_vision_transformer_starts_as_the_familys(vit: tuple[dict[str, Any], Any]) -> None:
    """Within four deviations of the difference of two draws; both sizes start alike."""
    state = vit[1].state_dict()
    for name, (mean, std) in GOLDEN["vit_start"].items():
        values = state[name]
        spread = (2 / values.numel()) ** 0.5
        assert values.mean().item() == pytest.approx(mean, abs=4 * spread * std)
        assert values.std().item() == pytest.approx(std, rel=4 * spread / 2**0.5)


def test_the_text_tower_has_the_form_of_merus_and_starts_as_it_does() -> None:
    golden = GOLDEN["meru_text"]
    torch.manual_seed(0)
    tower = TextTower(TextSection()).transformer
    assert sum(parameter.numel() for parameter in tower.parameters()) == golden["params"]
    tensors: dict[str, Tensor] = {**dict(tower.named_parameters()), **dict(tower.named_buffers())}

    def ours(name: str) -> Tensor:
        return tensors[MERUS_NAMES.get(name, f"transformer.{name}")]

    assert {name: list(ours(name).shape) for name in golden["shapes"]} == golden["shapes"]
    for name, std in golden["std"].items():
        assert ours(name).std().item() == pytest.approx(std, rel=0.01)


def test_the_text_tower_starts_as_hugging_faces_does_when_asked() -> None:
    """The deviation of every tensor of CLIPTextModel, to what two draws differ by."""
    golden = GOLDEN["hf_text"]
    torch.manual_seed(0)
    tower = TextTower(TextSection(init="hf")).transformer
    assert sum(parameter.numel() for parameter in tower.parameters()) == golden["params"]
    ours = as_hugging_face(dict(tower.named_parameters()))
    assert ours.keys() == golden["std"].keys()
    for name, std in golden["std"].items():
        assert ours[name].std().item() == pytest.approx(std, rel=0.015), name


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_states_are_those_of_hugging_faces_model_of_the_same_weights(activation: Any) -> None:
    golden = GOLDEN["hf_states"]
    section = TextSection(width=32, layers=2, heads=4, activation=activation)
    tower = TextTower(section).double().eval()
    shapes = {name: tuple(p.shape) for name, p in tower.transformer.named_parameters()}
    tower.transformer.load_state_dict(waves(shapes))
    groups = [torch.tensor([ids]) for ids in golden["texts"]]
    with torch.no_grad():
        states = tower(*groups)
    expected = torch.tensor(golden[activation], dtype=torch.float64)
    torch.testing.assert_close(states[:, ::4], expected, rtol=0, atol=1e-10)


def waves(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Weights by a formula, for two programs to agree on without a file."""
    made = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        place = torch.arange(math.prod(shape), dtype=torch.float64)
        wave = torch.sin(place * (1 + number / 7)).reshape(shape)
        is_gain = "ln_" in name and name.endswith("weight")
        made[name] = 1 + wave / 4 if is_gain else wave / 2
    return made


def as_hugging_face(ours: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The same tensors by the names of CLIPTextModel, which keeps q, k and v apart."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        found = name.replace("transformer.resblocks.", "encoder.layers.")
        for one, other in (
            ("token_embedding", "embeddings.token_embedding"),
            ("positional_embedding", "embeddings.position_embedding.weight"),
            ("ln_final", "final_layer_norm"),
            ("ln_", "layer_norm"),
            ("attn.out_proj", "self_attn.out_proj"),
            ("mlp.c_fc", "mlp.fc1"),
            ("mlp.c_proj", "mlp.fc2"),
        ):
            found = found.replace(one, other)
        before, packed, kind = found.partition("attn.in_proj_")
        if packed:
            for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                renamed[f"{before}self_attn.{letter}_proj.{kind}"] = part
        else:
            renamed[found] = tensor
    return renamed
