"""The HTTP API, version 1: one function a path.

In: requests. Out: JSON, CSV or Arrow. Touches: the service.

The shapes are described in docs/serve.md and in the OpenAPI document (`sketchstream.serve.openapi`), which tests hold
to what this file does.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sketchstream import kinds
from sketchstream.errors import ConfigError, DeadlineError
from sketchstream.kinds.projection.questions import MOST_AMONG
from sketchstream.query.estimates import EstimateAnswer, RowQuestion, vector_of
from sketchstream.query.tables import WINDOW, Types, as_csv, as_stream, read_csv, table_of, table_of_csv
from sketchstream.serve.access import VIEWER
from sketchstream.serve.metrics import CONTENT_TYPE, exposition
from sketchstream.serve.openapi import document
from sketchstream.serve.questions import METHODS, NORMS, Question
from sketchstream.serve.service import LIMIT, Service, WindowAnswer, check_metric, read_time
from sketchstream.serve.store import Computed, StoredWindow
from sketchstream.stream.windows import iso

Row = Mapping[str, Any]

FORMATS: Final = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
WAIT_S: Final = 120.0
"""Longest that a request waits for an answer that is being computed; after that it is told to ask again."""
BODY_BYTES: Final = 1 << 20
"""Most bytes of a form."""
SMALL_BYTES: Final = 1024
"""Bodies below this are not compressed."""
TAGS: Final = 4096
"""Questions whose ETags are kept in memory."""
KEPT_BYTES: Final = 64 * 2**20
"""Bodies of answers that are kept in memory."""


class Bodies:
    """The bodies of answers given last, by ETag, so that they are compressed once.

    Args:
        most_bytes: kept.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[tuple[str, bool], bytes] = OrderedDict()
        self._bytes = 0

    def get(self, name: tuple[str, bool]) -> bytes | None:
        """The body of this ETag, compressed or not."""
        found = self._kept.get(name)
        if found is not None:
            self._kept.move_to_end(name)
        return found

    def put(self, name: tuple[str, bool], body: bytes) -> None:
        """Keep a body; the oldest ones go."""
        self._bytes += len(body) - len(self._kept.pop(name, b""))
        self._kept[name] = body
        while self._bytes > self._most:
            _, old = self._kept.popitem(last=False)
            self._bytes -= len(old)


