"""Results in a topic: what holds up the others, and what does not. No broker is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sketchstream.errors import EstimateError
from sketchstream.query.sealed import SealedReader
from sketchstream.stream.interfaces import Frontier
from sketchstream_connectors.kafka import results as kafka_results
from sketchstream_connectors.kafka.results import KafkaResults


class Outlet:
    """Keeps what is sent."""

    def __init__(self, *_: object) -> None:
        self.sent: list[bytes] = []

    def send(self, topic: str, partition: int, records: Any, what: str) -> None:
        del topic, partition, what
        self.sent += [key for key, _, _ in records]

    def close(self) -> None:
        """Nothing."""


class Window(SimpleNamespace):
    """A window without groups, as far as results need it."""

    group = None
    preliminary = False

    def each_group(self) -> list[Window]:
        """The window itself."""
        return [self]


EMPTY = SimpleNamespace(to_json=lambda: "{}")
CONFIG = SimpleNamespace(
    sketches=[SimpleNamespace(name="s", early=None)],
    input=SimpleNamespace(partitioned_by="item"),
    output=SimpleNamespace(results_topic="results"),
)


def test_a_window_without_a_result_does_not_hold_up_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(window: Any) -> SimpleNamespace:
        if window.window[0] == 0:
            msg = "every level is crowded"
            raise EstimateError(msg)
        return EMPTY

    monkeypatch.setattr(kafka_results, "Outlet", Outlet)
    windows = [Window(sketch="s", revision=0, window=(at, at + 1), whole=True) for at in (0, 1, 2)]
    asked: list[int] = []

    class Reader:
        def settled(self, name: str) -> None:
            asked.append(len(name))

        def windows(self, name: str, from_ms: int | None, *, early: bool) -> list[Window]:
            assert (from_ms, early) == (None, False)
            assert name == "s"
            return windows

    published = SimpleNamespace(reader=Reader(), given_out=answer)
    results = KafkaResults(None, CONFIG, lambda: False, every_s=1000)  # type: ignore[arg-type]
    try:
        results._done = set()
        assert results.publish_complete(published) == 2  # type: ignore[arg-type]
        assert results._outlet.sent == [b"s/0/1", b"s/0/2"]  # type: ignore[attr-defined]
        assert results.publish_complete(published) == 0, "nor is it tried for ever"  # type: ignore[arg-type]
        assert asked == [1, 1]
    finally:
        results.close()


def test_what_is_settled_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three partitions; one is late, one is made anew: each window is published once, and old ones are left alone."""
    monkeypatch.setattr(kafka_results, "Outlet", Outlet)
    reached = {(0, 0): 3, (0, 1): 3, (0, 2): 1}
    parts = {(0, partition, at) for partition in (0, 1) for at in (0, 1, 2)}
    read: list[int] = []

    class Source:
        def frontiers(self, sketch: str) -> list[Frontier]:
            assert sketch == "s"
            return [Frontier("s", rev, part, through, 3, through) for (rev, part), through in reached.items()]

    class Reader(SealedReader):
        def windows(self, sketch: str, from_ms: int | None = None, *_: Any, **__: Any) -> Any:
            starts = sorted({at for _, _, at in parts if from_ms is None or at >= from_ms})
            read.append(len(starts))
            out = []
            for at in starts:
                newest = max(rev for rev, _, begin in parts if begin == at)
                complete = all(reached.get((newest, part), 0) > at for part in range(3))
                out.append(Window(sketch=sketch, revision=newest, window=(at, at + 1), whole=complete))
            return out

    reader = Reader(Source())  # type: ignore[arg-type]
    published: Any = SimpleNamespace(reader=reader, given_out=lambda window: EMPTY)
    results = KafkaResults(None, CONFIG, lambda: False, every_s=1000)  # type: ignore[arg-type]
    try:
        results._done = set()
        sent = results._outlet.sent  # type: ignore[attr-defined]
        assert results.publish_complete(published) == 1
        reached[0, 2] = 2
        assert results.publish_complete(published) == 1
        parts |= {(0, 2, 2), (0, 0, 3)}
        reached.update({(0, 0): 4, (0, 2): 4})
        assert results.publish_complete(published) == 1
        assert sent == [b"s/0/0", b"s/0/1", b"s/0/2"]
        reached[0, 1] = 4
        assert results.publish_complete(published) == 1
        assert results.publish_complete(published) == 0
        assert read == [3, 3, 3, 2, 1], "from the last settled window on"
        parts |= {(1, part, at) for part in range(3) for at in (0, 1)}
        reached.update({(1, 0): 2, (1, 1): 2})
        assert results.publish_complete(published) == 0, "its partitions have not all spoken"
        reached[1, 2] = 2
        assert results.publish_complete(published) == 2
        assert sent[4:] == [b"s/1/0", b"s/1/1"]
        assert results.publish_complete(published) == 0
    finally:
        results.close()
