"""A running service measured as a model: the same tangents as its bundle's, or a clear refusal."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from PIL import Image

from core.errors import ConfigError, FingerprintMismatch, TextError, Unavailable
from core.evaluation.encoder import open_encoder
from core.evaluation.pictures import Picture
from core.spaces import Lorentz
from service.app import create_app
from service.encoder import BundleEncoder, open_bundle_encoder
from service.remote import RemoteEncoder, open_remote
from service.settings import Settings

Start = Callable[..., str]
Launch = Callable[..., Any]

_ORIENTATION = 0x0112


@pytest.fixture
def start(tmp_path: Path, bundle: Path) -> Iterator[Start]:
    """Starts services in threads of this process; returns their addresses."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def begin(**settings: object) -> str:
        given = {"bundle": bundle, "data": tmp_path / f"data{len(running)}"} | settings
        app = create_app(Settings(**given))  # type: ignore[arg-type]  # by name
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield begin
    for server, thread in running:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def connect() -> Iterator[Callable[[str], RemoteEncoder]]:
    """Opens services as encoders, and closes their connections."""
    opened: list[RemoteEncoder] = []

    def begin(url: str) -> RemoteEncoder:
        encoder = open_remote(url)
        assert encoder is not None
        opened.append(encoder)
        return encoder

    yield begin
    for encoder in opened:
        encoder.client.close()


@pytest.fixture
def local(bundle: Path) -> Iterator[BundleEncoder]:
    encoder = open_bundle_encoder(str(bundle))
    assert encoder is not None
    yield encoder
    encoder.workers.close()


