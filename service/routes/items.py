"""`/items`: what is stored, and what can be found."""

import base64
import binascii
import json
from typing import Annotated

import numpy as np
import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from core import lorentz
from core.errors import Hyper3Error, NotFound, RequestError
from service.batch import Place, check_size, settle
from service.embedder import Vector, check_claim, media_type, space_of
from service.routes.bodies import CurrentRuntime, JsonAnswer, body_schema, json_body
from service.runtime import Runtime
from service.schemas import NewItem, Page, PutAnswer, PutRequest, StoredItem
from service.store import Item, Kind, is_unicode

router = APIRouter(prefix="/items", tags=["items"])

_PICTURE = "/image"
_MAX_ID_BYTES = 512


@router.put(
    "",
    response_model=PutAnswer,
    openapi_extra=body_schema(PutRequest),
    summary="Store images, texts and vectors",
)
def put_items(
    body: Annotated[PutRequest, Depends(json_body(PutRequest))], runtime: CurrentRuntime
) -> Response:
    """Insert, or replace where the id is there; of two items with one id the later wins.

    When the answer comes, the items are on the disk and can be found.
    """
    check_size(len(body.items), runtime.settings.max_items, "items")
    check_claim(runtime.manifest, body.fingerprint, body.curvature)
    places = [Place("item", at, _shown(item.id)) for at, item in enumerate(body.items)]
    good, faults = settle(places, _prepare(runtime, body), body.on_error)
    if good:
        runtime.store.put([item for _, item in good])
    errors = [fault.model_dump(exclude_none=True) for fault in faults]
    return JsonAnswer(
        {"stored": len(good), "count": len(runtime.index), "errors": errors} | runtime.answer()
    )


@router.get("", response_model=Page, summary="List the items")
def list_items(
    runtime: CurrentRuntime,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1)] = 100,
) -> Response:
    """Some items in the order of their ids; the cursor leads to the next."""
    if limit > runtime.settings.max_k:
        raise RequestError(f"limit = {limit:,}: the most is {runtime.settings.max_k:,}")
    rows = runtime.store.page(_id_of(cursor), limit)
    following = _cursor_of(rows[-1][0]) if len(rows) == limit else None
    items = [
        {"id": id_, "kind": kind, "metadata": orjson.Fragment(metadata)}
        for id_, kind, metadata in rows
    ]
    return JsonAnswer({"count": len(runtime.index), "items": items, "cursor": following})


@router.get(
    "/{id:path}/image",
    response_class=Response,
    responses={200: {"content": {"image/*": {}}, "description": "The picture."}},
    summary="The stored picture of an item",
)
def get_picture(id: str, runtime: CurrentRuntime) -> Response:  # noqa: A002  # the path's name
    """The image file that was sent, or its thumbnail, as the service is set to keep."""
    picture = runtime.store.get(id).image
    if picture is None:
        raise NotFound(f"item {id!r} has no picture")
    return Response(
        picture, media_type=media_type(picture), headers={"x-content-type-options": "nosniff"}
    )


@router.get("/{id:path}", response_model=StoredItem, summary="One item")
def get_item(id: str, runtime: CurrentRuntime) -> Response:  # noqa: A002  # the path's name
    """An item with its point and its radius."""
    item = runtime.store.get(id)
    point = lorentz.from_space(item.space.astype(np.float64), runtime.manifest.curvature)
    return JsonAnswer(
        runtime.answer()
        | {
            "id": item.id,
            "kind": item.kind,
            "metadata": orjson.Fragment(item.metadata),
            "text": item.text,
            "has_image": item.image is not None,
            "radius": float(lorentz.radius(point, runtime.manifest.curvature)),
            "vector": point,
        }
    )


@router.delete("/{id:path}", status_code=204, summary="Take an item out")
def delete_item(id: str, runtime: CurrentRuntime) -> Response:  # noqa: A002  # the path's name
    """Take an item out; when the answer comes, that is on the disk."""
    runtime.store.delete(id)
    return Response(status_code=204)


def _prepare(runtime: Runtime, body: PutRequest) -> list[Item | Hyper3Error]:
    """What is to be stored of each item, or why it cannot be."""
    texts = [item.text for item in body.items if item.text is not None]
    images = [item.image for item in body.items if item.image is not None]
    embedded_texts = iter(runtime.embedder.texts(texts))
    embedded_images = iter(runtime.embedder.images(images, body.preprocess, keep=True))
    prepared: list[Item | Hyper3Error] = []
    for item in body.items:
        vector: Vector | Hyper3Error | None = None
        if item.text is not None:
            vector = next(embedded_texts)
        elif item.image is not None:
            vector = next(embedded_images)
        prepared.append(_as_item(runtime, item, vector))
    return prepared


def _as_item(
    runtime: Runtime, item: NewItem, vector: Vector | Hyper3Error | None
) -> Item | Hyper3Error:
    if isinstance(vector, Hyper3Error):
        return vector
    try:
        _check_id(item.id)
        metadata = _metadata(runtime, item)
        if vector is None:
            space = space_of(item.vector or [], item.format, runtime.manifest)
            return Item(item.id, "vector", space, metadata)
    except Hyper3Error as error:
        return error
    kind: Kind = "text" if item.text is not None else "image"
    return Item(item.id, kind, vector.point[1:], metadata, item.text, vector.picture)


def _check_id(id_: str) -> None:
    if not is_unicode(id_):
        raise RequestError("id holds half of a surrogate pair: send valid Unicode")
    size = len(id_.encode())
    if not 1 <= size <= _MAX_ID_BYTES:
        raise RequestError(f"id of {size} bytes: send 1 to {_MAX_ID_BYTES}")
    if not id_.isprintable():
        raise RequestError(f"id {id_!r} holds a character that cannot be printed")
    if id_.endswith(_PICTURE) or {".", ".."} & set(id_.split("/")):
        raise RequestError(
            f"id {id_!r}: it may not end in {_PICTURE}, nor have . or .. between slashes, for "
            "its address would be another's"
        )


def _metadata(runtime: Runtime, item: NewItem) -> str:
    try:
        metadata = json.dumps(item.metadata, allow_nan=False, ensure_ascii=False)
        size = len(metadata.encode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"metadata cannot be kept as JSON: {error}") from error
    if size > runtime.settings.max_metadata_bytes:
        raise RequestError(
            f"metadata of {size:,} bytes: the limit is {runtime.settings.max_metadata_bytes:,}"
        )
    return metadata


def _shown(id_: str) -> str:
    """An id as an answer can carry it, whatever was sent."""
    return id_[:_MAX_ID_BYTES].encode(errors="replace").decode()


def _cursor_of(id_: str) -> str:
    return base64.urlsafe_b64encode(id_.encode()).decode()


def _id_of(cursor: str | None) -> str:
    try:
        return base64.urlsafe_b64decode(cursor or "").decode()
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"cursor {cursor!r} is not one that this service gave") from error
