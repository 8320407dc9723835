"""One optimizer step, and one pass over held-out data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from core import lorentz
from core.errors import DataError, TrainingDiverged
from core.evaluation.retrieval import retrieval
from core.image import IMAGENET_MEAN, IMAGENET_STD
from trainer.augment import augment, to_float
from trainer.batch import Batch, Unusable
from trainer.config import Recipe
from trainer.health import measure
from trainer.model import Hyper3
from trainer.objectives.hyper3 import hyper3_objective
from trainer.objectives.nodes import Nodes


@dataclass(frozen=True)
class StepResult:
    """Scalars of a step, still on the device."""

    terms: dict[str, Tensor]
    nodes: Nodes
    grad_norm: Tensor


def train_step(
    model: Hyper3,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    generator: torch.Generator,
) -> StepResult:
    """Take one optimizer step.

    Raises:
        TrainingDiverged: The gradient is not finite; the weights are as before.
    """
    optimizer.zero_grad(set_to_none=True)
    images = normalise(augment(batch.pixels, recipe.augment, generator))
    terms, nodes = losses(model, batch, images, recipe)
    terms["loss"].backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), recipe.optim.max_grad_norm)
    if not grad_norm.isfinite():  # the step's one wait for the device
        named = ", ".join(f"{name} {value.item():.4g}" for name, value in terms.items())
        raise TrainingDiverged(
            f"gradient norm is {grad_norm.item()}; lower optim.peak_lr. Terms: {named}"
        )
    optimizer.step()
    model.clamp_scalars()
    return StepResult({name: term.detach() for name, term in terms.items()}, nodes, grad_norm)


def losses(
    model: Hyper3, batch: Batch, images: Tensor, recipe: Recipe
) -> tuple[dict[str, Tensor], Nodes]:
    """Every term of the objective on normalised pictures, and the nodes it was taken of."""
    device = images.device.type
    with torch.autocast(device, torch.bfloat16, enabled=recipe.optim.precision == "bf16"):
        nodes = model.nodes(batch, images, queries=recipe.objective.query_weight > 0)
    # Distances lose digits in bfloat16 that no scale gives back.
    with torch.autocast(device, enabled=False):
        terms = hyper3_objective(nodes, model.scales(), model.curvature, recipe.objective)
    return terms, nodes


@dataclass(frozen=True)
class Evaluation:
    """Mean losses, radii, and recalls (0 to 100) of held-out data."""

    numbers: dict[str, float]
    skipped: tuple[str, ...]  # samples that were left out, and why


@torch.no_grad()
def evaluate(
    model: Hyper3, batches: Iterable[Batch | Unusable], recipe: Recipe, device: torch.device
) -> Evaluation:
    """Losses and retrieval of held-out batches, with running statistics and no augmentation.

    Raises:
        DataError: No held-out sample can be used.
    """
    model.eval()
    collected: list[dict[str, float]] = []
    sizes: list[int] = []
    images, texts = [], []
    skipped: list[str] = []
    for loaded in batches:
        skipped += loaded.skipped
        if isinstance(loaded, Unusable):
            continue
        batch = loaded.to(device)
        terms, nodes = losses(model, batch, normalise(to_float(batch.pixels)), recipe)
        collected.append(
            {name: float(value) for name, value in (terms | measure(model, nodes)).items()}
        )
        sizes.append(len(batch))
        images.append(nodes.images.float().cpu().numpy())
        texts.append(nodes.texts.float().cpu().numpy())
    model.train()
    if not collected:
        raise DataError(f"no held-out sample can be used: {skipped[0]}")
    return Evaluation(_means(collected, sizes) | _recalls(model, images, texts), tuple(skipped))


def normalise(images: Tensor) -> Tensor:
    """Pictures within [0, 1] by the mean and deviation that the bundle will name, in place."""
    mean = images.new_tensor(IMAGENET_MEAN).view(1, 3, 1, 1)
    deviation = images.new_tensor(IMAGENET_STD).view(1, 3, 1, 1)
    return images.sub_(mean).div_(deviation)


def _recalls(
    model: Hyper3, images: Sequence[lorentz.Array], texts: Sequence[lorentz.Array]
) -> dict[str, float]:
    image, text = np.concatenate(images), np.concatenate(texts)
    result = retrieval(image, text, np.arange(len(text)), float(model.curvature))
    return {
        f"recall/{direction}@{k}": 100 * value
        for direction, by_k in (
            ("image_to_text", result.image_to_text),
            ("text_to_image", result.text_to_image),
        )
        for k, value in by_k.items()
    }


def _means(rows: Sequence[dict[str, float]], sizes: Sequence[int]) -> dict[str, float]:
    """Means over batches of the given sizes."""
    names = dict.fromkeys(name for row in rows for name in row)
    means = {}
    for name in names:
        having = [(row[name], size) for row, size in zip(rows, sizes, strict=True) if name in row]
        values, weights = zip(*having, strict=True)
        means[name] = float(np.average(values, weights=weights))
    return means
