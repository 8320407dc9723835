"""AdamW, what it decays, and the learning rate."""

import math

import torch
from torch import nn

from trainer.sections import OptimSection


def build_optimizer(model: nn.Module, options: OptimSection) -> torch.optim.AdamW:
    """AdamW in two groups: matrices and kernels decay, vectors and scalars do not."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and "norm" not in name else kept).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": options.weight_decay},
            {"params": kept, "weight_decay": 0.0},
        ],
        lr=options.peak_lr,
        betas=options.betas,
        eps=options.eps,
        fused=True,
    )


def learning_rate(step: int, options: OptimSection) -> float:
    """The rate of a 0-based step: linear to the peak, then half a cosine to 0.

    The first step has rate ``peak / warmup``, not 0.
    """
    if step < options.warmup_steps:
        return options.peak_lr * (step + 1) / options.warmup_steps
    span = max(options.steps - options.warmup_steps, 1)
    return options.peak_lr * (1 + math.cos(math.pi * (step - options.warmup_steps) / span)) / 2
