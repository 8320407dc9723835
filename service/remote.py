"""A running service as an encoder for the evaluation: what users get, measured as they get it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from core.errors import (
    ConfigError,
    DataError,
    Hyper3Error,
    ImageError,
    ImageTooLarge,
    TextError,
    Unavailable,
)
from core.evaluation.encoder import Embedded, Tangents
from core.evaluation.pictures import Picture
from core.image import Pixels, Preprocess
from core.spaces import Lorentz, Space
from core.text import check_text
from service.client import Client
from service.schemas import OnError

Item = TypeVar("Item")
Found = TypeVar("Found")

_AT_ONCE = 4  # requests: while the service works on two, others are on their way
_FILES = 128  # of one request
_SQUARES = 32  # few: they take time to make, and the service works meanwhile
_TEXTS = 256
_TIMEOUT_S = 1800  # for as many pictures of a large model on few cores
_TRIES = 60  # about a minute of a service that has too much to do
_FRAME_BYTES = 1024  # of a request beside its images
_WIDEST = 6  # bytes of a character as JSON


class _Geometry(BaseModel):
    model: Literal["lorentz"]
    curvature: float = Field(gt=0)
    dim: int = Field(ge=1)


class _Model(BaseModel):
    name: str
    step: int
    precision: str
    logit_scale: float
    image_side: int = Field(ge=1)


class Limits(BaseModel):
    """What a service takes at once."""

    max_body_bytes: int
    max_items: int = Field(ge=1)
    max_waiting: int = Field(ge=1)
    max_requests: int = Field(ge=1)
    max_text_chars: int


class _Info(BaseModel):
    """What is needed of ``/info``."""

    fingerprint: str
    service: str
    geometry: _Geometry
    model: _Model
    limits: Limits


@dataclass(frozen=True)
class RemoteEncoder:
    """A service as the evaluation sees a model (`core.evaluation.encoder.Encoder`).

    A file goes as it is, so that the service's own reading is measured with the rest. Parts, and
    photos that were stored squashed, go as the square that any other encoder gets.
    """

    client: Client
    name: str
    fingerprint: str
    space: Space
    logit_scale: float
    about: Mapping[str, str | int | float]
    dim: int
    side: int
    limits: Limits

    def images(self, pictures: Sequence[Picture]) -> Embedded:
        """Tangents of pictures; a picture that cannot be read spoils no other.

        Raises:
            Unavailable: The service cannot be reached any more.
            FingerprintMismatch: It serves another model than before.
        """
        tangents = np.full((len(pictures), self.dim), np.nan, np.float32)
        faults: dict[int, str] = {}
        ways: dict[Preprocess | None, list[int]] = {}
        for row, picture in enumerate(pictures):
            ways.setdefault(picture.preprocess if picture.is_plain else None, []).append(row)
        batches = [
            (preprocess, rows[start : start + size])
            for preprocess, rows in ways.items()
            for size in [self._size(_SQUARES if preprocess is None else _FILES)]
            for start in range(0, len(rows), size)
        ]

        def embed(batch: tuple[Preprocess | None, list[int]]) -> Embedded:
            return self._images([pictures[row] for row in batch[1]], batch[0])

        for (_, rows), found in zip(batches, self._map(embed, batches), strict=True):
            tangents[rows] = found.tangents
            faults |= {rows[at]: fault for at, fault in found.faults.items()}
        return Embedded(tangents, faults)

    def texts(self, texts: Sequence[str]) -> Tangents:
        """Tangents, ``(n, dim)``, of texts as a user writes them.

        Raises:
            TextError: The service refuses one; the message quotes it.
            Unavailable, FingerprintMismatch: As `images`.
        """
        for text in texts:
            try:
                check_text(text, self.limits.max_text_chars)
            except TextError as error:
                raise TextError(f"text {text[:80]!r}: {error}") from error
        # Neighbours in length share a request: the service runs those of one length together.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        sizes = [_WIDEST * len(texts[row]) + 3 for row in order]
        batches = [
            [texts[order[at]] for at in places]
            for places in _portions(sizes, self._room, self._size(_TEXTS))
        ]

        embed = partial(self.client.embed, form="tangent", fingerprint=self.fingerprint)
        tangents = np.empty((len(texts), self.dim), np.float32)
        if batches:
            tangents[order] = np.concatenate(self._map(embed, batches))
        return tangents

    def _images(self, pictures: Sequence[Picture], preprocess: Preprocess | None) -> Embedded:
        """Pictures that go the same way, as files or (None) as squares, for one request or more."""
        tangents = np.full((len(pictures), self.dim), np.nan, np.float32)
        faults: dict[int, str] = {}
        data: dict[int, bytes | Pixels] = {}
        for row, picture in enumerate(pictures):
            try:
                data[row] = self._read(picture, preprocess)
            except (DataError, ImageError) as error:
                faults[row] = str(error)
        rows = list(data)
        sizes = [_bytes_sent(data[row]) for row in rows]
        for portion in _portions(sizes, self._room, len(rows)):
            sent = [rows[at] for at in portion]
            tangents[sent] = self._ask([data[row] for row in sent], preprocess, "skip")
        refused = np.flatnonzero(np.isnan(tangents).any(axis=1)).tolist()
        for row in set(rows).intersection(refused):
            try:  # alone, and the answer says why
                (tangents[row],) = self._ask([data[row]], preprocess, "fail")
            except ImageError as error:
                faults[row] = f"{pictures[row].file}: {str(error).removeprefix('image 0: ')}"
        return Embedded(tangents, faults)

    def _read(self, picture: Picture, preprocess: Preprocess | None) -> bytes | Pixels:
        """What is sent of a picture: its file or its square.

        Raises:
            DataError: The file is missing.
            ImageError: It cannot be decoded, or is too large to be sent.
        """
        data = picture.square(self.side) if preprocess is None else picture.read()
        if (size := _bytes_sent(data)) > self._room:
            raise ImageTooLarge(
                f"{picture.file}: {size:,} bytes do not fit a request; start the service with a "
                "larger H3_MAX_BODY_BYTES"
            )
        return data

    def _ask(
        self, data: Sequence[Any], preprocess: Preprocess | None, on_error: OnError
    ) -> Tangents:
        if preprocess is None:
            return self.client.embed_squares(
                np.stack(data), form="tangent", fingerprint=self.fingerprint
            )
        return self.client.embed(
            images=data,
            form="tangent",
            preprocess=preprocess,
            on_error=on_error,
            fingerprint=self.fingerprint,
        )

    @property
    def _room(self) -> int:
        return self.limits.max_body_bytes - _FRAME_BYTES

    @property
    def _at_once(self) -> int:
        return max(1, min(_AT_ONCE, self.limits.max_requests // 2))

    def _size(self, wanted: int) -> int:
        """Items of a request, so that all that are under way fit the service's queue."""
        most = min(self.limits.max_items, self.limits.max_waiting // self._at_once)
        return max(1, min(wanted, most))

    def _map(self, work: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        with ThreadPoolExecutor(self._at_once, "requests") as pool:
            return list(pool.map(work, items))


def open_remote(target: str) -> RemoteEncoder | None:
    """The encoder of a running service; None if ``target`` is no address.

    Raises:
        ConfigError: It is an address, and not that of such a service.
        Unavailable: Nothing answers there.
    """
    if not target.lower().startswith(("http://", "https://")):
        return None
    url = _without_secrets(target)
    client = Client(target.rstrip("/"), timeout_s=_TIMEOUT_S, tries=_TRIES)
    info = _read_info(client, url)
    model = info.model
    about: dict[str, str | int | float] = {
        "runtime": f"hyper3 service {info.service}",
        "kind": "service",
        "url": url,
        "recipe": model.name,
        "step": model.step,
        "side": model.image_side,
        "precision": model.precision,
    }
    name, space = f"{model.name} at step {model.step:,} (service)", Lorentz(info.geometry.curvature)
    sizes = info.geometry.dim, model.image_side, info.limits
    return RemoteEncoder(client, name, info.fingerprint, space, model.logit_scale, about, *sizes)


def _without_secrets(target: str) -> str:
    """An address as a result may quote it.

    Raises:
        ConfigError: It has no host, or a port that is none.
    """
    try:
        parts = urlsplit(target)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of brackets
        is_whole = False
    if not is_whole:
        raise ConfigError(f"{target}: no address; write http://host:port")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def _read_info(client: Client, url: str) -> _Info:
    advice = "give the address that `hyper3 serve` prints, such as http://127.0.0.1:8000"
    try:
        return _Info.model_validate(client.info())
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "it"
        raise ConfigError(
            f"{url}: its /info is not that of a service that can be measured ({where}: "
            f"{fault['msg']}); {advice}"
        ) from error
    except Unavailable:
        raise
    except Hyper3Error as error:
        raise ConfigError(f"{url}: no service to measure ({error}); {advice}") from error


def _bytes_sent(data: bytes | Pixels) -> int:
    """Of a file as base64, or of a square as it is."""
    return 4 * len(data) // 3 + 8 if isinstance(data, bytes) else data.nbytes


def _portions(sizes: Sequence[int], room: int, most: int) -> Iterator[list[int]]:
    """Positions in order, in groups of at most ``most`` whose sizes fit ``room``, or of one."""
    group: list[int] = []
    taken = 0
    for at, size in enumerate(sizes):
        if group and (taken + size > room or len(group) == most):
            yield group
            group, taken = [], 0
        group.append(at)
        taken += size
    if group:
        yield group
