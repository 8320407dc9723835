"""Samples -> WebDataset shards, and the manifest beside them.

A shard is a tar whose samples follow one another, each as ``{k}.json`` (its photo, and the names
and boxes of its parts), ``{k}.child.jpg`` and ``{k}.child.txt`` (the whole),
``{k}.numparents.txt``, then ``{k}.parent000.jpg``, ``{k}.parent000.txt`` and so on (the parts,
without a JPEG where they are to be cut out of the whole). The family of HyCoCLIP calls the whole
*child* and the part *parent*, because a part is the more general side of an entailment; the file
names keep that for compatibility.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from core.bundle import sha256
from core.errors import DataError
from trainer.data.sample import Sample
from trainer.storage import replacing

Pixels = npt.NDArray[np.uint8]

MANIFEST = "manifest.json"
_BLOCK = 512  # bytes: the unit of a tar
# Everything of a member's header but its name, size and checksum; time and owner are zero.
_HEADER = (
    bytes(100) + b"0000444\0" + 2 * b"0000000\0" + 12 * b"\0" + b"00000000000\0" + 8 * b" " + b"0"
    + bytes(100) + b"ustar\00000"
).ljust(_BLOCK, b"\0")  # fmt: skip


@dataclass(frozen=True)
class ShardInfo:
    """What a written shard holds."""

    file: str
    samples: int
    parts: int
    sha256: str


def encode_jpeg(pixels: Pixels) -> bytes:
    """JPEG of ``(height, width, 3)`` pixels: quality 95, colour at full resolution."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def write_shard(path: Path, samples: Iterable[Sample]) -> ShardInfo:
    """Write one shard; it appears under its name only when it is whole.

    The same samples give the same bytes: neither clock nor user is written.

    Raises:
        StorageError: The folder cannot be written, or the disk is full.
    """
    count = parts = 0
    with replacing(path) as temporary:
        with temporary.open("wb") as stream:
            for sample in samples:
                for suffix, content in _members(sample):
                    stream.write(_tar_member(f"{path.stem}{count:06d}.{suffix}", content))
                count += 1
                parts += len(sample.parts)
            stream.write(bytes(2 * _BLOCK))  # the end of a tar
            stream.flush()
            os.fsync(stream.fileno())  # whoever finds the name finds it whole, after any crash
        digest = sha256(temporary)
    return ShardInfo(path.name, count, parts, digest)


def is_ours(path: Path) -> bool:
    """Whether a tar begins as those that `write_shard` writes, and so may be written anew."""
    expected = _tar_member(f"{path.stem}000000.json", b"")
    with path.open("rb") as stream:
        head = stream.read(_BLOCK)
    return all(head[at] == expected[at] for at in (slice(124), slice(136, 148)))  # all but size


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a prepared folder, or None where there is none.

    Raises:
        DataError: The file is there but is not a JSON object, or its splits are not.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); delete it and prepare again") from error
    if not isinstance(manifest, dict):
        raise DataError(f"{path}: not a JSON object; delete it and prepare again")
    splits = manifest.get("splits", {})
    if not isinstance(splits, dict) or not all(isinstance(v, dict) for v in splits.values()):
        raise DataError(f"{path}: splits: not an object of objects; delete it and prepare again")
    return manifest


def _members(sample: Sample) -> Iterator[tuple[str, bytes]]:
    about: dict[str, Any] = {"photo": sample.photo, "names": [part.name for part in sample.parts]}
    if any(part.box for part in sample.parts):
        about["boxes"] = [part.box for part in sample.parts]
    yield "json", json.dumps(about).encode()
    yield "child.jpg", sample.jpeg
    yield "child.txt", sample.text.encode()
    yield "numparents.txt", str(len(sample.parts)).encode()
    for index, part in enumerate(sample.parts):
        if part.jpeg is not None:
            yield f"parent{index:03d}.jpg", part.jpeg
        yield f"parent{index:03d}.txt", part.text.encode()


def _tar_member(name: str, content: bytes) -> bytes:
    """A file of a tar in the ustar format, padded to whole blocks.

    Written by hand: tarfile takes 50 microseconds for a header, which is more than it takes
    to draw and encode what stands behind it, and webdataset's writer imports torch.
    """
    size = f"{len(content):011o}".encode()
    encoded = name.encode()
    header = bytearray(_HEADER)
    header[: len(encoded)] = encoded
    header[124:135] = size
    header[148:155] = f"{sum(header):06o}\0".encode()  # the sum counts its own field as spaces
    return bytes(header) + content + bytes(-len(content) % _BLOCK)
