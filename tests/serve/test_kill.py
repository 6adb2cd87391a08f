"""A service that is killed loses nothing: it reads on, and everything published is answered."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from helpers.serving import FILES, HOUR, MINUTE, free_port, publish, start, wait_ready, write
from helpers.streams import EPOCH
from helpers.workers import close_windows, send
from sketchstream.config.loader import Config
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream.windows.calendar import iso
from sketchstream_connectors.files.sealed import DirectorySealed


def children(process):
    """Processes that reconstruct for it."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
    )
    return [int(one) for one in found.stdout.split()]


def killed(folder, kills, seed):
    """Kill a service again and again while windows are published; then everything is there."""
    random_ = random.Random(seed)
    driver = publish(folder / "sealed", minutes=2, partitions=1)
    (folder / "sketchstream.toml").write_text(FILES + '[serve]\nrefresh = "100ms"\nprocesses = 1\n')
    port = free_port()
    left = []
    for number in range(kills):
        process = start(folder, port)
        if random_.random() < 0.8:
            wait_ready(port, process)
            time.sleep(random_.uniform(0, 0.5))
        else:
            time.sleep(random_.uniform(0, 2))
        at = EPOCH + (3 + number) * HOUR
        driver.advance(hours=1)  # events far beyond the clock would be refused
        send(driver, number % 12, at)
        driver.run()
        close_windows(driver, at + HOUR - MINUTE)
        driver.run()
        driver.snapshot()
        write(driver, folder / "sealed")
        time.sleep(random_.uniform(0, 0.3))
        left += children(process)
        process.kill()
        process.wait()
    process = start(folder, port)
    try:
        wait_ready(port, process)
        source = DirectorySealed(folder / "sealed")
        config = Config.load(folder / "sketchstream.toml", {})
        direct = PublishedWindows(config, SealedReader(source, config.quality_rule), source)
        base = f"http://127.0.0.1:{port}/v1/sketches/minutes"
        pending, since = math.inf, time.monotonic()
        while now := httpx.get(f"http://127.0.0.1:{port}/v1/status").json()["pending"]:
            if now < pending:
                pending, since = now, time.monotonic()
            assert time.monotonic() < since + 120, "reconstruction does not go on"
            time.sleep(0.1)
        wanted = list(direct.every("minutes", None, None))
        listed = httpx.get(f"{base}/windows", params={"limit": 1000, "order": "asc"}).json()["windows"]
        assert [one["window_start"] for one in listed] == [iso(one.window[0]) for one in wanted]
        assert {one["answer"] for one in listed} == {"ready"}
        for window in random_.sample(wanted, 5):
            params = {"from": iso(window.window[0]), "to": iso(window.window[1])}
            assert (
                httpx.get(f"{base}/profile", params=params).json()["distinct"]
                == (direct.answer(window).to_dict()["distinct"])
            )
        assert len(wanted) > kills
        last = children(process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    deadline = time.monotonic() + 30
    while any(reconstructs(pid) for pid in [*left, *last]):  # none is left behind, whichever way its parent ended
        assert time.monotonic() < deadline
        time.sleep(0.1)


def reconstructs(pid):
    """Whether a process of the service is still there."""
    try:
        return b"sketchstream.serve.reconstruction.reconstruct" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.statistics
def test_a_killed_service_loses_nothing(tmp_path):
    killed(tmp_path, kills=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_service_that_is_killed_a_hundred_times_loses_nothing(tmp_path):
    killed(tmp_path, kills=100, seed=2)
