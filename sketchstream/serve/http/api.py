"""The HTTP API, version 1: one function a path.

In: requests. Out: JSON, CSV, Arrow or Parquet. Touches: the service.

Parameters are read by the models of `sketchstream.serve.http.parameters`, answers have the shapes of
`sketchstream.serve.http.shapes`: the OpenAPI document is made of both, and tests hold it to what this file does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Final

import orjson
from fastapi import Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from sketchstream import kinds
from sketchstream.errors import ConfigError, DeadlineError
from sketchstream.kinds.exports import WINDOW, Types, as_csv, read_csv, table_of, table_of_csv
from sketchstream.query import overlaps
from sketchstream.serve import over_time, status
from sketchstream.serve.http import shapes, tables
from sketchstream.serve.http.formats import FORMATS, AnswerMemory, as_bytes, encode, flat, respond, respond_with, tag
from sketchstream.serve.http.metrics import CONTENT_TYPE, exposition
from sketchstream.serve.http.openapi import document
from sketchstream.serve.http.parameters import (
    DifferenceQuery,
    EstimateForm,
    EstimateQuery,
    Form,
    OverlapQuery,
    Parameters,
    Plain,
    ProfileQuery,
    Ranged,
    SeriesQuery,
    Span,
    WindowsQuery,
    read_form,
)
from sketchstream.serve.http.routing import DocumentedRoute, describe_answer, get, plain_path
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import Service, WindowAnswer
from sketchstream.serve.store.stored_windows import Computed, StoredWindow

WAIT_S: Final = 120.0
"""Longest that a request waits for an answer that is being computed; after that it is asked to come back later."""
BODY_BYTES: Final = 1 << 20
"""Most bytes of a form."""
SERIES: Final = ("window_start", "window_end", "complete", "answer", "value", "low", "high")
"""Columns of a series."""
SERIES_TYPES: Final[Types] = {**WINDOW, "value": "float64", "low": "float64", "high": "float64"}

SketchName = Annotated[
    str,
    Path(
        description="Name of the sketch.",
        json_schema_extra={"pattern": "^[a-z0-9][a-z0-9_.-]{0,99}$", "example": "aircraft"},
    ),
]


class Api:
    """The functions behind the paths.

    Args:
        service: answers.
        memory: memory of answers.
    """

    def __init__(self, service: Service, memory: AnswerMemory) -> None:
        self._service, self._memory = service, memory

    # ------------------------------------------------------------------ lists

    async def sketches(self, request: Request, query: Annotated[Form, Query()]) -> Response:
        """All sketches."""
        data = await run_in_threadpool(self._service.catalog.sketches)
        rows = [flat(row) for row in data["sketches"]]
        return respond(request, data, rows, query.format, types=tables.SKETCHES_TYPES, columns=tables.SKETCHES)

    async def sketch(self, request: Request, name: SketchName, query: Annotated[Plain, Query()]) -> Response:
        """One sketch."""
        return respond(request, await run_in_threadpool(self._service.catalog.sketch, name))

    async def windows(self, request: Request, name: SketchName, query: Annotated[WindowsQuery, Query()]) -> Response:
        """Windows with their completeness, a page at a time."""
        data = await run_in_threadpool(
            self._service.windows,
            name,
            query.since,
            query.until,
            limit=query.limit,
            newest=query.order == "desc",
            cursor=query.cursor,
        )
        rows = [flat(row) for row in data["windows"]]
        return respond(request, data, rows, query.format, types=tables.WINDOWS_TYPES, columns=tables.WINDOWS)

    # ------------------------------------------------------------------ answers

    async def profile(self, request: Request, name: SketchName, query: Annotated[ProfileQuery, Query()]) -> Response:
        """The profile of one window: what `sketchstream profile -c --format json` prints."""
        return await self._answer(request, name, query, query.question, "profile")

    async def overlap(self, request: Request, name: SketchName, query: Annotated[OverlapQuery, Query()]) -> Response:
        """What the groups of one window have in common: what `sketchstream overlap -c --format json` prints."""
        question = query.question
        self._service.catalog.require_sets(name, question)
        return await self._kept(request, name, query, question, overlaps.TYPES)

    async def estimate(self, request: Request, name: SketchName, query: Annotated[EstimateQuery, Query()]) -> Response:
        """The estimates of one window: what `sketchstream estimate -c --format json` prints."""
        return await self._answer(request, name, query, query.question, "estimate")

    async def estimate_form(self, request: Request, name: SketchName) -> Response:
        """Estimates of items and rows that come in the form, where no log on the way has them."""
        form = await run_in_threadpool(read_form, await _body(request))  # a long one takes a tenth of a second
        if request.query_params:
            raise ConfigError("put all parameters into the form, and none into the query string")
        query, request.state.asked = form
        if query.drift:
            return await self._drift(request, name, query)
        return await self._answer(request, name, query, query.question, "estimate")

    async def _drift(self, request: Request, name: str, query: EstimateForm) -> Response:
        """How much rows changed from window to window."""
        question = query.question
        self._require_kind(name, "estimate")
        windows = await run_in_threadpool(self._service.compared_windows, name, query.since, query.until)
        rows = replace(question.rows, until=windows[-1].window[1])
        answer = await self._answered(request, windows[0], replace(question, rows=rows))
        whole = replace(answer, stored=self._service.joined_window(windows))
        return await run_in_threadpool(
            self._unkept, request, whole, query.format, self._service.catalog.rows(name).types
        )

    def _unkept(self, request: Request, answer: WindowAnswer, form: str, types: Types) -> Response:
        """An answer to a question that names items or rows: nobody on the way keeps it."""
        return respond_with(request, encode(answer, form, types), form, {"Cache-Control": "no-store"})

    async def _answer(self, request: Request, name: str, query: Ranged, question: Question, kind: str) -> Response:
        """The usual answer of a kind for one window."""
        self._require_kind(name, kind)
        self._service.catalog.require_group(name, question.group)
        return await self._kept(request, name, query, question, self._service.catalog.rows(name).types)

    async def _kept(self, request: Request, name: str, query: Ranged, question: Question, types: Types) -> Response:
        """The answer of one window to a question that may be asked, from the store or computed now."""
        form = query.format
        generation = self._service.store.generation
        stored = await run_in_threadpool(self._service.require_one_window, name, query.since, query.until)
        etag = self._service.etag(stored, question, form)
        if etag is not None:
            remembered = self._memory.answer(request, etag, form)
            if remembered is not None:
                self._memory.learn(request, generation, etag, form)
                return remembered
        answer = await self._answered(request, stored, question)
        etag = self._service.etag(answer.stored, question, form)
        if etag is None:
            return await run_in_threadpool(self._unkept, request, answer, form, types)
        body = await run_in_threadpool(encode, answer, form, types)
        return await run_in_threadpool(self._memory.keep, request, generation, etag, form, body)

    def _require_kind(self, name: str, answer: str) -> None:
        """Refuse to ask a kind for what it does not give."""
        plan = self._service.catalog.plan(name)
        if plan is not None and (has := kinds.kind_of(plan.spec).answer) != answer:
            raise ConfigError(f"a sketch of kind {plan.spec.kind!r} has no {answer}: ask for /v1/sketches/{name}/{has}")

    async def _answered(self, request: Request, stored: StoredWindow, question: Question) -> WindowAnswer:
        """The answer of a window; waits while it is computed, as long as the client does."""
        ready = await run_in_threadpool(self._service.ready, stored, question)
        if ready is not None:
            return ready
        future = self._service.ask(stored, question)
        computed = await _await_answer(request, future, lambda: self._service.pool.leave(future))
        now = await run_in_threadpool(self._service.store.window, stored.sketch, stored.window)
        if now is not None and not question.names_items:
            answer = await run_in_threadpool(self._service.ready, now, question)
            if answer is not None:
                return answer
        return WindowAnswer(stored, computed, self._service.config.names)

    async def estimates(self, request: Request, name: SketchName, query: Annotated[Ranged, Query()]) -> Response:
        """The estimates of all windows in a range: what `sketchstream estimate -c --all` prints."""
        form = query.format
        self._require_kind(name, "estimate")
        windows = await run_in_threadpool(self._service.windows_of_estimates, name, query.since, query.until)
        types = self._service.catalog.rows(name).types
        answers: list[WindowAnswer] = []
        size, until = 0, time.monotonic() + WAIT_S
        for stored in windows:
            answers.append(await self._answered(request, stored, Question()))
            size += len(answers[-1].computed.csv)
            tables.require_size(size)
            if time.monotonic() > until and len(answers) < len(windows):
                part = f"{len(answers)} of {len(windows)} windows of that range"
                raise DeadlineError(f"{part} have been computed: ask again")

        def written() -> Response:
            if form == "json":
                return respond(request, {"sketch": name, "windows": [answer.to_dict() for answer in answers]})
            if form == "csv":
                rows = ((answer, row) for answer in answers for row in read_csv(answer.computed.csv.decode()))
                return respond_with(request, as_csv([_front(answer) | row for answer, row in rows]).encode(), form)
            return respond_with(request, _join_tables(answers, types, form), form)

        return await run_in_threadpool(written)

    async def closed(self, request: Request, name: SketchName, query: Annotated[Ranged, Query()]) -> Response:
        """Series at positions published before their window is sealed."""
        answers = await run_in_threadpool(self._service.closed, name, query.since, query.until)
        data = {"sketch": name, "windows": [orjson.loads(answer.to_json()) for answer in answers]}
        types = {**WINDOW, **self._service.catalog.rows(name).types}
        rows = None
        if query.format != "json":  # JSON has the answers as they are
            rows = [
                {"window_start": answer.facts["window_start"], **row} for answer in answers for row in answer.rows()
            ]
        return respond(request, data, rows, query.format, types=types, columns=("window_start",))

    async def series(self, request: Request, name: SketchName, query: Annotated[SeriesQuery, Query()]) -> Response:
        """A number by window, as far as it is computed."""
        columns = list(SERIES)
        metric = self._service.catalog.rows(name).usual_number if query.metric is None else query.metric
        if query.by is None:
            data = await run_in_threadpool(
                over_time.series, self._service, name, metric, query.since, query.until, query.group
            )
            rows = data["points"]
        elif query.group is not None:
            raise ConfigError("by=group gives all groups: leave group out, or by")
        else:
            data = await run_in_threadpool(
                over_time.series_by_group, self._service, name, metric, query.since, query.until
            )
            rows = [{"group": series["group"], **point} for series in data["groups"] for point in series["points"]]
            columns = ["group", *SERIES]
        return respond(request, data, rows, query.format, types=SERIES_TYPES, columns=columns)

    async def difference(
        self, request: Request, name: SketchName, query: Annotated[DifferenceQuery, Query()]
    ) -> Response:
        """A number of one window minus that of another."""
        metric = self._service.catalog.rows(name).usual_number if query.metric is None else query.metric
        self._service.catalog.require_number(name, metric)
        groups = [query.group, query.group if query.against_group is None else query.against_group]
        for group in groups:
            self._service.catalog.require_group(name, group)
        first = await run_in_threadpool(self._service.require_one_window, name, query.since, query.until)
        second = await run_in_threadpool(
            self._service.require_one_window, name, query.against_since, query.against_until
        )
        if first.window == second.window and groups[0] == groups[1]:
            raise ConfigError(
                "the two windows are one and the same: choose another one with against_from and against_to"
            )
        pairs = zip((first, second), groups, strict=True)
        answers = [await self._answered(request, stored, Question(group=group)) for stored, group in pairs]
        return respond(request, await run_in_threadpool(lambda: over_time.difference(self._service, *answers)(metric)))

    # ------------------------------------------------------------------ tables

    async def table_list(self, request: Request, query: Annotated[Plain, Query()]) -> Response:
        """Flat tables of all sketches as Parquet files, with their columns."""
        names = await run_in_threadpool(self._service.catalog.names)
        return respond(request, await run_in_threadpool(tables.list_tables, self._service, names))

    async def table(
        self, request: Request, name: SketchName, table: tables.TableName, query: Annotated[Span, Query()]
    ) -> Response:
        """One of them: windows, numbers of all answers, or the rows of all answers."""
        generation = self._service.store.generation

        def written() -> Response:
            body = as_bytes(tables.make(self._service, name, table, query.since, query.until), "parquet")
            return self._memory.keep(request, generation, tag(body), "parquet", body)

        return await run_in_threadpool(written)

    # ------------------------------------------------------------------ the deployment

    async def ledger(self, request: Request, query: Annotated[Form, Query()]) -> Response:
        """What an event, or an item, can have lost so far."""
        data = await run_in_threadpool(self._service.ledger)
        return respond(request, data, data["sketches"], query.format, columns=tuple(shapes.LedgerRow.model_fields))

    async def incidents(self, request: Request, query: Annotated[Form, Query()]) -> Response:
        """Publications of which nothing is shown."""
        data = await run_in_threadpool(self._service.incidents)
        return respond(request, data, data["incidents"], query.format, columns=tuple(shapes.Incident.model_fields))

    async def status(self, request: Request, query: Annotated[Plain, Query()]) -> Response:
        """What is unread, and still to be reconstructed."""
        return respond(request, await run_in_threadpool(status.status, self._service))

    async def metrics(self, request: Request, query: Annotated[Parameters, Query()]) -> Response:
        """The numbers of `status` for Prometheus."""
        text = await run_in_threadpool(exposition, self._service)
        return Response(text, 200, {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE})

    async def openapi(self, request: Request, query: Annotated[Parameters, Query()]) -> Response:
        """The OpenAPI document."""
        return respond(request, self.document)

    async def healthz(self) -> Response:
        """Whether the process answers, and all of its threads run."""
        code, text = status.liveness(self._service)  # nothing that could wait: neither the database nor a thread
        return Response(text.encode(), code, {"Cache-Control": "no-store"}, "text/plain")

    async def readyz(self) -> Response:
        """Whether everything published is stored, and how far behind the frontier that is."""
        code, text = await run_in_threadpool(status.readiness, self._service)
        return Response(text.encode(), code, {"Cache-Control": "no-store"}, "text/plain")

    def admit(self, request: Request) -> None:
        """Refuse what names no sketch that the client may see."""
        self._service.catalog.require(request.path_params["name"])

    @cached_property
    def routes(self) -> list[BaseRoute]:
        """All paths."""
        sketch = "/v1/sketches/{name}"
        fields = {"schema": EstimateForm.model_json_schema(), "example": {"item": ["N14228"]}}
        form = {"required": True, "content": {"application/x-www-form-urlencoded": fields}}
        parquet = describe_answer(self.table, None, table=False)
        parquet["responses"][200]["content"] = {FORMATS["parquet"]: {"schema": {"type": "string"}}}
        parquet["responses"][206] = {"description": "The part of the file that was wanted."}
        dependencies: dict[str, Any] = {"admit": self.admit}
        return [
            get("/v1/sketches", self.sketches, shapes.Sketches, table=True),
            get(sketch, self.sketch, shapes.Sketch, **dependencies),
            get(f"{sketch}/windows", self.windows, shapes.Windows, table=True, **dependencies),
            get(f"{sketch}/profile", self.profile, shapes.Profile, table=True, **dependencies),
            get(f"{sketch}/overlap", self.overlap, shapes.Overlap, table=True, **dependencies),
            get(f"{sketch}/estimate", self.estimate, shapes.Estimate, table=True, **dependencies),
            DocumentedRoute(
                f"{sketch}/estimate",
                self.estimate_form,
                methods=["POST"],
                **dependencies,
                openapi_extra={"requestBody": form},
                **describe_answer(self.estimate_form, shapes.Estimate, table=True),
            ),
            get(f"{sketch}/estimates", self.estimates, shapes.Estimates, table=True, **dependencies),
            get(f"{sketch}/closed", self.closed, shapes.Closed, table=True, **dependencies),
            get(f"{sketch}/series", self.series, shapes.Series | shapes.SeriesByGroup, table=True, **dependencies),
            get(f"{sketch}/difference", self.difference, shapes.Difference, **dependencies),
            get("/v1/tables", self.table_list, shapes.Tables),
            DocumentedRoute(
                "/v1/tables/{name}/{table}.parquet", self.table, **dependencies, **parquet, response_class=Response
            ),
            get("/v1/ledger", self.ledger, shapes.Ledger, table=True),
            get("/v1/incidents", self.incidents, shapes.Incidents, table=True),
            get("/v1/status", self.status, shapes.Status),
            DocumentedRoute("/metrics", self.metrics, include_in_schema=False),
            DocumentedRoute("/openapi.json", self.openapi, include_in_schema=False),
            plain_path("/healthz", self.healthz),
            plain_path("/readyz", self.readyz),
        ]

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return document(self.routes)


async def _await_answer(request: Request, future: Future[Computed], leave: Callable[[], None]) -> Computed:
    """The result of a question, unless the client goes before it is there, or waits too long.

    Args:
        request: request that waits for it.
        future: future of the pool.
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
        raise DeadlineError("the answer is still being computed: ask again")
    finally:
        left.cancel()
        leave()


async def _body(request: Request) -> bytes:
    """The bytes of a form.

    Raises:
        ConfigError: it is not a form.
        HTTPException: it is too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ConfigError("a POST needs a form: content-type application/x-www-form-urlencoded")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise HTTPException(413)
    return bytes(body)


def _front(answer: WindowAnswer) -> dict[str, Any]:
    """The columns before those of an answer where several windows stand in one table."""
    return {name: answer.stored.fields[name] for name in ("window_start", "complete")}


def _join_tables(answers: Sequence[WindowAnswer], types: Types, form: str) -> bytes:
    """The answers of several windows as one table."""
    import pyarrow as pa

    fronts = [table_of([_front(answer)], WINDOW) for answer in answers]
    parts = [table_of_csv(answer.computed.csv, types) for answer in answers]
    return as_bytes(pa.concat_tables(map(tables.after, fronts, parts), promote_options="default"), form)
