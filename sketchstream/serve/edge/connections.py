"""Connections of the server: limits on silent and slow clients, on connections, and on requests that wait their turn.

In: bytes of clients. Out: requests for the application. Touches: sockets.

The framework's server has a time limit only for connections that have had a response. Here each state has one: waiting
for a request's headers, for its body, and for the client to read the response. When there are too many connections, one
that waits for a request makes room for the newest: of the address that has most of these, the oldest.

The framework's server does not limit how many requests wait for the one thread that reads them. Here requests that
would wait for long are refused unread. A request that a client has sent before, byte by byte, and whose answer is ready
is answered without being read again, for a fraction of what reading costs, so that few requests wait.
"""

from __future__ import annotations

import asyncio
import re
import resource
from collections import Counter, OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from sketchstream.log_events import EventLog
from sketchstream.serve.clients.clients import address_of
from sketchstream.serve.recent import RecentlyUsed

if TYPE_CHECKING:
    from starlette.responses import Response

    from sketchstream.serve.clients.traffic import Traffic
    from sketchstream.serve.edge.guard import Guard

event_log = EventLog("sketchstream.serve")

HEADERS_S: Final = 10.0
"""Seconds that a client may take to send a request's headers, from the first byte, or from the connection."""
BODY_S: Final = 30.0
"""Seconds that a client may take to send the body of a request."""
READ_S: Final = 60.0
"""Seconds for which a client may leave a response unread."""
CONNECTIONS: Final = 512
"""Most connections, if there are descriptors for them."""
RESERVED_DESCRIPTORS: Final = 128
"""Descriptors kept for the database, processes and brokers, and for connections that are just being closed."""
AT_A_TIME: Final = 64
"""Most requests that one turn of the event loop lets in; to read and answer them takes some 15 ms."""
MAX_HEAD_BYTES: Final = 32 * 1024
"""Bytes read at a time, and most bytes of a request's line and headers before their last part."""
USUAL_BYTES: Final = 1024
"""Bytes of a usual request; a longer one counts as several, for it takes as much longer to read."""
READY: Final = 0.25
"""Part of a usual request that one counts as if its answer is ready."""
HEADS: Final = 2048
"""Most requests that are remembered byte by byte."""
MAX_HEAD: Final = 4096
"""Most bytes of a request that is remembered."""
ALWAYS: Final = (b"GET /healthz ", b"GET /readyz ")
"""Requests that are let in always."""
PLAIN: Final = re.compile(
    rb"GET [!-~]+ HTTP/1\.1\r\n"
    rb"(?:(?!(?i:content-length|transfer-encoding|upgrade|connection: *close|expect))[!-9;-~]+:[^\r\n]*\r\n)+\r\n"
)
"""A text of this form is surely one whole request, without a body, after which the connection continues."""


def most_connections() -> int:
    """Most connections that this process can have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(CONNECTIONS, soft - RESERVED_DESCRIPTORS))


class Waiting:
    """Connections that wait for a request, by address, the oldest first.

    Args:
        most: connections, waiting or not.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._by_address: dict[str, OrderedDict[LimitedProtocol, None]] = {}

    def add(self, connection: LimitedProtocol) -> None:
        """Note that a connection begins to wait."""
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None

    def discard(self, connection: LimitedProtocol) -> None:
        """Note that a connection waits no longer."""
        connections = self._by_address.get(connection.address)
        if connections is not None:
            connections.pop(connection, None)
            if not connections:
                del self._by_address[connection.address]

    def oldest(self) -> LimitedProtocol | None:
        """The connection that makes room for another one; None if all are busy."""
        if not self._by_address:
            return None
        longest = max(self._by_address.values(), key=len)
        return next(iter(longest))


