"""Image and text encoders: pixels and tokens -> features."""

from trainer.data.batch import Seen
from trainer.towers.image import ConvTower, TimmTower, build_image_tower, sincos_positions
from trainer.towers.text import VOCABULARY, TextTower

__all__ = [
    "VOCABULARY",
    "ConvTower",
    "Seen",
    "TextTower",
    "TimmTower",
    "build_image_tower",
    "sincos_positions",
]
