"""A query and its neighbours to an answer."""

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from core import lorentz
from core.bundle import Manifest
from core.errors import Hyper3Error
from service.embedder import Vector, check_claim, space_of
from service.index import Neighbour
from service.runtime import Runtime
from service.schemas import SearchRequest

Doubles = npt.NDArray[np.float64]


def search(runtime: Runtime, request: SearchRequest) -> dict[str, Any]:
    """The hits and the query of an answer, as `schemas.SearchAnswer` has them.

    Raises:
        Hyper3Error: The query cannot be used, or names no item.
    """
    manifest = runtime.manifest
    check_claim(manifest, request.fingerprint, request.curvature)
    point, about = _query(runtime, request)
    hits = runtime.index.nearest(point, request.k)
    if request.max_distance is not None:
        hits = [hit for hit in hits if hit.distance <= request.max_distance]
    about["radius"] = float(lorentz.radius(point, manifest.curvature))
    if "vector" in request.with_:
        about["vector"] = point
    return {"query": about, "hits": _describe(runtime, request, point, hits)}


def _query(runtime: Runtime, request: SearchRequest) -> tuple[Doubles, dict[str, Any]]:
    """The point that is searched for, and what is said of it."""
    if request.vector is not None:
        space = space_of(request.vector, request.format, runtime.manifest)
        return _point(space, runtime.manifest), {}
    if request.id is not None:
        return _point(runtime.store.get(request.id).space, runtime.manifest), {}
    vector: Vector | Hyper3Error
    if request.text is not None:
        (vector,) = runtime.embedder.texts([request.text], truncate=request.truncate)
    else:
        (vector,) = runtime.embedder.images([request.image or ""], request.preprocess)
    if isinstance(vector, Hyper3Error):
        raise vector
    about: dict[str, Any] = {}
    if vector.tokens is not None:
        about = {"tokens": vector.tokens, "truncated": vector.truncated}
    return _point(vector.point[1:], runtime.manifest), about


def _describe(
    runtime: Runtime, request: SearchRequest, query: Doubles, hits: list[Neighbour]
) -> list[dict[str, Any]]:
    curvature = runtime.manifest.curvature
    wanted = set(request.with_)
    metadata = runtime.store.metadata([hit.id for hit in hits]) if "metadata" in wanted else {}
    described = []
    for hit in hits:
        what: dict[str, Any] = {"id": hit.id, "distance": hit.distance, "score": 0.0 - hit.distance}
        if "metadata" in wanted:  # "{}" where the item went between the search and now
            what["metadata"] = orjson.Fragment(metadata.get(hit.id, "{}"))
        if "vector" in wanted:
            what["vector"] = hit.point
        if "radius" in wanted:
            what["radius"] = float(lorentz.radius(hit.point, curvature))
        if "entailment" in wanted:
            outward = lorentz.entailment_score(query, hit.point, curvature)
            inward = lorentz.entailment_score(hit.point, query, curvature)
            what["entailment"] = {
                "general_query_specific_item": float(outward),
                "general_item_specific_query": float(inward),
            }
        described.append(what)
    return described


def _point(space: npt.NDArray[np.float32], manifest: Manifest) -> Doubles:
    return lorentz.from_space(space.astype(np.float64), manifest.curvature)
