"""Follows a feed: stores new publications, assembles windows, and wakes the pool.

In: a feed. Out: rows of the store. Touches: the store, a thread; the cluster's settings through `Surroundings`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from sketchstream.errors import SketchstreamError
from sketchstream.log_events import EventLog
from sketchstream.topics import HISTORY

if TYPE_CHECKING:
    from sketchstream.query.windows import Surroundings
    from sketchstream.serve.reconstruction.pool import Pool
    from sketchstream.serve.store.store import Store
    from sketchstream.stream.feed import Feed

event_log = EventLog("sketchstream.serve")

STUCK_S: Final = 60.0
"""Seconds without progress after which the follower is stuck: a disk or a broker does not answer."""
RETRY_S: Final = 5.0
"""Seconds to wait after a failed reading."""
SURROUNDINGS_S: Final = 600.0
"""Seconds between two questions for the settings of the input topic."""


class Follower:
    """Follows a feed in a thread of its own.

    Args:
        store: store of new publications.
        feed: feed to follow; closed at the end.
        pool: woken when windows have changed.
        surroundings: facts about the deployment that its publications do not hold.
        refresh_s: seconds between two readings.
    """

    def __init__(
        self,
        store: Store,
        feed: Feed,
        pool: Pool | None = None,
        surroundings: Surroundings | None = None,
        refresh_s: float = 2.0,
    ) -> None:
        self._store, self._feed, self._pool, self._surroundings = store, feed, pool, surroundings
        self._refresh_s = refresh_s
        self._wait = max(refresh_s, RETRY_S)
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="sketchstream-follow", daemon=True)
        self._asked = -SURROUNDINGS_S
        self.stuck_s = STUCK_S
        self._progress_at = time.monotonic()
        self.behind: int | None = None
        """Records, or files, that were known to be unread after the last batch; None: nothing was read yet."""
        self.caught_up_at: float | None = None
        """Time on the monotonic clock, seconds, at which all that had been published by then was stored."""
        self.error: str | None = None
        """Why the last reading failed; None where it did not."""
        self.problems: tuple[str, ...] = ()
        """What could not be read at the last reading, though all else was."""
        self.frontiers: dict[str, int] = {}
        """For each sketch, the time (ms) by which all partitions have published, as the feed last said."""
        self.stored = 0
        """Bodies stored since the start."""

    @property
    def stuck(self) -> bool:
        """Whether it runs and has made no progress for long."""
        return self.thread.is_alive() and time.monotonic() > self._progress_at + self.stuck_s + self._wait

    def start(self) -> None:
        """Begin."""
        self._progress_at = time.monotonic()
        self.thread.start()

    def step(self) -> None:
        """Read once to the present end.

        Raises:
            SketchstreamError: the feed cannot be read now.
        """
        if self._store.damaged:
            self.caught_up_at = self.behind = None
            self._store.rebuild()
            if self._pool is not None:
                self._pool.restart()
        self._read_newest()
        problems: list[str] = []
        for batch in self._feed.read(self._store.positions()):
            self.stored += self._store.take(batch)
            problems += batch.problems
            self.behind = batch.behind
            self._progress_at = time.monotonic()
            if self._stop.is_set():
                return
        for problem in sorted({*problems}.difference(self.problems)):
            event_log.warning("unreadable", reason=problem)
        self.problems = tuple(problems)
        self._read_surroundings()
        while self._store.retain():  # before windows are put together: it may change what they join
            self._progress_at = time.monotonic()
        changed = 0
        while assembled := self._store.refresh():
            changed += assembled
            self._progress_at = time.monotonic()
            if self._pool is not None:
                self._pool.wake()
            if self._stop.is_set():
                return
        if changed:
            event_log.info("followed", windows=changed, bodies=self.stored)
        self.behind = 0
        self.caught_up_at = time.monotonic()
        self.error = None

    def _read_newest(self) -> None:
        """Read the newest frontiers: the time up to which the slowest partition of each sketch has published."""
        newest: dict[str, dict[int, tuple[int, int, int]]] = {}
        frontiers = self._feed.newest()
        live = {frontier.sketch for frontier in frontiers if frontier.partition != HISTORY}
        for frontier in frontiers:
            if frontier.partition == HISTORY and frontier.sketch in live:
                continue
            places = newest.setdefault(frontier.sketch, {})
            place = (frontier.revision, frontier.sequence, frontier.published_through)
            places[frontier.partition] = max(place, places.get(frontier.partition, place))
        self.frontiers = {name: min(place[2] for place in places.values()) for name, places in newest.items()}

    def _read_surroundings(self) -> None:
        """Ask periodically for the retention of the input topic, which guarantees mention."""
        if self._surroundings is not None and time.monotonic() >= self._asked + SURROUNDINGS_S:
            self._store.put_retention(self._surroundings.retention_ms())
            self._asked = time.monotonic()

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            self._progress_at = time.monotonic()
            try:
                self.step()
                wait = self._refresh_s
            except SketchstreamError as error:
                if self.error != str(error):
                    event_log.warning("follow_failed", reason=error)
                self.error, wait = str(error), RETRY_S
            except Exception as error:  # the service continues with stored data, and reports its delay
                if not self._stop.is_set():
                    event_log.exception("follow_failed")
                self.error, wait = f"internal error ({type(error).__name__})", RETRY_S

    def close(self, seconds: float = 30.0) -> None:
        """Stop, and close the feed.

        Args:
            seconds: longest wait for the thread; the feed of one that is stuck is left as it is.
        """
        self._stop.set()
        if self.thread.is_alive():
            self.thread.join(seconds)
        if not self.thread.is_alive():
            self._feed.close()
