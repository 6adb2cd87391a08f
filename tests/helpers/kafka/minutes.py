"""Events by the minute, and what readers see of each: for tests of what a log has lost.

In: an app. Out: records in its input, windows by their number since BASE. Touches: the app's topics.
"""

from __future__ import annotations

from helpers.kafka.app import MINUTE, App
from sketchstream.query.sealed import SealedReader, SealedWindow
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource

BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE


def windows(app: App) -> dict[int, SealedWindow]:
    """What readers see, by the window's number since BASE."""
    reader = SealedReader(KafkaSealedSource(app.connection, app.names.sealed or ""))
    try:
        return {(window.window[0] - BASE) // MINUTE: window for window in reader.windows("seen")}
    finally:
        reader.close()


def fill(app: App, minute: int, items: range = range(100)) -> None:
    load = app.load()
    for i in items:
        load.send(i, BASE + minute * MINUTE + i)
    load.flush()


def close_windows(app: App, minute: int) -> None:
    app.load().close_windows(BASE + minute * MINUTE)
