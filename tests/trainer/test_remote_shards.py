"""Shards at addresses, from a server of our own and from commands: whole, once, or not at all."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from core.errors import ConfigError, DataError, StorageError
from trainer.data.address import absent, copy_of
from trainer.data.index import open_shards
from trainer.data.remote import fetch
from trainer.data.shards import find_shards, index_shards, read_sample
from trainer.downloads import transfer

QUIET = Console(quiet=True)


@dataclass
class Served:
    """Files of a server, how it fails, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # name and range of each request
    breaks: list[int] = field(default_factory=list)  # bytes after which the next answers end
    status: int = 200
    says_length: bool = True
    claims: int | None = None  # a length that is not true
    shift: int = 0  # bytes by which the rest that comes is another than the one asked for
    location: str = ""
    pause_s: float = 0.0  # between pieces of 10,000 bytes


class Handler(BaseHTTPRequestHandler):
    def __init__(self, served: Served, *args: Any) -> None:
        self.served = served
        super().__init__(*args)

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        served, name = self.served, self.path.lstrip("/")
        extent = self.headers.get("Range", "")
        served.asked.append((name, extent))
        if name not in served.files or served.status != 200:
            self.send_response(404 if name not in served.files else served.status)
            self.send_header("Location", served.location)
            self.end_headers()
            return
        content = served.files[name]
        first, _, last = extent.removeprefix("bytes=").partition("-")
        if extent and not last:
            first = str(int(first) - served.shift)
        rest = content[int(first or 0) : int(last) + 1 if last else None]
        self.send_response(206 if extent else 200)
        if served.says_length:
            total = served.claims or len(content)
            self.send_header("Content-Length", str(len(rest)))
            self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        self.send_header("ETag", f'"{hash(content)}"')
        self.end_headers()
        if not last and served.breaks:
            rest = rest[: served.breaks.pop(0)]
        for start in range(0, len(rest), 10_000):
            self.wfile.write(rest[start : start + 10_000])
            time.sleep(served.pause_s)


@pytest.fixture
def served(shards: Path) -> Iterator[Served]:
    """A server of the two shards."""
    served = Served(files={path.name: path.read_bytes() for path in shards.iterdir()})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, served)) as http:
        served.address = f"http://127.0.0.1:{http.server_port}/{{00000..00001}}.tar"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield served
        http.shutdown()
        thread.join()


def bring(pattern: str, cache: Path) -> None:
    """Fetch without long pauses."""
    cache.mkdir(exist_ok=True)
    addresses = [pattern.replace("{00000..00001}", name) for name in ("00000", "00001")]
    fetch(absent(addresses, cache), cache, QUIET, pause_s=0.01)


def kept(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(cache.glob("*/*.tar"))}


def test_shards_of_a_server_are_those_on_its_disk_and_are_fetched_once(
    served: Served, shards: Path, tmp_path: Path
) -> None:
    index = open_shards(served.address, tmp_path / "cache", QUIET)
    here = index_shards(find_shards(str(shards)))
    assert [path.name for path in index.shards] == ["00000.tar", "00001.tar"]
    assert len(index) == len(here) == 24
    assert all(read_sample(index, number) == read_sample(here, number) for number in range(24))
    served.asked.clear()
    again = open_shards(served.address, tmp_path / "cache", QUIET)
    assert np.array_equal(again.offset, index.offset)
    assert find_shards(served.address, tmp_path / "cache") == list(index.shards)
    assert served.asked == []


def test_a_transfer_that_breaks_off_goes_on_from_there(served: Served, tmp_path: Path) -> None:
    served.breaks = [3000, 5000, 100, 1, 7000, 20]
    bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == served.files
    ranges = [extent for _, extent in served.asked if extent not in {"", "bytes=0-0"}]
    assert len(ranges) == 6
    assert all(extent.endswith("-") for extent in ranges)
    assert not list(tmp_path.rglob("*.partial"))


