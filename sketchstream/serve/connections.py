"""Connections of the server: limits on clients that are silent or slow, and on how many connections there are.

In: bytes of clients. Out: requests for the application. Touches: sockets.

The framework's server has a time limit only for connections that have had a response. Here each state has one: waiting
for a request's headers, for its body, and for the client to read the response. When there are too many connections, one
that waits for a request makes room for the newest: of the address that has most of these, the oldest.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from typing import Any, Final

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from sketchstream.serve.clients import address_of

HEADERS_S: Final = 10.0
"""Longest that a client may take to send the headers of a request, from its first byte, or from the connection."""
BODY_S: Final = 30.0
"""Longest that it may take to send the body."""
READ_S: Final = 60.0
"""Longest that it may leave a response unread."""
CONNECTIONS: Final = 512
"""Most connections, if there are descriptors for them."""
SPARED: Final = 128
"""Descriptors for the database, processes and brokers, and for connections that are just being closed."""


def most_connections() -> int:
    """Most connections that this process can have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, min(CONNECTIONS, soft - SPARED))


class Waiting:
    """Connections that wait for a request, by address, the oldest first.

    Args:
        most: connections, waiting or not.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._by_address: dict[str, OrderedDict[LimitedProtocol, None]] = {}

    def add(self, connection: LimitedProtocol) -> None:
        """A connection begins to wait."""
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None

    def discard(self, connection: LimitedProtocol) -> None:
        """It waits no longer."""
        held = self._by_address.get(connection.address)
        if held is not None:
            held.pop(connection, None)
            if not held:
                del self._by_address[connection.address]

    def oldest(self) -> LimitedProtocol | None:
        """The connection that makes room for another one; None if all are busy."""
        if not self._by_address:
            return None
        most = max(self._by_address.values(), key=lambda held: len(held))
        return next(iter(most))


class LimitedProtocol(H11Protocol):
    """A connection with time limits. `waiting` is that of its server."""

    waiting: Waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.address = address_of({"client": self.client})
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._expects = ""
        if len(self.connections) > self.waiting.most:
            oldest = self.waiting.oldest()
            if oldest is None:  # every other connection has a request in progress
                self.transport.write(_raw(503, "Too many connections", "ask again later"))
                self.transport.close()
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
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """A response has been written."""
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
        """It has read on."""
        self._disarm_unread()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """No further request has come."""
        super().timeout_keep_alive_handler()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request of HTTP."""
        if not self.transport.is_closing():
            self.transport.write(_raw(400, "Bad request", "this is no request of HTTP/1.1"))
        self.transport.close()
        self._arm_unread()

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


def limited(most: int) -> type[LimitedProtocol]:
    """The protocol of a server with at most this number of connections."""
    return type("LimitedProtocol", (LimitedProtocol,), {"waiting": Waiting(most)})


def _raw(status: int, title: str, detail: str) -> bytes:
    """A response outside of the application, with what each of its responses has; then the connection ends."""
    body = orjson.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail})
    headers: dict[str, Any] = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Connection": "close",
    }
    made = h11.Connection(h11.SERVER)
    response = h11.Response(status_code=status, headers=list(headers.items()), reason=title.encode())
    parts = (made.send(response), made.send(h11.Data(data=body)), made.send(h11.EndOfMessage()))
    return b"".join(part or b"" for part in parts)
