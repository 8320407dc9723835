"""One optimizer step, and one pass over held-out data."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from core import lorentz
from core.errors import DataError
from core.evaluation.retrieval import retrieval
from trainer.config import Recipe
from trainer.data.augment import augment, normalise, to_float
from trainer.data.batch import Batch, Seen
from trainer.distributed import Shares, World, gather
from trainer.gradients import average, limit, total_norm
from trainer.health.attention import Glance, glance, watched
from trainer.health.measure import measure, radii
from trainer.micro import cut, encode, sow, take_back
from trainer.model import DualEncoder, Tangents
from trainer.objectives.loss import loss_terms
from trainer.objectives.nodes import Nodes

_WITHOUT_GRAPH = 4
"""How many times as many samples pass a tower at once where no layer's outputs are kept."""


@dataclass(frozen=True)
class StepResult:
    """Scalars of a step, still on the device."""

    terms: dict[str, Tensor]
    nodes: Nodes
    grad_norm: Tensor
    taken: bool  # not where the gradient is not finite: the weights are as before


@dataclass(frozen=True)
class Training:
    """What a step needs beside its batch."""

    recipe: Recipe
    model: DualEncoder
    spread: nn.Module  # the model itself, or wrapped for several processes
    optimizer: torch.optim.Optimizer
    world: World


@contextmanager
def exact_products() -> Iterator[None]:
    """Products of float32 matrices keep its digits, whatever the process asks for elsewhere.

    TF32 leaves 10 bits of a cosine, from which distances are taken. The way back has the same
    products, and so a whole step is within; towers in bfloat16 do not lose by it.
    """
    on_cpus: Any = torch.backends.mkldnn  # its `matmul` is not annotated
    products = (torch.backends.cuda.matmul, on_cpus.matmul)
    asked = [product.fp32_precision for product in products]
    torch.set_float32_matmul_precision("highest")  # sets both, and what older code looks at
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("high" if "tf32" in asked else "highest")
        for product, precision in zip(products, asked, strict=True):
            product.fp32_precision = precision


@exact_products()
def train_step(
    training: Training, batch: Batch, shares: Shares, generator: torch.Generator
) -> StepResult:
    """Take one optimizer step, unless the gradient is not finite.

    A step that is not taken leaves weights, the optimizer's state and the running statistics of
    batch norms as they were; the gradients stay for whoever asks what went wrong.

    Args:
        training: Model, optimizer and recipe.
        batch: This process's share, on the device.
        shares: How the shares of all processes make one batch.
        generator: Of the device. All that is random follows from its seed.
    """
    recipe, model = training.recipe, training.model
    training.optimizer.zero_grad(set_to_none=True)
    images = batch.pictures
    if not isinstance(images, Seen):
        images = augment(images, recipe.augment, generator, recipe.data)
    statistics = [buffer.clone() for buffer in model.buffers()]
    terms, nodes = backward(training, batch, images, shares, generator.initial_seed())
    grad_norm = total_norm(model)
    taken = bool(grad_norm.isfinite())  # the step's one wait for the device
    if taken:
        limit(model, recipe.optim.max_grad_norm, grad_norm)
        training.optimizer.step()
        model.clamp_scalars()
    else:
        _restore(model, statistics)
    detached = {name: term.detach() for name, term in terms.items()}
    return StepResult(detached, nodes, grad_norm, taken)


def backward(
    training: Training, batch: Batch, images: Tensor | Seen, shares: Shares, seed: int
) -> tuple[dict[str, Tensor], Nodes]:
    """Leave the gradients of the whole batch's loss, and return what `losses` does.

    Args:
        training: Model, recipe and processes; gradients that were there are added to.
        batch: This process's share, on the device.
        images: Augmented and normalised, or stored features.
        shares: How the shares of all processes make one batch.
        seed: What the towers draw follows from it.
    """
    recipe, model, world = training.recipe, training.model, training.world
    if recipe.speed.micro_batch:
        pieces = cut(batch, shares, recipe.speed.micro_batch)
        rounding = partial(_rounding, training, batch)
        states, found = encode(model, batch, images, pieces, rounding, seed)
        leaves = Tangents(*(kind.requires_grad_() for kind in found))
        terms, nodes = _objective(training, leaves, shares)
        (terms["loss"] + model.anchor()).backward()
        above = Tangents(*(_gradient(kind) for kind in leaves))
        take_back(model, batch, images, pieces, rounding, seed, states, above)
    else:
        sow(seed)
        terms, nodes = losses(training, batch, images, shares)
        counted = [buffer.clone() for buffer in model.buffers()]
        (terms["loss"] + model.anchor()).backward()
        if recipe.speed.checkpointing:  # layers that ran again have counted the batch again
            _restore(model, counted)
    if world.size > 1 and training.spread is model:
        average(model, world)
    return terms, nodes


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _restore(model: nn.Module, statistics: list[Tensor]) -> None:
    for buffer, before in zip(model.buffers(), statistics, strict=True):
        buffer.copy_(before)


