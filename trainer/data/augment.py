"""Random changes of a batch of training pictures, on the training device.

The parameters have the distributions of torchvision's RandomResizedCrop, ColorJitter (an order
of its own for each picture included) and RandomGrayscale. Each change of the colours is a product
of 3 x 3 with a clamp behind it. On a GPU a crop is two matrix products, rows and columns, so that
all pictures of a batch take the same road whatever was drawn for them, without waiting for the
device. A CPU takes one after the other while it lies in the cache, and its crops are torch's.
"""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.sections import AugmentSection, Channels, DataSection

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_LOG_RATIO = math.log(4 / 3)  # aspect of a random crop: log-uniform within 3/4 and 4/3
_TRIES = 10  # for a crop that fits; then the picture stays whole
_AT_ONCE = 2**26  # numbers that are changed at once


@dataclass(frozen=True)
class Changes:
    """What is to happen to each of n pictures; None where nothing of the kind happens to any."""

    window: Tensor | None  # (n, 4): left, top, width and height of the crop, whole pixels
    jitter: Tensor | None  # (n, 4): factors of brightness, contrast, saturation; turns of the hue
    order: Tensor | None  # (n, 4): which jitter comes first, second, ...
    is_grey: Tensor | None  # (n,)


def augment(
    pixels: Tensor,
    options: AugmentSection,
    generator: torch.Generator,
    data: DataSection | None = None,
) -> Tensor:
    """Randomly cropped, jittered and greyed pictures, each with draws of its own.

    Args:
        pixels: ``(n, side, side, 3)`` uint8.
        options: Ranges and probabilities.
        generator: Of the device of the pixels.
        data: By whose mean and deviation they are normalised; without, they are within [0, 1].

    Returns:
        ``(n, 3, side, side)`` float32, channels last in memory.
    """
    changes = draw(len(pixels), pixels.shape[1], options, generator)
    if all(change is None for change in (changes.window, changes.jitter, changes.is_grey)):
        images = to_float(pixels)
    elif pixels.device.type == "cpu":
        return one_by_one(pixels, changes, data)
    else:
        images = together(pixels, changes)
    return images if data is None else normalise(images, data)


def normalise(images: Tensor, data: DataSection) -> Tensor:
    """Pictures within [0, 1] by the mean and deviation that the bundle will name, in place."""
    mean, deviation = (_constant(values, images.device) for values in (data.mean, data.std))
    return images.sub_(mean).div_(deviation)


def to_float(pixels: Tensor) -> Tensor:
    """``(n, side, side, 3)`` uint8 as ``(n, 3, side, side)`` within [0, 1], channels last."""
    return pixels.permute(0, 3, 1, 2).to(torch.float32).div_(255)


def draw(count: int, side: int, options: AugmentSection, generator: torch.Generator) -> Changes:
    """What happens to so many pictures of a side; nothing here waits for the device."""
    window = jitter = order = is_grey = None
    if options.crop_scale != (1.0, 1.0):
        window = _draw_windows(count, side, options.crop_scale, generator)
    if options.jitter_probability > 0:
        spans = (options.brightness, options.contrast, options.saturation, options.hue)
        between = [2 * span * (_uniform(generator, count) - 0.5) for span in spans]
        chosen = _uniform(generator, count) < options.jitter_probability
        jitter = torch.stack(between, 1) * chosen[:, None]
        jitter[:, :3] += 1
        order = _uniform(generator, count, 4).argsort(1)
    if options.grayscale_probability > 0:
        is_grey = _uniform(generator, count) < options.grayscale_probability
    return Changes(window, jitter, order, is_grey)


def one_by_one(pixels: Tensor, changes: Changes, data: DataSection | None = None) -> Tensor:
    """What `augment` does on a CPU; crops are rounded to 8 bits, as Pillow's are."""
    side = pixels.shape[1]
    out = torch.empty_like(pixels, dtype=torch.float32).permute(0, 3, 1, 2)
    windows = None if changes.window is None else changes.window.int().tolist()
    steps = [
        (matrix, share.tolist(), (matrix != torch.eye(3)).flatten(1).any(1).tolist())
        for matrix, share in _colour_steps(changes)
    ]
    most, shift = torch.tensor(255.0), torch.tensor(0.0)
    if data is not None:
        mean, deviation = (torch.tensor(values)[:, None] for values in (data.mean, data.std))
        most, shift = 255 * deviation, mean / deviation
    luma, room = _luma(pixels.device), torch.empty(2, 3, side, side)
    for number, image in enumerate(pixels.permute(0, 3, 1, 2)):
        kept = image
        if windows is not None:
            left, top, width, height = windows[number]
            window = image[None, :, top : top + height, left : left + width]
            (kept,) = interpolate(window, (side, side), mode="bicubic", antialias=True)
        flat, spare = room.flatten(2).unbind()
        flat.view_as(kept).copy_(kept)
        for matrix, share, is_changed in steps:
            if is_changed[number]:
                torch.mm(matrix[number], flat, out=spare)
                if share[number]:
                    spare.add_(share[number] * float(luma @ flat.mean(1)))
                flat, spare = spare.clamp_(0, 255), flat
        out[number] = flat.div_(most).sub_(shift).view_as(kept)
    return out


