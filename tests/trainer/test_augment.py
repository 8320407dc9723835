"""The distribution of every random change."""

import pytest
import torch

from trainer.data.augment import augment, to_float
from trainer.sections import AugmentSection

NONE = AugmentSection(crop_scale=(1.0, 1.0), jitter_probability=0.0, grayscale_probability=0.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, side: int = 16) -> torch.Tensor:
    shape = (count, side, side, 3)
    return torch.randint(0, 256, shape, generator=generator(1), dtype=torch.uint8)


def test_nothing_asked_changes_nothing() -> None:
    pixels = noise(4)
    assert torch.equal(augment(pixels, NONE, generator()), to_float(pixels))


def test_the_same_seed_gives_the_same_pictures() -> None:
    pixels, options = noise(4), AugmentSection()
    assert torch.equal(augment(pixels, options, generator()), augment(pixels, options, generator()))
    other = augment(pixels, options, generator(5))
    assert not torch.equal(augment(pixels, options, generator()), other)


def test_everything_stays_within_range() -> None:
    out = augment(noise(64), AugmentSection(), generator())
    assert out.min() >= 0
    assert out.max() <= 1


def test_a_crop_shows_a_window_of_the_asked_share() -> None:
    """On a ramp from 0 to 1 the span of values is the width, or height, of the window."""
    side, count = 64, 512
    ramp = torch.linspace(0, 255, side).round().to(torch.uint8)
    pixels = torch.stack(
        [
            ramp[None, :].expand(side, side),
            ramp[:, None].expand(side, side),
            torch.zeros(side, side, dtype=torch.uint8),
        ],
        -1,
    ).expand(count, side, side, 3)
    options = NONE.model_copy(update={"crop_scale": (0.4, 0.8)})
    out = augment(pixels, options, generator())
    spans = (out.amax((2, 3)) - out.amin((2, 3)))[:, :2] / (1 - 1 / side)
    area = spans.prod(1)
    assert area.min() > 0.3  # a window wider than the picture is cut, so below 0.4 can occur
    assert area.max() < 0.84
    assert area.mean().item() == pytest.approx(0.59, abs=0.03)
    ratio = spans[:, 0] / spans[:, 1]
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4
    assert ratio.log().mean().abs() < 0.03
    left = out[:, 0, side // 2].amin(1)
    assert left.std() > 0.05  # the place is drawn too


def test_brightness_is_uniform_within_its_span() -> None:
    pixels = torch.full((4000, 2, 2, 3), 100, dtype=torch.uint8)
    options = NONE.model_copy(
        update={
            "jitter_probability": 1.0, "brightness": 0.4, "contrast": 0.0, "saturation": 0.0,
            "hue": 0.0,
        }
    )  # fmt: skip
    factor = augment(pixels, options, generator())[:, 0, 0, 0] / (100 / 255)
    assert factor.min().item() == pytest.approx(0.6, abs=0.01)
    assert factor.max().item() == pytest.approx(1.4, abs=0.01)
    assert factor.mean().item() == pytest.approx(1.0, abs=0.02)
    assert factor.std().item() == pytest.approx(0.8 / 12**0.5, abs=0.01)


def test_the_shares_of_jittered_and_grey_pictures_are_those_asked_for() -> None:
    pixels = noise(3000, side=4)
    options = NONE.model_copy(update={"grayscale_probability": 0.2})
    out = augment(pixels, options, generator())
    grey = (out[:, 0] == out[:, 1]).all((1, 2)) & (out[:, 1] == out[:, 2]).all((1, 2))
    assert grey.float().mean().item() == pytest.approx(0.2, abs=0.03)
    options = NONE.model_copy(update={"jitter_probability": 0.8})
    changed = (augment(pixels, options, generator()) != to_float(pixels)).flatten(1).any(1)
    assert changed.float().mean().item() == pytest.approx(0.8, abs=0.03)


def test_a_turn_of_the_hue_keeps_the_luminance() -> None:
    pixels = noise(200) // 4 + 96  # pale colours, which no turn takes out of range
    options = NONE.model_copy(
        update={
            "jitter_probability": 1.0, "brightness": 0.0, "contrast": 0.0, "saturation": 0.0,
            "hue": 0.5,
        }
    )  # fmt: skip
    before, after = to_float(pixels), augment(pixels, options, generator())
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    torch.testing.assert_close((before * luma).sum(1), (after * luma).sum(1), rtol=0, atol=1e-3)
    assert (before - after).abs().mean() > 0.02
