"""`POST /embed`: texts and images to vectors."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from core import lorentz
from core.errors import RequestError
from service.batch import Place, check_size, settle
from service.embedder import Vector
from service.routes.bodies import (
    NPY,
    CurrentRuntime,
    JsonAnswer,
    body_schema,
    media_type,
    npy_answer,
    parse_json,
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
_OTHERS = {"multipart/form-data": _FORM, "image/*": _BINARY}


@dataclass(frozen=True)
class _Sent:
    """An unparsed request."""

    kind: str
    query: dict[str, Any]
    raw: bytes | None = None
    form: FormData | None = None
    files: list[bytes] | None = None


async def _receive(request: Request) -> _Sent:
    kind = media_type(request)
    query = dict(request.query_params)
    if kind != "multipart/form-data":
        return _Sent(kind, query, raw=await request.body())
    form = await request.form(max_files=4096, max_fields=4096)
    parts = form.getlist("images")
    files = [await part.read() for part in parts if isinstance(part, UploadFile)]
    if len(files) != len(parts):
        raise RequestError("form field images: send files, each with a file name")
    return _Sent(kind, query, form=form, files=files)


def _read(sent: Annotated[_Sent, Depends(_receive)]) -> tuple[EmbedRequest, list[bytes]]:
    """The request, and the image files that did not come as text."""
    if sent.form is not None:
        options: dict[str, Any] = {"texts": sent.form.getlist("texts")}
        options |= {
            name: value for name, value in sent.form.items() if name not in ("texts", "images")
        }
        return EmbedRequest.model_validate(sent.query | options), sent.files or []
    raw = sent.raw or b""
    if sent.kind.startswith("image/") or sent.kind == "application/octet-stream":
        return EmbedRequest.model_validate(sent.query), [raw]
    if sent.kind and sent.kind != "application/json":
        raise RequestError(
            f"body of type {sent.kind}: send application/json, multipart/form-data or one image"
        )
    body = parse_json(raw)
    if not isinstance(body, dict):
        raise RequestError("body is not a JSON object")
    return EmbedRequest.model_validate(sent.query | body), []


@router.post(
    "/embed",
    response_model=EmbedAnswer,
    openapi_extra=body_schema(EmbedRequest, **_OTHERS),
    summary="Texts and images to vectors",
)
def embed(
    call: Annotated[tuple[EmbedRequest, list[bytes]], Depends(_read)],
    request: Request,
    runtime: CurrentRuntime,
) -> Response:
    """Vectors of the texts, then of the images, as JSON or (by Accept) as one .npy array.

    Options of a raw image body are given in the query. In an array, the row of an item that was
    skipped is NaN, and the header `hyper3-errors` says why.
    """
    body, files = call
    images: list[bytes | str] = [*body.images, *files]
    check_size(len(body.texts) + len(images), runtime.settings.max_items, "items")
    if not body.texts and not images:
        raise RequestError("nothing to embed: send texts or images")
    results = runtime.embedder.texts(body.texts, truncate=body.truncate)
    results += runtime.embedder.images(images, body.preprocess)
    places = [Place("text", at) for at in range(len(body.texts))]
    places += [Place("image", at) for at in range(len(images))]
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
    row_of = {place: row for row, place in enumerate(places)}
    for place, vector in good:
        array[row_of[place]] = _in_format(runtime, form, vector)
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
