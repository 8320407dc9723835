"""Random changes of a batch of training pictures, on the training device."""

import torch
from torch import Tensor
from torch.nn import functional

from trainer.sections import AugmentSection

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_RATIO = (3 / 4, 4 / 3)  # aspect of a random crop, log-uniform


def augment(pixels: Tensor, options: AugmentSection, generator: torch.Generator) -> Tensor:
    """Randomly cropped, jittered and greyed pictures, each with draws of its own.

    Args:
        pixels: ``(n, side, side, 3)`` uint8.
        options: Ranges and probabilities.
        generator: Of the device of the pixels.

    Returns:
        ``(n, 3, side, side)`` float32 within [0, 1], channels last in memory.
    """
    images = to_float(pixels)
    if options.crop_scale != (1.0, 1.0):
        images = _random_crop(images, options.crop_scale, generator)
    if options.jitter_probability > 0:
        images = _jitter(images, options, generator)
    if options.grayscale_probability > 0:
        grey = _chance(images, options.grayscale_probability, generator)
        images = torch.where(grey, _luma(images), images)
    return images


def to_float(pixels: Tensor) -> Tensor:
    """``(n, side, side, 3)`` uint8 as ``(n, 3, side, side)`` within [0, 1], channels last."""
    return pixels.permute(0, 3, 1, 2).to(torch.float32).div_(255)


def _random_crop(images: Tensor, scale: tuple[float, float], generator: torch.Generator) -> Tensor:
    """A random window of each image, of a share of the area within ``scale``, at full size."""
    n, _, side, _ = images.shape
    draw = torch.rand((4, n), generator=generator, device=images.device)
    area = scale[0] + (scale[1] - scale[0]) * draw[0]
    low, high = (torch.tensor(ratio).log().item() for ratio in _RATIO)
    root_ratio = torch.exp((low + (high - low) * draw[1]) / 2)
    width = (area.sqrt() * root_ratio).clamp(max=1)
    height = (area.sqrt() / root_ratio).clamp(max=1)
    theta = images.new_zeros((n, 2, 3))
    theta[:, 0, 0], theta[:, 1, 1] = width, height
    theta[:, 0, 2] = (1 - width) * (2 * draw[2] - 1)
    theta[:, 1, 2] = (1 - height) * (2 * draw[3] - 1)
    grid = functional.affine_grid(theta, [n, 3, side, side], align_corners=False)
    mode = "bilinear" if images.device.type == "cpu" else "bicubic"  # bicubic is 6x on a CPU
    cropped = functional.grid_sample(
        images, grid, mode=mode, padding_mode="border", align_corners=False
    )
    return cropped.clamp_(0, 1) if mode == "bicubic" else cropped


def _jitter(images: Tensor, options: AugmentSection, generator: torch.Generator) -> Tensor:
    """Brightness, contrast, saturation and hue, in one order, on a random share of the images."""
    brightness = _factor(images, options.brightness, generator)
    contrast = _factor(images, options.contrast, generator)
    saturation = _factor(images, options.saturation, generator)
    changed = (images * brightness).clamp(0, 1)
    mean = _luma(changed).mean((2, 3), keepdim=True)
    changed = torch.lerp(mean, changed, contrast).clamp(0, 1)
    changed = torch.lerp(_luma(changed), changed, saturation).clamp(0, 1)
    if options.hue > 0:
        changed = _rotate_hue(changed, options.hue, generator)
    chosen = _chance(images, options.jitter_probability, generator)
    return torch.where(chosen, changed, images)


def _rotate_hue(images: Tensor, span: float, generator: torch.Generator) -> Tensor:
    """Turn the chroma plane of YIQ by up to ``span`` of a full turn: hue without HSV's branches."""
    n = len(images)
    turn = torch.rand((n,), generator=generator, device=images.device) * 2 - 1
    angle = turn * span * 2 * torch.pi
    to_yiq = images.new_tensor(
        [[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]]
    )
    rotation = torch.eye(3, device=images.device).repeat(n, 1, 1)
    rotation[:, 1, 1] = rotation[:, 2, 2] = angle.cos()
    rotation[:, 1, 2], rotation[:, 2, 1] = -angle.sin(), angle.sin()
    matrix = torch.linalg.inv(to_yiq) @ rotation @ to_yiq
    return torch.einsum("nij,njhw->nihw", matrix, images).clamp(0, 1)


def _factor(images: Tensor, span: float, generator: torch.Generator) -> Tensor:
    draw = torch.rand((len(images), 1, 1, 1), generator=generator, device=images.device)
    return 1 + span * (2 * draw - 1)


def _chance(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    draw = torch.rand((len(images), 1, 1, 1), generator=generator, device=images.device)
    return draw < probability


def _luma(images: Tensor) -> Tensor:
    red, green, blue = _LUMA
    return red * images[:, :1] + green * images[:, 1:2] + blue * images[:, 2:]
