"""Where a shard lies elsewhere: what an address is, and where its copy is kept."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from core.errors import DataError

_ADDRESS = re.compile(r"(https?|s3|gs)://|pipe:")

FORM = "write http://HOST:PORT/PATH, with any other letters percent-encoded"
"""What an address of http is to look like, for messages."""


def is_address(name: str) -> bool:
    """Whether a shard is to be fetched, not a path."""
    return _ADDRESS.match(name) is not None


def shown(text: str) -> str:
    """A text without the names and passwords that stand in its addresses."""
    return re.sub(r"(?<=://)[^/?#\s]*@", "***@", text)


def check_address(address: str) -> None:
    """Make sure that a request can be made of an address; of http and https alone.

    Raises:
        DataError: It cannot.
    """
    if not address.startswith("http"):
        return
    if letter := re.search(r"[^!-~]", address):
        raise DataError(
            f"{shown(address)}: an address cannot hold {letter[0]!r}; percent-encode it, as "
            f"{quote(letter[0], errors='replace')}"
        )
    try:
        parts = urlsplit(address)
        if "@" in parts.netloc:
            raise DataError(
                f"{shown(address)}: names and passwords in addresses are not used, and would be "
                'logged; take them out, and read the shards with "pipe:curl --netrc ADDRESS"'
            )
        wrong = None if parts.hostname and parts.port != 0 else "no host, or port 0"
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise DataError(f"{shown(address)}: not an address ({wrong}); {FORM}")


def copy_of(address: str, cache: Path) -> Path:
    """Where the copy of a shard is, or will be, under its own name."""
    if address.startswith("pipe:"):
        return cache / "pipe" / f"{digest(address)}.tar"
    parts = urlsplit(address)
    folder, _, name = parts.path.rpartition("/")
    place = f"{_plain(parts.hostname or '')}-{digest(parts._replace(path=folder).geturl())}"
    stem = name.removesuffix(".tar")
    plain = _plain(stem)
    return cache / place / f"{plain if plain == stem else f'{plain}-{digest(stem)}'}.tar"


def absent(addresses: Sequence[str], cache: Path) -> list[str]:
    """Those that have no copy yet."""
    distinct = dict.fromkeys(addresses)
    return [address for address in distinct if not copy_of(address, cache).is_file()]


def _plain(name: str) -> str:
    """A name that is one on every disk, and never a way out of the folder."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:80] or "shard"


def digest(text: str) -> str:
    """16 hex digits that stand for a text in names of files."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
