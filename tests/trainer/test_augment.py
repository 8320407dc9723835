"""The distribution of every random change, and what each does to a picture."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from trainer.data.augment import Changes, augment, draw, normalise, one_by_one, to_float, together
from trainer.sections import AugmentSection, DataSection

NONE = AugmentSection(crop_scale=(1.0, 1.0), jitter_probability=0.0, grayscale_probability=0.0)
DRAWS = 4000
Way = Callable[[Tensor, Changes], Tensor]
ways = pytest.mark.parametrize("way", [one_by_one, together])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, side: int = 16) -> Tensor:
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


def differ(ours: Tensor, theirs: npt.ArrayLike) -> bool:
    """Whether two samples are of different distributions: Kolmogorov-Smirnov at one in 10,000."""
    one, other = np.sort(ours.numpy().astype(float)), np.sort(np.asarray(theirs, float))
    points = np.concatenate([one, other])
    shares = [
        np.searchsorted(values, points, side="right") / len(values) for values in (one, other)
    ]
    limit = np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / len(one) + 1 / len(other)))
    return bool(np.abs(shares[0] - shares[1]).max() > limit)


def test_two_samples_that_differ_a_little_are_told_apart() -> None:
    steps = torch.linspace(0, 1, DRAWS)
    assert not differ(steps, steps**1.01)
    assert differ(steps, steps**1.2)


@pytest.mark.parametrize("scale", [(0.8, 1.0), (0.5, 1.0), (0.05, 0.3)])
def test_windows_are_drawn_as_torchvision_draws_them(scale: tuple[float, float]) -> None:
    side = 224
    options = AugmentSection(crop_scale=scale)
    window = draw(DRAWS, side, options, generator()).window
    assert window is not None
    crop = v2.RandomResizedCrop(side, scale=scale, ratio=(3 / 4, 4 / 3))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        picture = torch.empty(1, side, side)
        params = [crop.make_params([picture]) for _ in range(DRAWS)]
    theirs = np.array([[one[key] for key in ("left", "top", "width", "height")] for one in params])
    left, top, width, height = window.T
    assert not differ(width * height, theirs[:, 2] * theirs[:, 3])
    assert not differ(width / height, theirs[:, 2] / theirs[:, 3])
    assert not differ(left, theirs[:, 0])
    assert not differ(top, theirs[:, 1])
    assert not differ(left - top, theirs[:, 0] - theirs[:, 1])
    assert (left + width).max() <= side
    assert (top + height).max() <= side
    assert window.min() >= 0


def test_jitters_are_drawn_as_torchvision_draws_them() -> None:
    changes = draw(DRAWS, 8, AugmentSection(jitter_probability=1.0), generator())
    assert changes.jitter is not None
    assert changes.order is not None
    with torch.random.fork_rng():
        torch.manual_seed(1)
        jitter = v2.ColorJitter(0.4, 0.4, 0.4, 0.1)
        params = [jitter.make_params([]) for _ in range(DRAWS)]
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    for ours, name in zip(changes.jitter.T, names, strict=True):
        assert not differ(ours, [one[name] for one in params])
    assert torch.corrcoef(changes.jitter.T).fill_diagonal_(0).abs().max() < 0.06
    orders = Counter(map(tuple, changes.order.tolist()))
    assert set(orders) == set(itertools.permutations(range(4)))
    assert max(abs(seen - DRAWS / 24) for seen in orders.values()) < 4 * (DRAWS / 24) ** 0.5


def test_as_many_pictures_are_jittered_and_greyed_as_asked_for_and_independently() -> None:
    changes = draw(DRAWS, 8, AugmentSection(), generator())
    assert changes.jitter is not None
    assert changes.is_grey is not None
    untouched = (changes.jitter == torch.tensor([1.0, 1, 1, 0])).all(1)
    shares = [~untouched, changes.is_grey, ~untouched & changes.is_grey]
    for share, expected in zip(shares, (0.8, 0.2, 0.16), strict=True):
        assert share.float().mean().item() == pytest.approx(expected, abs=0.025)


def windows(count: int, side: int) -> Tensor:
    window = draw(count, side, AugmentSection(crop_scale=(0.3, 1.0)), generator(3)).window
    assert window is not None
    return window


@ways
def test_a_crop_is_the_one_that_torchvision_makes_of_the_same_window(way: Way) -> None:
    pixels, window = noise(24, 20), windows(24, 20)
    ours = way(pixels, Changes(window, None, None, None))
    given = pixels.permute(0, 3, 1, 2) if way is one_by_one else to_float(pixels)
    for picture, cut, (left, top, width, height) in zip(
        given, ours, window.int().tolist(), strict=True
    ):
        expected = tv.resized_crop(
            picture, top, left, height, width, [20, 20], v2.InterpolationMode.BICUBIC
        )
        expected = expected / 255 if way is one_by_one else expected.clamp(0, 1)
        torch.testing.assert_close(cut, expected, rtol=0, atol=2e-6)


@ways
def test_brightness_contrast_and_saturation_are_those_of_torchvision_in_the_drawn_order(
    way: Way,
) -> None:
    pixels = noise(24)
    changes = replace(draw(24, 16, AugmentSection(hue=0.0), generator()), window=None, is_grey=None)
    assert changes.jitter is not None
    assert changes.order is not None
    ours = way(pixels, changes)
    adjust = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation)
    for picture, changed, factors, order in zip(
        to_float(pixels), ours, changes.jitter.tolist(), changes.order.tolist(), strict=True
    ):
        expected = picture
        for kind in order:
            expected = adjust[kind](expected, factors[kind]) if kind < 3 else expected
        # torchvision's weights of red, green and blue add up to 0.9999
        torch.testing.assert_close(changed, expected, rtol=0, atol=2e-4)


@ways
def test_grey_pictures_have_the_luminance_and_the_others_are_untouched(way: Way) -> None:
    pixels = noise(60)
    changes = draw(60, 16, NONE.model_copy(update={"grayscale_probability": 0.3}), generator())
    assert changes.is_grey is not None
    before, after = to_float(pixels), way(pixels, changes)
    assert torch.equal(after[~changes.is_grey], before[~changes.is_grey])
    expected = tv.rgb_to_grayscale(before[changes.is_grey], 3)
    torch.testing.assert_close(after[changes.is_grey], expected, rtol=0, atol=2e-4)
    assert (after[changes.is_grey].amax(1) - after[changes.is_grey].amin(1)).max() < 1e-6


@ways
def test_what_happens_to_a_picture_does_not_depend_on_its_neighbours(way: Way) -> None:
    side = 320
    pixels = noise(3, side)
    changes = draw(3, side, AugmentSection(), generator())
    last = Changes(*(kind[2:] for kind in vars(changes).values()))
    torch.testing.assert_close(way(pixels, changes)[2:], way(pixels[2:], last), rtol=0, atol=1e-6)


def test_both_ways_make_the_same_pictures_but_for_the_rounding_of_crops() -> None:
    pixels = noise(8, 64) // 4 + 96
    changes = draw(8, 64, AugmentSection(), generator())
    apart = (one_by_one(pixels, changes) - together(pixels, changes)).abs()
    assert apart.max() < 4 / 255
    bare = replace(changes, window=None)
    torch.testing.assert_close(one_by_one(pixels, bare), together(pixels, bare))


def test_pictures_are_normalised_at_last() -> None:
    pixels, data = noise(6), DataSection(train="nowhere")
    for options in (AugmentSection(), NONE):
        plain = normalise(augment(pixels, options, generator()), data)
        torch.testing.assert_close(augment(pixels, options, generator(), data), plain)


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
