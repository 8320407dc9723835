"""A tiny real bundle, and services over it.

The graphs compute with fixed random weights: images are averaged over a 4 x 4 grid and multiplied
to a tangent; texts are sums of embeddings up to the end token (found as the largest id), so that
padding after it changes nothing, as in the graphs that the trainer exports.
"""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from starlette.testclient import TestClient

from core.bundle import IMAGE_GRAPH, TEXT_GRAPH, TOKENIZER, Manifest, Parity, sha256, write_manifest
from core.image import ImageSpec
from core.text import END, START, TextSpec
from service.app import create_app
from service.settings import Settings

DIM = 6
SIDE = 16
CURVATURE = 0.7
_WORDS = "a an the photo of red green blue apple dog cat house on beside"
_OPSET = 18


def make_bundle(folder: Path, seed: int = 0) -> Path:
    """A bundle whose weights the seed decides."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    _write_tokenizer(folder / TOKENIZER)
    _write_image_graph(folder / IMAGE_GRAPH, rng)
    _write_text_graph(folder / TEXT_GRAPH, rng)
    names = (IMAGE_GRAPH, TEXT_GRAPH, TOKENIZER)
    manifest = Manifest(
        name="tiny",
        dim=DIM,
        curvature=CURVATURE,
        logit_scale=9.0,
        image=ImageSpec(side=SIDE),
        text=TextSpec(context_length=12),
        recipe_digest="0" * 64,
        weights_digest="0" * 64,
        step=1,
        parity=Parity(worst_error=0, mean_error=0, rank_agreement=1, samples=1),
        files={name: sha256(folder / name) for name in names},
    )
    write_manifest(folder, manifest)
    return folder


def draw_picture(colour: str = "red", size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    """An image file with some structure."""
    image = Image.new("RGB", size, colour)
    image.paste("white", (0, 0, size[0] // 3, size[1] // 2))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture(scope="session")
def other_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle") / "other", seed=1)


@pytest.fixture
def picture() -> Callable[..., bytes]:
    return draw_picture


@pytest.fixture
def serve(bundle: Path, tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """Starts services in this process, each over its own data folder."""
    opened: list[TestClient] = []

    def start(**settings: object) -> TestClient:
        given = {"bundle": bundle, "data": tmp_path / f"data{len(opened)}"} | settings
        client = TestClient(create_app(Settings(**given)))  # type: ignore[arg-type]  # by name
        client.__enter__()
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.__exit__()


@pytest.fixture
def http(serve: Callable[..., TestClient]) -> TestClient:
    return serve()


@dataclass
class Server:
    """A service in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str
    greeting: str

    def stop(self, how: signal.Signals) -> str:
        """Send a signal, wait for the end, and return what was still printed."""
        self.process.send_signal(how)
        _, rest = self.process.communicate(timeout=30)
        return rest


def start_server(bundle: Path, data: Path, **settings: object) -> Server:
    """`hyper3 serve` on a free port of the loopback."""
    variables = {f"H3_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [*_HYPER3, "serve", "--bundle", str(bundle), "--data", str(data), "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"COLUMNS": "200"} | variables,
    )
    assert process.stderr is not None
    greeting = ""
    for line in process.stderr:
        greeting += line
        if "/docs" in line:
            break
    else:
        raise AssertionError(f"the service did not start:\n{greeting}")
    url = next(word for word in greeting.split() if word.startswith("http://"))
    for _ in range(100):
        if httpx.get(f"{url}/livez").is_success:
            return Server(process, url, greeting)
        time.sleep(0.05)
    raise AssertionError("the service does not answer")


_HYPER3 = [sys.executable, "-c", "from core.cli import main; main()"]


@pytest.fixture
def launch(bundle: Path) -> Iterator[Callable[..., Server]]:
    """Starts services in processes of their own."""
    started: list[Server] = []

    def start(data: Path, **settings: object) -> Server:
        started.append(start_server(bundle, data, **settings))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.stop(signal.SIGTERM)
        if running.process.stderr is not None:
            running.process.stderr.close()


