"""Errors as HTTP: one table from errors to status codes, and `application/problem+json`.

In: an exception. Out: a response with the expected and the found value, and advice. Touches: nothing.
Source: RFC 9457.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sketchstream import errors
from sketchstream.serve.catalog import NotFoundError
from sketchstream.serve.service import SeveralWindowsError

PROBLEM: Final = "application/problem+json"
RETRY_S: Final = 5
"""Seconds after which a client may ask again, where that may help."""

CODES: Final[tuple[tuple[type[BaseException], int, str], ...]] = (
    (ClientDisconnect, 499, "The client has gone"),
    (NotFoundError, 404, "Not found"),
    (SeveralWindowsError, 400, "The range holds several windows"),
    (errors.BusyError, 503, "Too many questions are waiting"),
    (errors.DeadlineError, 504, "The answer took too long"),
    (errors.DataLossError, 409, "An incident: nothing of this window is shown"),
    (errors.MergeError, 409, "This window has no answer"),
    (errors.EstimateError, 422, "This window does not answer that"),
    (errors.ItemError, 422, "The item cannot be used"),
    (errors.SpecError, 422, "A parameter cannot be used"),
    (errors.ConfigError, 400, "The request cannot be used"),
    (errors.MissingExtraError, 501, "An optional package is not installed"),
    (errors.StoreError, 503, "Not available at the moment"),
    (errors.SketchstreamError, 503, "Not available at the moment"),
)
"""First match wins: leaves stand before the classes they derive from."""


def problem(status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    """A problem as a response.

    Args:
        status: HTTP status code.
        title: title, the same for every problem of a type.
        detail: what was found here, and what to do.
        headers: headers of the response, in addition to the usual ones.
    """
    body: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    usual = {"Cache-Control": "no-store"} | (headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        usual.setdefault("Retry-After", str(RETRY_S))
    return Response(orjson.dumps(body), status, usual, PROBLEM)


async def explain(_request: Request, error: Exception) -> Response:
    """The problem that an error is; an unexpected one shows its type only, for its text may hold data."""
    for kind, status, title in CODES:
        if isinstance(error, kind):
            return problem(status, title, " ".join(str(error).split()))
    return problem(500, "Internal error", f"internal error ({type(error).__name__}); please report it")


async def explain_http(_request: Request, error: Exception) -> Response:
    """Exception handler for what the framework refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    detail = {
        404: "there is no such path; the paths are in /openapi.json",
        405: "this path does not take this method; the paths and their methods are in /openapi.json",
        413: "the body is too large",
    }.get(status, error.detail)
    return problem(status, HTTPStatus(status).phrase.capitalize(), detail, dict(error.headers or {}))
