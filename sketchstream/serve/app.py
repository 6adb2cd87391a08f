"""The application: routes, access, the request log, and the headers of every response.

In: a `Service`. Out: an ASGI application. Touches: the request log.

The log has one line a request: method, path, what was asked, status, bytes, milliseconds, the token's name and the
address. What was asked is the range of time and the names of the other parameters: the log never holds a query string,
a form, or a header.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import RedirectResponse, Response

from sketchstream.errors import SketchstreamError
from sketchstream.events import say
from sketchstream.serve import api, page, problems
from sketchstream.serve.access import COOKIE, VIEWER, Access
from sketchstream.serve.clients import CLIENT, REQUESTS, InProgress, address_of, foreign
from sketchstream.serve.connections import most_connections
from sketchstream.serve.service import NotFoundError, Service, SeveralWindowsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sketchstream.serve.traffic import Traffic

log = logging.getLogger("sketchstream.serve")

UNKNOWN_HOST: Final = (
    "this service answers by localhost, 127.0.0.1 and [::1]; to be reached by another name it needs tokens "
    "(serve.tokens)"
)
TOO_MANY: Final = "this client has too many requests in progress: wait for some of their answers"
BUSY: Final = "too many requests are in progress: ask again later"
BAD: Final = 400
"""Status codes from here on are refusals."""
OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths that need no token, by whatever name the service is called: they say nothing of any sketch."""
ENTRANCE: Final = ("/login/", "/static/")
"""Where a visitor without a token gets in, beside /login: the form for one, and what that page looks like."""
FOREIGN: Final = "a page of another site sent this request; open the service's own page, or use another program"
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


def create(service: Service, access: Access | None = None) -> FastAPI:
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
        ClientDisconnect: problems.explain,
        Exception: problems.explain,
    }
    access = Access() if access is None else access
    app = FastAPI(
        openapi_url=None,  # it is a path like the others
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it would report query strings
        routes=[*api.Api(service).routes, *page.routes(service, access)],
        middleware=[Middleware(Guard, access=access, traffic=service.traffic)],
        exception_handlers=handlers,
    )
    app.state.service = service
    return app


class Guard:
    """Access, limits, headers and the request log, around the application.

    Args:
        app: the application.
        access: access rules.
        traffic: counts requests.
    """

    def __init__(self, app: ASGIApp, access: Access, traffic: Traffic) -> None:
        self._app, self._access, self._traffic = app, access, traffic
        # half of the connections, so that one is left for who asks whether the service is alive
        self._limits = InProgress(min(REQUESTS, most_connections() // 2))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        seen: MutableMapping[str, Any] = {"status": 500, "bytes": 0, "who": "-"}
        scope.setdefault("state", {}).update(allowed=None, address=address_of(scope), client="-", asked="")

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "http.response.body":
                seen["bytes"] += len(message.get("body", b""))
            await send(message)

        self._traffic.in_progress += 1
        try:
            await self._admit(scope, receive, counted, seen)
        finally:
            self._traffic.in_progress -= 1
            seconds = time.monotonic() - began
            route = getattr(scope.get("route"), "path", "-")
            self._traffic.done(route, seen["status"], seconds)
            say(
                log,
                logging.INFO,
                "request",
                method=scope["method"] if scope["method"] in METHODS else "-",
                # the path of a refused request may be anything, so only its route is logged
                path=_quoted(scope["path"]) if seen["status"] < BAD else route,
                asked=scope["state"]["asked"] or "-",
                status=seen["status"],
                bytes=seen["bytes"],
                ms=round(1000 * seconds, 1),
                who=seen["who"],
                client=scope["state"]["address"],
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send, seen: MutableMapping[str, Any]) -> None:
        """Let a request through, or refuse it."""
        if scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope, Headers(scope=scope), seen)
        client = scope["state"]["client"]
        if refused is None and not self._limits.begin(client):
            refused = problems.problem(429, "Too many requests", TOO_MANY, {"Retry-After": "1"})
        if refused is not None:
            await refused(scope, receive, send)
            return
        VIEWER.set(scope["state"]["allowed"])
        CLIENT.set(client)
        try:
            await self._app(scope, receive, send)
        finally:
            self._limits.end(client)

    def _refused(self, scope: Scope, headers: Headers, seen: MutableMapping[str, Any]) -> Response | None:
        """The refusal of a request; None if it may be answered: then its state says who asks, and what he may see."""
        state, path = scope["state"], scope["path"]
        if self._limits.full:
            return problems.problem(503, "Too many requests", BUSY, {"Retry-After": "1"})
        if not self._access.knows_host(headers.get("host")):
            return problems.problem(421, "Misdirected request", UNKNOWN_HOST)
        if foreign(scope["method"], path, headers):
            return problems.problem(403, "Another site's request", FOREIGN)
        state["client"] = state["address"]
        if not self._access.needed:
            return None
        given = headers.get("authorization")
        if given is None:
            token = self._access.resume(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
        else:
            wait = self._access.guesses.wait_s(state["address"])
            if wait:  # a right token is refused too: otherwise guessing would go on
                return guessed(wait)
            token = self._access.find(given)
            if token is None:
                self._access.guesses.wrong(state["address"])
        if token is None:
            return None if path == "/login" or path.startswith(ENTRANCE) else _unknown(scope, headers)
        seen["who"] = state["client"] = token.name
        state["allowed"] = token.sketches
        return None


def guessed(wait_s: float) -> Response:
    """The response to an address that has sent too many wrong tokens."""
    text = "too many wrong tokens came from this address: try again later"
    return problems.problem(429, "Too many wrong tokens", text, {"Retry-After": str(math.ceil(wait_s))})


def _unknown(scope: Scope, headers: Headers) -> Response:
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
