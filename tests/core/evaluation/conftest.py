import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.progress import Progress

from core.errors import DataError, ImageError
from core.evaluation.embedder import Embedder
from core.evaluation.encoder import Embedded, Encoder, Tangents
from core.evaluation.pictures import Picture, squares
from core.spaces import Lorentz, Space

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class ColourEncoder:
    """Knows three colours: a picture is its mean colour, a text the colours it names."""

    def __init__(self, space: Space | None = None, name: str = "colours") -> None:
        self.space: Space = space or Lorentz(1.0)
        self.name, self.fingerprint = name, f"{name} {self.space}".encode().hex()
        self.logit_scale: float | None = 10.0
        self.about: Mapping[str, str | int | float] = {"kind": "test"}
        self.embedded: list[str] = []
        """Every picture's name and every text that was asked for."""

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        self.embedded += [picture.name for picture in pictures]
        tangents = np.full((len(pictures), 3), np.nan, np.float32)
        faults = {}
        for row, square in enumerate(squares(pictures, 8)):
            if isinstance(square, (DataError, ImageError)):
                faults[row] = str(square)
            else:
                tangents[row] = square.mean((0, 1)) / 255
        return Embedded(tangents, faults)

    def texts(self, texts: Sequence[str]) -> Tangents:
        self.embedded += texts
        named = [[text.count(colour) for colour in COLOURS] for text in texts]
        return 0.5 * np.array(named, np.float32).reshape(-1, 3)


@pytest.fixture
def colours() -> Callable[..., ColourEncoder]:
    """Makes an encoder, of a space and a name."""
    return ColourEncoder


@pytest.fixture
def embed() -> Iterator[Callable[..., Embedder]]:
    """An embedder of an encoder that keeps nothing, or that keeps it in a folder."""
    with Progress(disable=True) as progress:
        yield lambda encoder, folder=None: Embedder(encoder, folder, progress)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three pictures of one colour each, with a caption and a part."""
    folder = tmp_path / "paint"
    folder.mkdir()
    lines = []
    for colour, rgb in COLOURS.items():
        Image.new("RGB", (16, 16), rgb).save(folder / f"{colour}.png")
        box = {"phrase": colour, "xyxy": [0, 0, 0.5, 0.5], "caption": 0, "name": colour}
        lines.append({"image": f"{colour}.png", "captions": [f"all {colour}"], "boxes": [box]})
    file = folder / "test.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Path]:
    """Makes a prepared folder of a picture for each colour named, and of more if asked.

    Keywords change the manifest; ``train`` names the colours of the training split.
    """

    def make(
        shown: Sequence[str] = ("red", "green", "blue"), train: Sequence[str] = (), **manifest: Any
    ) -> Path:
        folder = tmp_path / "prepared"
        folder.mkdir()
        for colour, rgb in COLOURS.items():
            Image.new("RGB", (16, 16), rgb).save(folder / f"{colour}.png")
        for split, colours in (("test", shown), ("train", train)):
            lines = [json.dumps({"image": f"{name}.png", "class": name}) for name in colours]
            if lines:
                (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        whole = {
            "name": "paint",
            "families": ["classification"],
            "title": "Paint",
            "split": "test",
            "source": "tests",
            "licence": "ours",
            "images": ".",
            "counts": {"test": len(shown)},
            "classes": {"plain": list(COLOURS)},
            **manifest,
        }
        (folder / "manifest.json").write_text(json.dumps(whole), encoding="utf-8")
        return folder

    return make


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Encoder], None]:
    """Makes every target of `hyper3 eval` this encoder."""
    return lambda encoder: monkeypatch.setattr(
        "core.evaluation.commands.open_encoder", lambda _: encoder
    )
