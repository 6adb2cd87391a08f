"""The application: routes, their guard, and errors as problems.

In: a `Service`. Out: an ASGI application. Touches: nothing.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from sketchstream.errors import SketchstreamError
from sketchstream.serve import page
from sketchstream.serve.catalog import NotFoundError
from sketchstream.serve.clients.access import Access
from sketchstream.serve.clients.clients import REQUESTS
from sketchstream.serve.edge.connections import most_connections
from sketchstream.serve.edge.guard import Guard
from sketchstream.serve.http import api, problems
from sketchstream.serve.http.formats import AnswerMemory
from sketchstream.serve.service import Service, SeveralWindowsError


def create(service: Service, access: Access | None = None) -> FastAPI:
    """The application of a service.

    Args:
        service: answers.
        access: access rules; default: requests to this machine by one of its own names.
    """
    explained = (SketchstreamError, NotFoundError, SeveralWindowsError, ClientDisconnect, Exception)
    handlers: dict[Any, Any] = {**dict.fromkeys(explained, problems.explain), HTTPException: problems.explain_http}
    access = Access() if access is None else access
    memory = AnswerMemory(service.store)
    # half of the connections, so that one is left for who asks whether the service is alive
    guard = Guard(access, service.traffic, memory, min(REQUESTS, most_connections() // 2))
    app = FastAPI(
        openapi_url=None,  # it is a path like the others
        redirect_slashes=False,  # it would lead to whatever host the request names
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it would report query strings
        routes=[*api.Api(service, memory).routes, *page.routes(service, access)],
        middleware=[Middleware(guard.around)],
        exception_handlers=handlers,
    )
    app.state.guard = guard
    return app
