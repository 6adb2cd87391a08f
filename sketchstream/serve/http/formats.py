"""Answers as bytes: formats, compression, tags, parts of files; and the bodies that are kept in memory.

In: plain data, tables, a request's headers. Out: responses. Touches: nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from sketchstream.kinds.exports import WINDOW, Types, as_csv, as_parquet, as_stream, table_of, table_of_csv
from sketchstream.serve.clients.access import VIEWER
from sketchstream.serve.http.problems import problem
from sketchstream.serve.recent import RecentlyUsed

if TYPE_CHECKING:
    import pyarrow as pa

    from sketchstream.serve.service import WindowAnswer
    from sketchstream.serve.store.store import Store

Row = Mapping[str, Any]

FORMATS: Final = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
SMALL_BYTES: Final = 1024
"""Bodies below this are not compressed."""
KEPT_BYTES: Final = 64 * 2**20
"""Most bytes of answers' bodies that are kept in memory."""
TAGS: Final = 4096
"""Most requests whose answers' tags are kept in memory."""
MAX_QUERY: Final = 512
"""Requests with longer query strings are not remembered."""


@dataclass(frozen=True)
class Remembered:
    """The answer that a request got.

    Args:
        generation: generation of the store. The answer is the same as long as nothing has been stored since.
        etag: etag of the answer.
        form: format of the answer.
        asked: what the log says of the request.
        route: route that the request has taken.
    """

    generation: int
    etag: str
    form: str
    asked: str
    route: str


