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
import hashlib
import itertools
import json
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import msgpack
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import sketchstream as ss
from sketchstream import wire
from sketchstream.config.loader import Config
from sketchstream.serve.app import create
from sketchstream.serve.edge.server import Server, listening, url
from sketchstream.serve.follower import Follower
from sketchstream.serve.reconstruction.pool import Pool
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.reconstruction.reconstruct import answer, published_in
from sketchstream.serve.service import Service
from sketchstream.serve.store.database import open_database
from sketchstream.serve.store.ledgers import Ledgers
from sketchstream.serve.store.store import Store
from sketchstream.stream.feed import FeedBatch
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver

Form = tuple[bytearray, list[tuple[bytes, list[int], list[int]]], list[tuple[list[int], int]]]
"""Bytes of a body; where names of noise are in it, raw and in hexadecimal; where its times are."""
HOUR = 3_600_000
BEGIN = 1_600_000_000_000 // HOUR * HOUR
BEGIN_SERIES = 1_704_067_200_000
FULL = 10 * 3 * 365 * 24 * 16
"""Bodies of ten sketches, three years of hours and 16 partitions."""
PAGES: Final = ("/sketches", "/ledger")
PAGE_RATE: Final = 5.0
"""Requests a second of what one person looks at: pages with pictures, and what takes long."""
SLOW_S: Final = 0.1
SPEC: Final = 'unit = "event"\nepsilon = "1"\ndomain = {{ size = {size} }}\nmax_count = 100'


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


def _found(body: bytes, what: bytes) -> list[int]:
    """All places of some bytes."""
    return [match.start() for match in re.finditer(re.escape(what), body)]


def _packed(number: int) -> bytes:
    """A time as headers have it."""
    out: bytes = msgpack.packb(number)
    return out


class Generated:
    """A feed of generated bodies: each has noise of its own names, its counters are those of one of a few sketches.

    Args:
        config: config of the sketches.
        hours: hours of each sketch.
        partitions: partitions of each hour.
    """

    identity = "generated"

    def __init__(self, config: Config, hours: int, partitions: int) -> None:
        self.config, self.hours, self.partitions = config, hours, partitions
        self._made: dict[int, Any] = {}
        self._forms: dict[tuple[int, str, int], Form] = {}
        self.bytes = 0

    def _seal(self, number: int, name: str, partition: int) -> bytes:
        """A sealed sketch of some counters, of the first window."""
        if number not in self._made:
            sketch = ss.Sketch.create(self.config.sketches[0].spec)  # type: ignore[arg-type]
            sketch.update([item for item in range(400) for _ in range(1 + (item * number) % 9)])
            header, counters = wire.unpack(sketch.seal().to_bytes())
            assert counters is not None
            self._made[number] = header, counters
        header, counters = self._made[number]
        where = {"name": name, "window": [BEGIN, BEGIN + HOUR], "partition": partition, "partitions": [self.partitions]}
        return wire.pack(header | where, counters, wire.HUFFMAN)

    def _form(self, number: int, name: str, partition: int) -> Form:
        """Such a sketch, and where its bytes hold what differs from window to window."""
        key = (number, name, partition)
        if key not in self._forms:
            body = self._seal(*key)
            header = wire.claimed_header(body)
            names = {header["seal_id"], *(layer["lineage"] for layer in header["layers"])}
            places = []
            for old in names:
                places += [(old, _found(body, old), _found(body, old.hex().encode()))]
            times = [(_found(body, _packed(at)), after) for after, at in ((0, BEGIN), (HOUR, BEGIN + HOUR))]
            self._forms[key] = bytearray(body), places, times
        return self._forms[key]

    def _entry(self, name: str, window: tuple[int, int], partition: int, number: int) -> SealedEntry:
        """A sketch of this window, with noise of names of its own."""
        body, places, times = self._form(number, name, partition)
        for _, raw, written in places:
            fresh = secrets.token_bytes(16)
            for at in raw:
                body[at : at + 16] = fresh
            for at in written:
                body[at : at + 32] = fresh.hex().encode()
        for found, after in times:
            for at in found:
                body[at : at + 9] = _packed(window[0] + after)
        body[-32:] = hashlib.blake2b(memoryview(body)[:-32], digest_size=32, person=b"sketchstream-sum").digest()
        done = bytes(body)
        return SealedEntry(name, 0, window, partition, wire.claimed_header(done)["seal_id"], done)

    def newest(self) -> Sequence[Frontier]:
        """Everything is published."""
        end = BEGIN + self.hours * HOUR
        return [
            Frontier(plan.name, 0, partition, end, self.partitions, 1)
            for plan in self.config.sketches
            for partition in range(self.partitions)
        ]

    def read(self, positions: object) -> Iterator[FeedBatch]:
        """All bodies by ascending hours, a day at a time."""
        del positions
        entries: list[SealedEntry] = []
        for hour, plan in itertools.product(range(self.hours), self.config.sketches):
            window = (BEGIN + hour * HOUR, BEGIN + (hour + 1) * HOUR)
            for partition in range(self.partitions):
                entry = self._entry(plan.name, window, partition, (hour + partition) % 8)
                self.bytes += len(entry.body)
                entries.append(entry)
            if len(entries) >= 2048:
                yield FeedBatch(entries)
                entries = []
        yield FeedBatch(entries, self.newest())

    def close(self) -> None:
        """Nothing is held."""


