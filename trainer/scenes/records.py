"""What is stored of a scene: crops and boxes of its things, and the record of a test."""

import random
from typing import Any

from PIL import Image

from core.image import resize
from trainer.data.sample import Corners
from trainer.data.shard_writer import encode_jpeg
from trainer.scenes import captions
from trainer.scenes.compose import Box, Scene


def crop(scene: Scene, box: Box, side: int) -> bytes:
    """JPEG of one box, letterboxed with white to a square."""
    left, top, right, bottom = box
    cut = Image.fromarray(scene.pixels[top:bottom, left:right])
    return encode_jpeg(resize(cut, side, "letterbox"))


def record_of(rng: random.Random, scene: Scene, image: str, text: str) -> dict[str, Any]:
    """A line of a test's JSONL; its levels are those of the widest thing, and then the caption."""
    side = scene.pixels.shape[0]
    boxes: list[dict[str, Any]] = [
        {
            "phrase": phrase,
            "xyxy": corners(box, side),
            "caption": 0,
            "name": group.thing.name,
            "group": group.thing.group,
            "kingdom": group.thing.kingdom,
        }
        for group in scene.groups
        for box, phrase in zip(
            group.boxes, captions.phrases(rng, group, side, is_exact=True), strict=True
        )
    ]
    widest = max(boxes, key=lambda box: box["xyxy"][2] - box["xyxy"][0])
    return {
        "id": f"scenes/{image.removesuffix('.png')}",
        "image": image,
        "captions": [text],
        "levels": [widest["kingdom"], widest["group"], widest["name"], text],
        "boxes": boxes,
    }


def corners(box: Box, side: int) -> Corners:
    """A box of pixels in 0..1 of the scene."""
    left, top, right, bottom = (round(value / side, 6) for value in box)
    return left, top, right, bottom
