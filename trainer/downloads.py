"""One file from elsewhere: over HTTP, gone on with where it was cut off, or from a command.

Nothing but http and https is ever opened, whatever an address or a redirection says.
"""

import contextlib
import http.client
import os
import re
import select
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

Advance = Callable[[int, int | None], None]
"""Told how many bytes there are now, and of how many where that is known. It may raise.

A command that is silent is no reason not to be told: it is, every half second.
"""

CUT_OFF = (
    urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError,
    subprocess.CalledProcessError,
)  # fmt: skip
"""What a transfer raises when the other side is at fault; an `OSError` beside is the disk's."""

_MB = 1_000_000
_PATIENCE_S = 60
_GLANCE_S = 0.5  # between looks whether a silent command is still wanted
_LAST_WORDS = 300  # characters of what a command wrote to its standard error


class Remote(NamedTuple):
    """What a server says of a file."""

    size: int | None
    tag: str  # another for other content, where the server gives any


def ask(url: str) -> Remote:
    """Size and tag of a file, by a request for its first byte.

    Not by HEAD, which an address that is signed for reading refuses.
    """
    with _open(url, "bytes=0-0") as answer:
        headers = answer.headers
        size = headers.get("Content-Length")
        if answer.status == http.client.PARTIAL_CONTENT:
            size = headers.get("Content-Range", "").rpartition("/")[2]
        tag = headers.get("ETag") or headers.get("Last-Modified") or ""
    return Remote(int(size) if size and size.isdecimal() else None, tag)


def transfer(url: str, partial: Path, advance: Advance) -> None:
    """Download, going on behind what is there already, if the server can.

    Raises:
        InvalidURL: The address, or one it redirects to, is none.
    """
    had = partial.stat().st_size if partial.is_file() else 0
    answer = _open(url, f"bytes={had}-" if had else None)
    if had and _first_byte(answer) != had:
        had = 0
        if answer.status == http.client.PARTIAL_CONTENT:
            answer.close()
            answer = _open(url, None)
    with answer:
        if _first_byte(answer) != had:
            raise http.client.HTTPException("a part came where the whole was asked for")
        rest = answer.headers.get("Content-Length")
        total = None if rest is None else had + int(rest)
        with partial.open("ab" if had else "wb") as file:
            had = _copy(answer, file, had, total, advance)
    if total is not None and had < total:
        raise http.client.IncompleteRead(b"", total - had)


def run_into(command: str | Sequence[str], partial: Path, advance: Advance) -> None:
    """Keep what a command writes; one that is a single string is run by the shell.

    Raises:
        CalledProcessError: It fails; its last words are in ``stderr``.
        FileNotFoundError: There is no such program.
    """
    with (
        tempfile.TemporaryFile() as told,
        partial.open("wb") as file,
        subprocess.Popen(  # noqa: S603 - what the recipe's author wrote
            command,
            bufsize=0,  # so that what can be read is seen by a poll
            shell=isinstance(command, str),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=told,
            start_new_session=True,  # so that all of a pipeline can be ended
        ) as process,
    ):
        try:
            status = _drain(process, file, advance)
        finally:
            if process.returncode is None:  # not waited for yet, so the group is still its own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if status:
            told.seek(0)
            words = told.read().decode(errors="replace").strip()[-_LAST_WORDS:]
            raise subprocess.CalledProcessError(status, command, stderr=words)


def _drain(process: subprocess.Popen[bytes], file: IO[bytes], advance: Advance) -> int:
    """Copy what a command writes until it ends; its status."""
    had, source = 0, process.stdout
    if source is not None:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        while True:
            if poll.poll(_GLANCE_S * 1000):
                chunk = source.read(_MB)
                if not chunk:
                    break
                file.write(chunk)
                had += len(chunk)
            advance(had, None)
    while True:  # it may have closed its output, and live on
        try:
            return process.wait(_GLANCE_S)
        except subprocess.TimeoutExpired:
            advance(had, None)


def _copy(
    source: http.client.HTTPResponse,
    file: IO[bytes],
    had: int,
    total: int | None,
    advance: Advance,
) -> int:
    """Copy until the source ends; the size of the file then."""
    while chunk := source.read(_MB):
        file.write(chunk)
        had += len(chunk)
        advance(had, total)
    return had


def _first_byte(answer: http.client.HTTPResponse) -> int:
    """Where in the file an answer begins; -1 if it is a part and does not say of what."""
    if answer.status != http.client.PARTIAL_CONTENT:
        return 0
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _open(url: str, extent: str | None) -> http.client.HTTPResponse:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    headers = {"Range": extent} if extent else {}
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310
        answer: http.client.HTTPResponse = opener.open(request, timeout=_PATIENCE_S)
    except (ValueError, OverflowError) as error:  # letters, or a port, that no request can hold
        raise http.client.InvalidURL(str(error)) from error
    return answer
