"""What a request may cost before anything of it is parsed."""

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import Hyper3Error, Overloaded, RequestTimeout, RequestTooLarge
from service.workers import Budget


class RequestLimits:
    """Bounds the bytes and the time of bodies, and how many requests with one run at once.

    Args:
        app: What the requests go on to.
        max_bytes: Of one body.
        timeout_s: For the whole of one body to arrive.
        max_requests: At once.
        refuse: Turns an error into the answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        timeout_s: float,
        max_requests: int,
        refuse: Callable[[Request, Hyper3Error], Response],
    ) -> None:
        self._app, self._max_bytes, self._timeout_s = app, max_bytes, timeout_s
        self._budget = Budget(max_requests, "requests")
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it at once."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            length = Headers(scope=scope).get("content-length", "")
            if length.isdecimal() and int(length) > self._max_bytes:
                raise self._too_large()
            with self._budget.claim(1):
                await self._app(scope, self._bounded(receive), send)
        except (RequestTooLarge, Overloaded) as error:
            await self._refuse(Request(scope), error)(scope, receive, send)

    def _bounded(self, receive: Receive) -> Receive:
        taken, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self._timeout_s

        async def bounded() -> Message:
            nonlocal taken, complete
            if complete:  # what follows is the news that the client has gone
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                raise RequestTimeout(
                    f"the body did not arrive within {self._timeout_s:g} s: send it faster"
                ) from error
            taken += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if taken > self._max_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"body over the limit of {self._max_bytes:,} bytes: send less")
