"""A service with few descriptors under bursts, silent connections, kills and damage: it answers, and stays as large."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.serving import FILES, free_port, publish, start, wait_ready

DESCRIPTORS = 256
BURST = 45


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
            listed = client.get(f"/v1/sketches/{name}/windows").raise_for_status().json()["windows"]
            for one in listed:
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


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("requests", "silent", "killing_s"), [(24_000, 2_000, 600)])
def test_it_answers_whatever_comes_and_stays_as_large_as_it_was(tmp_path, requests, silent, killing_s, capsys):
    publish(tmp_path / "sealed", minutes=6, partitions=2)
    (tmp_path / "sketchstream.toml").write_text(FILES + '[serve]\nrefresh = "200ms"\nprocesses = 1\n')
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    process = start(tmp_path, port, preexec_fn=few_descriptors)
    rng = random.Random(20260103)
    try:
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
        time.sleep(15)
        last = size(process)
        with capsys.disabled():
            print(f"\n{codes}; {crowded} beside {silent} silent connections")
            print(f"health: {pulse.asked} times, longest {pulse.longest:.2f} s")
            print(f"descriptors and MiB: {first} at first, {after} after the bursts, {last} at last")
        assert {*codes, *crowded} <= {200, 429, 503}
        assert pulse.missed == 0
        assert pulse.longest < 10  # one second on a quiet machine
        assert last[0] <= first[0] + 16
        assert last[1] < first[1] + 64
        assert answers(base) == before
        database = tmp_path / "serve.sqlite"
        until, kills = time.monotonic() + killing_s, 0
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
            process = start(tmp_path, port, preexec_fn=few_descriptors)
            time.sleep(5 if kills % 10 else 60)  # now and then it has time to come up
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        with capsys.disabled():
            print(f"{kills} times killed in {killing_s} s")
        wait_ready(port, process)
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if answers(base) == before:
                    break
            assert time.monotonic() < deadline, "the answers are not those of before"
            time.sleep(1)
    finally:
        process.kill()
        process.wait()
