"""A service over a folder of sealed sketches, in this process.

In: a configuration, drivers. Out: services that have caught up, and clients of them. Touches: a folder of the test, a
free port.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.configurations import EVENTS_FILE
from helpers.streams import EPOCH
from helpers.workers import TEXT as EXACT
from helpers.workers import close_windows, send
from sketchstream.config.loader import Config
from sketchstream.serve.app import create
from sketchstream.serve.clients.access import Access
from sketchstream.serve.edge.server import Server, listening, url
from sketchstream.serve.follower import Follower
from sketchstream.serve.reconstruction.pool import Pool
from sketchstream.serve.service import Service
from sketchstream.serve.store.store import Store
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.feed import DirectoryFeed
from sketchstream_connectors.files.publisher import DirectoryPublisher

TEXT = EXACT.replace("epsilon = 30", "epsilon = 2")
MINUTE = 60_000
HOUR = 60 * MINUTE
# Files as input: the folder is followed.
FILES = EVENTS_FILE + TEXT[TEXT.index("max_ahead") :]


def publish(
    folder: Path, text: str = TEXT, minutes: int = 6, partitions: int = 3, items: Sequence[Any] = tuple(range(12))
) -> Driver:
    """Some minutes of events of some items, sealed into a folder."""
    driver = Driver(Config.parse(text), partitions=partitions, now=EPOCH)
    for minute in range(minutes):
        for number, item in enumerate(items):
            for _ in range(1 + number % 3):
                send(driver, item, EPOCH + minute * MINUTE + 1000 * number)
    driver.run()
    close_windows(driver, EPOCH + 2 * HOUR)
    driver.run()
    driver.snapshot()
    write(driver, folder)
    return driver


def write(driver: Driver, folder: Path) -> None:
    """Put everything that a driver has published into a folder."""
    publisher = DirectoryPublisher(folder)
    for entry in driver.publisher.log:
        publisher.publish(entry.partition, [entry], [])
    publisher.publish(0, [], list(driver.publisher.frontiers().values()))


def write_tokens(folder: Path, text: str) -> Path:
    """Put a file of tokens into a folder, which only its owner can read."""
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    return path


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """An application on a free port; its URL."""
    server = Server(app)
    with listening(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield url(listener).rstrip("/")
        finally:
            server.finish()
            thread.join()


@contextlib.contextmanager
def serving(
    folder: Path, text: str = TEXT, *, access: Access | None = None, processes: int = 1, **settings: Any
) -> Iterator[tuple[Service, httpx.Client]]:
    """A service that has read `folder / "sealed"`, and a client of it.

    Args:
        folder: folder of the test; the configuration and the database are put there.
        text: text of the configuration.
        access: who may ask.
        processes: that reconstruct; 0: nothing is computed.
        settings: settings of the store.
    """
    path = folder / "sketchstream.toml"
    path.write_text(text)
    config = Config.load(path, {})
    store = Store(folder / "serve.sqlite", config, "test", **settings)
    pool = Pool(store, text, processes, 60.0)
    follower = Follower(store, DirectoryFeed(folder / "sealed"), pool)
    service = Service(store, pool, follower)
    follower.step()
    if processes:
        pool.start()
    try:
        with running(create(service, access)) as base, httpx.Client(base_url=base, timeout=60) as client:
            yield service, client
    finally:
        pool.close()
        follower.close()
        store.close()


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(folder: Path, port: int, **settings: Any) -> subprocess.Popen[bytes]:
    """`sketchstream serve` in a process, with its log in the folder."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sketchstream.cli", "serve", "-c", "sketchstream.toml", "--port", str(port)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=log,
            **settings,
        )


def wait_ready(port: int, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Wait until a service says that it is ready."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, "the service ended"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    pytest.fail("the service did not become ready")
