"""`/info`, `/livez`, `/readyz`: what the service is, and how it is."""

from importlib.metadata import version
from typing import get_args

from fastapi import APIRouter
from starlette.responses import Response

from core.image import ACCEPTED_TYPES, Preprocess
from service.routes.bodies import CurrentRuntime, JsonAnswer
from service.runtime import check_ready
from service.schemas import Format, Readiness

router = APIRouter(tags=["about"])


@router.get("/info", summary="The model, its geometry, and the limits")
def info(runtime: CurrentRuntime) -> Response:
    """What is served: compare fingerprints before comparing vectors."""
    manifest, settings = runtime.manifest, runtime.settings
    return JsonAnswer(
        runtime.answer()
        | {
            "service": version("hyper3-stack"),
            "model": {
                "name": manifest.name,
                "family": manifest.family,
                "step": manifest.step,
                "precision": manifest.precision,
                "logit_scale": manifest.logit_scale,
                "parity": manifest.parity.model_dump(),
                "image_side": manifest.image.side,
                "context_length": manifest.text.context_length,
            },
            "items": len(runtime.index),
            "formats": get_args(Format),
            "preprocess": get_args(Preprocess),
            "image_types": ACCEPTED_TYPES,
            "keep_images": settings.keep_images,
            "limits": {
                name: value
                for name, value in settings.model_dump().items()
                if name.startswith("max_") or name == "body_timeout_s"
            },
        }
    )


@router.get("/livez", summary="Whether the process answers")
async def livez() -> dict[str, str]:
    """Always ok where it answers at all."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not ready, with reasons."}},
    summary="Whether the service can do its work",
)
def readyz(runtime: CurrentRuntime) -> Response:
    """Embeds a text, and looks at the index and the disk."""
    checks = check_ready(runtime)
    ready = all(state == "ok" for state in checks.values())
    return JsonAnswer({"ready": ready, "checks": checks}, status_code=200 if ready else 503)
