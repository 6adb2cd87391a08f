"""The guard of the application: access, limits, answers that are ready, the request log, headers of every response.

In: requests. Out: refusals, answers that are ready, and what the application says to the others. Touches: the request
log.

The log has one line a request: method, path, what was asked, status, bytes, milliseconds, the token's name and the
address. What was asked is the range of time and the names of the other parameters: the log never holds a query string,
a form, or a header.

An answer that a request had before is looked up as bytes, without the framework. The server also asks the guard for it
when a client sends the same bytes again, before it parses them.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response

from sketchstream.log_events import EventLog
from sketchstream.serve.clients.access import COOKIE, VIEWER, Access
from sketchstream.serve.clients.clients import CLIENT, REQUESTS, InProgress, address_of, foreign
from sketchstream.serve.http import problems

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sketchstream.serve.clients.traffic import Traffic
    from sketchstream.serve.http.formats import AnswerMemory

event_log = EventLog("sketchstream.serve")

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
PUBLIC_PREFIXES: Final = ("/login/", "/static/")
"""Beginnings of paths that a visitor without a token may see, and /login: the form, and what its page looks like."""
FOREIGN: Final = "a page of another site sent this request; open the service's own page, or use another program"
MAX_HEADERS: Final = 100
MAX_PARAMETERS: Final = 2000
TOO_LARGE: Final = f"a request has at most {MAX_HEADERS} headers and {MAX_PARAMETERS:,} parameters"
TWO_LENGTHS: Final = "a request has Content-Length or Transfer-Encoding: a proxy may go by the other one"
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
"""Headers of every response that does not set them itself."""
_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


@dataclass(slots=True)
class LoggedRequest:
    """What the log says of a request.

    Args:
        began: monotonic time at which it began.
        status: status of the response.
        bytes: size of the response's body.
        who: name of the token.
    """

    began: float
    status: int = 500
    bytes: int = 0
    who: str = "-"


class Guard:
    """Access, limits, headers and the request log, around an application.

    Args:
        access: access rules.
        traffic: counts requests.
        memory: memory of answers.
        most: requests in progress.
    """

    def __init__(self, access: Access, traffic: Traffic, memory: AnswerMemory, most: int = REQUESTS) -> None:
        self.traffic = traffic
        self._access, self._memory = access, memory
        self._limits = InProgress(most)

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application behind this guard."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._request(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return guarded

    def recall(self, scope: Scope) -> Response | None:
        """The answer that the same request had before, if it is still valid and the request is not refused.

        Args:
            scope: scope of a request that the application has answered so before.
        """
        logged = LoggedRequest(time.monotonic())
        _prepare(scope)
        response = None if self._refused(scope, Headers(scope=scope), logged) else self._memory.recall(Request(scope))
        if response is not None:
            response.raw_headers += _lacking(response.raw_headers)
            logged.status, logged.bytes = response.status_code, len(response.body)
            self._done(scope, logged)
        return response

    async def _request(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        logged = LoggedRequest(time.monotonic())
        _prepare(scope)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                logged.status = message["status"]
                message["headers"] = [*message["headers"], *_lacking(message["headers"])]
            elif message["type"] == "http.response.body":
                logged.bytes += len(message.get("body", b""))
            await send(message)

        self.traffic.in_progress += 1
        try:
            await self._admit(app, scope, receive, counted, logged)
        finally:
            self.traffic.in_progress -= 1
            self._done(scope, logged)

    def _done(self, scope: Scope, logged: LoggedRequest) -> None:
        """Count a request, and log it."""
        seconds, state = time.monotonic() - logged.began, scope["state"]
        route = state["route"] or getattr(scope.get("route"), "path", "-")
        self.traffic.done(route, logged.status, seconds)
        if not event_log.logger.isEnabledFor(logging.INFO):
            return
        event_log.info(
            "request",
            method=scope["method"] if scope["method"] in METHODS else "-",
            # the path of a refused request may be anything, so only its route is logged
            path=_quote_text(scope["path"]) if logged.status < BAD else route,
            asked=state["asked"] or "-",
            status=logged.status,
            bytes=logged.bytes,
            ms=round(1000 * seconds, 1),
            who=logged.who,
            client=state["address"],
        )

    async def _admit(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, logged: LoggedRequest) -> None:
        """Let a request through, or refuse it."""
        refusal = _refuse_malformed(scope)
        if refusal is None and scope["path"] in OPEN:
            await app(scope, receive, send)
            return
        refusal = refusal or self._refused(scope, Headers(scope=scope), logged)
        client = scope["state"]["client"]
        if refusal is None and not self._limits.begin(client):
            refusal = problems.problem(429, "Too many requests", TOO_MANY, {"Retry-After": "1"})
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        CLIENT.set(client)
        try:
            remembered = self._memory.recall(Request(scope))
            scope["state"]["recalled"] = remembered is not None
            await (remembered or app)(scope, receive, send)
        finally:
            self._limits.end(client)

    def _refused(self, scope: Scope, headers: Headers, logged: LoggedRequest) -> Response | None:
        """The refusal of a request; None if it may be answered: its state says who asks, `VIEWER` what they may see."""
        state, path = scope["state"], scope["path"]
        if self._limits.full:
            return problems.problem(503, "Too many requests", BUSY, {"Retry-After": "1"})
        if not self._access.knows_host(headers.get("host")):
            return problems.problem(421, "Misdirected request", UNKNOWN_HOST)
        if foreign(scope["method"], path, headers):
            return problems.problem(403, "Another site's request", FOREIGN)
        state["client"] = state["address"]
        if not self._access.needed:
            VIEWER.set(None)
            return None
        credentials = headers.get("authorization")
        if credentials is None:
            token = self._access.resume(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))
        else:
            wait = self._access.guesses.wait_s(state["address"])
            if wait:  # a right token is refused too: otherwise guessing would continue
                return refuse_guessing(wait)
            token = self._access.find(credentials)
            if token is None:
                self._access.guesses.wrong(state["address"])
        if token is None:
            return None if path == "/login" or path.startswith(PUBLIC_PREFIXES) else _unknown(scope, headers)
        logged.who = state["client"] = token.name
        VIEWER.set(token.sketches)
        return None


def _refuse_malformed(scope: Scope) -> Response | None:
    """The refusal of a request that costs more to read than any of ours, or that a proxy may read otherwise."""
    if len(scope["headers"]) > MAX_HEADERS or scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        return problems.problem(431, "Too large a request", TOO_LARGE)
    names = {name for name, _ in scope["headers"]}
    if names >= {b"content-length", b"transfer-encoding"}:
        return problems.problem(400, "Bad request", TWO_LENGTHS, {"Connection": "close"})
    return None


def refuse_guessing(wait_s: float) -> Response:
    """The response to an address that has sent too many wrong tokens."""
    text = "too many wrong tokens came from this address: try again later"
    return problems.problem(429, "Too many wrong tokens", text, {"Retry-After": str(math.ceil(wait_s))})


def _unknown(scope: Scope, headers: Headers) -> Response:
    """The response to a request without a token; for browsers, the sign-in form."""
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?{urlencode({'next': target})}", 303)
    text = "send the header `Authorization: Bearer TOKEN`, or sign in at /login with a browser"
    return problems.problem(401, "A token is needed", text, {"WWW-Authenticate": "Bearer"})


def _prepare(scope: Scope) -> None:
    """Begin what the service notes of a request."""
    VIEWER.set(frozenset())  # no sketch may be seen until it is known who asks
    about: MutableMapping[str, Any] = scope.setdefault("state", {})
    about.update(address=address_of(scope), client="-", asked="", route="", recalled=False)


def _lacking(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The usual headers that a response does not have."""
    present = {name.lower() for name, _ in headers}
    return [header for header in _HEADERS if header[0] not in present]


def _quote_text(text: str) -> str:
    """Text of a request as one word of a log line: at most 200 characters, everything odd escaped."""
    return text[:200].encode("unicode_escape").decode().replace(" ", "\\x20").replace("\x7f", "\\x7f")
