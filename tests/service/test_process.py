"""A real `hyper3 serve`: killed, stopped, started twice, overloaded, asked by the commands."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from core.errors import NotFound, TextError
from service.client import Client

Launch = Callable[..., Any]
Hyper3 = Callable[..., "subprocess.CompletedProcess[str]"]
Picture = Callable[..., bytes]


def write_until_killed(url: str, name: str, acknowledged: list[str]) -> None:
    """Put items one request after another; note those whose answer came."""
    with httpx.Client(base_url=url) as http:
        for number in range(100_000):
            ids = [f"{name}-{number}-{part}" for part in range(3)]
            items = [{"id": id_, "text": "a red dog"} for id_ in ids]
            try:
                if http.put("/items", json={"items": items}).is_success:
                    acknowledged.extend(ids)
            except httpx.HTTPError:
                return


def test_no_acknowledged_item_is_lost_when_the_service_is_killed(
    launch: Launch, tmp_path: Path
) -> None:
    acknowledged: list[str] = []
    for attempt in range(3):
        server = launch(tmp_path / "data")
        with Client(server.url) as client:
            stored = {item.id for item in client.items()}
            assert set(acknowledged) <= stored
            assert client.info()["items"] == len(stored)
        writers = [
            threading.Thread(
                target=write_until_killed, args=(server.url, f"{attempt}-{writer}", acknowledged)
            )
            for writer in range(4)
        ]
        before = len(acknowledged)
        for writer in writers:
            writer.start()
        while len(acknowledged) < before + 60:
            pass_time()
        server.stop(signal.SIGKILL)
        for writer in writers:
            writer.join()
    with Client(launch(tmp_path / "data").url) as client:
        assert set(acknowledged) <= {item.id for item in client.items()}
        hits = client.search("a red dog", k=1000).hits
        assert set(acknowledged) <= {hit.id for hit in hits} or len(hits) == 1000
        assert max(hit.distance for hit in hits) == 0


def pass_time() -> None:
    threading.Event().wait(0.02)


def test_sigterm_finishes_what_was_taken_and_says_so(launch: Launch, tmp_path: Path) -> None:
    server = launch(tmp_path / "data")
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"items": [{"id": "late", "text": "a dog"}]}).encode()
    head = (
        f"PUT /items HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body[:10])
        pass_time()
        server.process.send_signal(signal.SIGTERM)
        pass_time()
        connection.sendall(body[10:])
        assert b"200 OK" in connection.recv(1000)
    _, rest = server.process.communicate(timeout=30)
    assert server.process.returncode == 0
    assert "everything that was acknowledged is on the disk" in rest
    with Client(launch(tmp_path / "data").url) as client:
        assert client.item("late").text == "a dog"


def test_requests_beyond_the_limit_get_429_and_slow_bodies_are_cut_off(
    launch: Launch, tmp_path: Path
) -> None:
    server = launch(tmp_path / "data", max_requests=1, body_timeout_s=1)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        pass_time()
        refused = httpx.post(f"{server.url}/embed", json={"texts": ["dog"]})
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{server.url}/livez").is_success
        answer = b"".join(iter(lambda: connection.recv(4000), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 1 s" in answer
    assert httpx.post(f"{server.url}/embed", json={"texts": ["dog"]}).is_success


def test_a_second_process_and_another_model_are_refused(
    launch: Launch, hyper3: Hyper3, bundle: Path, other_bundle: Path, tmp_path: Path
) -> None:
    server = launch(tmp_path / "data")
    second = hyper3("serve", "--bundle", bundle, "--data", tmp_path / "data", "--port", 0)
    assert second.returncode == 2
    assert f"in use by another process ({server.process.pid})" in second.stderr
    port = server.url.rpartition(":")[2]
    same = hyper3("serve", "--bundle", bundle, "--data", tmp_path / "more", "--port", port)
    assert (same.returncode, "choose another --port" in same.stderr) == (2, True)
    server.stop(signal.SIGTERM)
    other = hyper3("serve", "--bundle", other_bundle, "--data", tmp_path / "data", "--port", 0)
    assert (other.returncode, "serve the bundle they were made with" in other.stderr) == (2, True)


def test_serving_nothing_or_no_bundle_says_what_to_give(hyper3: Hyper3, tmp_path: Path) -> None:
    nothing = hyper3("serve")
    assert (nothing.returncode, "--bundle" in nothing.stderr) == (2, True)
    empty = hyper3("serve", "--bundle", tmp_path, "--data", tmp_path / "data", "--port", 0)
    assert (empty.returncode, "hyper3 export" in empty.stderr) == (2, True)
    assert "Traceback" not in nothing.stderr + empty.stderr


def test_a_host_that_has_no_address_is_named(hyper3: Hyper3, bundle: Path, tmp_path: Path) -> None:
    for host in ("no.such.host.invalid", "é" * 70):
        done = hyper3(
            "serve", "--bundle", bundle, "--data", tmp_path / "data", "--port", 0, "--host", host
        )
        assert done.returncode == 2
        assert f"host '{host}' has no address; choose another --host" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_bundle_with_another_curvature_is_not_served(
    hyper3: Hyper3, bundle: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    manifest = json.loads((copy / "manifest.json").read_text()) | {"curvature": 3.5}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    done = hyper3("serve", "--bundle", copy, "--data", tmp_path / "data", "--port", 0)
    assert done.returncode == 2
    assert "curvature = 3.5; export the model again" in done.stderr
    assert "Serving" not in done.stderr


def test_clients_that_leave_in_the_middle_of_a_body_are_no_error(
    launch: Launch, tmp_path: Path
) -> None:
    server = launch(tmp_path / "data")
    host, port = server.url.removeprefix("http://").split(":")
    json_, form = "application/json", "multipart/form-data; boundary=b"
    part = b'--b\r\ncontent-disposition: form-data; name="texts"\r\n\r\na do'
    calls = [
        ("POST /embed", json_, b"{"), ("POST /embed", "image/png", b"\x89PNG"),
        ("POST /embed", form, part), ("POST /search", json_, b"{"),
        ("POST /classify", json_, b"{"), ("PUT /items", json_, b"{"),
    ]  # fmt: skip
    for what, kind, body in calls:
        head = f"{what} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: 999\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            pass_time()
        assert httpx.get(f"{server.url}/livez").is_success
    pass_time()
    rest = server.stop(signal.SIGTERM)
    assert rest.count("the client left before its body was here") == len(calls)
    assert "ERROR" not in rest
    assert "Traceback" not in rest


def test_commands_without_a_service_say_how_to_start_one(
    hyper3: Hyper3, tmp_path: Path, free_port: int
) -> None:
    url = f"http://127.0.0.1:{free_port}"
    for command in (("search", "dog"), ("index", tmp_path)):
        done = hyper3(*command, "--url", url)
        assert done.returncode == 2
        assert f"no service at {url} (" in done.stderr
        assert "start one with `hyper3 serve --bundle ...`" in done.stderr


def test_a_folder_is_indexed_resumed_and_searched_from_the_shell(
    launch: Launch, hyper3: Hyper3, picture: Picture, tmp_path: Path
) -> None:
    url = launch(tmp_path / "data").url
    photos = tmp_path / "photos"
    (photos / "deep").mkdir(parents=True)
    for name in ("red", "green", "deep/blue"):
        (photos / f"{name}.png").write_bytes(picture(name.rpartition("/")[2]))
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (photos / "notes.txt").write_text("not a picture")
    first = hyper3("index", photos, "--url", url, "--batch", 2)
    assert "3 stored, 0 were there, 1 could not be used; the service holds 3" in first.stderr
    assert "broken.jpg: " in first.stderr
    (photos / "broken.jpg").unlink()
    again = hyper3("index", photos, "--url", url)
    assert "0 stored, 3 were there, 0 could not be used" in again.stderr
    sheet = tmp_path / "sheet.png"
    found = hyper3(
        "search", "--image", photos / "deep/blue.png", "--k", 2, "--url", url, "--save", sheet
    )
    assert "deep/blue.png" in found.stdout.splitlines()[4]
    assert "0.0000" in found.stdout.splitlines()[4]
    assert Image.open(sheet).getpixel((108, 108)) == (0, 0, 255)
    words = hyper3("search", "a red dog", "--url", url)
    assert words.returncode == 0
    assert words.stdout.count(".png") == 3


def test_records_give_their_captions_as_metadata(
    launch: Launch, hyper3: Hyper3, picture: Picture, tmp_path: Path
) -> None:
    url = launch(tmp_path / "data").url
    (tmp_path / "a.png").write_bytes(picture())
    records = tmp_path / "all.jsonl"
    lines = [{"image": "a.png", "captions": ["A red thing.", "Red."]}, {"image": "gone.png"}]
    records.write_text("\n".join(map(json.dumps, lines)))
    done = hyper3("index", records, "--url", url)
    assert "1 stored, 0 were there, 1 could not be used" in done.stderr
    assert "gone.png: No such file" in done.stderr
    assert "A red thing." in hyper3("search", "red", "--url", url).stdout
    records.write_text('{"picture": "a.png"}')
    wrong = hyper3("index", tmp_path, "--records", records, "--url", url)
    assert (wrong.returncode, "all.jsonl:1" in wrong.stderr) == (2, True)


def test_the_client_speaks_for_every_endpoint(
    launch: Launch, picture: Picture, tmp_path: Path
) -> None:
    with Client(launch(tmp_path / "data").url) as client:
        points = client.embed(["a dog"], [picture()])
        assert points.shape == (2, 7)
        assert points.dtype == np.float32
        items: list[dict[str, Any]] = [
            {"id": "p/1", "image": picture(), "metadata": {"a": 1}},
            {"id": "t", "text": "a dog"},
            {"id": "v", "vector": points[0].tolist()},
        ]
        assert client.put_items(items).stored == 3
        assert client.item("p/1").metadata == {"a": 1}
        assert client.picture("p/1") == picture()
        hits = client.search(vector=points[0].tolist(), k=2).hits
        assert [(hit.id, hit.distance) for hit in hits] == [("t", 0), ("v", 0)]
        assert client.search(image=picture(), k=1).hits[0].id == "p/1"
        (named,) = client.classify(["dog", "cat"], texts=["dog"], top=1).results
        assert named.labels[0].label == "dog"
        client.delete("t")
        assert [item.id for item in client.items()] == ["p/1", "v"]
        with pytest.raises(NotFound, match="'t'"):
            client.item("t")
        with pytest.raises(TextError, match="blank"):
            client.search(" ")


def test_a_running_service_has_not_imported_torch(bundle: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from starlette.testclient import TestClient
from service.app import create_app
from service.settings import Settings
import service.client, service.commands.indexing, service.commands.serving
import service.commands.showing
with TestClient(create_app(Settings(bundle={str(bundle)!r}, data={str(tmp_path)!r}))) as http:
    assert http.put("/items", json={{"items": [{{"id": "a", "text": "a dog"}}]}}).is_success
    assert http.post("/search", json={{"text": "dog"}}).is_success
assert not {{"torch", "timm", "open_clip", "trainer", "onnx"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
