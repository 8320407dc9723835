"""The application: routes, limits, and the one place that turns errors into statuses."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from importlib.metadata import version

import orjson
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from core import errors
from service.batch import BadItemsError, code_of
from service.limits import RequestLimits
from service.openapi import PROBLEM, describe
from service.routes import about, classify, embed, items, search
from service.runtime import open_runtime
from service.schemas import Fault, Problem
from service.settings import Settings

log = logging.getLogger(__name__)

_STATUS: dict[type[errors.Hyper3Error], int] = {
    errors.UnsupportedImage: 415,
    errors.ImageTooLarge: 413,
    errors.ImageError: 422,
    errors.TextError: 422,
    errors.VectorError: 422,
    errors.FingerprintMismatch: 409,
    errors.NotFound: 404,
    errors.RequestTooLarge: 413,
    errors.RequestTimeout: 408,
    errors.RequestError: 422,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.StorageError: 507,
}
_RETRY_AFTER_S = 1
_MAX_DETAIL_CHARS = 1000
_DESCRIPTION = "Embeds, stores and searches images and texts in hyperbolic space."


def create_app(settings: Settings) -> FastAPI:
    """The service over an opened bundle and data folder; both close when the app shuts down.

    Raises:
        Hyper3Error: The bundle or the data folder cannot be used.
    """
    runtime = open_runtime(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # One thread for every request that the limits let in: none waits for another's thread.
        current_default_thread_limiter().total_tokens = settings.max_requests + 8
        yield
        runtime.close()

    app = FastAPI(
        title="Hyper3",
        version=version("hyper3-stack"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        responses=PROBLEM,
    )
    app.state.runtime = runtime
    for family in (about, embed, search, classify, items):
        app.include_router(family.router)
    app.add_middleware(
        RequestLimits,
        max_bytes=settings.max_body_bytes,
        timeout_s=settings.body_timeout_s,
        max_requests=settings.max_requests,
        refuse=_refuse,
    )
    app.add_exception_handler(errors.Hyper3Error, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_body)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_exception_handler(ClientDisconnect, _forget)
    app.add_exception_handler(Exception, _confess)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]  # FastAPI's own way
    return app


def _refuse(_: Request, error: Exception) -> Response:
    """One of our errors as a problem document."""
    assert isinstance(error, errors.Hyper3Error)  # noqa: S101  # registered for nothing else
    first = error.first if isinstance(error, BadItemsError) else error
    status = next((_STATUS[kind] for kind in type(first).__mro__ if kind in _STATUS), 500)
    faults = error.faults if isinstance(error, BadItemsError) else None
    headers = {}
    if isinstance(first, errors.Unavailable):
        headers["retry-after"] = str(_RETRY_AFTER_S)
    if isinstance(first, errors.RequestTimeout | errors.RequestTooLarge):
        headers["connection"] = "close"  # the rest of the body is not waited for
    return _problem(status, code_of(first), str(error), faults, headers)


def _refuse_body(_: Request, error: Exception) -> Response:
    """A body or query of the wrong shape; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  # as above
    faults = [
        Fault(
            code=fault["type"],
            detail=fault["msg"],
            field=_clean(".".join(str(part) for part in fault["loc"])) or "body",
        )
        for fault in error.errors()[:100]
    ]
    first = f"{faults[0].field}: {faults[0].detail}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return _problem(422, "invalid_request", first + more, faults)


def _refuse_route(_: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    assert isinstance(error, HTTPException)  # noqa: S101  # as above
    code = HTTPStatus(error.status_code).name.lower()
    headers = dict(error.headers) if error.headers else None
    return _problem(error.status_code, code, str(error.detail), headers=headers)


def _forget(request: Request, _: Exception) -> Response:
    """A client that left in the middle of its body: there is nobody to answer."""
    log.info("%s %r: the client left before its body was here", request.method, request.url.path)
    return Response(status_code=HTTPStatus.BAD_REQUEST)


def _confess(_: Request, __: Exception) -> Response:
    """Our own mistake; the log has it."""
    return _problem(500, "internal_error", "the service made a mistake, and has logged it")


def _problem(
    status: int,
    code: str,
    detail: str,
    faults: list[Fault] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    document = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=_clean(detail),
        errors=faults,
    )
    return Response(
        orjson.dumps(document.model_dump(exclude_none=True)),
        status,
        headers,
        media_type="application/problem+json",
    )


def _clean(text: str) -> str:
    """Text that may quote what a user sent, as an answer can carry it."""
    return text[:_MAX_DETAIL_CHARS].encode(errors="replace").decode()
