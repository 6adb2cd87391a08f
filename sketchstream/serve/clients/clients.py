"""Clients: which one sends a request, whether another site has its browser do so, and what one client may take.

In: a request's address, method, path and headers. Out: a client's name, verdicts. Touches: nothing.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

REQUESTS: Final = 256
"""Most requests in progress; further ones are refused at once."""
OF_ONE_CLIENT: Final = 64
"""Most requests in progress of one client."""
GUESSES: Final = 10
"""Wrong tokens that one address may send at once."""
GUESS_S: Final = 6.0
"""Seconds after which that address may send one more."""
ADDRESSES: Final = 4096
"""Most addresses whose wrong tokens are remembered."""
CLIENT: Final[ContextVar[str]] = ContextVar("client", default="-")
"""Who asks, for a fair share. Set for each request, and passed on to the threads it uses."""
DATA: Final = ("/v1/", "/metrics", "/openapi.json")
"""Paths that a link of another site does not lead to."""


def address_of(scope: Mapping[str, Any]) -> str:
    """The address that a request comes from; of IPv6 the network of 64 bits, all of which one host may use."""
    client = scope.get("client")
    if not client:
        return "-"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return "-"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


def foreign(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a page of another site has a browser send this request.

    Links of other sites to pages are fine; nothing else is: not forms, scripts, images and frames, and no link to data.
    Browsers say so in `Sec-Fetch-Site`, older ones and those without TLS in `Origin` only; other programs in neither.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        linked = link and method in ("GET", "HEAD") and not path.startswith(DATA)
        return site not in ("same-origin", "none") and not linked
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


class Guesses:
    """Limits how many wrong tokens an address may send: a bucket for each, which fills again with time.

    Args:
        most: the most that a full bucket holds.
        each_s: time in which one more comes in.
        clock: seconds, monotonic.
    """

    def __init__(
        self, most: int = GUESSES, each_s: float = GUESS_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._each_s, self._clock = most, each_s, clock
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Seconds until an address may send a token again; 0: now."""
        full_at = self._full_at.get(address, 0.0)
        return max(0.0, full_at - self._clock() - (self._most - 1) * self._each_s)

    def wrong(self, address: str) -> None:
        """Note a wrong token. The addresses that were wrong longest ago are forgotten when there are too many."""
        now = self._clock()
        self._full_at[address] = max(now, self._full_at.pop(address, now)) + self._each_s
        if len(self._full_at) > ADDRESSES:
            self._full_at.popitem(last=False)


class InProgress:
    """Counts the requests in progress, and limits them: all, and those of one client.

    Args:
        most: the most of all clients together.
        of_one: the most of one client.
    """

    def __init__(self, most: int = REQUESTS, of_one: int = OF_ONE_CLIENT) -> None:
        self._most, self._of_one = most, of_one
        self._by_client: Counter[str] = Counter()
        self.number = 0

    @property
    def full(self) -> bool:
        """Whether no further request may begin."""
        return self.number >= self._most

    def begin(self, client: str) -> bool:
        """Count a request, unless its client has too many already."""
        if self._by_client[client] >= self._of_one:
            return False
        self._by_client[client] += 1
        self.number += 1
        return True

    def end(self, client: str) -> None:
        """Note that the request is done."""
        self.number -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