def draw(file: Path, size: tuple[int, int], seed: int, **how: Any) -> Path:
    """A blurred picture, so that a square a pixel off would show."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(file, **how)
    return file


@pytest.fixture
def gallery(tmp_path: Path) -> list[Picture]:
    """Every way in which a picture can be asked for."""
    turned = Image.Exif()
    turned[_ORIENTATION] = 6
    photo = draw(tmp_path / "photo.jpg", (90, 60), 0, quality=95)
    upright = draw(tmp_path / "turned.jpg", (90, 60), 1, exif=turned, quality=95)
    large = draw(tmp_path / "large.jpg", (900, 500), 2, quality=90)
    squashed = draw(tmp_path / "squashed.png", (48, 48), 3)
    grey = tmp_path / "grey.png"
    Image.new("LA", (33, 20), (90, 120)).save(grey)
    return [
        Picture(photo, "photo"),
        Picture(upright, "turned"),
        Picture(upright, "turned, cut", "classification"),
        Picture(photo, "padded", "letterbox"),
        Picture(large, "large", "classification"),
        Picture(photo, "part", "letterbox", (0.1, 0.2, 0.7, 0.9)),
        Picture(upright, "part of turned", "retrieval", (0.5, 0.0, 1.0, 0.3)),
        Picture(squashed, "stretched back", "classification", orig_size=(640, 360)),
        Picture(squashed, "squashed anyway", "retrieval", orig_size=(640, 360)),
        Picture(squashed, "stretched part", "letterbox", (0.0, 0.0, 0.5, 1.0), (640, 360)),
        Picture(grey, "grey"),
    ]


def words(count: int) -> list[str]:
    """Texts of many lengths."""
    rng = np.random.default_rng(0)
    things = ["a", "red", "dog", "on", "the", "blue", "house", "apple,", "CAT", "größer"]
    return [" ".join(rng.choice(things, rng.integers(1, 20))) for _ in range(count)]


def test_every_picture_is_embedded_as_the_bundle_does(
    start: Start, connect: Callable[[str], RemoteEncoder], local: BundleEncoder,
    gallery: list[Picture],
) -> None:  # fmt: skip
    remote = connect(start())
    found, expected = remote.images(gallery), local.images(gallery)
    assert not found.faults
    assert not expected.faults
    np.testing.assert_allclose(found.tangents, expected.tangents, rtol=1e-5, atol=1e-5)
    apart = np.abs(expected.tangents[:, None] - expected.tangents).max(-1)
    assert (apart + np.eye(len(gallery)) > 1e-3).sum() >= len(gallery) ** 2 - 2  # one comes twice


def test_texts_of_every_length_come_back_in_their_order(
    start: Start, connect: Callable[[str], RemoteEncoder], local: BundleEncoder
) -> None:
    remote = connect(start(max_items=7))
    texts = words(100)
    np.testing.assert_allclose(remote.texts(texts), local.texts(texts), rtol=1e-5, atol=1e-6)
    assert remote.texts([]).shape == remote.images([]).tangents.shape == (0, 6)


def test_it_says_what_it_is(
    start: Start, connect: Callable[[str], RemoteEncoder], local: BundleEncoder
) -> None:
    url = start()
    remote = connect(url.replace("http://", "http://user:secret@") + "/")
    assert remote.name == "tiny at step 1 (service)"
    assert (remote.fingerprint, remote.space) == (local.fingerprint, Lorentz(0.7))
    assert remote.logit_scale == local.logit_scale == 9.0
    expected = {"kind": "service", "url": url, "recipe": "tiny", "step": 1, "side": 16}
    assert expected.items() <= remote.about.items()
    assert "secret" not in str(dict(remote.about))


def test_the_evaluation_finds_a_service_by_its_address(start: Start) -> None:
    remote = open_encoder(start())
    assert isinstance(remote, RemoteEncoder)
    assert remote.texts(["a dog"]).shape == (1, 6)
    remote.client.close()


def test_bad_pictures_spoil_no_other_and_are_named_as_the_bundle_names_them(
    start: Start, connect: Callable[[str], RemoteEncoder], local: BundleEncoder,
    gallery: list[Picture],
) -> None:  # fmt: skip
    folder = gallery[0].file.parent
    (folder / "torn.jpg").write_bytes(gallery[0].file.read_bytes()[:200])
    (folder / "text.png").write_text("no picture")
    bad = [Picture(folder / name, name) for name in ("torn.jpg", "gone.jpg", "text.png")]
    bad.append(Picture(folder / "torn.jpg", "part", "letterbox", (0, 0, 1, 0.5)))
    mixed = [item for pair in zip(gallery, bad, strict=False) for item in pair]
    found, expected = connect(start()).images(mixed), local.images(mixed)
    assert sorted(found.faults) == sorted(expected.faults) == [1, 3, 5, 7]
    for row, fault in found.faults.items():
        assert fault == expected.faults[row]
        assert str(mixed[row].file) in fault
    assert np.isnan(found.tangents).all(axis=1).tolist() == [False, True] * 4
    np.testing.assert_allclose(found.tangents, expected.tangents, rtol=1e-5, atol=1e-5)


def test_requests_keep_within_the_limits_of_the_service(
    start: Start, connect: Callable[[str], RemoteEncoder], local: BundleEncoder,
    gallery: list[Picture],
) -> None:  # fmt: skip
    remote = connect(start(max_body_bytes=9000, max_requests=1, max_waiting=3, max_items=5))
    found = remote.images(gallery * 3)
    too_large = [row for row, picture in enumerate(gallery * 3) if picture.name == "large"]
    assert sorted(found.faults) == too_large
    assert "large.jpg" in found.faults[too_large[0]]
    assert "larger H3_MAX_BODY_BYTES" in found.faults[too_large[0]]
    expected = local.images(gallery * 3).tangents
    good = np.setdiff1d(np.arange(len(gallery) * 3), too_large)
    np.testing.assert_allclose(found.tangents[good], expected[good], rtol=1e-5, atol=1e-5)
    texts = [text * 30 for text in words(40)]
    np.testing.assert_allclose(remote.texts(texts), local.texts(texts), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (" ", r"text ' ': text is blank"),
        ("dog " * 9, r"text 'dog dog .*36 characters: the limit is 30"),
        ("\ud800", r"half of a surrogate pair"),
    ],
)
def test_a_text_that_the_service_refuses_is_quoted(
    start: Start, connect: Callable[[str], RemoteEncoder], text: str, complaint: str
) -> None:
    with pytest.raises(TextError, match=complaint):
        connect(start(max_text_chars=30)).texts(["a dog", text])


def test_a_service_that_serves_another_model_now_is_found_out(
    start: Start, connect: Callable[[str], RemoteEncoder], other_bundle: Path,
    gallery: list[Picture],
) -> None:  # fmt: skip
    first, second = connect(start()), connect(start(bundle=other_bundle))
    moved = RemoteEncoder(**vars(first) | {"client": second.client})
    with pytest.raises(FingerprintMismatch, match=r"now serves the model .* is expected"):
        moved.texts(["a dog"])
    with pytest.raises(FingerprintMismatch, match=second.fingerprint):
        moved.images(gallery)


def test_a_service_that_dies_is_told_in_a_line(
    launch: Launch, tmp_path: Path, connect: Callable[[str], RemoteEncoder], gallery: list[Picture]
) -> None:
    server = launch(tmp_path / "data")
    remote = connect(server.url)
    remote.images(gallery)
    server.stop(signal.SIGKILL)
    with pytest.raises(Unavailable, match=rf"{server.url}.*(hyper3 serve|still runs)"):
        remote.images(gallery)


@pytest.fixture
def stranger() -> Iterator[Callable[[int, str, bytes], str]]:
    """Starts web servers that answer everything in one way."""
    servers: list[ThreadingHTTPServer] = []

    def begin(status: int, kind: str, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "body", "complaint"),
    [
        (404, "text/html", b"<h1>Not found</h1>", "status 404 from something that is not this"),
        (200, "text/html", b"<h1>Hello</h1>", "status 200 from something that is not this"),
        (200, "application/json", b"[]", r"its /info is not .*serve"),
        (200, "application/json", b'{"name": "another"}', r"fingerprint: Field required.*serve"),
        (404, "application/json", b'{"code": "not_found", "detail": "no such page"}',
         r"no service to measure \(no such page\); give the address"),
        (302, "text/html", b"", "status 302"),
    ],
)  # fmt: skip
def test_an_address_of_something_else_is_refused(
    stranger: Callable[[int, str, bytes], str], status: int, kind: str, body: bytes, complaint: str
) -> None:
    url = stranger(status, kind, body)
    with pytest.raises((Unavailable, ConfigError), match=complaint) as caught:
        open_encoder(url)
    assert url in str(caught.value)


def test_a_geometry_that_is_not_known_is_refused(
    stranger: Callable[[int, str, bytes], str], start: Start
) -> None:
    import httpx  # noqa: PLC0415

    info = httpx.get(f"{start()}/info").json()
    info["geometry"]["model"] = "spherical"
    url = stranger(200, "application/json", json.dumps(info).encode())
    with pytest.raises(ConfigError, match=r"geometry.model: Input should be 'lorentz'"):
        open_encoder(url)


@pytest.mark.parametrize("target", ["http://", "https:///path", "http://host:0", "http://h:99999"])
def test_half_an_address_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="no address; write http://host:port"):
        open_encoder(target)


def test_nobody_at_an_address_is_told_with_the_remedy(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with pytest.raises(Unavailable, match=rf"no service at {url} .*hyper3 serve"):
        open_encoder(url)


@pytest.mark.parametrize("target", ["bundles/demo", "ftp://host", "host:80", ""])
def test_what_is_no_address_is_not_its_business(target: str) -> None:
    assert open_remote(target) is None
