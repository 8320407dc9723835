"""Bytes to request bodies, and results to answers."""

import io
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from core.errors import RequestError
from core.image import Pixels
from service.runtime import Runtime

Body = TypeVar("Body", bound=BaseModel)

NPY = "application/x-npy"
_SQUARES = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '\|u1', 'fortran_order': False, "
    rb"'shape': \((\d{1,9}), (\d{1,9}), (\d{1,9}), (\d{1,9})\), \} *\n",
    re.DOTALL,
)


class JsonAnswer(Response):
    """JSON that may hold numpy arrays."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of an answer."""
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def npy_answer(array: npt.NDArray[Any], headers: dict[str, str]) -> Response:
    """An array as a ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return Response(file.getvalue(), media_type=NPY, headers=headers)


async def current_runtime(request: Request) -> Runtime:
    """What this service holds."""
    runtime: Runtime = request.app.state.runtime
    return runtime


async def raw_body(request: Request) -> bytes:
    """The bytes of a JSON request.

    Raises:
        RequestError: They say that they are something else.
    """
    kind = media_type(request)
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise RequestError(f"body of type {kind}: send application/json")
    return await request.body()


CurrentRuntime = Annotated[Runtime, Depends(current_runtime)]
RawBody = Annotated[bytes, Depends(raw_body)]


def media_type(request: Request) -> str:
    """The type of a request's body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def json_body(kind: type[Body]) -> Callable[[bytes], Body]:
    """A dependency that reads a JSON body; the thread pool runs it."""

    def read(raw: RawBody) -> Body:
        return validated(kind, parse_object(raw))

    return read


def validated(kind: type[Body], values: dict[str, Any]) -> Body:
    """A body of a kind.

    Raises:
        RequestValidationError: A field is unknown, missing or out of range.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        RequestError: Not JSON, or not an object.
    """
    value = _parse(raw)
    if not isinstance(value, dict):
        raise RequestError("body is not a JSON object: send {...}")
    return value


def _parse(raw: bytes) -> Any:
    """A JSON value.

    The fast parser refuses NaN and half surrogates outright. Where it refuses, the lenient one
    is asked, so that the item that holds them can be named and its neighbours be served.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        strict = error
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"body is not valid JSON: {strict}") from error


def parse_squares(raw: bytes, side: int) -> Pixels:
    """Pixels ``(n, side, side, 3)`` of a ``.npy`` file, in place.

    The header is compared, not evaluated as numpy would.

    Raises:
        RequestError: Not such a file, or of other values or another shape.
    """
    form = f"squares of uint8, (n, {side}, {side}, 3), as numpy.save writes them"
    head = _SQUARES.match(raw)
    if head is None or [int(size) for size in head.groups()[1:]] != [side, side, 3]:
        raise RequestError(f"body is another array, or none: this model takes {form}")
    values = np.frombuffer(raw, np.uint8, offset=head.end())
    if len(values) != int(head[1]) * side * side * 3:
        raise RequestError(
            f"array of {len(values):,} bytes for {int(head[1])} squares: send {form}"
        )
    return values.reshape(-1, side, side, 3)


def body_schema(kind: type[BaseModel], **others: dict[str, Any]) -> dict[str, Any]:
    """The part of the OpenAPI document that describes a request body.

    Args:
        kind: Of the JSON body.
        others: Schemas of the other media types that are accepted.
    """
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    content.update({media: {"schema": schema} for media, schema in others.items()})
    return {"requestBody": {"required": True, "content": content}}