class Api:
    """The functions behind the paths.

    Args:
        service: answers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bodies = Bodies()
        self._tags: OrderedDict[tuple[Any, ...], tuple[int, str]] = OrderedDict()

    # ------------------------------------------------------------------ lists

    async def sketches(self, request: Request) -> Response:
        """All sketches that the token may see."""
        _parameters(request)
        return _respond(request, await run_in_threadpool(self._service.sketches, request.state.allowed))

    async def sketch(self, request: Request) -> Response:
        """One sketch."""
        _parameters(request)
        return _respond(request, await run_in_threadpool(self._service.sketch, self._name(request)))

    async def windows(self, request: Request) -> Response:
        """Windows of a sketch, a page at a time."""
        given = _parameters(request, "from", "to", "limit", "order", "cursor", "format")
        name = self._name(request)
        since, until = _range(given)
        limit = _whole(given, "limit", 100, 1, LIMIT)
        newest = _choice(given, "order", ("desc", "asc")) == "desc"
        found = await run_in_threadpool(
            self._service.windows, name, since, until, limit=limit, newest=newest, cursor=given.get("cursor")
        )
        rows = [_flat(row) for row in found["windows"]]
        return _respond(request, found, lambda: rows, _format(given), types=WINDOWS_TYPES, columns=WINDOWS)

    # ------------------------------------------------------------------ answers

    async def profile(self, request: Request) -> Response:
        """The profile of one window."""
        given = _parameters(request, "from", "to", "group", "method", "max_count", "norm", "format")
        norm = _choice(given, "norm", ("", *NORMS)) or None
        count = _whole(given, "max_count", 0, 0, 10_000_000) if "max_count" in given else None
        method = _choice(given, "method", ("", *METHODS))
        question = Question("" if method == METHODS[0] else method, count, norm, group=given.get("group"))
        return await self._answer(request, given, question, "profile")

    async def estimate(self, request: Request) -> Response:
        """The estimates of one window; items come in a form, so that no log of a server on the way has them."""
        if request.method == "POST":
            form = await _form(request)
            if request.query_params:
                msg = "put all parameters into the form, and none into the query string"
                raise ConfigError(msg)
            given, many = form
        else:
            given = _parameters(request, "from", "to", "method", "top", "among", "format", *_MANY)
            private = [name for name in _PRIVATE if name in given]
            if private:
                msg = f"send {private[0]} in a POST form, with from and to, where no log on the way has it"
                raise ConfigError(msg)
            many = {"sum": tuple(request.query_params.getlist("sum"))}
        top = _whole(given, "top", 0, 1, 100_000) if "top" in given else None
        method = given.get("method", "")
        if not method.replace("_", "").replace("-", "").isalnum() and method:
            msg = "method must be a name, such as auto"
            raise ConfigError(msg)
        question = Question(
            "" if method == "auto" else method,
            items=many.get("item", ()),
            top=top,
            sums=many.get("sum", ()),
            rows=_about_rows(given, many),
        )
        if question.rows and (question.items or question.sums or top):
            msg = "ask about rows, or about items, top and sum: one of them at a time"
            raise ConfigError(msg)
        if question.rows.drift:
            return await self._drift(request, given, question)
        return await self._answer(request, given, question, "estimate")

    async def _drift(self, request: Request, given: Mapping[str, str], question: Question) -> Response:
        """How much rows changed from window to window."""
        name, form = self._name(request), _format(given)
        self._require_kind(name, "estimate")
        found = await run_in_threadpool(self._service.several, name, *_range(given))
        rows = replace(question.rows, until=found[-1].window[1])
        answer = await self._answered(request, found[0], replace(question, rows=rows))
        whole = WindowAnswer(self._service.spanning(found), answer.computed)
        body = await run_in_threadpool(_encode, whole, form, self._service.columns(name))
        headers = {"Cache-Control": "no-store"}
        if len(body) >= SMALL_BYTES and _accepts_gzip(request):
            body = await run_in_threadpool(gzip.compress, body, 6, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(body, 200, headers, FORMATS[form])

    async def _answer(self, request: Request, given: Mapping[str, str], question: Question, kind: str) -> Response:
        """The answer of one window, from the store or computed now."""
        name, form = self._name(request), _format(given)
        since, until = _range(given)
        self._require_kind(name, kind)
        self._service.require_group(name, question.group)
        zipped, generation = _accepts_gzip(request), self._service.store.generation
        asked = None if question.names_items else (name, since, until, question.text, form, VIEWER.get() is None)
        known = self._tags.get(asked) if asked is not None else None
        stored: StoredWindow | None = None
        if known is not None and known[0] == generation:  # nothing was stored since it was asked last
            etag: str | None = known[1]
        else:
            stored = await run_in_threadpool(self._service.one, name, since, until)
            etag = self._service.etag(stored, question, form)
        if etag is not None and _matches(request, etag):
            return Response(None, 304, {"ETag": etag})
        body = None if etag is None else self._bodies.get((etag, zipped))
        if body is None:
            if stored is None:
                stored = await run_in_threadpool(self._service.one, name, since, until)
            answer = await self._answered(request, stored, question)
            etag = self._service.etag(answer.stored, question, form)
            body = await run_in_threadpool(_encode, answer, form, self._service.columns(name))
            if zipped and len(body) >= SMALL_BYTES:
                body = await run_in_threadpool(gzip.compress, body, 6, mtime=0)
            if etag is not None:
                self._bodies.put((etag, zipped), body)
        if etag is not None and asked is not None:
            self._tags[asked] = (generation, etag)
            while len(self._tags) > TAGS:
                self._tags.popitem(last=False)
        headers = {"Cache-Control": "no-store"} if etag is None else {"ETag": etag}
        if body[:2] == b"\x1f\x8b":
            headers["Content-Encoding"] = "gzip"
        return Response(body, 200, headers, FORMATS[form])

    def _require_kind(self, name: str, asked: str) -> None:
        """Refuse to ask a kind for what it does not give."""
        for plan in self._service.config.sketches:
            has = kinds.of(plan.spec).answer
            if plan.name == name and has != asked:
                msg = f"a sketch of kind {plan.spec.kind!r} has no {asked}: ask for /v1/sketches/{name}/{has}"
                raise ConfigError(msg)

    async def _answered(self, request: Request, stored: StoredWindow, question: Question) -> WindowAnswer:
        """The answer of a window; waits while it is computed, as long as the client does."""
        found = await run_in_threadpool(self._service.ready, stored, question)
        if found is not None:
            return found
        future = self._service.ask(stored, question)
        computed = await _awaited(request, future, lambda: self._service.pool.leave(future))
        now = await run_in_threadpool(self._service.store.window, stored.sketch, stored.window)
        if now is not None and not question.names_items:
            there = await run_in_threadpool(self._service.ready, now, question)
            if there is not None:
                return there
        return WindowAnswer(stored, computed)

    async def estimates(self, request: Request) -> Response:
        """The estimates of all windows in a range, one after the other."""
        given = _parameters(request, "from", "to", "format")
        name, form = self._name(request), _format(given)
        self._require_kind(name, "estimate")
        found = await run_in_threadpool(self._service.estimates, name, *_range(given))
        types = self._service.columns(name)
        answers: list[WindowAnswer] = []
        size, until = 0, time.monotonic() + WAIT_S
        for one in found:
            answers.append(await self._answered(request, one, Question()))
            size += len(answers[-1].csv())
            if size > TOGETHER_BYTES:
                msg = f"the answers of that range are more than {TOGETHER_BYTES >> 20} MiB: narrow it with from and to"
                raise ConfigError(msg)
            if time.monotonic() > until and len(answers) < len(found):
                msg = f"{len(answers)} of {len(found)} windows of that range have been computed: ask again"
                raise DeadlineError(msg)

        def respond() -> Response:
            if form == "arrow":
                return _body(request, _together(answers, types), form)
            if form == "csv":
                return _body(request, as_csv([row for one in answers for row in _rows_of(one)]).encode(), form)
            return _respond(request, {"sketch": name, "windows": [one.to_dict() for one in answers]})

        return await run_in_threadpool(respond)

    async def closed(self, request: Request) -> Response:
        """Answers at positions that were published when they closed, of windows that are not sealed yet."""
        given = _parameters(request, "from", "to", "format")
        name, (since, until) = self._name(request), _range(given)
        found = await run_in_threadpool(self._service.closed, name, since, until)
        data = {"sketch": name, "windows": [orjson.loads(one.to_json()) for one in found]}
        types = {**WINDOW, **self._service.columns(name)}
        rows = [row for one in found for row in _closed_rows(one)]
        return _respond(request, data, lambda: rows, _format(given), types=types, columns=("window_start",))

    async def series(self, request: Request) -> Response:
        """A number by window."""
        given = _parameters(request, "from", "to", "group", "by", "metric", "format")
        name, (since, until) = self._name(request), _range(given)
        metric = given.get("metric", self._service.usual_number(name))
        if _choice(given, "by", ("", "group")):
            if "group" in given:
                msg = "by=group gives all groups: leave group out, or by"
                raise ConfigError(msg)
            found = await run_in_threadpool(self._service.series_by_group, name, metric, since, until)
            rows = [{"group": one["group"], **point} for one in found["groups"] for point in one["points"]]
            columns = ("group", *SERIES)
            return _respond(request, found, lambda: rows, _format(given), types=SERIES_TYPES, columns=columns)
        found = await run_in_threadpool(self._service.series, name, metric, since, until, given.get("group"))
        rows = found["points"]
        return _respond(request, found, lambda: rows, _format(given), types=SERIES_TYPES, columns=SERIES)

    async def difference(self, request: Request) -> Response:
        """A number of one window minus that of another."""
        given = _parameters(request, "from", "to", "against_from", "against_to", "group", "against_group", "metric")
        name = self._name(request)
        metric = given.get("metric", self._service.usual_number(name))
        check_metric(metric)
        groups = [given.get("group"), given.get("against_group", given.get("group"))]
        for group in groups:
            self._service.require_group(name, group)
        for needed in ("from", "to", "against_from", "against_to"):
            if needed not in given:
                msg = "a difference needs from and to of a window, and against_from and against_to of the other one"
                raise ConfigError(msg)
        first = await run_in_threadpool(self._service.one, name, *_range(given))
        second = await run_in_threadpool(self._service.one, name, *_range(given, "against_from", "against_to"))
        if first.window == second.window and groups[0] == groups[1]:
            msg = "the two windows are one and the same: choose another one with against_from and against_to"
            raise ConfigError(msg)
        pairs = zip((first, second), groups, strict=True)
        answers = [await self._answered(request, one, Question(group=group)) for one, group in pairs]
        return _respond(request, await run_in_threadpool(self._service.difference, answers[0], answers[1], metric))

    # ------------------------------------------------------------------ the deployment

    async def ledger(self, request: Request) -> Response:
        """What everything stored costs."""
        _parameters(request)
        return _respond(request, await run_in_threadpool(self._service.ledger, request.state.allowed))

    async def incidents(self, request: Request) -> Response:
        """Publications of which nothing is shown."""
        given = _parameters(request, "format")
        found = await run_in_threadpool(self._service.incidents, request.state.allowed)
        rows, columns = found["incidents"], ("sketch", "window_start", "text")
        return _respond(request, found, lambda: rows, _format(given), columns=columns)

    async def status(self, request: Request) -> Response:
        """How far everything is behind."""
        _parameters(request)
        return _respond(request, await run_in_threadpool(self._service.status, request.state.allowed))

    async def metrics(self, request: Request) -> Response:
        """The numbers of `status` for Prometheus."""
        _parameters(request)
        text = await run_in_threadpool(exposition, self._service, request.state.allowed)
        return Response(text, 200, {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        _parameters(request)
        return _respond(request, document())

    async def healthz(self, request: Request) -> Response:
        """Whether the process answers, and all of its threads run."""
        del request
        code, text = self._service.liveness()  # nothing that could wait: neither the database nor a thread
        return Response(text.encode(), code, {"Cache-Control": "no-store"}, "text/plain")

    async def readyz(self, request: Request) -> Response:
        """Whether everything that was published is stored, and how far behind the frontier that is."""
        del request
        code, text = await run_in_threadpool(self._service.readiness)
        return Response(text.encode(), code, {"Cache-Control": "no-store"}, "text/plain")

    def _name(self, request: Request) -> str:
        return self._service.require(request.path_params["name"], request.state.allowed)


SERIES: Final = ("window_start", "window_end", "complete", "answer", "value", "low", "high")
"""Columns of a series."""
SERIES_TYPES: Final[Types] = {**WINDOW, "value": "float64", "low": "float64", "high": "float64"}
_QUALITY: Final = tuple(
    f"quality_{what}_{end}"
    for what in ("share_counted", "records_admitted", "records_refused", "misplaced")
    for end in ("value", "low", "high")
)
WINDOWS: Final = (
    "sketch", "window_start", "window_end", "complete", "partitions_published", "partitions_of", "partitions_missing",
    "revision", "partial", "diverged", "repartitioned", "deleted", "quality_verdict", "quality_reason", *_QUALITY,
    "status", "answer", "failure", "preliminary", "as_of",
)  # fmt: skip
"""Columns of a list of windows."""
WINDOWS_TYPES: Final[Types] = {
    **WINDOW,
    **dict.fromkeys(("partitions_published", "partitions_of", "revision"), "int64"),
    **dict.fromkeys(("partial", "diverged", "repartitioned", "deleted", "preliminary"), "bool"),
    **dict.fromkeys(_QUALITY, "float64"),
}
TOGETHER_BYTES: Final = 64 << 20
"""Most bytes of CSV of the windows of one response."""
_PRIVATE: Final = ("item", "row", "other", "nearest", "drift", "feature", "weight")
"""Parameters that name items or rows: they come in forms only."""
_TIMES: Final = ("from", "to", "against_from", "against_to")
"""Parameters that are times."""
_MANY: Final = (*_PRIVATE, "sum")
"""Parameters that may be given several times."""
PAIRED: Final = ("distance", "inner")
QUANTITIES: Final = (*PAIRED, "sq_norm", "with_vector")
"""What is asked of rows that `row` names; those of `PAIRED` with another row for each."""


def routes(service: Service) -> list[BaseRoute]:
    """All paths of the API."""
    api = Api(service)
    one = "/v1/sketches/{name}"
    return [
        Route("/v1/sketches", api.sketches),
        Route(one, api.sketch),
        Route(f"{one}/windows", api.windows),
        Route(f"{one}/profile", api.profile),
        Route(f"{one}/estimate", api.estimate, methods=["GET", "POST"]),
        Route(f"{one}/estimates", api.estimates),
        Route(f"{one}/closed", api.closed),
        Route(f"{one}/series", api.series),
        Route(f"{one}/difference", api.difference),
        Route("/v1/ledger", api.ledger),
        Route("/v1/incidents", api.incidents),
        Route("/v1/status", api.status),
        Route("/metrics", api.metrics),
        Route("/openapi.json", api.openapi),
        Route("/healthz", api.healthz),
        Route("/readyz", api.readyz),
    ]


# ---------------------------------------------------------------------- requests


async def _awaited(request: Request, future: Future[Computed], leave: Callable[[], None]) -> Computed:
    """The result of a question, unless the client goes before it is there, or waits too long.

    Args:
        request: that waits for it.
        future: of the pool.
        leave: tells the pool that this request does not wait any more.

    Raises:
        DeadlineError: it is still being computed.
        ClientDisconnect: the client has gone.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    result, left = asyncio.wrap_future(future), asyncio.ensure_future(gone())
    result.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at even if nobody waits then
    try:
        await asyncio.wait((result, left), timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        if left.done():
            raise ClientDisconnect
        msg = "the answer is still being computed: ask again"
        raise DeadlineError(msg)
    finally:
        left.cancel()
        leave()


def _parameters(request: Request, *known: str) -> dict[str, str]:
    """The query parameters.

    Raises:
        ConfigError: an unknown one, or one that is given twice.
    """
    given = _checked(request.query_params.multi_items(), known)
    request.state.asked = _asked(given)
    return given


def _asked(given: Mapping[str, str]) -> str:
    """What a request asks for, for the log: its range of time, and the names of its other parameters."""
    said = []
    for name in given:
        try:
            when = read_time(given[name], name) if name in _TIMES else None
            said.append(name if when is None else f"{name}:{iso(when)}")
        except (ConfigError, OverflowError, ValueError):  # no time, or one of the year 10,000
            said.append(name)
    return ",".join(said)


def _checked(pairs: Iterable[tuple[str, str]], known: Sequence[str]) -> dict[str, str]:
    """Parameters by name; those of `_MANY` are checked by their users."""
    out: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            msg = f"unknown parameter {name!r:.40}; there are: {', '.join(known) or 'none'}"
            raise ConfigError(msg)
        if name in out and name not in _MANY:
            msg = f"parameter {name} is given twice"
            raise ConfigError(msg)
        out[name] = value
    return out


async def _form(request: Request) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Parameters of a form, and those that may be given several times.

    Raises:
        ConfigError: it is no form.
        HTTPException: it is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        msg = "a POST needs a form: content-type application/x-www-form-urlencoded"
        raise ConfigError(msg)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise HTTPException(413)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=10_000)
    except ValueError:
        msg = "the form cannot be read: names and values must be percent-encoded UTF-8, at most 10,000 of them"
        raise ConfigError(msg) from None
    given = _checked(pairs, ("from", "to", "method", "top", "among", "count", "quantity", "format", *_MANY))
    request.state.asked = _asked(given)
    return given, {wanted: tuple(value for name, value in pairs if name == wanted) for wanted in _MANY}


