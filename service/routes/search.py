"""`POST /search`: a text, an image, an item or a vector to its nearest items."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from core.errors import RequestError
from service import search as searching
from service.routes.bodies import CurrentRuntime, JsonAnswer, body_schema, json_body
from service.schemas import SearchAnswer, SearchRequest

router = APIRouter(tags=["search"])


@router.post(
    "/search",
    response_model=SearchAnswer,
    openapi_extra=body_schema(SearchRequest),
    summary="The items nearest to a text, an image, an item or a vector",
)
def search(
    body: Annotated[SearchRequest, Depends(json_body(SearchRequest))], runtime: CurrentRuntime
) -> Response:
    """Exact neighbours by geodesic distance, nearest first."""
    if body.k > runtime.settings.max_k:
        raise RequestError(f"k = {body.k:,}: the limit is {runtime.settings.max_k:,}")
    return JsonAnswer(runtime.answer() | searching.search(runtime, body))