def together(pixels: Tensor, changes: Changes) -> Tensor:
    """What `augment` does on a GPU, where nothing may wait for the device."""
    count, side = pixels.shape[:2]
    taps = None if changes.window is None else _taps(changes.window, side)
    steps = _colour_steps(changes)
    out = torch.empty_like(pixels, dtype=torch.float32).permute(0, 3, 1, 2)
    at_once = max(1, _AT_ONCE // (3 * side**2))
    for start in range(0, count, at_once):
        some = slice(start, start + at_once)
        images = pixels[some].to(torch.float32).div_(255)
        if taps:
            columns, rows = (_weights(at[some], weight[some], side) for at, weight in taps)
            images = torch.bmm(rows, images.flatten(2)).view_as(images)
            images = images.permute(0, 3, 1, 2).flatten(1, 2)  # (some, 3 * side, side)
            images = torch.bmm(images, columns.mT).clamp_(0, 1).view(-1, 3, side, side)
        else:
            images = images.permute(0, 3, 1, 2)
        flat = images.flatten(2)
        for matrix, share in steps:
            grey = flat.mean(2) @ _luma(flat.device)
            offset = (share[some] * grey)[:, None, None]
            flat = torch.baddbmm(offset, matrix[some], flat).clamp_(0, 1)
        out[some] = flat.view_as(images)
    return out


def _draw_windows(
    count: int, side: int, scale: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """The first of ten windows of random area and aspect that fits, at a random place."""
    area = scale[0] + (scale[1] - scale[0]) * _uniform(generator, _TRIES, count)
    ratio = torch.exp(_LOG_RATIO * (2 * _uniform(generator, _TRIES, count) - 1))
    sizes = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()]).mul_(side).round_()
    fits = ((sizes > 0) & (sizes <= side)).all(0)
    first = fits.to(torch.uint8).argmax(0)
    size = sizes.gather(1, first.expand(2, 1, count)).squeeze(1)
    size = torch.where(fits.any(0), size, float(side))
    room = side - size
    place = torch.minimum((_uniform(generator, 2, count) * (room + 1)).floor(), room)
    return torch.cat([place, size]).T


def _taps(window: Tensor, side: int) -> list[tuple[Tensor, Tensor]]:
    """For columns and for rows: the four pixels that each new one is made of, and their weights.

    Cubic convolution with Keys's a = -1/2 that sees nothing outside its window, as Pillow's.

    Returns:
        Twice ``(n, side, 4)`` places and ``(n, side, 4)`` weights.
    """
    new = torch.arange(side, device=window.device) + 0.5
    taps = torch.arange(-1, 3, device=window.device)
    found = []
    for axis in (0, 1):
        start, length = window[:, axis, None, None], window[:, 2 + axis, None, None]
        source = new[:, None] * (length / side) - 0.5  # (n, side, 1) within the window
        at = source.floor() + taps
        weight = _keys((source - at).abs()) * ((at >= 0) & (at < length))
        weight = weight / weight.sum(2, keepdim=True)
        found.append(((start + at).clamp(0, side - 1).long(), weight))
    return found


def _keys(distance: Tensor) -> Tensor:
    """Cubic convolution (Keys 1981, eq. 15, a = -1/2) at distances of 0 to 2."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, far)


def _weights(at: Tensor, weight: Tensor, side: int) -> Tensor:
    """The taps as matrices, ``(n, side, side)``: a row for each new pixel."""
    return weight.new_zeros((len(at), side, side)).scatter_add_(2, at, weight)


def _colour_steps(changes: Changes) -> list[tuple[Tensor, Tensor]]:
    """The changes of the colours, one after the other, each with a clamp behind it.

    Returns:
        Matrices, ``(n, 3, 3)``, and what share of its mean luminance each picture has added,
        ``(n,)``: contrast pulls towards the mean, and saturation and hue are linear without it.
    """
    steps = []
    if changes.jitter is not None and changes.order is not None:
        eye, luma = torch.eye(3, device=changes.jitter.device), _luma(changes.jitter.device)
        brightness, contrast, saturation, turns = changes.jitter[:, :, None, None].unbind(1)
        kinds = torch.stack(
            [
                brightness * eye,
                contrast * eye,
                saturation * eye + (1 - saturation) * luma,
                _hue_matrix(turns, eye),
            ],
            1,
        )
        shares = torch.zeros_like(changes.jitter)
        shares[:, 1] = 1 - changes.jitter[:, 1]
        every = torch.arange(len(kinds), device=kinds.device)
        steps = [(kinds[every, kind], shares[every, kind]) for kind in changes.order.T]
    if changes.is_grey is not None:
        eye, luma = torch.eye(3, device=changes.is_grey.device), _luma(changes.is_grey.device)
        matrix = torch.where(changes.is_grey[:, None, None], luma, eye)
        steps.append((matrix, matrix.new_zeros(len(matrix))))
    return steps


def _hue_matrix(turns: Tensor, eye: Tensor) -> Tensor:
    """A turn of the chroma plane of YIQ, ``(n, 3, 3)``: hue without HSV's branches."""
    to_yiq, from_yiq = _yiq(turns.device)
    angle = turns * (2 * math.pi)
    in_plane, across = torch.zeros_like(eye), torch.zeros_like(eye)
    in_plane[1, 1] = in_plane[2, 2] = across[2, 1] = 1
    across[1, 2] = -1
    moved = in_plane * (angle.cos() - 1) + across * angle.sin()
    return eye + from_yiq @ moved @ to_yiq


@functools.cache
def _yiq(device: torch.device) -> tuple[Tensor, Tensor]:
    """RGB to YIQ and back."""
    matrix = torch.tensor(
        [_LUMA, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135)]
    )
    return matrix.to(device), torch.linalg.inv(matrix).to(device)


@functools.cache
def _luma(device: torch.device) -> Tensor:
    return torch.tensor(_LUMA, device=device)


@functools.cache
def _constant(values: Channels, device: torch.device) -> Tensor:
    """A value for each channel; made once, as the host waits while it is brought to the device."""
    return torch.tensor(values, device=device).view(1, 3, 1, 1)


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)
