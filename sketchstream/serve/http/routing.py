"""Routes of the API: parameters are read by typed models, and what cannot be read is a problem in plain words.

In: requests. Out: answers of the functions behind the paths. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sketchstream.errors import ConfigError
from sketchstream.serve.http.formats import FORMATS
from sketchstream.serve.http.openapi import PROBLEMS
from sketchstream.serve.http.parameters import Parameters, question_for_log, refusal, require_once

TEXT: Final = {"description": "Lines of text.", "content": {"text/plain": {"schema": {"type": "string"}}}}


class DocumentedRoute(APIRoute):
    """A path of the API.

    Args:
        path: path with its parameters in braces.
        endpoint: answers. Its parameter `asked`, if it has one, is a model of the query string.
        admit: refuses what must not be told apart from what is not there; asked before parameters are read.
        settings: settings of the framework's route.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        admit: Callable[[Request], object] | None = None,
        **settings: Any,
    ) -> None:
        self._admit = admit
        super().__init__(path, endpoint, **settings)
        self.methods = {*(self.methods or ()), *(("HEAD",) if "GET" in (self.methods or ()) else ())}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        answer = super().get_route_handler()
        admit = self._admit
        model = _model(self.dependant.query_params)

        async def handle(request: Request) -> Response:
            if admit is not None:
                admit(request)
            if model is None:
                return await answer(request)
            require_once(request.query_params.multi_items())
            request.state.asked = question_for_log(dict(request.query_params), model)
            try:
                return await answer(request)
            except RequestValidationError as error:
                wrong = error.errors()
            request.state.asked = ""  # behind the handler: no traceback has what was sent
            raise ConfigError(refusal(wrong, model))

        return handle


def _model(query: Sequence[Any]) -> type[Parameters] | None:
    """The model of the query string; None: any is accepted."""
    for parameter in query:
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, Parameters):
            return annotation
    return None


def get(path: str, endpoint: Callable[..., Any], shape: Any, *, table: bool = False, **checks: Any) -> DocumentedRoute:
    """A path that answers GET in JSON, and in the other formats if it has a table.

    Args:
        path: see `DocumentedRoute`.
        endpoint: see `DocumentedRoute`; its docstring is the summary.
        shape: model of the JSON.
        table: whether there are other formats.
        checks: `admit`; see `DocumentedRoute`.
    """
    return DocumentedRoute(path, endpoint, **checks, **describe_answer(endpoint, shape, table=table))


def describe_answer(endpoint: Callable[..., Any], shape: Any, *, table: bool) -> dict[str, Any]:
    """What the document says of an answer: its shape, its formats, and problems."""
    files = {"type": "string", "contentMediaType": "application/octet-stream"}
    content = {
        kind.partition(";")[0]: {"schema": {"type": "string"} if form == "csv" else files}
        for form, kind in FORMATS.items()
        if form != "json"
    }
    return {
        "response_model": shape,
        "response_description": "The answer.",
        "summary": _summary(endpoint),
        "description": "",
        "responses": {
            200: {"headers": {"ETag": {"schema": {"type": "string"}}}, **({"content": content} if table else {})},
            304: {"description": "The client has it already."},
            "default": PROBLEMS,
        },
    }


def plain_path(path: str, endpoint: Callable[..., Any]) -> DocumentedRoute:
    """A path that answers in lines of text, to any client."""
    document: dict[str, Any] = {"summary": _summary(endpoint), "description": "", "responses": {200: TEXT, 503: TEXT}}
    return DocumentedRoute(path, endpoint, response_class=PlainTextResponse, openapi_extra={"security": []}, **document)


def _summary(endpoint: Callable[..., Any]) -> str:
    """The first line of the docstring."""
    return (endpoint.__doc__ or "").strip().partition("\n")[0]
