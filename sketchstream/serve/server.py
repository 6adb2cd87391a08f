"""The HTTP server: its socket and its settings.

In: an application, an address. Out: a server that runs until it is stopped. Touches: a listening socket.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from sketchstream.errors import ConfigError

CONNECTIONS: Final = 512
"""Most connections and requests at a time; further ones are answered with 503."""
FINISH_S: Final = 10
"""How long requests may take that are running when the server is to finish."""


@contextlib.contextmanager
def listening(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A socket that listens.

    Args:
        address: host and port; port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        found = socket.create_server(
            address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        msg = f"cannot listen on {where}: {error.strerror}; choose another one with --port or serve.address"
        raise ConfigError(msg) from None
    with found:
        # Connections inherit it. Without it the body of a response waits for the client to confirm its headers, 40 ms.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield found


def url(listener: socket.socket) -> str:
    """Where a socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class Server(uvicorn.Server):
    """A server that leaves signals to its caller, as the base class would end the process by the received signal.

    Args:
        app: an ASGI application.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                loop="asyncio",
                http="h11",
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=FINISH_S,
            )
        )

    def finish(self) -> None:
        """Finish open requests, then stop."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing."""
        yield
