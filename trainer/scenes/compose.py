"""Things and a backdrop -> a scene: pixels, and where everything stands."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from trainer.scenes.art import Sprite, Thing
from trainer.scenes.palette import PALETTE

Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom excluded

KINDS = ("plain", "gradient", "stripes", "checks", "noise", "spots")
_KIND_WEIGHTS = (34, 16, 16, 12, 12, 10)
_COUNT_WEIGHTS = (22, 28, 24, 15, 11)  # of 1 to 5 things
_REPEAT_SHARE = 0.3
# Longest side of a thing as a share of the scene's side, by the number of things.
_SIZES = ((0.34, 0.84), (0.28, 0.6), (0.25, 0.46), (0.24, 0.4), (0.23, 0.36))
_MAX_TURN = 25.0  # degrees either way
_MAX_OVERLAP = 0.06  # of the smaller box's area
_MOST_CLASH = 0.3  # of a thing's pixels may be close to the backdrop's main colour
_DRAWN = 24  # alpha from which a pixel counts as part of the thing
_PLACE_TRIES = 12
_GRAIN = 35  # how far noise strays from its colour, in 0..255


@dataclass(frozen=True)
class Backdrop:
    """A kind of background and its one or two colours, by name."""

    kind: str
    colours: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What a scene is to hold: different things with their counts, before a backdrop."""

    counts: tuple[tuple[Thing, int], ...]
    backdrop: Backdrop

    @property
    def key(self) -> str:
        """Equal for plans that show the same things as often on the same backdrop."""
        things = sorted(f"{count} {thing.name}" for thing, count in self.counts)
        return "; ".join([*things, self.backdrop.kind, *self.backdrop.colours])


@dataclass(frozen=True)
class Group:
    """One or more of the same thing, with the tight box of each."""

    thing: Thing
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Scene:
    """A picture ``(side, side, 3)`` and what it shows."""

    pixels: Pixels
    groups: tuple[Group, ...]
    backdrop: Backdrop


def draw_plan(rng: random.Random, things: Sequence[Thing], sprites: Mapping[str, Sprite]) -> Plan:
    """Draw 1 to 5 things, some of them repeated, and a backdrop they stand out from."""
    total = rng.choices((1, 2, 3, 4, 5), _COUNT_WEIGHTS)[0]
    counts: list[int] = []
    while (left := total - sum(counts)) > 0:
        repeated = left > 1 and rng.random() < _REPEAT_SHARE
        counts.append(rng.randint(2, left) if repeated else 1)
    chosen = rng.sample(things, len(counts))
    backdrop = _draw_backdrop(rng, [sprites[thing.name] for thing in chosen])
    return Plan(tuple(zip(chosen, counts, strict=True)), backdrop)


