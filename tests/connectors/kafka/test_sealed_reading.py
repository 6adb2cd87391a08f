"""What a reader of the sealed topic asks of the broker: consumers and records. No broker is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sketchstream.errors import BrokerError
from sketchstream.stream.interfaces import Frontier
from sketchstream_connectors.kafka.cluster.log_reader import Extent
from sketchstream_connectors.kafka.publishing import sealed as kafka_sealed
from sketchstream_connectors.kafka.publishing.sealed import TAIL, KafkaSealedSource, frontier_record


class Topic:
    """One partition of frontiers, and what was read of it."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.read: list[tuple[int, int]] = []
        self.consumers = 0
        self.closed = 0
        self.broken = False

    def say(self, sketch: str, through: int) -> None:
        key, value, _ = frontier_record(Frontier(sketch, 0, 0, through, 1, through))
        self.records.append(SimpleNamespace(key=key, value=value, partition=0, offset=len(self.records)))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()

    class Log:
        def __init__(self, *_: object, **__: object) -> None:
            made.consumers += 1

        def extent(self) -> Extent:
            if made.broken:
                raise BrokerError("gone")
            return Extent({0: 0}, {0: len(made.records)})

        def since(self, extent: Extent, time_ms: int) -> dict[int, int]:
            del time_ms
            return extent.begins

        def batches(
            self, starts: Mapping[int, int], ends: Mapping[int, int], enough: Callable[[int], bool] = lambda _: False
        ) -> Iterator[tuple[list[Any], set[int]]]:
            del enough
            for p, start in starts.items():
                if start < ends[p]:
                    made.read.append((start, ends[p]))
                    yield made.records[start : ends[p]], set()
            yield [], set(starts)

        def close(self) -> None:
            made.closed += 1

    monkeypatch.setattr(kafka_sealed, "Log", Log)
    return made


def test_only_what_is_new_is_read_of_frontiers_and_old_ones_as_far_as_needed(topic: Topic) -> None:
    topic.say("rare", 1)
    for through in range(1000):
        topic.say("often", through)
    source = KafkaSealedSource(None, "sealed")  # type: ignore[arg-type]
    assert [one.published_through for one in source.frontiers("often")] == [999]
    assert topic.read == [(1001 - TAIL, 1001)]
    topic.say("often", 1000)
    topic.say("often", 1001)
    assert [one.published_through for one in source.frontiers()] == [1001]
    assert topic.read[1:] == [(1001, 1003)]
    assert [one.published_through for one in source.frontiers("rare")] == [1]
    assert topic.read[2:] == [(1003 - 8 * TAIL, 1001 - TAIL), (0, 1003 - 8 * TAIL)]
    source.frontiers("rare")
    assert len(topic.read) == 4
    for through in range(1002, 3000):
        topic.say("often", through)
    assert [one.published_through for one in source.frontiers("often")] == [2999]
    assert topic.read[4:] == [(len(topic.records) - TAIL, len(topic.records))]
    assert topic.consumers == 1


def test_a_topic_that_was_made_again_is_read_again(topic: Topic) -> None:
    for through in range(1000):
        topic.say("s", through)
    source = KafkaSealedSource(None, "sealed")  # type: ignore[arg-type]
    source.frontiers("s")
    del topic.records[:]
    for through in range(1000, 1010):
        topic.say("s", through)
    assert [one.published_through for one in source.frontiers("s")] == [1009]
    assert topic.read[1:] == [(0, 10)]


def test_reads_share_a_consumer_unless_one_is_in_the_middle(topic: Topic) -> None:
    for through in range(10):
        topic.say("s", through)
    source = KafkaSealedSource(None, "sealed")  # type: ignore[arg-type]
    list(source.read("s"))
    list(source.read("s", 0, 5))
    assert topic.consumers == 1
    unfinished = source.read("s")
    next(iter(unfinished))
    list(source.read(None))
    assert topic.consumers == 2
    unfinished.close()  # type: ignore[attr-defined]
    list(source.read("s"))
    assert (topic.consumers, topic.closed) == (2, 0)
    topic.broken = True
    with pytest.raises(BrokerError):
        source.frontiers()
    assert topic.closed == 1, "it may keep failing"
    source.close()
    assert topic.closed == 2
