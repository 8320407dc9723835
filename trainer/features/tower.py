"""A frozen image tower, and the tables of what it gives.

A store's folder is named by a digest of the tower's weights and of all that decides what it sees,
so that a tower that has changed never meets what another one gave.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from core.errors import DataError
from core.image import Pixels
from trainer.config import Recipe
from trainer.data.augment import normalise, to_float
from trainer.data.batch import Seen
from trainer.features.table import Table

_FORM = 1  # of the files; another is another store


@dataclass(frozen=True)
class Store:
    """The tables of one tower, and how it is run."""

    recipe: Recipe
    tower: nn.Module
    device: torch.device
    folder: Path
    feature: Table
    patches: Table | None  # where an objective needs them

    @property
    def tables(self) -> list[Table]:
        """Features, and patches where they are needed."""
        return [self.feature, *([self.patches] if self.patches else [])]

    @property
    def shared(self) -> Path:
        """The folder of all towers."""
        return self.folder.parent


def open_store(recipe: Recipe, tower: nn.Module, device: torch.device) -> Store:
    """The store of a tower with these very weights, which need not be there yet.

    Raises:
        DataError: Half precision cannot hold what the tower gives.
    """
    if recipe.data.features is None:
        raise ValueError("the recipe names no data.features")
    side = recipe.data.side
    probe = see(recipe, tower, device, [np.zeros((side, side, 3), np.uint8)])
    folder = recipe.data.features / _fingerprint(recipe, tower, device)[:16]
    patches = Table(folder, "patches", tuple(probe.patches.shape[1:]))
    return Store(
        recipe, tower, device, folder,
        feature=Table(folder, "feature", tuple(probe.feature.shape[1:])),
        patches=patches if recipe.objective.needs_visual_nodes else None,
    )  # fmt: skip


def _fingerprint(recipe: Recipe, tower: nn.Module, device: torch.device) -> str:
    """sha256 of all that a feature depends on, the weights to the last bit."""
    digest = hashlib.sha256(json.dumps(about(recipe, device), sort_keys=True).encode())
    for name, value in sorted(tower.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def about(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """All that decides a feature, beside the picture and the weights."""
    return {
        "form": _FORM,
        "image_tower": recipe.image_tower.model_dump(
            mode="json", exclude={"frozen", "weights", "patch_dropout"}
        ),
        "data": recipe.data.model_dump(mode="json", include={"side", "fit", "mean", "std"}),
        "precision": "bf16" if _rounds(recipe, device) else "fp32",
    }


def _rounds(recipe: Recipe, device: torch.device) -> bool:
    """Whether the tower runs in bfloat16; on a CPU that saves little, and is done once."""
    return device.type != "cpu" and recipe.optim.precision == "bf16"


@torch.inference_mode()
def see(recipe: Recipe, tower: nn.Module, device: torch.device, squares: list[Pixels]) -> Seen:
    """What the tower gives, in half precision and on this host.

    Raises:
        DataError: A value is not finite, or over 65,504.
    """
    images = normalise(to_float(torch.from_numpy(np.stack(squares)).to(device)), recipe.data)
    with torch.autocast(device.type, torch.bfloat16, enabled=_rounds(recipe, device)):
        feature, patches = tower(images)
    kept = Seen(feature.half().cpu(), patches.half().cpu())
    if not all(values.isfinite().all() for values in kept):
        raise DataError(
            "a feature of the image tower is not finite, or over 65,504, which half precision "
            "cannot hold: run without data.features"
        )
    return kept
