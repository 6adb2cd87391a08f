"""The clocks of worker and brokers: lower and upper bounds of the current time, and the skew between the clocks.

In: a clock, the store, which learns the brokers' time with each commit. Out: times in ms, the skew, log lines.
Touches: the machine's clocks.

A clock can cause a record to be refused or a partition to halt. It never decides which window a record belongs to.
"""

from __future__ import annotations

import time

from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import Clock, StateStore

event_log = EventLog("sketchstream.worker")

SKEWED_MS = 60_000
"""Smallest difference of the two clocks, in ms, that is reported."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Never jumps."""
        return time.monotonic()


class Clocks:
    """The worker's clock and the brokers', which is known after the first commit to a topic that the brokers stamp.

    Args:
        clock: the worker's.
        store: see `StateStore.broker_time`.
    """

    def __init__(self, clock: Clock, store: StateStore) -> None:
        self._clock = clock
        self._store = store
        self._skew_logged = False

    def broker_ms(self) -> int | None:
        """The brokers' time now; None while it is not known."""
        heard = self._store.broker_time
        if heard is None:
            return None
        return heard[0] + round((self._clock.monotonic() - heard[1]) * 1000)

    def latest_ms(self) -> int:
        """The later of the two clocks: a time beyond it is ahead of both."""
        return max(self._clock.now_ms(), self.broker_ms() or 0)

    def earliest_ms(self) -> int:
        """The earlier of the two clocks: no partition has been idle for longer than it says."""
        broker = self.broker_ms()
        return self._clock.now_ms() if broker is None else min(self._clock.now_ms(), broker)

    def skew_ms(self) -> int | None:
        """How far the worker's clock is ahead of the brokers'; None while theirs is not known."""
        broker = self.broker_ms()
        return None if broker is None else self._clock.now_ms() - broker

    def watch(self) -> None:
        """Log when the clocks differ by more than `SKEWED_MS`, and when they agree again."""
        skew = self.skew_ms()
        skewed = skew is not None and abs(skew) > SKEWED_MS
        if skewed != self._skew_logged and skew is not None:
            seconds = round(skew / 1000, 1)
            if skewed:
                event_log.warning("clock_skew", seconds_ahead_of_brokers=seconds)
            else:
                event_log.info("clock_right", seconds_ahead_of_brokers=seconds)
            self._skew_logged = skewed