@pytest.fixture
def hyper3() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs the command in a process of its own."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*_HYPER3, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"COLUMNS": "200"},
        )

    return run


@pytest.fixture
def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _write_tokenizer(path: Path) -> None:
    words = ["[UNK]", START, *_WORDS.split(), END]
    vocabulary = {word: place for place, word in enumerate(words)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path.write_text(tokenizer.to_str(), encoding="utf-8")


def _write_image_graph(path: Path, rng: np.random.Generator) -> None:
    weights = {"image_weight": rng.normal(size=(3 * 16, DIM)) * 0.2}
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["grid"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["grid"], ["flat"]),
        helper.make_node("MatMul", ["flat", "image_weight"], ["tangent"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    _write_graph(path, nodes, weights, pixels)


def _write_text_graph(path: Path, rng: np.random.Generator) -> None:
    size = len(_WORDS.split()) + 3
    weights = {"embedding": rng.normal(size=(size, DIM)) * 0.4}
    constants = {"axis": np.array([1], np.int64), "one": np.array(1, np.int64)}
    nodes = [
        helper.make_node("ArgMax", ["tokens"], ["end"], axis=1, keepdims=1),
        helper.make_node("Shape", ["tokens"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["places"]),
        helper.make_node("LessOrEqual", ["places", "end"], ["counts"]),
        helper.make_node("Cast", ["counts"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Gather", ["embedding", "tokens"], ["embedded"]),
        helper.make_node("Mul", ["embedded", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["tangent"], keepdims=0),
    ]
    constants |= {"zero": np.array(0, np.int64), "last": np.array([2], np.int64)}
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "length"])
    _write_graph(path, nodes, weights, tokens, constants)


def _write_graph(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"],
    given: onnx.ValueInfoProto,
    constants: dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"] | None = None,
) -> None:
    """Nodes that give a tangent, followed by the lift."""
    root = np.float32(CURVATURE**0.5)
    arrays = {name: value.astype(np.float32) for name, value in weights.items()}
    arrays |= {"root": np.array(root), "tiny": np.array(1e-9, np.float32)}
    arrays |= {"inverse": np.array(1 / CURVATURE, np.float32), "half": np.array(0.5, np.float32)}
    lift = [
        helper.make_node("ReduceL2", ["tangent", "rows"], ["norm"], keepdims=1),
        helper.make_node("Mul", ["norm", "root"], ["scaled_"]),
        helper.make_node("Max", ["scaled_", "tiny"], ["scaled"]),
        helper.make_node("Exp", ["scaled"], ["up"]),
        helper.make_node("Reciprocal", ["up"], ["down"]),
        helper.make_node("Sub", ["up", "down"], ["twice"]),
        helper.make_node("Mul", ["twice", "half"], ["sinh"]),
        helper.make_node("Div", ["sinh", "scaled"], ["factor"]),
        helper.make_node("Mul", ["tangent", "factor"], ["space"]),
        helper.make_node("ReduceSumSquare", ["space", "rows"], ["square"], keepdims=1),
        helper.make_node("Add", ["square", "inverse"], ["time_square"]),
        helper.make_node("Sqrt", ["time_square"], ["time"]),
        helper.make_node("Concat", ["time", "space"], ["point"], axis=1),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in arrays.items()]
    whole = {"rows": np.array([1], np.int64)} | (constants or {})
    tensors += [numpy_helper.from_array(value, name) for name, value in whole.items()]
    out = [
        helper.make_tensor_value_info("tangent", TensorProto.FLOAT, ["n", DIM]),
        helper.make_tensor_value_info("point", TensorProto.FLOAT, ["n", DIM + 1]),
    ]
    graph = helper.make_graph([*nodes, *lift], path.stem, [given], out, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
