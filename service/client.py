"""A typed client for a running service."""

import base64
import io
import json
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np
import numpy.typing as npt

from core import errors
from core.image import Pixels, Preprocess
from service.batch import code_of
from service.schemas import (
    ClassifyAnswer,
    Extra,
    Format,
    ListedItem,
    OnError,
    Page,
    PutAnswer,
    SearchAnswer,
    StoredItem,
)

Vectors = npt.NDArray[np.float32]

_NPY = "application/x-npy"
_RETRIED = (429, 503)
_PAGE = 1000
_CONNECT_S = 10
_KINDS = {
    code_of(kind("")): kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.Hyper3Error)
}


class Client:
    """Calls one service, as a context manager or until `close`.

    A refusal is raised as the error the service meant (`core.errors`). A service that has too
    much to do is asked again: every call here may be repeated safely.

    Args:
        url: Where it answers.
        timeout_s: For one answer.
        tries: How often a call is made while the service says it is overloaded.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8000", timeout_s: float = 120, tries: int = 8
    ) -> None:
        self._url, self._tries = url, tries
        try:
            timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
            self._http = httpx.Client(base_url=url, timeout=timeout)
        except (httpx.InvalidURL, TypeError) as error:
            raise errors.ConfigError(f"{url!r} is no address: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def info(self) -> dict[str, Any]:
        """The model, its geometry, and the limits."""
        answer = self._call("GET", "/info")
        try:
            found: dict[str, Any] = answer.json()
        except ValueError as error:
            raise _stranger(answer) from error
        return found

    def embed(
        self,
        texts: Sequence[str] = (),
        images: Sequence[bytes] = (),
        *,
        form: Format = "lorentz",
        preprocess: Preprocess = "retrieval",
        on_error: OnError = "fail",
        fingerprint: str | None = None,
    ) -> Vectors:
        """Vectors of texts, then of image files: ``(n, dim + 1)``, or ``(n, dim)`` without time.

        Args:
            texts: As a user writes them.
            images: The bytes of image files.
            form: How a vector is written.
            preprocess: How an image becomes a square.
            on_error: ``skip`` gives rows of NaN for the items that cannot be embedded.
            fingerprint: Of the model that is expected.

        Raises:
            FingerprintMismatch: Another model has answered.
        """
        options = {"texts": list(texts), "format": form, "preprocess": preprocess}
        body = _with_images(options | {"on_error": on_error}, images)
        return self._vectors(fingerprint, body)

    def embed_squares(
        self, pixels: Pixels, *, form: Format = "lorentz", fingerprint: str | None = None
    ) -> Vectors:
        """Vectors of squares ``(n, side, side, 3)`` of 0..255, as `embed` gives them."""
        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(pixels), allow_pickle=False)
        return self._vectors(fingerprint, file.getvalue(), kind=_NPY, params={"format": form})

    def _vectors(self, fingerprint: str | None, body: bytes, **how: Any) -> Vectors:
        answer = self._call("POST", "/embed", body, accept=_NPY, **how)
        found = answer.headers.get("hyper3-fingerprint")
        if fingerprint is not None and found != fingerprint:
            raise errors.FingerprintMismatch(
                f"{self._url}: now serves the model {found}, and {fingerprint} is expected; begin "
                "again with one of them"
            )
        try:
            vectors: Vectors = np.load(io.BytesIO(answer.content), allow_pickle=False)
        except ValueError as error:
            raise _stranger(answer) from error
        return vectors

    def search(
        self,
        text: str | None = None,
        *,
        image: bytes | None = None,
        id: str | None = None,  # noqa: A002  # as the service names it
        vector: Sequence[float] | None = None,
        k: int = 10,
        max_distance: float | None = None,
        extras: Sequence[Extra] = (),
    ) -> SearchAnswer:
        """The items nearest to exactly one of a text, an image file, an item and a point."""
        body = {
            "text": text,
            "image": None if image is None else _base64(image),
            "id": id,
            "vector": None if vector is None else [float(value) for value in vector],
            "k": k,
            "max_distance": max_distance,
            "with": list(extras),
        }
        return SearchAnswer.model_validate_json(self._call("POST", "/search", body).content)

    def classify(
        self,
        labels: Sequence[str],
        images: Sequence[bytes] = (),
        texts: Sequence[str] = (),
        *,
        templates: Sequence[str] | None = None,
        multi_label: bool = False,
        top: int | None = None,
    ) -> ClassifyAnswer:
        """Labels of images, then of texts, best first."""
        body = {
            "labels": list(labels),
            "images": [_base64(image) for image in images],
            "texts": list(texts),
            "templates": None if templates is None else list(templates),
            "multi_label": multi_label,
            "top": top,
        }
        return ClassifyAnswer.model_validate_json(self._call("POST", "/classify", body).content)

    def put_items(
        self, items: Sequence[dict[str, Any]], *, on_error: OnError = "fail"
    ) -> PutAnswer:
        """Store items: ``id``, one of ``text``, ``image`` (bytes) and ``vector``, ``metadata``."""
        sent = [
            item | {"image": _base64(item["image"])} if isinstance(item.get("image"), bytes)
            else item
            for item in items
        ]  # fmt: skip
        body = {"items": sent, "on_error": on_error}
        return PutAnswer.model_validate_json(self._call("PUT", "/items", body).content)

    def item(self, id_: str) -> StoredItem:
        """One item."""
        return StoredItem.model_validate_json(self._call("GET", _address(id_)).content)

    def picture(self, id_: str) -> bytes:
        """The stored image file, or thumbnail, of an item."""
        return self._call("GET", _address(id_) + "/image").content

    def delete(self, id_: str) -> None:
        """Take an item out."""
        self._call("DELETE", _address(id_))

    def items(self) -> Iterator[ListedItem]:
        """All items, in the order of their ids."""
        cursor: str | None = ""
        while cursor is not None:
            answer = self._call("GET", "/items", params={"cursor": cursor, "limit": _PAGE})
            page = Page.model_validate_json(answer.content)
            yield from page.items
            cursor = page.cursor

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | bytes | None = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        params: dict[str, Any] | None = None,
    ) -> httpx.Response:
        content = _json(body) if isinstance(body, dict) else body
        headers = {"accept": accept, "content-type": kind}
        for left in reversed(range(self._tries)):
            try:
                answer = self._http.request(
                    method, path, content=content, headers=headers, params=params
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise errors.Unavailable(
                    f"no service at {self._url} ({error or type(error).__name__}); start one with "
                    "`hyper3 serve --bundle ...`"
                ) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise errors.Unavailable(
                    f"{self._url}: {method} {path}: {error or type(error).__name__}; see whether "
                    "the service still runs, and ask again"
                ) from error
            if answer.status_code not in _RETRIED or not left:
                break
            time.sleep(_wait_s(answer))
        if answer.is_success:
            return answer
        raise _error_of(answer)


def _error_of(answer: httpx.Response) -> errors.Hyper3Error:
    """The error that the service meant."""
    try:
        problem = answer.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, TypeError, KeyError):
        return _stranger(answer)
    return _KINDS.get(code, errors.RequestError)(detail)


def _stranger(answer: httpx.Response) -> errors.Unavailable:
    return errors.Unavailable(
        f"{answer.url}: status {answer.status_code} from something that is not this service"
    )


def _wait_s(answer: httpx.Response) -> float:
    after = answer.headers.get("retry-after", "1")
    return min(float(after), 30.0) if after.isdecimal() else 1.0


def _address(id_: str) -> str:
    try:
        return f"/items/{quote(id_, safe='')}"
    except UnicodeEncodeError as error:
        raise errors.RequestError(f"id {id_!r} is not valid text: {error.reason}") from error


def _json(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.end]
        raise errors.TextError(f"a text holds {wrong!r}, which is not valid text") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise errors.RequestError(
            f"cannot be sent as JSON: {error}; numbers must be finite"
        ) from error


def _with_images(body: dict[str, Any], images: Sequence[bytes]) -> bytes:
    """A request with image files: joined, since there is nothing to escape in base64."""
    quoted = b'","'.join(base64.b64encode(image) for image in images)
    return b'{"images":[%b],%b' % (b'"%b"' % quoted if images else b"", _json(body)[1:])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