def compose(rng: random.Random, plan: Plan, sprites: Mapping[str, Sprite], side: int) -> Scene:
    """Draw a plan: nothing is clipped, and boxes hardly overlap.

    Args:
        rng: Decides turns, sizes, shades and places.
        plan: What to draw.
        sprites: By the names of the things.
        side: Height and width of the picture in pixels.
    """
    canvas = draw_backdrop(rng, plan.backdrop, side)
    order = [index for index, (_, count) in enumerate(plan.counts) for _ in range(count)]
    smallest, largest = _SIZES[len(order) - 1]
    stamps = [
        _stamp(rng, sprites[plan.counts[index][0].name], rng.uniform(smallest, largest) * side)
        for index in order
    ]
    boxes = _place(rng, [(stamp.shape[1], stamp.shape[0]) for stamp in stamps], side)
    for stamp, (left, top, right, bottom) in zip(stamps, boxes, strict=True):
        below = canvas[top:bottom, left:right]
        below[:] = stamp[..., :3] + (below * (255 - stamp[..., 3:].astype(np.uint16)) // 255)
    groups = tuple(
        Group(thing, tuple(box for box, owner in zip(boxes, order, strict=True) if owner == index))
        for index, (thing, _) in enumerate(plan.counts)
    )
    return Scene(canvas, groups, plan.backdrop)


def draw_backdrop(rng: random.Random, backdrop: Backdrop, side: int) -> Pixels:
    """A background ``(side, side, 3)``: the first colour, and what the second adds to it."""
    first = _shade(rng, backdrop.colours[0])
    second = _shade(rng, backdrop.colours[-1])
    if backdrop.kind == "noise":
        first, second = first - _GRAIN, first + _GRAIN
    share = np.linspace(0, 1, 256)[:, None]
    ramp = np.clip(first + share * (second - first), 0, 255).astype(np.uint8)
    return ramp[_pattern(rng, backdrop.kind, side)]


def _pattern(rng: random.Random, kind: str, side: int) -> npt.NDArray[np.uint8]:
    """How much of the second colour shows, ``(side, side)`` in 0..255."""
    rows, columns = np.arange(side)[:, None], np.arange(side)[None, :]
    if kind == "gradient":
        axis = rng.choice((rows, columns))
        return np.broadcast_to(axis * 255 // (side - 1), (side, side)).astype(np.uint8)
    if kind == "stripes":
        axis = rng.choice((rows, columns, rows + columns, rows - columns))
        period, shift = rng.uniform(0.16, 0.34) * side, rng.uniform(0, side)
        on = (axis + shift) % period < period * 0.42
        return np.broadcast_to(on * np.uint8(255), (side, side))
    if kind == "checks":
        width, shift = rng.uniform(0.1, 0.2) * side, rng.uniform(0, side)
        row_parity, column_parity = ((axis + shift) // width % 2 for axis in (rows, columns))
        return np.where(row_parity == column_parity, np.uint8(0), np.uint8(255))
    if kind == "noise":
        return np.frombuffer(rng.randbytes(side * side), np.uint8).reshape(side, side)
    if kind == "spots":
        return _spots(rng, rows, columns, side)
    return np.zeros((side, side), np.uint8)


def _spots(
    rng: random.Random, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], side: int
) -> npt.NDArray[np.uint8]:
    """Soft round spots: 255 within, 0 outside."""
    share = np.zeros((side, side))
    for _ in range(rng.randint(6, 10)):
        y, x, radius = rng.uniform(0, side), rng.uniform(0, side), rng.uniform(0.1, 0.2) * side
        distance = np.sqrt((rows - y) ** 2 + (columns - x) ** 2)
        np.maximum(share, 1.6 * (1 - distance / radius), out=share)
    return (share.clip(0, 1) * 255).astype(np.uint8)


def _draw_backdrop(rng: random.Random, sprites: list[Sprite]) -> Backdrop:
    kind = rng.choices(KINDS, _KIND_WEIGHTS)[0]
    names = list(PALETTE)
    rng.shuffle(names)
    # The first colour fills most of the picture: every thing must stand out from it.
    clash = {name: max(sprite.clash[name] for sprite in sprites) for name in names}
    first = next(
        (name for name in names if clash[name] <= _MOST_CLASH), min(names, key=clash.__getitem__)
    )
    if kind in ("plain", "noise"):
        return Backdrop(kind, (first,))
    second = next(name for name in names if math.dist(PALETTE[name], PALETTE[first]) >= 110)
    return Backdrop(kind, (first, second))


def _shade(rng: random.Random, name: str) -> npt.NDArray[np.float64]:
    return np.array([value + rng.uniform(-8, 8) for value in PALETTE[name]])


def _stamp(rng: random.Random, sprite: Sprite, longest: float) -> Pixels:
    """A sprite turned and scaled, cut to what is drawn: ``(h, w, 4)`` premultiplied RGBA."""
    angle = math.radians(rng.uniform(-_MAX_TURN, _MAX_TURN))
    cos, sin = math.cos(angle), math.sin(angle)
    width, height = sprite.levels[0].size
    turned = (abs(width * cos) + abs(height * sin), abs(width * sin) + abs(height * cos))
    scale = longest / max(turned)  # from the first level to the scene
    # The smallest level that still holds more pixels than are wanted.
    level = sprite.levels[max(i for i in range(len(sprite.levels)) if scale <= 0.5**i or i == 0)]
    ratio = level.size[0] / width / scale
    out = math.ceil(turned[0] * scale) + 2, math.ceil(turned[1] * scale) + 2
    a, b, d, e = cos * ratio, sin * ratio, -sin * ratio, cos * ratio
    c = level.size[0] / 2 - a * out[0] / 2 - b * out[1] / 2
    f = level.size[1] / 2 - d * out[0] / 2 - e * out[1] / 2
    moved = level.transform(
        out, Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BILINEAR
    )
    pixels = np.asarray(moved)
    drawn = pixels[..., 3] >= _DRAWN
    rows, columns = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
    cut = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].copy()
    cut[..., :3] = cut[..., :3] * rng.uniform(0.85, 1.0)
    return cut


def _place(rng: random.Random, sizes: list[tuple[int, int]], side: int) -> list[Box]:
    """A place for everything, the largest first; each takes the least crowded place it finds."""
    placed: dict[int, Box] = {}
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i][0] * sizes[i][1]):
        width, height = sizes[index]
        best, least = (0, 0, width, height), math.inf
        for _ in range(_PLACE_TRIES):
            left, top = rng.randint(0, side - width), rng.randint(0, side - height)
            box = (left, top, left + width, top + height)
            crowding = max((overlap(box, other) for other in placed.values()), default=0.0)
            if crowding < least:
                best, least = box, crowding
            if least <= _MAX_OVERLAP:
                break
        placed[index] = best
    return [placed[index] for index in range(len(sizes))]


def overlap(one: Box, other: Box) -> float:
    """The area two boxes share, as a share of the smaller box."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return width * height / min(areas)
