"""A service over a folder of sealed sketches, in this process.

In: a configuration, drivers. Out: services that have caught up, and clients of them. Touches: a folder of the test, a
free port.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from helpers.streams import EPOCH
from helpers.workers import TEXT as EXACT
from helpers.workers import close_windows, send
from sketchstream.config.loader import Config
from sketchstream.serve.access import Access
from sketchstream.serve.app import create
from sketchstream.serve.follower import Follower
from sketchstream.serve.pool import Pool
from sketchstream.serve.server import Server, listening, url
from sketchstream.serve.service import Service
from sketchstream.serve.store import Store
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.feed import DirectoryFeed
from sketchstream_connectors.files.publisher import DirectoryPublisher

TEXT = EXACT.replace("epsilon = 30", "epsilon = 2")
MINUTE = 60_000
HOUR = 60 * MINUTE


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
        folder: of the test; the configuration and the database are put there.
        text: of the configuration.
        access: who may ask.
        processes: that reconstruct; 0: nothing is computed.
        settings: of the store.
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
