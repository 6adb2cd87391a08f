"""A service with few descriptors under bursts, silent connections, bodies of strangers, a full disk, kills and damage:
it answers, its answers stay the same, and it stays as large.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
import subprocess
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.hostile import altered, body_of
from helpers.paths import GOLDEN
from helpers.serving import FILES, MINUTE, free_port, publish, start, wait_ready
from sketchstream import published, wire
from sketchstream.errors import SketchstreamError
from sketchstream_connectors.files.publisher import start_name

DESCRIPTORS = 256
BURST = 45
BEGIN = 1_640_995_200_000
"""Of the windows of strangers, before all others."""


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def size(process):
    """Descriptors, and MiB of memory."""
    about = Path(f"/proc/{process.pid}")
    pages = int((about / "statm").read_text().split()[1])
    return len(list((about / "fd").iterdir())), pages * resource.getpagesize() / 2**20


def answers(base):
    """Every answer of every window."""
    out = {}
    with httpx.Client(base_url=base, timeout=120) as client:
        for name in ("minutes", "hours"):
            listed = client.get(f"/v1/sketches/{name}/windows?limit=1000").raise_for_status().json()["windows"]
            for one in listed:
                if one["answer"] == "incident":
                    continue
                span = {"from": one["window_start"], "to": one["window_end"]}
                found = client.get(f"/v1/sketches/{name}/profile", params=span)
                out[name, one["window_start"]] = found.raise_for_status().content
    return out


class Pulse:
    """Asks a service for its health all the time, in a thread.

    Args:
        base: URL of the service.
    """

    def __init__(self, base):
        self._base, self._stop = base, threading.Event()
        self.longest, self.missed, self.asked = 0.0, 0, 0
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=20, limits=httpx.Limits(max_keepalive_connections=0)) as client:
            while not self._stop.wait(0.1):
                began = time.monotonic()
                try:
                    assert client.get(f"{self._base}/healthz").status_code == 200
                    self.asked += 1
                except (httpx.TransportError, AssertionError):
                    self.missed += 1
                self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def bursts(base, requests, start):
    """Requests in bursts, as pages of many analysts send them, also of the window that starts then; the statuses."""
    paths = ["series", "windows", f"profile?method=inverse&from={start}", "series?metric=at_least.2", ""]
    codes = {}

    each_its_own = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    with httpx.Client(timeout=60, limits=each_its_own) as client, ThreadPoolExecutor(BURST) as threads:

        def ask(number):
            where = f"{base}/v1/sketches/minutes/{paths[number % len(paths)]}".rstrip("/")
            try:
                return client.get(where).status_code
            except httpx.TransportError:
                return 0

        for code in threads.map(ask, range(requests)):
            codes[code] = codes.get(code, 0) + 1
    return codes


def plant(folder, number, rng):
    """Put bodies of strangers into windows of their own, which a service follows."""
    seeds = [data for data in (path.read_bytes() for path in sorted(GOLDEN.rglob("*.bin"))) if is_read(data)]
    headers = [wire.unpack_header(seed) for seed in seeds]
    planted = 0
    while planted < number:
        at = rng.randrange(len(seeds))
        try:
            data = body_of(seeds[at], altered(rng, headers[at], headers), follows=rng.random() < 0.3)
        except (ValueError, OverflowError, struct.error, TypeError):
            continue  # no header of this format
        where = folder / "minutes" / "r0" / start_name(BEGIN + planted * MINUTE)
        where.mkdir(parents=True)
        (where / "p00000.sealed").write_bytes(data)
        planted += 1


def is_read(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            published.read_published(data)
        except SketchstreamError:
            return False
    return True


@contextlib.contextmanager
def disk(path, size_mb=64):
    """A small disk of its own; gives what fills it and what empties it again."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(path)], check=True)
    filler = path / "filler"

    def fill():
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    try:
        yield fill, filler.unlink
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, to fill it")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("requests", "silent", "bodies", "killing_s"), [(24_000, 2_000, 500, 600)])
def test_it_answers_whatever_comes_and_stays_as_large_as_it_was(tmp_path, requests, silent, bodies, killing_s, capsys):
    publish(tmp_path / "sealed", minutes=6, partitions=2)
    (tmp_path / "sketchstream.toml").write_text(
        FILES + '[serve]\nrefresh = "200ms"\nprocesses = 1\ndatabase = "disk/serve.sqlite"\n'
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    rng = random.Random(20260103)
    with contextlib.ExitStack() as around:
        fill, empty = around.enter_context(disk(tmp_path / "disk"))
        process = start(tmp_path, port, preexec_fn=few_descriptors)
        around.callback(lambda: (process.kill(), process.wait()))
        wait_ready(port, process)
        before = answers(base)
        start_of_one = max(start for name, start in before if name == "minutes")
        bursts(base, requests // 10, start_of_one)  # caches are full
        first = size(process)
        with Pulse(base) as pulse, contextlib.ExitStack() as stack:
            codes = bursts(base, requests, start_of_one)
            after = size(process)
            for _ in range(silent):
                one = stack.enter_context(socket.socket())
                one.settimeout(60)
                one.connect(("127.0.0.1", port))
                one.sendall(b"GET / HT" if rng.random() < 0.5 else b"")
            time.sleep(3)
            crowded = bursts(base, 200, start_of_one)
            stack.pop_all().close()
            plant(tmp_path / "sealed", bodies, rng)
            incidents = f"{base}/v1/incidents"
            wait_until(lambda: len(httpx.get(incidents).json()["incidents"]) > 0.9 * bodies, 900, "bodies are read")
            wait_ready(port, process)
            hostile = size(process)
            fill()
            asked = f"{base}/v1/sketches/minutes/profile?from={start_of_one}&max_count="
            full = [httpx.get(f"{asked}{count}", timeout=120) for count in range(30, 50)]
            assert {one.status_code for one in full} == {200}
            assert httpx.get(f"{base}/readyz", timeout=60).status_code == 503
            empty()
            wait_until(lambda: httpx.get(f"{base}/readyz", timeout=60).status_code == 200, 120, "ready with a disk")
        time.sleep(15)
        last = size(process)
        with capsys.disabled():
            print(f"\n{codes}; {crowded} beside {silent} silent connections")
            print(f"health: {pulse.asked} times, longest {pulse.longest:.2f} s")
            print(
                f"descriptors and MiB: {first} at first, {after} after the bursts, {hostile} after {bodies} bodies of "
                f"strangers, {last} after a full disk"
            )
        assert {*codes, *crowded} <= {200, 429, 503}
        assert pulse.missed == 0
        assert pulse.longest < 10  # one second on a quiet machine
        assert last[0] <= first[0] + 16
        assert last[1] < first[1] + 64
        assert answers(base) == before
        database = tmp_path / "disk" / "serve.sqlite"
        until, kills, starts = time.monotonic() + killing_s, 0, []
        while time.monotonic() < until:
            process.kill()
            process.wait()
            kills += 1
            if kills % 3 == 1 and database.exists() and database.stat().st_size > 4096:  # pages are damaged as well
                data = bytearray(database.read_bytes())
                for _ in range(4):
                    at = rng.randrange(len(data) // 4096) * 4096
                    data[at : at + 4096] = rng.randbytes(4096)
                database.write_bytes(data)
            began = time.monotonic()
            process = start(tmp_path, port, preexec_fn=few_descriptors)
            wait_until(lambda: httpx.get(f"{base}/healthz", timeout=20).status_code == 200, 60, "it starts")
            starts.append(time.monotonic() - began)
            time.sleep(max(0.0, (5 if kills % 10 else 30) - starts[-1]))  # now and then it has time for all
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        with capsys.disabled():
            print(f"{kills} times killed in {killing_s} s; alive again after at most {max(starts):.1f} s")
        wait_ready(port, process)
        wait_until(lambda: answers(base) == before, 300, "the answers are not those of before")
