"""The members of a tar, found by hopping from header to header over what lies between."""

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from core.errors import DataError

BLOCK = 512  # bytes: the unit of a tar

Member = tuple[str, int, int, int]
"""Name, start and size of a regular file of a tar, and where its first header stands."""

# Of a header: name, size, kind, "ustar" and what ends it, prefix of the name.
_FIELDS = struct.Struct("100s24x12s20xs100x6s82x155s12x")
_POSIX, _GNU = b"ustar\0", b"ustar "
_MAGIC = frozenset((_POSIX, _GNU))


def members(data: "bytes | mmap.mmap", path: Path) -> Iterator[Member]:
    """Each regular file of a tar (ustar, GNU or POSIX), in order.

    Args:
        data: The tar, or a stretch of it that begins with a header.
        path: Its file, for messages.

    Raises:
        DataError: There is no header where one should be, or a member is cut short.
    """
    position, length = 0, len(data)
    head, long_name = 0, ""
    while position + BLOCK <= length:
        name, digits, kind, magic, prefix = _FIELDS.unpack_from(data, position)
        if magic not in _MAGIC:
            if not data[position : position + BLOCK].strip(b"\0"):
                return
            raise DataError(f"{path}: no tar header at byte {position}")
        try:
            size = int(digits.rstrip(b"\0 ") or b"0", 8)
        except ValueError as error:
            raise DataError(f"{path}: no size in the header at byte {position}") from error
        start = position + BLOCK
        if size < 0 or start + size > length:
            raise DataError(f"{path}: the member at byte {position} is cut short")
        if kind in b"0\0":
            if not long_name:
                head = position
                if prefix[0] and magic == _POSIX:  # GNU keeps times there
                    name = prefix.rstrip(b"\0") + b"/" + name.partition(b"\0")[0]
                long_name = _decoded(name, path)
            yield long_name, start, size, head
            long_name = ""
        elif kind in b"Lx":  # GNU's and POSIX's way to give the next member a long name
            head = head if long_name else position
            long_name = _long_name(kind, data[start : start + size], path) or long_name
        position = start + padded(size)


def check_end(data: mmap.mmap, path: Path) -> None:
    """A tar ends with empty blocks; one that was cut short does not.

    Raises:
        DataError: It was cut short between two members.
    """
    if data[-BLOCK:].strip(b"\0"):
        raise DataError(f"{path}: the end of the archive is missing")


def check_tar(path: Path, *, to_the_end: bool) -> None:
    """A file that is a tar begins as one, and, if it is whole, ends as one.

    Raises:
        DataError: It does not.
    """
    if path.stat().st_size == 0:
        raise DataError(f"{path}: an empty file, not a tar")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if next(members(data, path), None) is None:
            raise DataError(f"{path}: not a tar, or one without files")
        if to_the_end:
            check_end(data, path)


def padded(size: int) -> int:
    """Bytes that a content of so many bytes takes up."""
    return -(-size // BLOCK) * BLOCK


def _long_name(kind: bytes, content: bytes, path: Path) -> str:
    if kind == b"L":
        return _decoded(content, path)
    found = re.search(rb"\d+ path=([^\n]*)\n", content)
    return _decoded(found[1], path) if found else ""


def _decoded(name: bytes, path: Path) -> str:
    try:
        return name.partition(b"\0")[0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the name {name!r} is not UTF-8") from error