def test_a_server_that_always_breaks_off_is_named_and_the_beginning_stays(
    served: Served, tmp_path: Path
) -> None:
    served.breaks = [1000] + 100 * [0]
    with pytest.raises(DataError, match=r"0000\d\.tar: the transfer was cut off, 5 times"):
        bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == {}
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.partial")) == 1000


def test_what_a_killed_process_had_fetched_is_not_fetched_again(
    served: Served, tmp_path: Path
) -> None:
    served.files = {name: content * 40 for name, content in served.files.items()}
    served.pause_s = 0.02
    code = (
        "import sys; from pathlib import Path; from rich.console import Console\n"
        "from trainer.data.index import open_shards\n"
        "open_shards(sys.argv[1], Path(sys.argv[2]), Console(quiet=True))"
    )
    cache = tmp_path / "cache"
    with subprocess.Popen([sys.executable, "-c", code, served.address, str(cache)]) as process:
        while sum(path.stat().st_size for path in cache.rglob("*.partial")) < 1_000_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    had = {path.name[1:10]: path.stat().st_size for path in cache.rglob("*.partial")}
    assert kept(cache) == {}
    served.asked.clear()
    served.pause_s = 0.0
    bring(served.address, cache)
    assert kept(cache) == served.files
    for name, size in had.items():
        assert (name, f"bytes={size}-" if size else "") in served.asked


def test_the_rest_of_another_content_is_never_put_behind_a_beginning(
    served: Served, tmp_path: Path
) -> None:
    served.breaks = [1000] + 100 * [0]
    with pytest.raises(DataError):
        bring(served.address, tmp_path / "cache")
    served.breaks = []
    served.files = {name: content + bytes(512) for name, content in served.files.items()}
    bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == served.files
    assert not list(tmp_path.rglob("*.partial"))


def test_a_rest_from_another_byte_than_asked_for_is_not_put_behind(
    served: Served, tmp_path: Path
) -> None:
    served.shift = 500
    whole = served.files["00000.tar"]
    (tmp_path / "partial").write_bytes(whole[:1000])
    url = served.address.replace("{00000..00001}", "00000")
    transfer(url, tmp_path / "partial", lambda _had, _total: None)
    assert (tmp_path / "partial").read_bytes() == whole


def test_bytes_that_come_again_and_again_are_no_progress(served: Served, tmp_path: Path) -> None:
    served.breaks, served.shift = 40 * [3000, 0, 1000], 500
    with pytest.raises(DataError, match="the transfer was cut off, 5 times"):
        bring(served.address, tmp_path / "cache")


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_shard_that_is_not_there_is_named_at_once(
    served: Served, tmp_path: Path, status: int
) -> None:
    served.status = status
    with pytest.raises(DataError, match=rf"00000\.tar: {status} .*look whether the address"):
        bring(served.address, tmp_path / "cache")
    assert len(served.asked) <= 2


def test_a_busy_server_is_asked_again(served: Served, tmp_path: Path) -> None:
    served.status = 503
    threading.Timer(0.03, lambda: setattr(served, "status", 200)).start()
    bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == served.files


def test_a_length_that_is_not_true_is_an_error(served: Served, tmp_path: Path) -> None:
    served.claims = 10 * 2**20
    with pytest.raises(DataError, match="not the 10,485,760 announced"):
        bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == {}


@pytest.mark.parametrize("says_length", [True, False])
def test_a_page_instead_of_a_shard_is_not_kept(
    served: Served, tmp_path: Path, says_length: bool
) -> None:
    served.says_length = says_length
    served.files["00001.tar"] = b"<!doctype html>Please sign in." * 100
    with pytest.raises(DataError, match=r"00001\.tar: what came is no whole tar"):
        bring(served.address, tmp_path / "cache")
    assert "00001.tar" not in kept(tmp_path / "cache")


