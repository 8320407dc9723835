"""Small shards and a small recipe, made by the project's own writer, and a server of files."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer.config import Recipe
from trainer.data.sample import Part, Sample
from trainer.data.shard_writer import encode_jpeg, write_shard

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230)}
SIDE = 32


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked gpu are skipped where there is none."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def picture(colour: str, side: int, seed: int) -> bytes:
    """A noisy square of one colour, as JPEG."""
    noise = np.random.default_rng(seed).integers(-20, 20, (side, side, 3))
    return encode_jpeg(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8))


def sample(number: int, captions: int = 1) -> Sample:
    """The ``number``-th sample; ``captions`` of them share a photo."""
    colour = list(COLOURS)[number % 3]
    parts = tuple(
        Part(picture(colour, 16, number + part), f"a {colour} thing {part}", colour)
        for part in range(number % 4)
    )
    return Sample(
        photo=f"photo/{number // captions}",
        jpeg=picture(colour, SIDE, number),
        text=f"A {colour} square, number {number}, with {len(parts)} things. It is {colour}.",
        parts=parts,
    )


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder of two shards, 24 samples in all."""
    folder = tmp_path / "train"
    for shard in range(2):
        rows = range(12 * shard, 12 * shard + 12)
        write_shard(folder / f"{shard:05d}.tar", [sample(row) for row in rows])
    return folder


@pytest.fixture
def recipe(shards: Path, tmp_path: Path) -> Recipe:
    """A recipe that trains on those shards for six steps within a second or two."""
    return Recipe.model_validate({
        "name": "tiny",
        "data": {
            "train": str(shards), "val": str(shards), "side": SIDE, "workers": 0,
        },
        "image_tower": {"kind": "conv", "widths": [8, 16]},
        "text_tower": {"width": 32, "layers": 1, "heads": 2},
        "model": {"dim": 16, "pooling_heads": 4},
        "optim": {
            "batch_size": 8, "steps": 6, "warmup_steps": 2, "peak_lr": 1e-3, "precision": "fp32",
        },
        "run": {
            "out": tmp_path / "run", "device": "cpu", "log_every": 1, "eval_every": 3,
            "save_every": 3,
        },
    })  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a folder ``tmp_path / "www"``, over HTTP."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            rest_from = self.headers.get("Range")
            if rest_from is None:
                super().do_GET()
                return
            first = int(rest_from.removeprefix("bytes=").rstrip("-"))
            rest = (folder / self.path.lstrip("/")).read_bytes()[first:]
            self.send_response(206 if rest else 416)
            self.send_header("Content-Length", str(len(rest)))
            self.send_header("Content-Range", f"bytes {first}-{first + len(rest) - 1}/*")
            self.end_headers()
            self.wfile.write(rest)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()
