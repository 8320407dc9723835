"""`POST /embed`: texts and images to vectors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from core import lorentz
from core.errors import RequestError
from core.image import Pixels
from service.batch import Place, check_size, settle
from service.embedder import Vector
from service.routes.bodies import (
    NPY,
    CurrentRuntime,
    JsonAnswer,
    body_schema,
    media_type,
    npy_answer,
    parse_object,
    parse_squares,
    validated,
)
from service.runtime import Runtime
from service.schemas import EmbedAnswer, EmbedRequest, Fault, Format

router = APIRouter(tags=["vectors"])

_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "texts": {"type": "array", "items": {"type": "string"}},
        "images": {"type": "array", "items": _BINARY},
        **{name: {"type": "string"} for name in ("format", "preprocess", "truncate", "on_error")},
    },
}
_MAX_PARTS = 4096  # the limit of items is checked when they are counted
_OTHERS = {"multipart/form-data": _FORM, "image/*": _BINARY, NPY: _BINARY}


@dataclass(frozen=True)
class _Sent:
    """A request before it is parsed."""

    kind: str
    options: dict[str, Any]
    """Of the query, and of a form its fields."""
    raw: bytes = b""
    files: list[bytes] = field(default_factory=list)
    """Of a form."""


class _Call(NamedTuple):
    body: EmbedRequest
    files: Sequence[bytes] = ()
    """Image files that did not come as text."""
    squares: Pixels | None = None


async def _receive(request: Request) -> _Sent:
    kind = media_type(request)
    options: dict[str, Any] = dict(request.query_params)
    if kind != "multipart/form-data":
        return _Sent(kind, options, raw=await request.body())
    async with request.form(max_files=_MAX_PARTS, max_fields=_MAX_PARTS) as form:
        parts = form.getlist("images")
        files = [await part.read() for part in parts if isinstance(part, UploadFile)]
        if len(files) != len(parts):
            raise RequestError("form field images: send files, each with a file name")
        options |= {name: value for name, value in form.items() if name != "images"}
        options["texts"] = form.getlist("texts")
    return _Sent(kind, options, files=files)


def _read(sent: Annotated[_Sent, Depends(_receive)], runtime: CurrentRuntime) -> _Call:
    if sent.kind == "multipart/form-data":
        return _Call(validated(EmbedRequest, sent.options), sent.files)
    if sent.kind.startswith("image/") or sent.kind == "application/octet-stream":
        return _Call(validated(EmbedRequest, sent.options), [sent.raw])
    if sent.kind == NPY:
        squares = parse_squares(sent.raw, runtime.manifest.image.side)
        return _Call(validated(EmbedRequest, sent.options), squares=squares)
    if sent.kind not in ("", "application/json"):
        raise RequestError(
            f"body of type {sent.kind}: send application/json, multipart/form-data, one image, or "
            f"squares as {NPY}"
        )
    return _Call(validated(EmbedRequest, sent.options | parse_object(sent.raw)))


@router.post(
    "/embed",
    response_model=EmbedAnswer,
    openapi_extra=body_schema(EmbedRequest, **_OTHERS),
    summary="Texts and images to vectors",
)
def embed(
    call: Annotated[_Call, Depends(_read)],
    request: Request,
    runtime: CurrentRuntime,
) -> Response:
    """Vectors of the texts, then of the images, as JSON or (by Accept) as one .npy array.

    Options of a raw image body are given in the query. In an array, the row of an item that was
    skipped is NaN, and the header `hyper3-errors` says why.
    """
    body = call.body
    images: list[bytes | str] = [*body.images, *call.files]
    count = len(images) if call.squares is None else len(call.squares)
    check_size(len(body.texts) + count, runtime.settings.max_items, "items")
    if not body.texts and not count:
        raise RequestError("nothing to embed: send texts or images")
    results = runtime.embedder.texts(body.texts, truncate=body.truncate)
    if call.squares is None:
        results += runtime.embedder.images(images, body.preprocess)
    else:
        results += runtime.embedder.squares(call.squares)
    places = [Place("text", at) for at in range(len(body.texts))]
    places += [Place("image", at) for at in range(count)]
    good, faults = settle(places, results, body.on_error)
    if NPY in request.headers.get("accept", ""):
        return _as_npy(runtime, body.format, places, good, faults)
    described = [_describe(runtime, body.format, place, vector) for place, vector in good]
    return JsonAnswer(
        runtime.answer() | {"format": body.format, "results": described, "errors": _plain(faults)}
    )


def _describe(runtime: Runtime, form: Format, place: Place, vector: Vector) -> dict[str, Any]:
    what: dict[str, Any] = {"kind": place.kind, "index": place.index}
    what["vector"] = _in_format(runtime, form, vector)
    if vector.tokens is not None:
        what |= {"tokens": vector.tokens, "truncated": vector.truncated}
    return what


def _in_format(runtime: Runtime, form: Format, vector: Vector) -> npt.NDArray[np.float32]:
    if form == "tangent":
        return vector.tangent
    if form == "space":
        return np.ascontiguousarray(vector.point[1:])
    if form == "poincare":
        return lorentz.to_poincare(vector.point, runtime.manifest.curvature)
    return vector.point


def _as_npy(
    runtime: Runtime,
    form: Format,
    places: list[Place],
    good: list[tuple[Place, Vector]],
    faults: list[Fault],
) -> Response:
    size = runtime.manifest.dim + (form == "lorentz")
    array = np.full((len(places), size), np.nan, np.float32)
    if good:
        row_of = {(place.kind, place.index): row for row, place in enumerate(places)}
        rows = [row_of[place.kind, place.index] for place, _ in good]
        array[rows] = np.stack([_in_format(runtime, form, vector) for _, vector in good])
    answer = runtime.answer()
    headers = {
        "hyper3-fingerprint": str(answer["fingerprint"]),
        "hyper3-geometry": json.dumps(answer["geometry"]),
        "hyper3-format": form,
        "hyper3-errors": json.dumps([[it.kind, it.index, it.code] for it in faults]),
    }
    return npy_answer(array, headers)


def _plain(faults: list[Fault]) -> list[dict[str, Any]]:
    return [fault.model_dump(exclude_none=True) for fault in faults]