class AnswerMemory:
    """Answers given last, by request: path, query string, and what the client may see.

    Args:
        store: store whose generation they hold for.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # by tag, and whether the body is compressed
        self._bodies = RecentlyUsed[tuple[str, bool], bytes](KEPT_BYTES, len)
        self._known = RecentlyUsed[tuple[str, bytes, frozenset[str] | None], Remembered](TAGS)

    def recall(self, request: Request) -> Response | None:
        """Return the answer of the last time, if nothing has been stored since; else None."""
        last = self._known.get(_place(request))
        if last is None or last.generation != self._store.generation or request.method not in ("GET", "HEAD"):
            return None
        response = self.answer(request, last.etag, last.form)
        if response is not None:
            request.scope["state"] |= {"asked": last.asked, "route": last.route}
        return response

    def answer(self, request: Request, etag: str, form: str) -> Response | None:
        """The answer with this tag: not modified, or its body if it is kept."""
        if matches(request, etag):
            return Response(None, 304, {"ETag": etag})
        body = self._bodies.get((etag, _takes_gzip(request, form)))
        return None if body is None else _write_response(request, body, form, etag)

    def keep(self, request: Request, generation: int, etag: str, form: str, body: bytes) -> Response:
        """Keep the answer to a request.

        Args:
            request: request that is answered. It names no item and no row.
            generation: generation of the store, before the answer was looked for.
            etag: etag of the answer.
            form: format of the answer.
            body: not compressed.
        """
        body = _compressed(request, body, form)
        self._bodies.put((etag, _takes_gzip(request, form)), body)
        self.learn(request, generation, etag, form)
        return _write_response(request, body, form, etag)

    def learn(self, request: Request, generation: int, etag: str, form: str) -> None:
        """Remember which answer a request has."""
        if len(request.scope["query_string"]) > MAX_QUERY:
            return
        route = request.scope["route"].path
        self._known.put(_place(request), Remembered(generation, etag, form, request.state.asked, route))


def _place(request: Request) -> tuple[str, bytes, frozenset[str] | None]:
    scope = request.scope
    return scope["path"], scope["query_string"], VIEWER.get()


def tag(body: bytes) -> str:
    """The tag of a file that has no other: a digest of its bytes."""
    return f'"{hashlib.blake2b(body, digest_size=16, person=b"sketch-etag").hexdigest()}"'


def matches(request: Request, etag: str) -> bool:
    """Whether the client has this answer already."""
    etags = request.headers.get("if-none-match")
    if etags is None:
        return False
    return any(tag.strip().removeprefix("W/") in (etag, "*") for tag in etags.split(","))


def _takes_gzip(request: Request, form: str) -> bool:
    """Whether the client takes gzip, of a format that is not compressed already."""
    if form == "parquet":
        return False
    for encoding in request.headers.get("accept-encoding", "").split(","):
        name, _, quality = encoding.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _compressed(request: Request, body: bytes, form: str) -> bytes:
    """A body as gzip, if that is worth it and the client takes it."""
    return gzip.compress(body, 6, mtime=0) if len(body) >= SMALL_BYTES and _takes_gzip(request, form) else body


def as_bytes(table: pa.Table, form: str) -> bytes:
    """A table in a format: "arrow" or "parquet"."""
    return as_parquet(table) if form == "parquet" else as_stream(table)


def encode(answer: WindowAnswer, form: str, types: Types) -> bytes:
    """The bytes of the answer of a window."""
    if form == "json":
        return answer.json()
    csv = answer.computed.csv
    return csv if form == "csv" else as_bytes(table_of_csv(csv, types), form)


def respond(
    request: Request,
    data: Mapping[str, Any],
    rows: Sequence[Row] | None = None,
    form: str = "json",
    *,
    types: Types = WINDOW,
    columns: Sequence[str] = (),
) -> Response:
    """Plain data as a response.

    Args:
        request: request to be answered.
        data: data to be written as JSON.
        rows: rows of the table, for the other formats.
        form: one of `FORMATS`.
        types: types of the columns of the table.
        columns: columns that the table has even without rows.
    """
    if form == "json" or rows is None:
        body = orjson.dumps(data, default=str, option=orjson.OPT_SERIALIZE_NUMPY)
    elif form == "csv":
        body = as_csv([_lower(row) for row in rows], columns).encode()
    else:
        body = as_bytes(table_of(rows, types, columns), form)
    return respond_with(request, body, form)


def respond_with(request: Request, body: bytes, form: str, headers: Mapping[str, str] | None = None) -> Response:
    """A body as a response, compressed if that is worth it."""
    return _write_response(request, _compressed(request, body, form), form, None, headers)


def _write_response(
    request: Request, body: bytes, form: str, etag: str | None, more: Mapping[str, str] | None = None
) -> Response:
    """A body, compressed or not, as a response."""
    headers = dict(more or {})
    if etag is not None:
        headers["ETag"] = etag
    if body[:2] == b"\x1f\x8b":
        headers["Content-Encoding"] = "gzip"
    if form == "parquet" and etag is not None:
        return _part(request, body, headers | {"Accept-Ranges": "bytes"}, etag)
    return Response(body, 200, headers, FORMATS[form])


def _part(request: Request, body: bytes, headers: dict[str, str], etag: str) -> Response:
    """A file, or the part of it that is wanted: readers of Parquet ask for its end, then for columns.

    Source: RFC 9110, section 14.
    """
    kind, whole = FORMATS["parquet"], len(body)
    part = re.fullmatch(r"bytes=([0-9]{0,18})-([0-9]{0,18})", request.headers.get("range", ""), re.ASCII)
    if part is None or part[1] == part[2] == "" or request.headers.get("if-range", etag) != etag:
        return Response(body, 200, headers, kind)
    if part[1]:
        first, last = int(part[1]), min(int(part[2] or whole), whole - 1)
    else:
        first, last = max(0, whole - int(part[2])), whole - 1
    if part[1] and part[2] and int(part[2]) < first:  # no range at all
        return Response(body, 200, headers, kind)
    if first > last:
        text = f"the file has {whole} bytes, and none of them is wanted: ask for others, or for all"
        return problem(416, "The range holds nothing", text, {"Content-Range": f"bytes */{whole}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{whole}"
    return Response(body[first : last + 1], 206, headers, kind)


def _lower(row: Row) -> Row:
    """A row with booleans as JSON writes them."""
    return {name: str(cell).lower() if isinstance(cell, bool) else cell for name, cell in row.items()}


def flat(row: Row, prefix: str = "") -> dict[str, Any]:
    """A row without tables in it: names joined by underscores, lists as text."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells |= flat(value, f"{prefix}{name}_")
        else:
            cells[f"{prefix}{name}"] = " ".join(map(str, value)) if isinstance(value, list) else value
    return cells
