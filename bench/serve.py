"""The query service: reading on, answering, and how large its database is, with many windows.

In: options. Out: a table. Touches: a database and processes in a temporary folder; a free port.

Sealed sketches are generated: 10 sketches, hours, 16 partitions. Full size is three years (4.2 million bodies);
`--days` says how many days are made, and the rates and sizes per body tell what more would take. Every endpoint is
asked `--requests` times at `--rate` requests a second, and beside it a static response of the size of an answer in the
same run, from the same process.

    python bench/serve.py --days 10
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.responses import Response
from starlette.routing import Route

import sketchstream as ss
from sketchstream import wire
from sketchstream.config.loader import Config
from sketchstream.serve.app import create
from sketchstream.serve.feed import Batch
from sketchstream.serve.follower import Follower
from sketchstream.serve.pool import Pool
from sketchstream.serve.reconstruct import published_in
from sketchstream.serve.server import Server, listening, url
from sketchstream.serve.service import Service
from sketchstream.serve.store import Store
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.windows import iso

Part = tuple[dict[str, Any], Any]
HOUR = 3_600_000
BEGIN = 1_600_000_000_000 // HOUR * HOUR
FULL = 10 * 3 * 365 * 24 * 16
"""Bodies of ten sketches, three years of hours and 16 partitions."""
SPEC = 'epsilon = "1"\ndomain = {{ size = {size} }}\nmax_count = 100'


def configuration(sketches: int, partitions: int) -> str:
    """A configuration of hourly sketches."""
    blocks = "\n".join(
        f'[[sketch]]\nname = "s{number:02d}"\nwindow = "1h"\n{SPEC.format(size=200 * partitions)}\n'
        for number in range(sketches)
    )
    return (
        '[kafka]\n"bootstrap.servers" = "unused:1"\n"group.id" = "bench"\n[input]\ntopic = "events"\nitem = "u"\n'
        f'item_type = "int"\ntime = "ts"\npartitioned_by = "item"\npartitioner = "unchecked"\n{blocks}'
    )


def _renamed(value: Any, names: Mapping[Any, Any]) -> Any:
    """Plain data with some of its texts and bytes replaced."""
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, (bytes, str)) else value


class Generated:
    """A feed of generated bodies: each has noise of its own names, its counters are those of one of a few sketches.

    Args:
        config: of the sketches.
        hours: of each sketch.
        partitions: of each hour.
    """

    identity = "generated"

    def __init__(self, config: Config, hours: int, partitions: int) -> None:
        self.config, self.hours, self.partitions = config, hours, partitions
        self._parts = [self._seal(number) for number in range(8)]
        self.bytes = 0

    def _seal(self, number: int) -> Part:
        spec = self.config.sketches[0].spec
        sketch = ss.Sketch.create(spec)  # type: ignore[arg-type]
        sketch.update([item for item in range(400) for _ in range(1 + (item * number) % 9)])
        header, counters = wire.unpack(sketch.seal().to_bytes())
        assert counters is not None
        return header, counters

    def _entry(self, name: str, window: tuple[int, int], partition: int, part: Part) -> SealedEntry:
        """A sketch with noise of names of its own."""
        header, counters = part
        renamed = {layer["lineage"]: secrets.token_bytes(16) for layer in header["layers"]}
        renamed |= {old.hex(): new.hex() for old, new in renamed.items()}
        fresh = _renamed(header, renamed) | {
            "name": name,
            "window": list(window),
            "partition": partition,
            "partitions": [self.partitions],
            "seal_id": secrets.token_bytes(16),
        }
        return SealedEntry(name, 0, window, partition, fresh["seal_id"], wire.pack(fresh, counters, wire.HUFFMAN))

    def newest(self) -> Sequence[Frontier]:
        """Everything is published."""
        end = BEGIN + self.hours * HOUR
        return [
            Frontier(plan.name, 0, partition, end, self.partitions, 1)
            for plan in self.config.sketches
            for partition in range(self.partitions)
        ]

    def read(self, positions: object) -> Iterator[Batch]:
        """All bodies by ascending hours, a day at a time."""
        del positions
        entries: list[SealedEntry] = []
        for hour, plan in itertools.product(range(self.hours), self.config.sketches):
            window = (BEGIN + hour * HOUR, BEGIN + (hour + 1) * HOUR)
            for partition in range(self.partitions):
                entry = self._entry(plan.name, window, partition, self._parts[(hour + partition) % len(self._parts)])
                self.bytes += len(entry.body)
                entries.append(entry)
            if len(entries) >= 2048:
                yield Batch(entries)
                entries = []
        yield Batch(entries, self.newest())

    def close(self) -> None:
        """Nothing is held."""


def ask(client: httpx.Client, path: str, requests: int, rate: float, **headers: str) -> list[float]:
    """Milliseconds of each of some requests, sent at a steady rate, as one client sees them."""
    took = []
    begun = time.perf_counter()
    for number in range(requests):
        wait = begun + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        before = time.perf_counter()
        found = client.get(path, headers=headers)
        took.append(1000 * (time.perf_counter() - before))
        assert found.status_code in (200, 304), (path, found.status_code, found.text[:200])
    return took


def show(name: str, took: Sequence[float], size: int) -> str:
    """A row of the table of endpoints."""
    ordered = sorted(took)
    return f"{name:42} {statistics.median(ordered):8.2f} {ordered[int(0.99 * len(ordered))]:8.2f} {size:10,}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one day, fewer requests")
    parser.add_argument("--days", type=int, default=10, help="of hours of each sketch (10; 1095 is full size)")
    parser.add_argument("--sketches", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--requests", type=int, default=400, help="to each endpoint")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--answers", type=int, default=4, help="windows that are reconstructed")
    given = parser.parse_args()
    if given.quick:
        given.days, given.requests, given.answers = 1, 100, 2
    folder = Path(tempfile.mkdtemp(prefix="bench-serve-"))
    with contextlib.ExitStack() as stack:
        text = configuration(given.sketches, given.partitions)
        path = folder / "sketchstream.toml"
        path.write_text(text)
        config = Config.load(path, {})
        feed = Generated(config, 24 * given.days, given.partitions)
        begun = time.perf_counter()
        count = sum(len(batch.entries) for batch in feed.read(None))
        generating = time.perf_counter() - begun
        feed.bytes = 0
        store = Store(folder / "serve.sqlite", config, feed.identity)
        pool = Pool(store, text, 1, 600.0)
        follower = Follower(store, feed, pool)
        stack.callback(store.close)
        stack.callback(pool.close)
        stored = 0.0
        for batch in feed.read(None):
            before = time.perf_counter()
            store.take(batch)
            stored += time.perf_counter() - before
        before = time.perf_counter()
        while store.refresh():
            pass
        assembled = time.perf_counter() - before
        size = (folder / "serve.sqlite").stat().st_size
        windows, scale = count // given.partitions, FULL / count

        def row(name: str, value: float, text: str) -> None:
            print(f"{name:22} {value:12,.0f} {text}")

        row("bodies", count, f"of {FULL:,} at full size, {feed.bytes / count:,.0f} bytes each")
        row("stored", count / stored, f"a second ({scale * stored / 60:,.0f} min at full size)")
        row("windows put together", windows / assembled, f"a second ({scale * assembled / 60:,.0f} min at full size)")
        row("database", size / count, f"bytes a body ({scale * size / 2**30:,.1f} GiB at full size)")
        row("generated", count / generating, "bodies a second (not part of the service)")
        before = time.perf_counter()
        again = Store(folder / "serve.sqlite", config, feed.identity)
        row("opened again", 1000 * (time.perf_counter() - before), "ms")
        again.close()

        last = [store.windows(plan.name, limit=1, newest=True)[0] for plan in config.sketches]
        service = Service(store, pool, follower)
        follower.step = lambda: None  # type: ignore[method-assign]
        follower.caught_up_at = time.monotonic()
        body = b"0" * 1000
        app = create(service)
        page = {"body": body}
        app.router.routes.append(Route("/static", lambda _: Response(page["body"], media_type="application/json")))
        server = Server(app)
        listener = stack.enter_context(listening(("127.0.0.1", 0)))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.finish)
        client = stack.enter_context(httpx.Client(base_url=url(listener), timeout=600))
        span = f"from={iso(last[0].window[0])}&to={iso(last[0].window[1])}"
        pool._store = _Quiet(store)  # type: ignore[assignment]
        pool.start()
        client.get(f"/v1/sketches/{last[0].sketch}/profile?{span}").raise_for_status()  # starts the process
        direct = published_in(store.connection(), config)
        firsts, alone = [], []
        asked = [one for plan in config.sketches[1:] for one in store.windows(plan.name, limit=1)]
        for one in asked[: given.answers]:
            where = f"from={iso(one.window[0])}&to={iso(one.window[1])}"
            before = time.perf_counter()
            client.get(f"/v1/sketches/{one.sketch}/profile?{where}").raise_for_status()
            firsts.append(time.perf_counter() - before)
            published = direct.result(direct.one(one.sketch, *one.window))
            published.profile()
            before = time.perf_counter()
            published.profile()
            alone.append(time.perf_counter() - before)
        ratio = statistics.median(a / b for a, b in zip(firsts, alone, strict=True))
        row("first answer", 1000 * statistics.median(firsts), f"ms, {ratio:.2f} of profile() alone")

        print(f"\n{given.rate:g} requests a second, ms{'':18} {'p50':>8} {'p99':>8} {'bytes':>10}")
        name = last[0].sketch
        answer = client.get(f"/v1/sketches/{name}/profile?{span}", headers={"Accept-Encoding": "identity"})
        page["body"] = answer.content
        plain = {"Accept-Encoding": "identity"}
        paths = {
            "static response of the answer's size": "/static",
            "profile, cached": f"/v1/sketches/{name}/profile?{span}",
            "profile as CSV": f"/v1/sketches/{name}/profile?{span}&format=csv",
            "sketches": "/v1/sketches",
            "windows, a page of 100": f"/v1/sketches/{name}/windows",
            "series, 7 days": f"/v1/sketches/{name}/series?from={iso(last[0].window[1] - 168 * HOUR)}",
            "incidents": "/v1/incidents",
            "status": "/v1/status",
            "readyz": "/readyz",
        }
        for title, where in paths.items():
            once = client.get(where, headers=plain)
            took = ask(client, where, given.requests, given.rate, **plain)
            print(show(title, took, len(once.content)))
        tag = client.get(paths["profile, cached"], headers=plain).headers["etag"]
        took = ask(client, paths["profile, cached"], given.requests, given.rate, **{"If-None-Match": tag}, **plain)
        print(show("profile, not modified", took, 0))


class _Quiet:
    """A store without anything to do unasked, so that only questions are timed.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def next_todo(self, beside: object) -> None:
        """Nothing."""
        del beside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


if __name__ == "__main__":
    main()
