"""Offers requests to a service at a steady rate, whether it keeps up or not, and says how long they took.

In: a URL, a rate. Out: one line of JSON: statuses, milliseconds. Touches: connections to the service.

Latency is from the time at which a request was due, so a service that falls behind does not hide it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from urllib.parse import urlsplit


async def one_connection(
    host: str, port: int, request: bytes, due: list[float], took: list[float], codes: Counter[int]
) -> None:
    """Send requests when they are due, each after the response to the one before."""
    reader = writer = None
    for at in due:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(sizes[0].split(b":")[1]) if sizes else 0)
            codes[int(head[9:12])] += 1
            took.append(time.perf_counter() - at)
        except (OSError, asyncio.IncompleteReadError):
            codes[0] += 1
            reader = writer = None


async def offer(url: str, rate: float, seconds: float, connections: int, header: str) -> dict[str, object]:
    """Statuses and milliseconds of requests at a rate."""
    parts = urlsplit(url)
    where = f"{parts.path}?{parts.query}" if parts.query else parts.path
    request = f"GET {where} HTTP/1.1\r\nHost: {parts.netloc}\r\n{header}\r\n".encode()
    begin = time.perf_counter() + 0.1
    took: list[float] = []
    codes: Counter[int] = Counter()
    each = rate / connections
    plans = [
        [begin + (number + place / connections) / each for number in range(int(seconds * each))]
        for place in range(connections)
    ]
    assert parts.hostname is not None
    assert parts.port is not None
    await asyncio.gather(*(one_connection(parts.hostname, parts.port, request, plan, took, codes) for plan in plans))
    took.sort()
    return {
        "codes": dict(codes),
        "p50": 1000 * took[len(took) // 2],
        "p99": 1000 * took[int(0.99 * len(took))],
        "achieved": len(took) / (time.perf_counter() - begin),
    }


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--header", default="", help="further lines, each ending in CRLF")
    given = parser.parse_args()
    found = asyncio.run(offer(given.url, given.rate, given.seconds, given.connections, given.header))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
