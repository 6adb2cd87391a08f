"""The HTTP server: its socket and its settings.

In: an application, an address. Out: a server that runs until it is stopped. Touches: a listening socket.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import anyio.to_thread
import uvicorn
from fastapi import FastAPI

from sketchstream.errors import ConfigError
from sketchstream.serve.edge.connections import MAX_HEAD_BYTES, limit_protocol, most_connections

FINISH_S: Final = 4
"""Seconds that requests may still take when the server is to finish."""
IDLE_S: Final = 30
"""Seconds that a connection may wait for its next request."""
AT_ONCE: Final = 32
"""Most connections accepted before others are looked at again: the limit may be exceeded by this number."""
BACKLOG: Final = 1024
"""Connections that wait in the system to be accepted."""
THREADS: Final = 8
"""Most requests that read the database, or compress, at a time."""


@contextlib.contextmanager
def listening(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A socket that listens.

    Args:
        address: host and port; port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        listener = socket.create_server(
            address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET, backlog=BACKLOG
        )
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise ConfigError(
            f"cannot listen on {where}: {error.strerror}; choose another one with --port or serve.address"
        ) from None
    with listener:
        # Connections inherit it. Without it the body of a response waits for the client to confirm its headers, 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def url(listener: socket.socket) -> str:
    """Where a socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class Server(uvicorn.Server):
    """A server that leaves signals to its caller, as the base class would end the process by the received signal.

    Args:
        app: the application of a service.
        proxies: addresses of proxies that say who asks.
    """

    def __init__(self, app: FastAPI, proxies: Sequence[str] = ()) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="error",  # what a client sends writes no lines of the framework's
                access_log=False,
                server_header=False,
                # nobody else may say who asks
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                lifespan="off",
                ws="none",
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                loop="asyncio",
                http=limit_protocol(most_connections(), app.state.guard),
                backlog=AT_ONCE,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=FINISH_S,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # the base class has set it to the number accepted at once

    def finish(self) -> None:
        """Finish open requests, then stop."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing."""
        yield
