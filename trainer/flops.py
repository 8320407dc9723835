"""Floating-point operations of a training step, and what devices can do of them in a second.

Model FLOPs (A. Chowdhery et al., PaLM, arXiv:2204.02311, appendix B): what the towers have to
compute, a multiplication and an addition being two. Layers that are computed again to save memory,
or once more for gradient caching, count once, so that the share of a device's peak (MFU) only ever
rises with speed. The objective, projections and elementwise work are left out: under 1% of a
ViT-B/16.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from core.errors import ConfigError
from trainer.config import Recipe
from trainer.data.batch import Batch, Seen
from trainer.model import DualEncoder
from trainer.sections import TextTower

_FORWARD, _TRAINED = 1, 3
"""A backward pass is two products for each of the forward one: by inputs and by weights."""

_PEAKS = (
    ("B200", 2250e12),
    ("H200 NVL", 835e12),
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("L4", 121e12),
    ("A10", 125e12),
)
"""Dense bfloat16 FLOP/s by words of the device's name, the narrower before the wider.

Of NVIDIA's data sheets, which mostly print twice as much, for sparse matrices.
"""


@dataclass(frozen=True)
class Cost:
    """FLOPs of a training step by what is in its batch, forward and backward."""

    picture: float  # a whole or a part
    query: float  # its pooling, of a query that is no root
    text_tower: TextTower

    def of(self, batch: Batch) -> float:
        """FLOPs of a step on this batch."""
        pictures = 0 if isinstance(batch.pictures, Seen) else len(batch.pictures)
        shapes = [tuple(group.shape) for group in batch.tokens]
        texts = sum(count * text_flops(self.text_tower, length) for count, length in shapes)
        factor = _FORWARD if self.text_tower.frozen else _TRAINED
        return pictures * self.picture + len(batch.links.query_text) * self.query + factor * texts


def cost_of(recipe: Recipe) -> Cost | None:
    """The cost of a recipe's steps, counted on a model without numbers.

    Returns:
        None where timm cannot build the image tower without numbers.
    """
    side = recipe.data.side
    try:
        with torch.device("meta"), torch.no_grad():
            model = DualEncoder(recipe)
            pictures = torch.zeros(2, 3, side, side)  # batch norms refuse a single cell
            seen, pictures_flops = _counted(lambda: model.image_tower(pictures))
            _, query_flops = _counted(lambda: _pool(model, seen.patches))
    except (ConfigError, RuntimeError):
        return None
    factor = _FORWARD if recipe.image_tower.frozen else _TRAINED
    picture_flops = pictures_flops / len(pictures)
    return Cost(factor * picture_flops, _TRAINED * query_flops, recipe.text_tower)


def text_flops(section: TextTower, length: int) -> int:
    """FLOPs of the text tower for one text, forward.

    A layer has 12 width² weights and attends from every token to all.
    """
    width = section.width
    return section.layers * length * (24 * width**2 + 4 * length * width)


def peak_of(device: torch.device) -> float | None:
    """What a device can do of dense bfloat16 products, FLOP/s; None where it is not known."""
    return peak_by_name(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


def peak_by_name(name: str) -> float | None:
    """The same by the name that CUDA gives a device; a slice of one (MIG) is not known."""
    words = set(re.split(r"[\s-]+", name))
    if "MIG" in words:
        return None
    return next((peak for known, peak in _PEAKS if words.issuperset(known.split())), None)


def _counted(run: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and its FLOPs."""
    with FlopCounterMode(display=False) as counter:
        result = run()
    return result, counter.get_total_flops()


def _pool(model: DualEncoder, patches: Tensor) -> Tensor | None:
    """The visual node of one query of one picture, where the objective has such nodes."""
    if model.pooling is None or not model.objective.needs_pooling:
        return None
    state, slot = torch.zeros(1, model.text_tower.width), torch.zeros(1, dtype=torch.int64)
    found: Tensor = model.pooling(patches[:1], state, slot, 1)
    return found