def test_a_server_that_tells_no_length_is_believed_if_the_tar_ends(
    served: Served, tmp_path: Path
) -> None:
    served.says_length = False
    served.breaks = 100 * [5000]
    with pytest.raises(DataError, match=r"cut short|end of the archive is missing"):
        bring(served.address, tmp_path / "cache")
    served.breaks = [5000, 100, 0]  # and asked again if it does not
    bring(served.address, tmp_path / "cache")
    assert kept(tmp_path / "cache") == served.files


def test_what_no_disk_can_hold_is_said_before_anything_is_fetched(
    served: Served, tmp_path: Path
) -> None:
    served.claims = 10**18
    with pytest.raises(StorageError, match=r"take 2\.0 EB, and .* are free .*data\.cache"):
        bring(served.address, tmp_path / "cache")
    assert {extent for _, extent in served.asked} == {"bytes=0-0"}


def test_a_redirection_to_a_file_of_this_machine_is_refused(
    served: Served, tmp_path: Path, shards: Path
) -> None:
    served.status, served.location = 302, f"file://{shards}/00000.tar"
    with pytest.raises(DataError, match=r"00000\.tar: 302"):
        bring(served.address, tmp_path / "cache")


def test_of_two_runs_that_start_at_once_one_fetches(served: Served, tmp_path: Path) -> None:
    served.pause_s = 0.05
    with ThreadPoolExecutor(2) as pool:
        opened = [
            pool.submit(open_shards, served.address, tmp_path / "cache", QUIET) for _ in range(2)
        ]
        assert {len(index.result()) for index in opened} == {24}
    wholes = [name for name, extent in served.asked if not extent]
    assert sorted(wholes) == ["00000.tar", "00001.tar"]


def test_a_shard_that_is_named_twice_is_fetched_once(served: Served, tmp_path: Path) -> None:
    pattern = served.address.replace("{00000..00001}", "{00000,00000}")
    assert len(open_shards(pattern, tmp_path / "cache", QUIET)) == 24
    assert [name for name, extent in served.asked if not extent] == ["00000.tar"]


def test_what_a_command_writes_is_a_shard(shards: Path, tmp_path: Path) -> None:
    pattern = f"pipe:cat '{shards}/{{00000..00001}}.tar' | cat"
    index = open_shards(pattern, tmp_path / "cache", QUIET)
    assert len(index) == 24
    assert len({path.name for path in index.shards}) == 2


@pytest.mark.parametrize(
    ("command", "match"),
    [
        ("echo no such bucket >&2; exit 3", "status 3: no such bucket"),
        ("no-such-command-at-all", "status 127: .*not found"),
        ("head -c 5000 '{}'", "no whole tar"),
        ("true", "no whole tar: .*empty"),
    ],
)
def test_a_command_that_fails_or_stops_half_way_is_an_error(
    shards: Path, tmp_path: Path, command: str, match: str
) -> None:
    address = f"pipe:{command}".replace("{}", str(shards / "00000.tar"))
    (tmp_path / "cache").mkdir()
    with pytest.raises(DataError, match=match):
        fetch([address], tmp_path / "cache", QUIET, pause_s=0.01)
    assert kept(tmp_path / "cache") == {}


def test_a_silent_command_ends_when_another_shard_fails(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    silent = f"pipe:echo $$ >{pid}; exec sleep 600"
    wrong = f"pipe:until [ -s {pid} ]; do sleep 0.01; done; exit 127"
    (tmp_path / "cache").mkdir()
    start = time.monotonic()
    with pytest.raises(DataError, match="status 127"):
        fetch([silent, wrong], tmp_path / "cache", QUIET)
    assert time.monotonic() - start < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("http://localhost/ä.tar", "cannot hold 'ä'; percent-encode it, as %C3%A4"),
        ("http://localhost/a b.tar", "cannot hold ' '; percent-encode it, as %20"),
        ("http://localhost:port/a.tar", r"not an address \(Port could not be cast"),
        ("http://localhost:99999/a.tar", r"not an address \(Port out of range"),
        ("http://[::1/a.tar", r"not an address \(Invalid IPv6"),
        ("http:///a.tar", r"not an address \(no host"),
        ("http://ann:secret@localhost/a.tar", "^http://\\*{3}@localhost/a.tar: names and pass"),
        ("http://ann:secret@localhost/ä.tar", "^http://\\*{3}@localhost/ä.tar: "),
    ],
)
def test_what_is_no_address_is_named_with_a_remedy_and_no_password(
    tmp_path: Path, address: str, match: str
) -> None:
    with pytest.raises(DataError, match=match) as raised:
        open_shards(address, tmp_path, QUIET)
    assert "secret" not in str(raised.value)


