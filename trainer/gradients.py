"""Gradients behind the backward pass: their mean over processes, their norm, and its limit.

A weight that processes share (`trainer.sharding`) has a gradient of which each holds its share,
the mean of all already.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from trainer.distributed import World, together

_BUCKET = 2**24  # numbers that are sent at once


@torch.no_grad()
def average(model: nn.Module, world: World) -> None:
    """Bring the gradients of all weights that every process holds whole to their mean."""
    for bucket in _buckets(_held_whole(model)):
        row = torch.cat([gradient.flatten() for gradient in bucket])
        with together():
            distributed.all_reduce(row)
        row /= world.size
        sizes = [gradient.numel() for gradient in bucket]
        for gradient, mean in zip(bucket, row.split(sizes), strict=True):
            gradient.copy_(mean.view(gradient.shape))


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of together at most `_BUCKET` numbers, or a larger one alone."""
    bucket: list[Tensor] = []
    held = 0
    for gradient in gradients:
        if bucket and held + gradient.numel() > _BUCKET:
            yield bucket
            bucket, held = [], 0
        bucket.append(gradient)
        held += gradient.numel()
    if bucket:
        yield bucket


@torch.no_grad()
def total_norm(model: nn.Module) -> Tensor:
    """Euclidean norm of all gradients, those included of which others hold a share."""
    norm = nn.utils.get_total_norm(_held_whole(model))
    shares = _shares(model)
    if not shares:
        return norm
    square = nn.utils.get_total_norm(shares).square()
    with together():
        distributed.all_reduce(square)
    return (norm.square() + square).sqrt()


@torch.no_grad()
def limit(model: nn.Module, most: float, norm: Tensor) -> None:
    """Scale all gradients so that their norm, as `total_norm` gave it, is at most ``most``."""
    whole = [value for value in model.parameters() if not isinstance(value, DTensor)]
    nn.utils.clip_grads_with_norm_(whole, most, norm)
    if shares := _shares(model):
        factor = (most / (norm + 1e-6)).clamp(max=1)  # as torch has it
        for share in shares:
            share.mul_(factor)


def _held_whole(model: nn.Module) -> list[Tensor]:
    found = [value.grad for value in model.parameters() if value.grad is not None]
    return [gradient for gradient in found if not isinstance(gradient, DTensor)]


def _shares(model: nn.Module) -> list[Tensor]:
    """This process's shares of the gradients of shared weights."""
    gradients = [value.grad for value in model.parameters()]
    return [gradient.to_local() for gradient in gradients if isinstance(gradient, DTensor)]
