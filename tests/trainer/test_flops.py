"""What a step costs, against a count of the very operations."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from core.text import TextSpec
from trainer.config import Recipe
from trainer.data.batch import Batch
from trainer.data.loader import BatchDataset, Schedule, load_batches
from trainer.data.shards import find_shards, index_shards
from trainer.flops import cost_of, peak_by_name, text_flops
from trainer.model import DualEncoder
from trainer.sections import TextTower
from trainer.towers.text import TextTower as Tower
from trainer.vocabulary import write_tokenizer


def changed(recipe: Recipe, **sections: dict[str, Any]) -> Recipe:
    dump = recipe.model_dump()
    for name, values in sections.items():
        dump[name] |= values
    return Recipe.model_validate(dump)


def first_batch(recipe: Recipe, folder: Path) -> Batch:
    write_tokenizer(folder / "tokenizer.json")
    index = index_shards(find_shards(recipe.data.train))
    dataset = BatchDataset(
        index, folder / "tokenizer.json", TextSpec(), recipe.needed, recipe.run.seed
    )
    return next(load_batches(dataset, Schedule(index, 8, 0, 0, 1), workers=0))


def counted(recipe: Recipe, batch: Batch) -> int:
    """Products of a real forward and backward pass of the towers."""
    model = DualEncoder(recipe)
    pictures = torch.zeros(len(batch.pictures), 3, 32, 32)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        tangents = model(batch, pictures)
        torch.cat([kind.flatten() for kind in tangents]).sum().backward()
    total: int = counter.get_total_flops()
    return total


def test_a_step_costs_what_its_products_come_to(recipe: Recipe, tmp_path: Path) -> None:
    """But for projections, and for the gradient of pixels, which nobody computes."""
    wide = changed(recipe, text_tower={"width": 64, "layers": 2, "heads": 4})
    batch = first_batch(wide, tmp_path)
    cost = cost_of(wide)
    assert cost is not None
    assert cost.of(batch) == pytest.approx(counted(wide, batch), rel=0.03)


def test_a_text_costs_what_the_tower_multiplies() -> None:
    section = TextTower(width=64, layers=3, heads=4)
    with torch.device("meta"):
        tower, tokens = Tower(section), torch.zeros(5, 20, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        tower(tokens)
    assert counter.get_total_flops() == 5 * text_flops(section, 20)


def test_a_frozen_tower_costs_a_third(recipe: Recipe) -> None:
    trained = cost_of(recipe)
    frozen = cost_of(changed(recipe, image_tower={"frozen": True}))
    assert trained is not None
    assert frozen is not None
    assert 3 * frozen.picture == trained.picture


def test_the_paper_s_picture_costs_what_is_published_of_its_tower(recipe: Recipe) -> None:
    """17.6 G multiply-adds forward (A. Dosovitskiy et al.; timm's own table says 17.58)."""
    tower = {"kind": "timm", "name": "vit_base_patch16_224"}
    dump = recipe.model_dump() | {"image_tower": tower}
    dump["data"]["side"] = 224
    cost = cost_of(Recipe.model_validate(dump))
    assert cost is not None
    assert cost.picture == pytest.approx(6 * 17.58e9, rel=0.01)


def test_counting_draws_no_random_number(recipe: Recipe) -> None:
    before = torch.get_rng_state()
    cost_of(recipe)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_a_peak_is_told_of_whole_devices_that_are_known(name: str, peak: float | None) -> None:
    assert peak_by_name(name) == peak
