"""The application: routes, access, the request log, and the headers of every response.

In: a `Service`. Out: an ASGI application. Touches: the request log.

The log has one line a request: method, path, status, bytes, milliseconds, and the token's name. It never holds a query
string, a form, or a header.
"""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from sketchstream.errors import SketchstreamError
from sketchstream.serve import api, page, problems
from sketchstream.serve.access import COOKIE, Access
from sketchstream.serve.service import NotFoundError, Service, SeveralWindowsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("sketchstream.serve")

UNKNOWN_HOST: Final = (
    "this service answers by localhost, 127.0.0.1 and [::1]; to be reached by another name it needs tokens "
    "(serve.tokens)"
)
BAD: Final = 400
"""Status codes from here on are refusals."""
OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths that need no token, by whatever name the service is called: they say nothing of any sketch."""
ENTRANCE: Final = ("/login", "/static/")
"""Where a visitor without a token gets in: the form for one, and what that page looks like."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
"""Methods that the request log names; what calls itself otherwise may be anything."""
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Encoding, Authorization, Cookie",
}
"""Of every response, unless it says otherwise."""


def create(service: Service, access: Access | None = None) -> Starlette:
    """The application of a service.

    Args:
        service: answers.
        access: access rules; default: requests to this machine by one of its own names.
    """
    handlers: dict[Any, Any] = {
        SketchstreamError: problems.explain,
        NotFoundError: problems.explain,
        SeveralWindowsError: problems.explain,
        HTTPException: problems.explain_http,
        Exception: problems.explain,
    }
    access = Access() if access is None else access
    app = Starlette(
        routes=[*api.routes(service), *page.routes(service, access)],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers=handlers,
    )
    app.state.service = service
    return app


class Guard:
    """Access, headers and the request log, around the application.

    Args:
        app: the application.
        access: access rules.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        seen: MutableMapping[str, Any] = {"status": 500, "bytes": 0, "who": "-"}

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                seen["bytes"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._admit(scope, receive, counted, seen)
        finally:
            log.info(
                "event=request method=%s path=%s status=%d bytes=%d ms=%.1f who=%s",
                scope["method"] if scope["method"] in METHODS else "-",
                # the path of a refused request may be anything, so only its route is logged
                _quoted(scope["path"]) if seen["status"] < BAD else getattr(scope.get("route"), "path", "-"),
                seen["status"],
                seen["bytes"],
                1000 * (time.monotonic() - began),
                seen["who"],
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send, seen: MutableMapping[str, Any]) -> None:
        """Let a request through, or refuse it."""
        headers = Headers(scope=scope)
        scope.setdefault("state", {})
        scope["state"]["allowed"] = None
        if scope["path"] not in OPEN:
            if not self._access.knows_host(headers.get("host")):
                await problems.problem(421, "Misdirected request", UNKNOWN_HOST)(scope, receive, send)
                return
            if self._access.tokens:
                token = self._access.find(headers.get("authorization")) or self._access.match(_cookie(headers))
                if token is not None:
                    seen["who"] = token.name
                    scope["state"]["allowed"] = token.sketches
                elif not scope["path"].startswith(ENTRANCE):
                    await _refuse(scope, headers)(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _cookie(headers: Headers) -> str:
    """The token in the cookie of a browser; empty without one."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _refuse(scope: Scope, headers: Headers) -> Response:
    """The response to a request without a token; for browsers, the sign-in form."""
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        wanted = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?{urlencode({'next': wanted})}", 303)
    text = "send the header `Authorization: Bearer TOKEN`, or sign in at /login with a browser"
    return problems.problem(401, "A token is needed", text, {"WWW-Authenticate": "Bearer"})


def _quoted(text: str) -> str:
    """Text of a request as one word of a log line: at most 200 characters, everything odd escaped."""
    return text[:200].encode("unicode_escape").decode().replace(" ", "\\x20").replace("\x7f", "\\x7f")
