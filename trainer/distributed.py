"""Several processes of one training: torchrun starts them, and a batch is spread over them.

Every process gathers the tangents of all and computes the whole loss; nothing in an objective
knows of processes, so that means, normalisers, masks and entropies are over the whole batch by
construction. The backward pass then needs no second exchange: each process goes on with the
gradient of its own rows. What is computed n times instead of once is small beside the towers
(docs/training.md).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from core.errors import ConfigError
from trainer.batch import Batch, Links
from trainer.model import DualEncoder, Tangents

_PATIENCE = timedelta(hours=2)  # of processes that wait while the first one evaluates


@dataclass(frozen=True)
class World:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those of this machine

    @property
    def leads(self) -> bool:
        """Whether this process writes checkpoints and reports."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.size > 1:
            distributed.barrier()


@dataclass(frozen=True)
class Sizes:
    """Rows of one process's tangents."""

    images: int
    parts: int
    query_images: int
    texts: int


@dataclass(frozen=True)
class Shares:
    """How the rows of all processes make one batch."""

    sizes: tuple[Sizes, ...]  # in the order of ranks; none where one process is alone
    links: Links  # of the whole batch
    stop: bool  # whether any process was asked to end


@contextmanager
def join(device: str) -> Iterator[World]:
    """The processes that torchrun started, or this one alone.

    Args:
        device: As ``run.device``: gloo joins CPUs; NCCL joins GPUs, and gloo beside it what the
            host has to tell.

    Raises:
        ConfigError: torchrun's environment is incomplete, or the others cannot be reached.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        world = World(int(os.environ["RANK"]), size, int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group(backend, timeout=_PATIENCE)
    except (KeyError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"WORLD_SIZE is {size}, but the processes do not find each other ({error}); start "
            "them by torchrun --nproc-per-node N -m core train RECIPE"
        ) from error
    try:
        yield world
    finally:
        distributed.destroy_process_group()


def spread(model: DualEncoder, device: torch.device) -> nn.Module:
    """The model whose gradients are averaged over all processes.

    Batch norms take the statistics of the whole batch on GPUs; on CPUs, where PyTorch cannot,
    each process has its own.
    """
    if device.type == "cuda":
        model.image_tower = nn.SyncBatchNorm.convert_sync_batchnorm(model.image_tower)
    return nn.parallel.DistributedDataParallel(model)


def exchange(batch: Batch, world: World, *, query_images: bool, stop: bool) -> Shares:
    """Tell all processes what every one's rows are; between hosts, without the device.

    Args:
        batch: This process's share, not yet on the device.
        world: This process.
        query_images: Whether the forward pass gives queries visual nodes.
        stop: Whether it was asked to end.
    """
    if world.size == 1:
        return Shares((), batch.links, stop)
    texts = sum(len(group) for group in batch.tokens)
    queries = len(batch.links.query_text)
    own = Sizes(len(batch), len(batch.links.part_owner), queries if query_images else 0, texts)
    packed = _pack(batch.links)
    heads = _all_gather(
        torch.tensor([own.images, own.parts, own.query_images, own.texts, queries, int(stop)])
    )
    longest = max(_packed_length(*head[[0, 1, 4]].tolist()) for head in heads)
    padded = packed.new_zeros(longest)
    padded[: len(packed)] = packed
    sizes = tuple(Sizes(*head[:4].tolist()) for head in heads)
    links = [
        _unpack(row, *head[[0, 1, 4]].tolist())
        for row, head in zip(_all_gather(padded), heads, strict=True)
    ]
    return Shares(sizes, _joined(links, sizes), bool(heads[:, 5].any()))


def gather(tangents: Tangents, shares: Shares, world: World) -> Tangents:
    """The tangents of all processes, kind by kind in the order of ranks; one exchange."""
    if world.size == 1:
        return tangents
    rows = torch.cat(tangents)
    longest = max(sum(_rows(size)) for size in shares.sizes)
    padded = torch.cat([rows, rows.new_zeros(longest - len(rows), rows.shape[1])])
    every = _Gather.apply(padded, world)
    parts = [
        every[rank].split([*_rows(size), longest - sum(_rows(size))])[:4]
        for rank, size in enumerate(shares.sizes)
    ]
    return Tangents(*(torch.cat(kind) for kind in zip(*parts, strict=True)))


class _Gather(torch.autograd.Function):
    """All processes' rows; backward, this one's share of a gradient that all have computed.

    Gradients are averaged over processes afterwards, which the factor undoes: of the values
    that enter behind the gather every process has the full gradient already.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World) -> Tensor:
        ctx.world = world
        return _all_gather(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.world.rank] * ctx.world.size, None


def _all_gather(rows: Tensor) -> Tensor:
    """``(processes, ...)``: what every process has, all of one shape."""
    made = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    distributed.all_gather(made, rows.contiguous())
    return torch.stack(made)


def _rows(size: Sizes) -> list[int]:
    return [size.images, size.parts, size.query_images, size.texts]


def _lengths(images: int, parts: int, queries: int) -> list[int]:
    """Length of each field of `Links`."""
    by_prefix = {"caption": images, "part": parts, "query": queries}
    return [
        images if field.name == "part_count" else by_prefix[field.name.partition("_")[0]]
        for field in fields(Links)
    ]


def _packed_length(images: int, parts: int, queries: int) -> int:
    return sum(_lengths(images, parts, queries))


def _pack(links: Links) -> Tensor:
    """All fields behind each other as 64 bits each."""
    values = [getattr(links, field.name) for field in fields(links)]
    return torch.cat(
        [
            value.double().view(torch.int64) if value.is_floating_point() else value
            for value in values
        ]
    )


def _unpack(row: Tensor, images: int, parts: int, queries: int) -> Links:
    lengths = _lengths(images, parts, queries)
    values = list(row[: sum(lengths)].split(lengths))
    for place, field in enumerate(fields(Links)):
        if field.name in {"query_weight", "query_has_parent"}:
            values[place] = values[place].view(torch.float64).float()
    return Links(*values)


def _joined(links: list[Links], sizes: tuple[Sizes, ...]) -> Links:
    """The links of one batch: rows count on from process to process."""
    joined: dict[str, list[Tensor]] = {field.name: [] for field in fields(Links)}
    texts = images = 0
    for one, size in zip(links, sizes, strict=True):
        for name, values in joined.items():
            value = getattr(one, name)
            if name in {"caption", "part_text", "query_text", "query_parent"}:
                value = value + texts
            elif name in {"part_owner", "query_owner"}:
                value = value + images
            values.append(value)
        texts, images = texts + size.texts, images + size.images
    return Links(**{name: torch.cat(values) for name, values in joined.items()})
