"""The OpenAPI document: what FastAPI derives, with the bodies that the routes read themselves."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.schemas import ClassifyRequest, EmbedRequest, Problem, PutRequest, SearchRequest

_REF = "#/components/schemas/{model}"
_MODELS: tuple[type[BaseModel], ...] = (
    EmbedRequest, SearchRequest, ClassifyRequest, PutRequest, Problem,
)  # fmt: skip

PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Refused; `code` names the kind of reason.",
        "content": {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}},
    }
}
"""The answer that every endpoint may give instead of its own."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The document; made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, definitions = models_json_schema(
            [(model, "validation") for model in _MODELS], ref_template=_REF
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