def _about_rows(given: Mapping[str, str], many: Mapping[str, tuple[str, ...]]) -> RowQuestion:
    """The question about rows in a form, if any.

    Args:
        given: parameters that are given once.
        many: those that may be given several times.

    Raises:
        ConfigError: parameters that do not belong together. The text names none of their values.
    """
    rows, others, features, weights = (many.get(one, ()) for one in ("row", "other", "feature", "weight"))
    nearest, drift = many.get("nearest", ()), many.get("drift", ())
    count = _whole(given, "count", 0, 1, 10_000) if "count" in given else None
    quantity = _choice(given, "quantity", QUANTITIES)
    among = _whole(given, "among", 0, 2, MOST_AMONG) if "among" in given else None
    if sum(map(bool, (rows, nearest, drift, among))) > 1:
        msg = "ask one question about rows at a time: row, nearest, among or drift"
    elif count is not None and not nearest:
        msg = "count belongs to nearest: leave it out"
    elif not rows and (others or features or weights or "quantity" in given):
        msg = "other, feature, weight and quantity belong to row: name the rows that are asked for"
    elif rows and quantity in PAIRED and len(rows) != len(others):
        msg = f"row and other come in pairs, found {len(rows)} of row and {len(others)} of other"
    elif others and quantity not in PAIRED:
        msg = f"other belongs to the quantities {' and '.join(PAIRED)}: leave it out"
    elif bool(features) != (quantity == "with_vector"):
        msg = "feature and quantity=with_vector go together: they name the entries of a public vector"
    else:
        pairs = tuple(zip(rows, others, strict=False))
        return RowQuestion(
            distance=pairs if quantity == "distance" else (),
            inner=pairs if quantity == "inner" else (),
            nearest=nearest,
            count=count,
            sq_norm=rows if quantity == "sq_norm" else (),
            with_vector=rows if features else (),
            vector=vector_of(features, weights),
            drift=drift,
            among=among,
        )
    raise ConfigError(msg)