class TurnLine:
    """Admits requests in a turn of the event loop: a limited number, and in any case one of each address.

    A request that is admitted is answered in this turn or the next, unless it waits for something else. So no request
    waits for more than two turns to be answered or refused.

    Args:
        most: the most that one turn takes.
        traffic: counts those that are refused.
    """

    def __init__(self, most: int, traffic: Traffic) -> None:
        self._most, self._traffic = most, traffic
        self._let_in: Counter[str] = Counter()
        self._number, self._refused = 0.0, 0

    def admit(self, address: str, loop: asyncio.AbstractEventLoop, counts: float = 1.0) -> bool:
        """Whether a request of an address is let in now.

        Args:
            address: address of the client.
            loop: event loop whose turns are counted.
            counts: less than others if it takes less time.
        """
        if self._number >= self._most and address in self._let_in:
            return False
        if not self._number:
            loop.call_soon(self._next_turn)
        self._number += counts
        self._let_in[address] += 1
        return True

    def refused(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count a request that was not let in. The log has one line a second for all of them."""
        self._traffic.requests["-", 503] += 1
        if not self._refused:
            loop.call_later(1.0, self._report)
        self._refused += 1

    def _next_turn(self) -> None:
        self._number = 0.0
        self._let_in.clear()

    def _report(self) -> None:
        number, self._refused = self._refused, 0
        event_log.warning("requests_refused", requests=number)


class LimitedProtocol(H11Protocol):
    """A connection with time limits. `waiting`, `line`, `scopes` and `guard` are those of its server.

    `scopes` holds what was read from requests whose answers were ready when they last came, by address and bytes. Each
    time the guard decides whether such a request is refused, and whether its answer is still the same.
    """

    waiting: Waiting
    line: TurnLine
    scopes: RecentlyUsed[tuple[str, bytes], Mapping[str, Any]]
    guard: Guard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)  # type: ignore[arg-type]
        transport.max_size = MAX_HEAD_BYTES  # type: ignore[attr-defined]
        self.address = address_of({"client": self.client})
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._expects = ""
        self._head, self._size = b"", 0
        self._used = 0.0
        if len(self.connections) > self.waiting.most:
            oldest = self.waiting.oldest()
            if oldest is None:  # every other connection has a request in progress
                self.line.refused(self.loop)
                self._end_with(CROWDED)
                return
            oldest.transport.abort()
            self.waiting.discard(oldest)
        self._expect("headers", HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._expect("", 0)
        self._disarm_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A client has sent something."""
        self._head = b""
        if self.conn.their_state is h11.IDLE and not data.startswith(ALWAYS):  # a new request, not more of one
            plain = self._plain(data)
            read_before = self.scopes.get((self._peer, data)) if plain else None
            self._size += len(data)
            counts = max(1.0, self._size / USUAL_BYTES) if read_before is None else READY
            if not self.line.admit(self.address, self.loop, counts):
                self._refuse(plain=plain)
                return
            if read_before is not None:
                ready = self.guard.recall({**read_before, "state": {}})
                if ready is not None:
                    self._size = 0
                    self._answer(ready)
                    return
            self._head = data if plain else b""
        super().data_received(data)
        self._look()

    def _plain(self, data: bytes) -> bool:
        """Whether this is one whole request without a body, and nothing else is on its way here or to the client."""
        return not (
            len(data) > MAX_HEAD
            or PLAIN.fullmatch(data) is None
            or self.conn.trailing_data[0]
            or self.transport.get_write_buffer_size()
            or self.transport.is_closing()
        )

    def _refuse(self, *, plain: bool) -> None:
        """Refuse a request unread. The connection continues if nothing but this request can have been sent."""
        if self.transport.is_closing():
            return
        self.line.refused(self.loop)
        self._used, self._size = self.loop.time(), 0
        if plain:
            self.transport.write(BUSY)
        else:
            self._end_with(BUSY_AND_CLOSED)

    def _answer(self, response: Response) -> None:
        """Answer a plain request without reading it."""
        headers = [*self.server_state.default_headers, *response.raw_headers]
        lines = [STATUS[response.status_code], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", response.body]
        self.transport.write(b"".join(lines))
        self._used = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait_for_more(self.timeout_keep_alive)
            self._look()

    def _wait_for_more(self, seconds: float) -> None:
        """Close the connection if no further request comes within these seconds."""
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    @property
    def _peer(self) -> str:
        """The address that the connection itself has."""
        return self.client[0] if self.client else ""

    def _end_with(self, response: bytes) -> None:
        """Send this last, and close the connection."""
        self.transport.write(response)
        self.transport.close()
        self._arm_unread()

    def on_response_complete(self) -> None:
        """A response has been written."""
        self._size = 0
        if self._head and self.cycle.scope["state"].get("recalled"):
            self.scopes.put((self._peer, self._head), self.cycle.scope)
        super().on_response_complete()
        if self.transport.is_closing():
            self._arm_unread()  # as long as its end is not sent, the connection stays
        else:
            self._look()

    def pause_writing(self) -> None:
        """The client does not read as fast as the response is written."""
        super().pause_writing()
        self._arm_unread()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._disarm_unread()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection when no further request has come, unless one was answered or refused unread."""
        left = self._used + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait_for_more(left)
            return
        super().timeout_keep_alive_handler()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request of HTTP."""
        self.guard.traffic.requests["-", 400] += 1
        if not self.transport.is_closing():
            self._end_with(NO_HTTP)

    def _look(self) -> None:
        """Set the time limit of the present state."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect(*(("body", BODY_S) if self.cycle.more_body else ("", 0)))
        elif self.timeout_keep_alive_task is not None:
            self._expect("request", 0)  # the base class limits this time
        else:
            self._expect("headers", HEADERS_S)

    def _expect(self, what: str, seconds: float) -> None:
        """Wait for something, if that is new; 0: without a limit."""
        if what == self._expects:
            return
        self._expects = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds:
            self._timer = self.loop.call_later(seconds, self.transport.abort)
        if what in ("headers", "request"):
            self.waiting.add(self)
        else:
            self.waiting.discard(self)

    def _arm_unread(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(READ_S, self.transport.abort)

    def _disarm_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def limit_protocol(most: int, guard: Guard) -> type[LimitedProtocol]:
    """The protocol of a server.

    Args:
        most: connections.
        guard: the application's guard.
    """
    line, scopes = TurnLine(AT_A_TIME, guard.traffic), RecentlyUsed[tuple[str, bytes], Mapping[str, Any]](HEADS)
    of_server = {"waiting": Waiting(most), "line": line, "scopes": scopes, "guard": guard}
    return type("LimitedProtocol", (LimitedProtocol,), of_server)


def _raw(status: int, title: str, detail: str, *, last: bool = True) -> bytes:
    """A response made outside of the application, with the headers that all responses of the application have."""
    body = orjson.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})
    headers = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        **({"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}),
        **({"Connection": "close"} if last else {}),
    }
    lines = [f"HTTP/1.1 {status} {title}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STATUS: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
BUSY: Final = _raw(503, "Too many requests", "too many requests are waiting: ask again later", last=False)
BUSY_AND_CLOSED: Final = _raw(503, "Too many requests", "too many requests are waiting: ask again later")
CROWDED: Final = _raw(503, "Too many connections", "ask again later")
NO_HTTP: Final = _raw(400, "Bad request", "this is no request of HTTP/1.1")