class Clock:
    """Adds up the time between entering and leaving."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, processor = self._begun
        self.wall += time.perf_counter() - wall
        self.processor += time.process_time() - processor


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


def ask_both(
    client: httpx.Client, paths: tuple[str, str], requests: int, rate: float, **headers: str
) -> tuple[list[float], list[float]]:
    """Milliseconds of requests to two paths in turns, so that what disturbs one of them disturbs both."""
    both: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    for number in range(2 * requests):
        wait = begun + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        before = time.perf_counter()
        found = client.get(paths[number % 2], headers=headers)
        both[number % 2].append(1000 * (time.perf_counter() - before))
        assert found.status_code == 200
    return both


def percentile(took: Sequence[float], share: float) -> float:
    """A percentile of some milliseconds."""
    return sorted(took)[int(share * len(took))]


def show(name: str, took: Sequence[float], size: int) -> str:
    """A row of the table of endpoints."""
    return f"{name:42} {statistics.median(took):8.2f} {percentile(took, 0.99):8.2f} {size:10,}"


@contextlib.contextmanager
def client_of(app: Any) -> Iterator[httpx.Client]:
    """A client of an application that runs in this process."""
    server = Server(app)
    with listening(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with httpx.Client(base_url=url(listener), timeout=600) as client:
                yield client
        finally:
            server.finish()
            thread.join()


LOADS: Final = ((500, 32), (1000, 32), (2000, 32), (4000, 32), (20_000, 480), (20_000, 600))
"""Requests a second, and connections. The last ones are ten times what is to be answered within 20 ms."""


@contextlib.contextmanager
def peer(body: bytes) -> Iterator[str]:
    """The least that gives these bytes: one function behind the same HTTP server as it comes; its URL."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def answer(_scope: object, _receive: object, send: Callable[[dict[str, Any]], Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = uvicorn.Server(
        uvicorn.Config(answer, log_config=None, access_log=False, lifespan="off", ws="none", loop="asyncio", http="h11")
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    with listening(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield url(listener)
        finally:
            server.should_exit = True
            thread.join()


def offered(url: str, plain: str, tag: str, seconds: float) -> None:
    """Rows for cached answers, and for a peer, at rates that one client could not ask for: another process does."""
    print(
        f"\n{'cached answers':14} {'offered/s':>9} {'over':>5} {'answered':>9} {'p50 ms':>8} {'p99 ms':>8} "
        f"{'refused':>9} {'p50 ms':>8} {'p99 ms':>8} {'us each':>7}"
    )
    unmodified = f"If-None-Match: {tag}\r\n"
    for rate, connections in LOADS:
        for title, where, header in (("peer", plain, ""), ("whole", url, ""), ("not modified", url, unmodified)):
            command = [sys.executable, str(Path(__file__).with_name("load.py")), where, "--rate", str(rate)]
            command += ["--connections", str(connections)]
            before = time.process_time()
            said = subprocess.run(
                [*command, "--seconds", str(seconds), "--header", header], check=True, capture_output=True, text=True
            )
            spent = time.process_time() - before
            found = json.loads(said.stdout)
            cells = [f"{title:14} {rate:9} {connections:5}"]
            for what in ("answered", "refused"):
                times = (found[f"{what}_p{share}"] for share in (50, 99))
                cells.append(
                    " ".join((f"{found[what]:9}", *(f"{'' if ms is None else f'{ms:.1f}':>8}" for ms in times)))
                )
            print(*cells, f"{1e6 * spent / max(1, found['answered'] + found['refused']):7.0f}", flush=True)


SERIES: Final = """
[kafka]
bootstrap.servers = "unused:1"
group.id = "bench"
[input]
topic = "events"
time = "ts"
partitioned_by = "none"
quorum = 1
quorum_time = "1ms"
[[sketch]]
name = "minutes"
kind = "convolution"
window = "1h"
kernel = ["window:10", "sum"]
step = "1m"
epsilon = 1
delta = "1e-6"
publish = "closed"
intrusion = false
"""


def show_series(folder: Path, requests: int, rate: float) -> None:
    """Rows of the table for paths that profiles do not have: estimates, and positions that have closed."""
    driver = Driver(SERIES, partitions=4, now="2024-01-01T08:00:00Z")
    for minute in range(6 * 60 + 50):  # six sealed hours, and most of a seventh
        for partition in range(4):
            at = BEGIN_SERIES + minute * 60_000
            driver.send({"ts": at}, timestamp=at, partition=partition)
        driver.run()
        driver.snapshot()
    path = folder / "series.toml"
    path.write_text(SERIES)
    config = Config.load(path, {})
    entries = driver.publisher.log
    with contextlib.closing(Store(folder / "series.sqlite", config, "generated")) as store:
        store.take(FeedBatch(entries, list(driver.publisher.frontiers().values())))
        while store.refresh():
            pass
        with contextlib.closing(Pool(store, SERIES, 1, 600.0)) as pool:
            pool.start()
            follower = Follower(store, Generated(config, 0, 4), pool)
            follower.caught_up_at = time.monotonic()
            while store.pending():
                time.sleep(0.05)
            with client_of(create(Service(store, pool, follower))) as client:
                span = f"from={iso(BEGIN_SERIES)}&to={iso(BEGIN_SERIES + HOUR)}"
                for title, where in (
                    ("estimate, cached", f"/v1/sketches/minutes/estimate?{span}"),
                    ("closed positions of an open window", "/v1/sketches/minutes/closed"),
                ):
                    size = len(client.get(where).raise_for_status().content)
                    print(show(title, ask(client, where, requests, rate), size), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one day, fewer requests")
    parser.add_argument("--days", type=int, default=10, help="of hours of each sketch (10; 1095 is full size)")
    parser.add_argument("--sketches", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--requests", type=int, default=400, help="to each endpoint")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--short", action="store_true", help="of the paths, only cached answers beside static ones")
    parser.add_argument("--rounds", type=int, default=5, help="of cached answers beside static ones")
    parser.add_argument("--retain", action="store_true", help="drop the older half at the end")
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
        store = Store(folder / "serve.sqlite", config, feed.identity)
        pool = Pool(store, text, 1, 600.0)
        follower = Follower(store, feed, pool)
        stack.callback(store.close)
        stack.callback(pool.close)
        storing, count = Clock(), 0
        for batch in feed.read(None):
            with storing:
                store.take(batch)
            count += len(batch.entries)
        assembling = Clock()
        with assembling:
            while store.refresh():
                pass
        size = (folder / "serve.sqlite").stat().st_size
        windows, scale = count // given.partitions, FULL / count

        def row(name: str, value: float, text: str) -> None:
            print(f"{name:22} {value:12,.0f} {text}", flush=True)

        row("bodies", count, f"of {FULL:,} at full size, {feed.bytes / count:,.0f} bytes each")
        for name, number, clock in (("stored", count, storing), ("windows put together", windows, assembling)):
            said = f"a second of processor time ({number / clock.wall:,.0f} by the clock"
            row(name, number / clock.processor, f"{said}; {scale * clock.processor / 60:,.0f} min at full size)")
        row(
            "database",
            size / count,
            f"bytes a body ({size / 2**30:,.2f} GiB; {scale * size / 2**30:,.1f} at full size)",
        )
        reading = stack.enter_context(store.reading())
        for name, step in (
            ("opened again", lambda: open_database(folder / "serve.sqlite", write=True).close()),
            ("ledger, first time", lambda: Ledgers(reading).census(config).summary()),
        ):
            clock = Clock()
            with clock:
                step()
            row(name, 1000 * clock.processor, f"ms of processor time ({1000 * clock.wall:,.0f} by the clock)")

        last = [store.windows(plan.name, limit=1, newest=True)[0] for plan in config.sketches]
        service = Service(store, pool, follower)
        follower.step = lambda: None  # type: ignore[method-assign]
        follower.caught_up_at = time.monotonic()
        body = b"0" * 1000
        app = create(service)
        page = {"body": body}

        async def static(_: Request) -> Response:
            return Response(page["body"], media_type="application/json")

        app.router.routes.append(Route("/static", static))
        client = stack.enter_context(client_of(app))
        span = f"from={iso(last[0].window[0])}&to={iso(last[0].window[1])}"
        pool._store = _Quiet(store)  # type: ignore[assignment]
        pool.start()
        client.get(f"/v1/sketches/{last[0].sketch}/profile?{span}").raise_for_status()  # starts the process
        direct = published_in(reading, config)
        firsts, alone = [], []
        asked = [one for plan in config.sketches[1:] for one in store.windows(plan.name, limit=1)]
        for one in asked[: given.answers]:
            where = f"from={iso(one.window[0])}&to={iso(one.window[1])}"
            before = time.perf_counter()
            client.get(f"/v1/sketches/{one.sketch}/profile?{where}").raise_for_status()
            firsts.append(time.perf_counter() - before)
            published = direct.result(direct.only_window(one.sketch, *one.window))
            published.profile()
            before = time.perf_counter()
            published.profile()
            alone.append(time.perf_counter() - before)
        whole, part = (
            min(_processor(step) for _ in range(5))
            for step in (
                lambda: answer(
                    direct.without_caches(),
                    {"sketch": one.sketch, "window": one.window, "question": Question().to_dict()},
                ),
                published.profile,
            )
        )
        row("an answer", 1000 * whole, f"ms of processor time, {whole / part:.2f} of profile() alone")
        ratio = statistics.median(a / b for a, b in zip(firsts, alone, strict=True))
        row("first answer", 1000 * statistics.median(firsts), f"ms, {ratio:.2f} of profile() alone")

        print(f"\n{given.rate:g} requests a second, ms{'':18} {'p50':>8} {'p99':>8} {'bytes':>10}")
        name = last[0].sketch
        whole_answer = client.get(f"/v1/sketches/{name}/profile?{span}", headers={"Accept-Encoding": "identity"})
        page["body"] = whole_answer.content
        plain = {"Accept-Encoding": "identity"}
        middle = BEGIN + 12 * given.days * HOUR
        before_last = store.windows(name, limit=2, newest=True)[1]
        against = f"against_from={iso(before_last.window[0])}&against_to={iso(before_last.window[1])}"
        compared = "&".join(
            f"{side}={iso(one.window[0])}/{iso(one.window[1])}"
            for side, one in (("window", last[0]), ("against", before_last))
        )
        paths = {
            "static response of the answer's size": "/static",
            "profile, cached": f"/v1/sketches/{name}/profile?{span}",
            "profile as CSV": f"/v1/sketches/{name}/profile?{span}&format=csv",
            "profile as Arrow": f"/v1/sketches/{name}/profile?{span}&format=arrow",
            "sketches": "/v1/sketches",
            "one sketch": f"/v1/sketches/{name}",
            "windows, a page of 100": f"/v1/sketches/{name}/windows",
            "windows, 1000 from the middle": f"/v1/sketches/{name}/windows?limit=1000&order=asc&from={iso(middle)}",
            "series, 7 days": f"/v1/sketches/{name}/series?from={iso(last[0].window[1] - 168 * HOUR)}",
            "difference": f"/v1/sketches/{name}/difference?{span}&{against}",
            "ledger": "/v1/ledger",
            "incidents": "/v1/incidents",
            "status": "/v1/status",
            "metrics": "/metrics",
            "openapi.json": "/openapi.json",
            "healthz": "/healthz",
            "readyz": "/readyz",
            "page: sketches": "/",
            "page: one sketch": f"/sketches/{name}",
            "page: one window": f"/sketches/{name}/window?{span}",
            "page: two windows": f"/sketches/{name}/compare?{compared}",
            "chart as SVG": f"/sketches/{name}/window/reach.svg?{span}",
            "chart as PNG": f"/sketches/{name}/window/reach.png?{span}",
            "page: ledger": "/ledger",
            "page: incidents": "/incidents",
            "page: help": "/help",
        }
        for title, where in () if given.short else paths.items():
            once = client.get(where, headers=plain)
            slow = once.elapsed.total_seconds() > SLOW_S or where.startswith(PAGES)
            requests, rate = (given.requests // 5, PAGE_RATE) if slow else (given.requests, given.rate)
            took = ask(client, where, requests, rate, **plain)
            print(show(title, took, len(once.content)) + (f"  at {PAGE_RATE:g} a second" if slow else ""), flush=True)
        rounds = [
            ask_both(client, (paths["static response of the answer's size"], paths["profile, cached"]),
                     given.requests, given.rate, **plain)
            for _ in range(given.rounds)
        ]  # fmt: skip
        for share in (0.5, 0.99):
            static_ms, cached_ms = (statistics.median(percentile(both[at], share) for both in rounds) for at in (0, 1))
            said = f"p{100 * share:.0f} of cached answers over static ones, in turns"
            print(f"{said:42} {cached_ms / static_ms:8.2f} ({cached_ms:.2f} and {static_ms:.2f} ms)", flush=True)
        tag = client.get(paths["profile, cached"], headers=plain).headers["etag"]
        took = ask(client, paths["profile, cached"], given.requests, given.rate, **{"If-None-Match": tag}, **plain)
        print(show("profile, not modified", took, 0))
        plain_peer = stack.enter_context(peer(whole_answer.content))
        where = str(client.base_url).rstrip("/") + paths["profile, cached"]
        offered(where, plain_peer, tag, 1 if given.quick else 5)
    if not given.short:
        show_series(folder, given.requests, given.rate)
    if given.retain:
        with contextlib.closing(
            Store(folder / "serve.sqlite", config, feed.identity, given.days // 2 * 24 * HOUR)
        ) as store:
            clock, dropped, longest = Clock(), 0, 0.0
            while True:
                before = clock.wall
                with clock:
                    found = store.retain()
                longest = max(longest, clock.wall - before)
                dropped += found
                if not found:
                    break
            row("dropped by age", dropped, f"windows, {dropped / clock.processor:,.0f} a second of processor time")
            row("longest round", 1000 * longest, "ms by the clock, over all sketches, each in a transaction of its own")


def _processor(step: Callable[[], object]) -> float:
    """Processor time of a step, s."""
    clock = Clock()
    with clock:
        step()
    return clock.processor


class _Quiet:
    """A store without anything to do unasked, so that only questions are timed.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def next_todo(self, running: object) -> None:
        """Nothing."""
        del running

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


if __name__ == "__main__":
    main()
