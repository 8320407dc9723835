"""Several processes of one training: torchrun starts them, and a batch is spread over them.

Every process gathers the tangents of all and computes the whole loss; nothing in an objective
knows of processes, so that means, normalisers, masks and entropies are over the whole batch by
construction. The backward pass then needs no second exchange: each process goes on with the
gradient of its own rows. What is computed n times instead of once is small beside the towers
(docs/training.md).
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from itertools import chain
from typing import Any

import torch
from torch import Tensor, distributed, nn

from core.errors import ConfigError, DataError, ProcessLost
from trainer.data.batch import Batch, Links
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
    own: Links  # of this process, on the host
    links: Links  # of the whole batch, on the host
    stop: bool = False  # whether any process was asked to end
    skipped: tuple[str, ...] = ()  # why samples of the whole batch were left out


@contextmanager
def join(device: str) -> Iterator[World]:
    """The processes that torchrun started, or this one alone.

    Args:
        device: ``run.device``. Gloo joins CPUs; NCCL joins GPUs, and gloo beside it what the
            hosts have to tell.

    Raises:
        ConfigError: torchrun's environment is incomplete, or the others cannot be reached.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    backend = "gloo" if on_cpu else "cpu:gloo,cuda:nccl"
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


def agree(world: World, **numbers: int) -> None:
    """Wait until all processes have come here, and make sure that they are of one run.

    Args:
        world: This process.
        numbers: What all must have alike, by name.

    Raises:
        ConfigError: They do not.
    """
    if world.size == 1:
        return
    own = torch.tensor(list(numbers.values()), dtype=torch.int64)
    for name, values in zip(numbers, torch.stack(_all_gather(own)).T.tolist(), strict=True):
        if len(set(values)) > 1:
            raise ConfigError(
                f"{name} differs between the processes ({', '.join(map(str, values))}): every "
                "machine needs the same command, and must see the same shards and the run's folder"
            )


def first_says(world: World, *, claim: bool) -> bool:
    """What the first process claims; the others wait until it has.

    Raises:
        ProcessLost: Another process has ended.
    """
    if world.size == 1:
        return claim
    return bool(_all_gather(torch.tensor([int(claim)]))[0])


def spread(model: DualEncoder) -> nn.Module:
    """The model whose gradients are averaged over all processes while they are computed."""
    # DDP would have every gradient laid out as its weight; of a class token that costs nothing.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    # Static: each loss reaches the same weights in every step, and a tower of timm may hold some
    # that none reaches. The search for these instead would take temperatures to be among them.
    return nn.parallel.DistributedDataParallel(
        model, static_graph=True, gradient_as_bucket_view=True
    )


def exchange(batch: Batch, world: World, *, query_images: bool, stop: bool) -> Shares:
    """Tell all processes what every one's rows are; between hosts, without the device.

    Args:
        batch: This process's share, not yet on the device.
        world: This process.
        query_images: Whether the forward pass gives queries visual nodes.
        stop: Whether it was asked to end.

    Raises:
        DataError: No process has a sample that can be used; one that has none alone goes on.
        ProcessLost: Another process has ended.
    """
    shares = _shares(batch, world, query_images=query_images, stop=stop)
    if not len(shares.links.caption):
        raise DataError(
            f"no sample of a batch of {len(shares.skipped)} can be used: {shares.skipped[0]}"
        )
    return shares


def _shares(batch: Batch, world: World, *, query_images: bool, stop: bool) -> Shares:
    if world.size == 1:
        return Shares((), batch.links, batch.links, stop, batch.skipped)
    texts = sum(len(group) for group in batch.tokens) if len(batch) else 0
    queries = len(batch.links.query_text)
    own = Sizes(len(batch), len(batch.links.part_owner), queries if query_images else 0, texts)
    head = [*_rows(own), queries, int(stop), len(batch.skipped)]
    heads = torch.stack(_all_gather(torch.tensor(head))).tolist()
    sizes = tuple(Sizes(*head[:4]) for head in heads)
    lengths = [_lengths(images, parts, queries) for images, parts, _, _, queries, *_ in heads]
    packed = _pack(batch.links)
    padded = packed.new_zeros(max(map(sum, lengths)))
    padded[: len(packed)] = packed
    links = [_unpack(*pair) for pair in zip(_all_gather(padded), lengths, strict=True)]
    return Shares(
        sizes,
        batch.links,
        _joined(links, sizes),
        stop=any(head[5] for head in heads),
        skipped=_joined_texts(batch.skipped) if any(head[6] for head in heads) else (),
    )


def gather(tangents: Tangents, shares: Shares, world: World) -> Tangents:
    """The tangents of all processes, kind by kind in the order of ranks; one exchange."""
    if world.size == 1:
        return tangents
    # Those of nobody, in a share without samples, stay here.
    own = _rows(shares.sizes[world.rank])
    rows = torch.cat([kind[:count] for kind, count in zip(tangents, own, strict=True)])
    longest = max(sum(_rows(size)) for size in shares.sizes)
    padded = torch.cat([rows, rows.new_zeros(longest - len(rows), rows.shape[1])])
    parts = [
        every[: sum(_rows(size))].split(_rows(size))
        for every, size in zip(_Gather.apply(padded, world), shares.sizes, strict=True)
    ]
    return Tangents(*(torch.cat(kind) for kind in zip(*parts, strict=True)))


class _Gather(torch.autograd.Function):
    """The rows of each process; backward, this one's share of a gradient that all have computed.

    Gradients are averaged over processes afterwards, which the factor undoes: of the values
    that enter behind the gather every process has the full gradient already.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World) -> tuple[Tensor, ...]:
        ctx.world = world
        return tuple(_all_gather(rows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[ctx.world.rank] * ctx.world.size, None


def _all_gather(rows: Tensor) -> list[Tensor]:
    """What each process has, all of one shape."""
    made = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    with together():
        distributed.all_gather(made, rows)
    return made


@contextmanager
def together() -> Iterator[None]:
    """What all processes do at once.

    Raises:
        ProcessLost: Another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            "another process of this run has ended or cannot be reached, and so this one ends; "
            "the other's message says why, and the same command goes on from the last checkpoint"
        ) from error


def _joined_texts(own: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of all processes."""
    every: list[tuple[str, ...]] = [()] * distributed.get_world_size()
    distributed.all_gather_object(every, own)
    return tuple(chain(*every))


def _rows(size: Sizes) -> list[int]:
    return [size.images, size.parts, size.query_images, size.texts]


def _lengths(images: int, parts: int, queries: int) -> list[int]:
    """Length of each field of `Links`."""
    by_prefix = {"caption": images, "part": parts, "query": queries}
    return [
        images if field.name == "part_count" else by_prefix[field.name.partition("_")[0]]
        for field in fields(Links)
    ]


def _pack(links: Links) -> Tensor:
    """All fields behind each other as 64 bits each."""
    values = [getattr(links, field.name) for field in fields(links)]
    return torch.cat(
        [
            value.double().view(torch.int64) if value.is_floating_point() else value
            for value in values
        ]
    )


def _unpack(row: Tensor, lengths: list[int]) -> Links:
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
