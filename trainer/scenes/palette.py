"""The colours a backdrop can have, and how English names them."""

from collections.abc import Mapping

Colour = tuple[int, int, int]  # red, green, blue in 0..255

PALETTE: Mapping[str, Colour] = {
    "red": (214, 42, 42),
    "orange": (247, 140, 24),
    "yellow": (250, 220, 54),
    "light green": (160, 226, 140),
    "green": (52, 162, 64),
    "dark green": (18, 84, 38),
    "teal": (18, 148, 148),
    "light blue": (160, 210, 246),
    "blue": (40, 98, 220),
    "dark blue": (20, 32, 104),
    "purple": (128, 54, 176),
    "pink": (250, 156, 194),
    "brown": (128, 80, 42),
    "beige": (236, 222, 190),
    "white": (252, 252, 252),
    "grey": (148, 148, 150),
    "black": (18, 18, 20),
}