def test_a_redirection_to_no_address_is_named_at_once(served: Served, tmp_path: Path) -> None:
    served.status, served.location = 302, "http://127.0.0.1:port/"
    with pytest.raises(DataError, match=r"00000\.tar: it, or what it redirects to, is not"):
        bring(served.address, tmp_path / "cache")
    assert len(served.asked) <= 2


def test_object_storage_is_read_by_its_own_program(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for program, place in (("aws", 4), ("gcloud", 3)):
        (programs / program).write_text(f'#!/bin/sh\nexec cat "{shards}/${{{place}##*/}}"\n')
        (programs / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for scheme in ("s3", "gs"):
        pattern = f"{scheme}://bucket/train/{{00000..00001}}.tar"
        assert len(open_shards(pattern, tmp_path / scheme, QUIET)) == 24
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"s3://bucket/7\.tar: the command aws is not installed"):
        open_shards("s3://bucket/7.tar", tmp_path / "cache", QUIET)


def test_addresses_without_a_folder_to_fetch_into_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name a folder for them, data\.cache=FOLDER"):
        open_shards("https://example.org/{0..3}.tar", None, QUIET)
    with pytest.raises(DataError, match=r"fetches such shards into data\.cache"):
        find_shards("https://example.org/0.tar")
    with pytest.raises(DataError, match="https, http, s3 or gs, not ftp"):
        open_shards("ftp://example.org/0.tar", tmp_path, QUIET)


def test_no_address_leads_out_of_the_folder(tmp_path: Path) -> None:
    addresses = [
        "https://a/../../x.tar", "https://a", "https://../..", "s3://b/%2e%2e/..", "pipe:../../x",
        "https://a/x.tar?part=1", "https://a/x.tar?part=2", "https://b/x.tar",
        "https://b/x y.tar", "https://b/x_y.tar", "https://b/.x.tar", "https://b/" + 300 * "x",
    ]  # fmt: skip
    copies = [copy_of(address, tmp_path) for address in addresses]
    assert len(set(copies)) == len(addresses)
    assert all(copy.resolve().parent.parent == tmp_path.resolve() for copy in copies)
    assert all(copy.suffix == ".tar" for copy in copies)


def test_headers_are_read_once_and_again_when_a_shard_has_changed(
    shards: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache"
    first = open_shards(str(shards), cache, QUIET)
    (file,) = cache.glob("index-*.npz")
    with np.load(file) as arrays:
        changed = dict(arrays) | {"photo": arrays["photo"] + 100}
    np.savez(file, **changed)
    assert np.array_equal(open_shards(str(shards), cache, QUIET).photo, first.photo + 100)
    torn = shards / "00001.tar"
    torn.write_bytes(torn.read_bytes()[: int(first.offset[20]) + 700])
    for _ in range(2):  # read, and kept
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert len(open_shards(str(shards), cache, QUIET)) == 20
        assert "00001.tar breaks off" in caplog.text


@pytest.mark.parametrize("left", [0, 10, 300, -10])
def test_headers_are_read_anew_where_their_index_is_torn(
    shards: Path, tmp_path: Path, left: int
) -> None:
    first = open_shards(str(shards), tmp_path / "cache", QUIET)
    (file,) = (tmp_path / "cache").glob("index-*.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[:left])
    assert np.array_equal(open_shards(str(shards), tmp_path / "cache", QUIET).offset, first.offset)
    assert file.stat().st_size == len(whole)
