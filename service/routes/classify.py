"""`POST /classify`: images and texts to labels."""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends
from starlette.responses import Response

from core import lorentz
from core.errors import RequestError
from core.prompts import TEMPLATES
from service.batch import Place, check_size, settle
from service.routes.bodies import CurrentRuntime, JsonAnswer, body_schema, json_body
from service.schemas import ClassifyAnswer, ClassifyRequest
from service.zero_shot import probabilities

router = APIRouter(tags=["search"])

Doubles = npt.NDArray[np.float64]


@router.post(
    "/classify",
    response_model=ClassifyAnswer,
    openapi_extra=body_schema(ClassifyRequest),
    summary="Images and texts named by given labels",
)
def classify(
    body: Annotated[ClassifyRequest, Depends(json_body(ClassifyRequest))], runtime: CurrentRuntime
) -> Response:
    """Labels, best first, with the model's own temperature.

    A label's class is the mean of the tangent vectors over the templates, lifted once.
    """
    templates = list(body.templates or TEMPLATES)
    check_size(len(body.images) + len(body.texts), runtime.settings.max_items, "items")
    check_size(len(body.labels) * len(templates), runtime.settings.max_labels, "label texts")
    if not body.images and not body.texts:
        raise RequestError("nothing to name: send images or texts")
    classes = runtime.labels.points(body.labels, templates)
    results = runtime.embedder.images(body.images, body.preprocess)
    results += runtime.embedder.texts(body.texts)
    places = [Place("image", at) for at in range(len(body.images))]
    places += [Place("text", at) for at in range(len(body.texts))]
    good, faults = settle(places, results, body.on_error)
    named = []
    for place, vector in good:
        space = vector.point[1:].astype(np.float64)
        point = lorentz.from_space(space, runtime.manifest.curvature)
        distances = lorentz.distance(point, classes, runtime.manifest.curvature)
        labels = _ranked(body, distances, runtime.manifest.logit_scale)
        named.append({"kind": place.kind, "index": place.index, "labels": labels})
    errors = [fault.model_dump(exclude_none=True) for fault in faults]
    return JsonAnswer(
        runtime.answer() | {"templates": templates, "results": named, "errors": errors}
    )


def _ranked(body: ClassifyRequest, distances: Doubles, logit_scale: float) -> list[dict[str, Any]]:
    order = np.argsort(distances, kind="stable")[: body.top]
    shares = probabilities(distances, logit_scale)
    ranked: list[dict[str, Any]] = []
    for at in order:
        label: dict[str, Any] = {"label": body.labels[at], "score": -float(distances[at])}
        if not body.multi_label:
            label["probability"] = float(shares[at])
        ranked.append(label)
    return ranked
