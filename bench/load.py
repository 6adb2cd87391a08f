"""Offers requests to a service at a steady rate, whether it keeps up or not, and says how long they took.

In: a URL, a rate. Out: one line of JSON: statuses, milliseconds. Touches: connections to the service.

Latency is from the time at which a request was due, so a service that falls behind does not hide it. Requests that find
every connection busy wait here for one; after `--patience` they are given up (status 0). Sockets and epoll by hand, as
a client must be much cheaper than the service to offer it ten times what it can do.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import time
from collections import Counter, deque
from typing import Final
from urllib.parse import urlsplit

LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
GOOD: Final = (200, 304)


class Connection:
    """One connection, with a request on its way or none.

    Args:
        address: address of the service.
        poll: told of its socket.
    """

    def __init__(self, address: tuple[str, int], poll: select.epoll) -> None:
        self._address, self._poll = address, poll
        self.made = 0
        self.due = 0.0
        self.waits = False
        self._socket: socket.socket | None = None

    def _connect(self) -> socket.socket:
        made = socket.create_connection(self._address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        self._poll.register(made, select.EPOLLIN)
        self.made += 1
        return made

    def send(self, request: bytes, due: float) -> int:
        """Send a request; gives the descriptor."""
        self.due, self.waits = due, True
        self._got, self._wanted, self._code, self._last = 0, 0, 0, False
        if self._socket is None:
            self._socket = self._connect()
        try:
            self._socket.send(request)
        except OSError:
            self.close()
            self._socket = self._connect()
            self._socket.send(request)
        return self._socket.fileno()

    def receive(self) -> int | None:
        """Read on; gives the status when the response is whole, 0 if the connection ended before, else None."""
        assert self._socket is not None
        try:
            part = self._socket.recv(1 << 18)
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        if not part:
            self.waits = False
            self.close()
            return 0
        if not self._wanted:
            head, _, _ = part.partition(b"\r\n\r\n")
            size = LENGTH.search(head)
            self._code = int(head[9:12])
            self._wanted = len(head) + 4 + (int(size[1]) if size else 0)
            self._last = b"connection: close" in head.lower()
        self._got += len(part)
        if self._got < self._wanted:
            return None
        self.waits = False
        if self._last:
            self.close()
        return self._code

    def close(self) -> None:
        """Close it; the next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def offer(
    url: str, rate: float, seconds: float, connections: int, header: str = "", patience: float = 10.0
) -> dict[str, object]:
    """Statuses and milliseconds of requests at a rate."""
    parts = urlsplit(url)
    where = f"{parts.path}?{parts.query}" if parts.query else parts.path
    request = f"GET {where} HTTP/1.1\r\nHost: {parts.netloc}\r\n{header}\r\n".encode()
    assert parts.hostname is not None
    assert parts.port is not None
    poll = select.epoll()
    free = deque(Connection((parts.hostname, parts.port), poll) for _ in range(connections))
    every, owners = list(free), dict[int, Connection]()
    took: dict[bool, list[float]] = {True: [], False: []}
    codes: Counter[int] = Counter()
    number, total = 0, int(rate * seconds)
    spent, begin = time.process_time(), time.perf_counter() + 0.05
    while number < total or len(free) < connections:
        now = time.perf_counter()
        while number < total and begin + number / rate <= now:
            due = begin + number / rate
            if now - due > patience:
                codes[0] += 1
            elif free:
                one = free.popleft()
                owners[one.send(request, due)] = one
            else:
                break
            number += 1
        wait = 1.0 if number == total or not free else max(0.0, begin + number / rate - time.perf_counter())
        for descriptor, _ in poll.poll(wait):
            one = owners[descriptor]
            waits, code = one.waits, one.receive()
            if waits and code is not None:
                free.append(one)
                codes[code] += 1
                took[code in GOOD].append(1000 * (time.perf_counter() - one.due))
    whole = time.perf_counter() - begin
    for one in every:
        one.close()
    found: dict[str, object] = {"codes": dict(codes), "seconds": whole, "busy": (time.process_time() - spent) / whole}
    found["reconnected"] = sum(one.made for one in every) - min(connections, total)
    for good, name in ((True, "answered"), (False, "refused")):
        times = sorted(took[good])
        found[name] = len(times)
        for share in (50, 99):
            found[f"{name}_p{share}"] = times[int(share / 100 * len(times))] if times else None
    return found


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--header", default="", help="further lines, each ending in CRLF")
    parser.add_argument("--patience", type=float, default=10, help="seconds that a request waits for a connection")
    given = parser.parse_args()
    print(json.dumps(offer(given.url, given.rate, given.seconds, given.connections, given.header, given.patience)))


if __name__ == "__main__":
    main()
