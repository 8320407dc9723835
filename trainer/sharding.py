"""Weights and AdamW's state, shared by the processes of a run: each keeps its share (FSDP2).

A layer's weights come together for as long as the layer runs, and again on the way back. What
stands beside the towers (projections, the pooling, learned scalars) is little, and every process
keeps it whole.

A run is split after it has been loaded, and its state comes together to be saved (`whole`), so
that checkpoints know nothing of processes.
"""

import warnings

import torch
from torch import Tensor
from torch.distributed import get_rank
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.distributed import World
from trainer.model import DualEncoder


def shard(
    model: DualEncoder,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    world: World,
    *,
    rounded: bool,
) -> None:
    """Leave this process its share of both towers and of their optimizer's state, in place.

    Args:
        model: Equal on all processes, as is the optimizer.
        optimizer: Of the model; it may hold the state of a run that goes on.
        device: Of this process.
        world: All processes.
        rounded: Whether weights come together in bfloat16; gradients are averaged in float32.
    """
    # Nothing here adds in place to what a tower gives.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    mesh = init_device_mesh(device.type, (world.size,))
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if rounded
        else MixedPrecisionPolicy()
    )
    for tower in (model.image_tower, model.text_tower):
        for layer in (*tower.blocks, tower):
            fully_shard(layer, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    _follow(optimizer, names, dict(model.named_parameters()))


def whole(tensor: Tensor) -> Tensor:
    """What all processes hold of a tensor: all of them call it, in the same order.

    Of a shared one the first process gets it all, on the CPU, and the others nothing, ``(0,)``.
    One that is not shared comes back as it is, on its device and in its memory.
    """
    tensor = tensor.detach()
    if not isinstance(tensor, DTensor):
        return tensor
    full: Tensor = tensor.full_tensor()
    return full.cpu() if get_rank() == 0 else full.new_empty(0)


def _follow(
    optimizer: torch.optim.Optimizer, names: dict[Tensor, str], after: dict[str, Tensor]
) -> None:
    """Put the new weights, and the shares of their state, where the old ones were.

    Shared weights get groups of their own: AdamW updates a group in one call, of one kind.
    """
    groups = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    for group in groups:
        kinds: tuple[list[Tensor], list[Tensor]] = ([], [])
        for old in group["params"]:
            new = after[names[old]]
            kinds[isinstance(new, DTensor)].append(new)
            state = optimizer.state.pop(old, {})
            if state:
                optimizer.state[new] = {key: _share(value, new) for key, value in state.items()}
        for members in filter(None, kinds):
            optimizer.add_param_group({**group, "params": members})


def _share(value: Tensor, parameter: Tensor) -> Tensor:
    """This process's share of a state that is as large as its parameter; a count stays."""
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