def losses(
    training: Training, batch: Batch, images: Tensor | Seen, shares: Shares
) -> tuple[dict[str, Tensor], Nodes]:
    """Every term of the objective over all processes' pictures, and the nodes it was taken of.

    Where no graph is kept, the towers see the batch in pieces, if the recipe has any.
    """
    samples = training.recipe.speed.micro_batch
    if samples and not torch.is_grad_enabled():
        pieces = cut(batch, shares, _WITHOUT_GRAPH * samples)
        rounding = partial(_rounding, training, batch)
        _, tangents = encode(training.model, batch, images, pieces, rounding, seed=0)
    else:
        with _rounding(training, batch):
            tangents = training.spread(batch, images)
    return _objective(training, tangents, shares)


def _rounding(training: Training, batch: Batch) -> torch.autocast:
    """The context of the towers."""
    enabled = training.recipe.optim.precision == "bf16"
    return torch.autocast(batch.tokens[0].device.type, torch.bfloat16, enabled=enabled)


def _objective(
    training: Training, tangents: Tangents, shares: Shares
) -> tuple[dict[str, Tensor], Nodes]:
    device = tangents.images.device
    # Distances lose digits in bfloat16 that no scale gives back.
    with torch.autocast(device.type, enabled=False):
        everyone = gather(tangents, shares, training.world)
        nodes = training.model.nodes(everyone, shares.links.to(device))
        terms = loss_terms(nodes, training.model.scalars(), training.recipe.objective)
    return terms, nodes


@dataclass(frozen=True)
class Evaluation:
    """Mean losses, radii, and recalls (0 to 100) of held-out data."""

    numbers: dict[str, float]
    skipped: tuple[str, ...]  # samples that were left out, and why
    radii: dict[str, npt.NDArray[np.float32]]  # of every node of a kind
    glance: Glance | None  # where the queries of the first pictures look


@torch.no_grad()
@exact_products()
def evaluate(training: Training, batches: Iterable[Batch], device: torch.device) -> Evaluation:
    """Losses and retrieval of held-out batches, with running statistics and no augmentation.

    This process does it alone.

    Raises:
        DataError: No held-out sample can be used.
    """
    model = training.model
    alone = replace(training, spread=model, world=World())
    model.eval()
    collected: list[dict[str, float]] = []
    sizes: list[int] = []
    image_points, text_points = [], []
    skipped: list[str] = []
    spreads: list[dict[str, Tensor]] = []
    first: Batch | None = None
    with watched(model) as attention:
        for loaded in batches:
            skipped += loaded.skipped
            if not len(loaded):
                continue
            first = first or loaded
            batch = loaded.to(device)
            images = batch.pictures
            if not isinstance(images, Seen):
                images = normalise(to_float(images), training.recipe.data)
            terms, nodes = losses(alone, batch, images, Shares((), loaded.links, loaded.links))
            collected.append(
                {name: float(value) for name, value in (terms | measure(model, nodes)).items()}
            )
            spreads.append(radii(model, nodes))
            sizes.append(len(batch))
            image_points.append(nodes.images.float().cpu().numpy())
            text_points.append(nodes.texts.float().cpu().numpy())
    model.train()
    if first is None:
        raise DataError(f"no held-out sample can be used: {skipped[0]}")
    numbers = _means(collected, sizes) | _recalls(model, image_points, text_points)
    shown = glance(first, attention[0]) if attention else None
    return Evaluation(numbers, tuple(skipped), _joined(spreads), shown)


def _joined(rows: Sequence[dict[str, Tensor]]) -> dict[str, npt.NDArray[np.float32]]:
    """The values of all batches behind each other, by name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: torch.cat([row[name] for row in rows if name in row]).float().cpu().numpy()
        for name in names
    }


def _recalls(
    model: DualEncoder, images: Sequence[lorentz.Array], texts: Sequence[lorentz.Array]
) -> dict[str, float]:
    image, text = np.concatenate(images), np.concatenate(texts)
    result = retrieval(image, text, np.arange(len(text)), model.fixed_space())
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
