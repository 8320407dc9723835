"""Pictures and texts to tangents, each chunk once: what was embedded is kept on disk."""

import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import Progress

from core.errors import DataError, VectorError
from core.evaluation.encoder import Embedded, Encoder, Tangents
from core.evaluation.files import write_whole
from core.evaluation.pictures import Picture
from core.spaces import Space

Points = npt.NDArray[np.float64]

_PICTURES = 256  # in a chunk, which is what an interruption loses; a service likes them large
_TEXTS = 1024
_DIGEST = hashlib.sha256().digest_size
_QUIET_S = 60.0  # without a terminal a line is printed so often


@dataclass(frozen=True)
class Readable:
    """The pictures of a data set that could be read."""

    points: Points
    rows: npt.NDArray[np.intp]
    """Which they are, ``(n,)``."""
    left_out: tuple[str, ...]
    """Of each of the others why."""


@dataclass(frozen=True)
class Embedder:
    """An encoder that remembers: an interrupted evaluation goes on, and tasks share their work.

    A chunk is known by the encoder's fingerprint and runtime, by our version, and by its texts, or
    by its pictures' paths, sizes, times of change and preprocessing. One with an unreadable picture
    is not kept.
    """

    encoder: Encoder
    folder: Path | None
    """Where chunks are kept, ``KEY.chunk``, a sha256 before a ``.npy``; None keeps nothing."""
    progress: Progress
    since: float = 0.0
    """Chunks that were kept before this time (seconds since the epoch) are made again."""

    @property
    def space(self) -> Space:
        """What tangents are lifted into."""
        return self.encoder.space

    def pictures(self, pictures: Sequence[Picture], title: str = "pictures") -> Embedded:
        """Tangents of pictures, in their order.

        Raises:
            DataError: None of them can be read; the message names the first.
            VectorError: The encoder gave values that are not finite.
            StorageError: What was embedded cannot be kept.
        """
        faults: dict[int, str] = {}

        def embed(chunk: Sequence[Picture], start: int) -> tuple[Tangents, bool]:
            found = self.encoder.images(chunk)
            faults.update({start + row: fault for row, fault in found.faults.items()})
            names = [picture.name for picture in chunk]
            _check_finite(found.tangents, names, found.faults, self.encoder.name)
            return found.tangents, not found.faults

        tangents = self._chunks(pictures, _PICTURES, title, _picture_key, embed)
        if pictures and len(faults) == len(pictures):
            raise DataError(f"none of the {len(pictures):,} pictures can be read; {faults[0]}")
        return Embedded(tangents, faults)

    def readable(self, pictures: Sequence[Picture], title: str = "pictures") -> Readable:
        """Points of the pictures that can be read, in float64.

        Raises:
            DataError: None can be read.
            StorageError: What was embedded cannot be kept.
        """
        found = self.pictures(pictures, title)
        rows = np.array([row for row in range(len(pictures)) if row not in found.faults], np.intp)
        points = self.space.lift(found.tangents[rows].astype(np.float64))
        return Readable(points, rows, tuple(found.faults.values()))

    def texts(self, texts: Sequence[str], title: str = "texts") -> Tangents:
        """Tangents of texts, in their order; each distinct text is embedded once.

        Raises:
            VectorError: The encoder gave values that are not finite.
            StorageError: What was embedded cannot be kept.
        """
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}

        def embed(chunk: Sequence[str], _start: int) -> tuple[Tangents, bool]:
            found = self.encoder.texts(chunk)
            _check_finite(found, chunk, {}, self.encoder.name)
            return found, True

        tangents = self._chunks(list(row_of), _TEXTS, title, lambda text: text, embed)
        return tangents[[row_of[text] for text in texts]] if texts else tangents

    def text_points(self, texts: Sequence[str], title: str = "texts") -> Points:
        """Points of texts, in float64."""
        return self.space.lift(self.texts(texts, title).astype(np.float64))

    def _chunks(
        self,
        items: Sequence[Any],
        size: int,
        title: str,
        key: Callable[[Any], Any],
        embed: Callable[[Sequence[Any], int], tuple[Tangents, bool]],
    ) -> Tangents:
        rows = []
        told = time.monotonic()
        task = self.progress.add_task(title, total=len(items))
        for start in range(0, len(items), size):
            chunk = items[start : start + size]
            file = self._file([key(item) for item in chunk])
            tangents = _load(file, len(chunk), self.since)
            if tangents is None:
                tangents, is_whole = embed(chunk, start)
                if is_whole and file is not None:
                    _save(file, tangents)
            rows.append(tangents)
            self.progress.advance(task, len(chunk))
            if not self.progress.console.is_terminal and time.monotonic() > told + _QUIET_S:
                told = time.monotonic()
                self.progress.console.print(f"{title}: {start + len(chunk):,} of {len(items):,}")
        self.progress.remove_task(task)
        return np.concatenate(rows) if rows else np.empty((0, 0), np.float32)

    def _file(self, keys: Sequence[Any]) -> Path | None:
        if self.folder is None:
            return None
        versions = [version(name) for name in ("hyper3-stack", "pillow")]
        model = [self.encoder.fingerprint, dict(self.encoder.about), versions]
        what = json.dumps([*model, keys], sort_keys=True)
        return self.folder / f"{hashlib.sha256(what.encode()).hexdigest()}.chunk"


def _picture_key(picture: Picture) -> list[Any]:
    try:
        state = picture.file.stat()
    except OSError:
        size, changed = -1, -1
    else:
        size, changed = state.st_size, state.st_mtime_ns
    shape = [picture.preprocess, picture.box, picture.orig_size]
    return [str(picture.file), size, changed, *shape]


def _check_finite(
    tangents: Tangents, names: Sequence[str], faults: Mapping[int, str], encoder: str
) -> None:
    broken = np.flatnonzero(~np.isfinite(tangents).all(axis=1)).tolist()
    wrong = [row for row in broken if row not in faults]
    if wrong:
        raise VectorError(
            f"{encoder}: gives values that are not finite for {len(wrong):,} of {len(names):,} "
            f"items, the first {names[wrong[0]]!r}: the model is broken; measure another checkpoint"
        )


def _load(file: Path | None, count: int, since: float) -> Tangents | None:
    """A kept chunk; None where there is none, or it is damaged or too old."""
    if file is None:
        return None
    try:
        if file.stat().st_mtime < since:
            return None
        content = file.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        return None
    tangents: Tangents = np.load(io.BytesIO(body), allow_pickle=False)
    return tangents if len(tangents) == count else None


def _save(file: Path, tangents: Tangents) -> None:
    stream = io.BytesIO()
    np.save(stream, tangents)
    body = stream.getvalue()
    write_whole(file, hashlib.sha256(body).digest() + body)
