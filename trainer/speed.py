"""What `[speed]` asks for, put around a model that has been loaded."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from core.errors import ConfigError
from trainer.distributed import spread
from trainer.model import DualEncoder
from trainer.sharding import shard
from trainer.step import Training

_BATCH_NORMS = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - their only common class


def ready(training: Training, device: torch.device) -> Training:
    """The training with its towers recomputed, compiled, shared or spread as the recipe says.

    Raises:
        ConfigError: The image tower cannot be trained so, or there is no compiler.
    """
    speed, model, world = training.recipe.speed, training.model, training.world
    if speed.micro_batch:
        _require_no_batch_norm(model)
    if speed.checkpointing:
        for tower in (model.image_tower, model.text_tower):
            if any(value.requires_grad for value in tower.parameters()):
                tower.recompute()
    if speed.compile:
        require_compiler(device)
        model.image_tower.compile_layers()
        model.text_tower.compile_layers()
    if world.size == 1:
        return training
    if device.type == "cuda":  # batch norms see the whole batch; on CPUs PyTorch cannot
        model.image_tower = nn.SyncBatchNorm.convert_sync_batchnorm(model.image_tower)
    if speed.shard:
        rounded = training.recipe.optim.precision == "bf16" and device.type == "cuda"
        shard(model, training.optimizer, device, world, rounded=rounded)
        return training
    if speed.micro_batch:
        return training  # gradients are averaged once, behind the last piece
    return replace(training, spread=spread(model))


def _require_no_batch_norm(model: DualEncoder) -> None:
    """Raises ConfigError where a picture's feature depends on those that pass beside it."""
    norms = [layer for layer in model.image_tower.modules() if isinstance(layer, _BATCH_NORMS)]
    if any(layer.training for layer in norms):
        raise ConfigError(
            "speed.micro_batch: the image tower has batch norms, whose statistics would be those "
            "of a piece and not of the batch; set image_tower.frozen=true, choose a tower of "
            "layer norms, or leave speed.micro_batch out"
        )


def require_compiler(device: torch.device) -> None:
    """Compile one sum, so that a machine that cannot says so before the first step.

    Raises:
        ConfigError: What torch.compile needs is missing.
    """
    probe = torch.compile(_probe, options={"fx_graph_cache": False})
    try:
        probe(torch.ones(8, device=device))
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        needed = "a C++ compiler (g++, or name it by CXX)" if device.type == "cpu" else "triton"
        raise ConfigError(
            f"speed.compile: nothing can be compiled here: {reason}; install {needed}, or set "
            "speed.compile=false"
        ) from error


def _probe(x: Tensor) -> Tensor:
    return x.sin() + x
