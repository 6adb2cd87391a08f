"""A history beside a topic: worker and backfill over a real broker, each starting at every step of the other.

In: a real broker. Out: nothing. Touches: topics of its own, worker processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers.kafka.app import MINUTE, MISSED_SOON, App
from sketchstream import faults
from sketchstream.cli import clusters
from sketchstream.query.times import to_ms
from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.windows.boundary import Boundary
from sketchstream.topics import HISTORY
from sketchstream_connectors.kafka.cluster import topics
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.history import KafkaHistory
from sketchstream_connectors.lake.job import BackfillJob
from sketchstream_connectors.readers import open_feed, open_published

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
EXACT_STATE = 'epsilon = "30"\ndomain = { size = 50 }\nmax_count = 300\npublish = "state"\nintrusion = false'
WINDOWS, LIVE_FROM, HISTORY_TO = 6, 1, 4
"""Minutes of all events; the topic begins with the second one, the table ends with the fourth one."""


def items(window: int) -> list[int]:
    """Events of a minute."""
    return [(i * i + window) % 50 for i in range(20 + window)]


class WithHistory(App):
    """An application with a table of what came before its topic."""

    @property
    def names(self) -> topics.TopicNames:
        return clusters.names(self.config)

    def write(self) -> None:
        super().write()
        rows = [(item, BASE + w * MINUTE + at) for w in range(HISTORY_TO) for at, item in enumerate(items(w))]
        (self.folder / "past").mkdir(exist_ok=True)
        users, times = zip(*rows, strict=True)
        pq.write_table(pa.table({"u": list(users), "ts": list(times)}), self.folder / "past" / "part.parquet")

    def send(self) -> None:
        load = self.load()
        for w in range(LIVE_FROM, WINDOWS):
            for at, item in enumerate(items(w)):
                load.send(item, BASE + w * MINUTE + at)
        load.flush()
        load.close_windows(BASE + (WINDOWS + 1) * MINUTE)


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[WithHistory]:
    extra = '[history]\nfile = "past"\n'
    made = WithHistory(kafka, tmp_path / "app", partitions=2, sketch=EXACT_STATE, extra=extra, kafka=MISSED_SOON)
    made.send()
    yield made
    made.close()


def backfill(app: App, end: int = BASE + HISTORY_TO * MINUTE) -> None:
    """Publish the history through its last minute, or the boundary that a refusal names."""
    job = BackfillJob(app.config, BASE, end)
    try:
        list(job.run())
    except ss.ConfigError as error:
        named = to_ms(str(error).split("begin at ")[1].split(",")[0], "")
        assert named is not None
        assert named < end
        backfill(app, named)
    finally:
        job.close()


def require_one_series(app: App) -> int:
    """Every window once, on its side of one boundary, which is returned, with all of its events."""
    app.check_publications()
    last = BASE + WINDOWS * MINUTE
    with open_published(app.config) as published:
        found = {one.window[0]: one for one in published.reader.windows("seen", None, last)}
        assert sorted(found) == [BASE + w * MINUTE for w in range(WINDOWS)], "a window is lost"
        edge = min(start for start, one in found.items() if one.table is None)
        for start, one in found.items():
            assert (one.table is not None) == (start < edge)
            assert one.complete, one.describe()
            counted = items((start - BASE) // MINUTE)
            assert sum(int(part.state.sum()) for part in one.parts) == len(counted)  # type: ignore[union-attr]
            if one.table is not None:
                (part,) = one.parts
                assert part.state.tolist() == np.bincount(counted, minlength=50).tolist()  # type: ignore[union-attr]
    kept = KafkaHistory(app.connection, app.names.history or "")
    said = kept.settle("seen", 0, lambda before: before)
    kept.close()
    assert said.history == said.live == edge
    return edge


BOUNDARY = ["boundary:fenced", "boundary:sent", "boundary:named"]
OF_WORKER = [*BOUNDARY, "commit.begun", "commit.done", "publish.entries", "publish.frontiers"]
OF_BACKFILL = [
    *BOUNDARY,
    *("backfill:claimed", "booked:written", "booked:synced", "backfill:sealed"),
    *("body:written", "body:synced", "publish.entries", "publish.frontiers"),
]


@pytest.mark.parametrize(
    ("step", "how"),
    [
        pytest.param(step, how, marks=() if (step, how) == ("boundary:sent", "stop") else pytest.mark.slow)
        for step in OF_WORKER
        for how in ("stop", "kill")
    ],
)
def test_a_backfill_that_starts_at_this_step_of_a_worker(app: WithHistory, step: str, how: str) -> None:
    worker = app.start("faulty", fault=(step, "2" if step == "commit.done" else "1", how))
    deadline = time.monotonic() + 90
    while not worker.says("FAULT"):
        assert time.monotonic() < deadline, f"{step} was never reached\n{app.logs()}"
        time.sleep(0.1)
    backfill(app)
    if how == "stop":
        worker.wake()
    else:
        app.start("other")
    app.wait_published(BASE + WINDOWS * MINUTE)
    backfill(app)
    assert require_one_series(app) in (BASE + LIVE_FROM * MINUTE, BASE + HISTORY_TO * MINUTE)


@pytest.mark.parametrize(
    ("step", "killed"),
    [
        pytest.param(step, killed, marks=() if (step, killed) == ("boundary:sent", False) else pytest.mark.slow)
        for step in OF_BACKFILL
        for killed in (False, True)
    ],
)
def test_a_worker_that_starts_at_this_step_of_a_backfill(app: WithHistory, step: str, killed: bool) -> None:
    class Stopped(BaseException):
        """The process ended here."""

    reached_at: list[str] = []

    def reached(name: str) -> None:
        if name == step:
            faults.install(None)
            reached_at.append(name)
            app.start("worker")
            app.wait_published(BASE + WINDOWS * MINUTE)
            if killed:
                raise Stopped

    faults.install(reached)
    try:
        backfill(app)
    except Stopped:
        pass
    finally:
        faults.install(None)
    assert reached_at == [step]
    backfill(app)
    edge = require_one_series(app)
    # before its claim is committed the worker has all of its windows, after it the history has
    assert edge == BASE + (LIVE_FROM if step in ("boundary:fenced", "boundary:sent") else HISTORY_TO) * MINUTE


def test_claims_of_many_at_once_are_one_after_the_other(app: WithHistory) -> None:
    topic, wrong = app.names.history or "", list[BaseException]()

    def claim(number: int) -> None:
        kept = KafkaHistory(app.connection, topic)
        try:
            for at in range(3):
                time_ms = BASE + (3 * number + at) * MINUTE
                if number % 2:
                    kept.settle("many", 0, lambda before, at=time_ms: before.with_live(at))  # type: ignore[misc]
                else:
                    kept.settle("many", 0, lambda before, at=time_ms: taken(before, at))  # type: ignore[misc]
        except BaseException as error:
            wrong.append(error)
        finally:
            kept.close()

    def taken(before: Boundary, at: int) -> Boundary:
        return before if at > before.live else before.with_history(at, "a", "many")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
    log = Log(app.connection, topic)
    claims = [Boundary.decode(one.value) for one in log.advance() if one.key == b"boundary/many/0"]
    log.close()
    assert len(claims) == len({*claims}) >= 2
    for before, after in pairwise([Boundary(), *claims]):
        assert before.history <= after.history <= after.live <= before.live, "made without one that came before it"


def test_readers_of_the_topics_show_the_history_marked(app: WithHistory) -> None:
    backfill(app)
    with open_published(app.config) as published:
        assert published.reader.settled("seen") == (0, BASE + HISTORY_TO * MINUTE)
        shown = list(published.reader.windows("seen", BASE + MINUTE, BASE + 3 * MINUTE))
        assert [one.window[0] for one in shown] == [BASE + MINUTE, BASE + 2 * MINUTE]
        said = published.guarantee(shown[0])
        assert said["table"]["name"] == "past"
        assert said["published_and_one_copy"] == "not claimed: the source is kept"
    with open_feed(app.config) as (feed, _):
        batches = list(feed.read({}))
        feed.close()
    assert {one.partition for batch in batches for one in batch.entries} == {HISTORY}
    assert [one.published_through for batch in batches for one in batch.frontiers if isinstance(one, Frontier)] == [
        BASE + HISTORY_TO * MINUTE
    ]
