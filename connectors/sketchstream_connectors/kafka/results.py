"""Publishes results to a topic: the answer for every window as JSON, once its last partition is complete.

In: the sealed topic. Out: one record a window, key `sketch/revision/start`. Touches: the results topic, a thread.

The worker of the group that owns partition 0 does this. After a change of owner a result may be published twice, with
the same key and, because reconstruction is deterministic, with the same numbers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sketchstream.errors import EstimateError, MergeError
from sketchstream.log_events import EventLog
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.publisher import Outlet
from sketchstream_connectors.kafka.readers import published_in_topic

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.query.sealed import SealedReader, SealedWindow
    from sketchstream.query.windows import PublishedWindows
    from sketchstream.stream.windows.plans import SketchPlan

event_log = EventLog("sketchstream.kafka")

EVERY_S = 5.0
"""Seconds between two looks for windows whose results are due."""
PRELIMINARY = "ss-preliminary"
"""Header of results of windows that are still open."""


def result_key(window: SealedWindow) -> str:
    """The key of one result."""
    group = "" if window.group is None else f"/{window.group}"
    early = "/preliminary" if window.preliminary else ""
    return f"{window.sketch}/{window.revision}/{window.window[0]}{group}{early}"


def _result_time(window: SealedWindow) -> tuple[int, int]:
    """In what preliminary results of one window differ: the time that they hold, and the number of parts."""
    return window.as_of or 0, len(window.parts)


class KafkaResults:
    """A thread that publishes results as windows become complete.

    Args:
        connection: connection to the cluster.
        config: configuration that has the sketches; `output.results_topic` names the topic.
        mine: whether this worker publishes results now.
        every_s: seconds between two looks.
    """

    def __init__(
        self, connection: Connection, config: Config, mine: Callable[[], bool], *, every_s: float = EVERY_S
    ) -> None:
        self._connection = connection
        self._config = config
        self._mine = mine
        self._every_s = every_s
        self._outlet = Outlet(connection, "sketchstream-results")
        self._done: set[str] | None = None
        self._from: dict[tuple[str, int], int] = {}
        self._early: dict[str, tuple[int, int]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sketchstream-kafka-results", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        published: PublishedWindows | None = None
        while not self._stopped.wait(self._every_s):
            try:
                if not self._mine():
                    self._done = (
                        None  # another worker may publish meanwhile: the topic is read again before the next time
                    )
                    continue
                if published is None:
                    published = published_in_topic(self._connection, self._config)
                self.publish_complete(published.without_caches())
            except Exception as error:  # the next attempt may succeed; a thread that died would not be noticed
                event_log.warning("results_delayed", error=type(error).__name__)
                published = self._closed(published)
        self._closed(published)

    @staticmethod
    def _closed(published: PublishedWindows | None) -> None:
        if published is not None:
            published.reader.close()

    def publish_complete(self, published: PublishedWindows) -> int:
        """Publish results that are complete and not yet published; return how many."""
        topic = self._config.output.results_topic
        if self._done is None:
            self._done = self._published(topic)
            self._from.clear()
        done = self._done
        n = 0
        for plan in self._config.sketches:
            for window in self._unsettled(published.reader, plan):
                key = result_key(window)
                if self._stopped.is_set() or not (window.whole or self._is_news(key, window)) or key in done:
                    continue
                try:
                    value = published.given_out(window).to_json().encode()
                except (EstimateError, MergeError) as error:  # the window will never have an answer
                    fields = {"sketch": plan.name, "window_start": window.window[0], "error": type(error).__name__}
                    event_log.warning("result_impossible", **fields)
                    done.add(key)
                    continue
                headers = [("content-type", b"application/json"), ("ss-format", b"1")]
                headers += [(PRELIMINARY, b"1")] * window.preliminary
                self._outlet.send(topic, 0, [(key.encode(), value, headers)], f"publishing a result to {topic!r}")
                if window.preliminary:
                    self._early[key] = _result_time(window)
                else:
                    done.add(key)
                n += 1
                event_log.info("result", sketch=plan.name, window_start=window.window[0])
        return n

    def _is_news(self, key: str, window: SealedWindow) -> bool:
        """Whether a preliminary result differs from the one that was published last."""
        return window.preliminary and self._early.get(key) != _result_time(window)

    def _unsettled(self, reader: SealedReader, plan: SketchPlan) -> Iterator[SealedWindow]:
        """The windows that may still change, and those settled since the last look, once for each of their groups.

        The others are not read again: a topic holds years of them. A new revision begins anew.
        """
        sketch = plan.name
        revision, through = reader.settled(sketch) or (-1, NO_TIME)
        for window in reader.windows(sketch, self._from.get((sketch, revision)), early=plan.early is not None):
            yield from window.each_group()
            if window.window[1] <= through:  # its final result is published by now
                self._from[sketch, revision] = window.window[0]

    def _published(self, topic: str) -> set[str]:
        """Keys in the results topic."""
        with contextlib.closing(Log(self._connection, topic)) as reading:
            return {
                record.key.decode(errors="replace")
                for record in reading.advance()
                if record.key and PRELIMINARY not in dict(record.headers)
            }

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout=30)
        self._outlet.close()