def _range(given: Mapping[str, str], since: str = "from", until: str = "to") -> tuple[int | None, int | None]:
    """The range of time of a request, ms."""
    return read_time(given.get(since), since), read_time(given.get(until), until)


def _whole(given: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return usual
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not least <= int(text) <= most:
        msg = f"{name} must be a whole number from {least} to {most}, found {text!r:.40}"
        raise ConfigError(msg)
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of several words; the first one unless another is given."""
    found = given.get(name, choices[0])
    if found not in choices:
        msg = f"{name} must be one of {', '.join(filter(None, choices))}, found {found!r:.40}"
        raise ConfigError(msg)
    return found


def _format(given: Mapping[str, str]) -> str:
    return _choice(given, "format", tuple(FORMATS))


def _matches(request: Request, etag: str) -> bool:
    """Whether the client has this answer already."""
    given = request.headers.get("if-none-match")
    if given is None:
        return False
    return any(one.strip().removeprefix("W/") in (etag, "*") for one in given.split(","))


def _accepts_gzip(request: Request) -> bool:
    """Whether the client takes gzip."""
    for one in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = one.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


# ---------------------------------------------------------------------- responses


def _respond(
    request: Request,
    data: Mapping[str, Any],
    rows: Callable[[], Sequence[Row]] | None = None,
    form: str = "json",
    *,
    types: Types = WINDOW,
    columns: Sequence[str] = (),
) -> Response:
    """Plain data as a response.

    Args:
        request: to be answered.
        data: for JSON.
        rows: of the table, for CSV and Arrow.
        form: "json", "csv" or "arrow".
        types: of the columns of the table.
        columns: that the table has even without rows.
    """
    if form == "json" or rows is None:
        body = orjson.dumps(data, default=str, option=orjson.OPT_SERIALIZE_NUMPY)
    elif form == "arrow":
        body = as_stream(table_of(rows(), types, columns))
    else:
        body = as_csv([_lower(row) for row in rows()], columns).encode()
    return _body(request, body, form)


def _body(request: Request, body: bytes, form: str) -> Response:
    """A body as a response, compressed if that is worth it."""
    headers = {}
    if len(body) >= SMALL_BYTES and _accepts_gzip(request):
        body = gzip.compress(body, 6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, 200, headers, FORMATS[form])


def _closed_rows(answer: EstimateAnswer) -> list[Row]:
    """The rows of a window of which positions have closed, each with the start of the window."""
    return [{"window_start": answer.facts["window_start"], **row} for row in answer.rows()]


def _rows_of(answer: WindowAnswer) -> list[Row]:
    """The rows of a window's CSV, each with the start of the window, as the command line prints several windows."""
    return [_front(answer) | row for row in read_csv(answer.csv().decode())]


def _front(answer: WindowAnswer) -> dict[str, Any]:
    """The columns before those of an answer where several windows stand in one table."""
    return {name: answer.stored.fields[name] for name in ("window_start", "complete")}


def _encode(answer: WindowAnswer, form: str, types: Types) -> bytes:
    """An answer's bytes."""
    if form == "json":
        return answer.json()
    return answer.csv() if form == "csv" else as_stream(table_of_csv(answer.csv(), types))


def _together(answers: Sequence[WindowAnswer], types: Types) -> bytes:
    """The answers of several windows as one Arrow stream."""
    import pyarrow as pa

    tables = []
    for one in answers:
        table = table_of_csv(one.csv(), types)
        front = table_of([_front(one)], WINDOW)
        for place, name in enumerate(front.column_names):
            column = pa.repeat(front.column(name)[0], table.num_rows)
            table = table.add_column(place, front.schema.field(name), column)
        tables.append(table)
    return as_stream(pa.concat_tables(tables, promote_options="default"))


def _lower(row: Row) -> Row:
    """A row with booleans as JSON writes them."""
    return {name: str(cell).lower() if isinstance(cell, bool) else cell for name, cell in row.items()}


def _flat(row: Row, prefix: str = "") -> dict[str, Any]:
    """A row without tables in it: names joined by underscores, lists as text."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            out |= _flat(value, f"{prefix}{name}_")
        else:
            out[f"{prefix}{name}"] = " ".join(map(str, value)) if isinstance(value, list) else value
    return out
