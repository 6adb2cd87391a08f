"""Offsets and leader epochs belong together: an offset with an earlier epoch looks like a log that was cut."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from sketchstream_connectors.kafka.input.offset_validation import DoubtedPositions
from sketchstream_connectors.kafka.input.positions import UNKNOWN, Position, Positions
from sketchstream_connectors.kafka.input.source import KafkaSource

STEPS = st.one_of(
    st.tuples(st.just("read"), st.integers(1, 12)),
    st.tuples(st.just("restore"), st.integers(0, 40)),
    st.tuples(st.just("seek"), st.integers(0, 40)),
    st.tuples(st.just("forget"), st.just(0)),
)


@given(st.lists(st.integers(0, 2), min_size=40, max_size=40), st.lists(STEPS, max_size=30))
def test_no_epoch_is_older_than_its_offset(elections: list[int], steps: list[tuple[str, int]]) -> None:
    epochs = [sum(elections[: i + 1]) for i in range(40)]  # of each record of a log under changing leaders
    positions = Positions()

    def check() -> None:
        position = positions.at(0)
        if position is not None and position.epoch != UNKNOWN and position.offset:
            assert position.epoch >= epochs[position.offset - 1]

    for step, number in steps:
        at = positions.at(0)
        if step == "read" and at is not None and at.offset < 40:
            end = min(40, at.offset + number)
            positions.read(0, end, epochs[end - 1])
            assert positions.epoch(0) == epochs[end - 1]
        elif step == "restore":
            positions.expect(0, epochs[number - 1] if number else UNKNOWN)
            check()  # somebody may place the old position now
            assert positions.epoch(0) == (epochs[number - 1] if number else UNKNOWN)
            positions.seek(0, number)
        elif step == "seek":
            positions.seek(0, number)
        elif step == "forget":
            positions.forget(0)
        check()


def test_what_another_topic_said_is_forgotten() -> None:
    positions = Positions()
    positions.read(0, 10, 3)
    positions.expect(1, 3)
    positions.forget_epochs()
    assert positions.all() == {0: Position(10)}
    assert positions.epoch(1) == UNKNOWN


class Consumer:
    """Remembers where it was placed."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, int]] = []
        self._subscription = self

    def seek(self, _tp: TopicPartition, to: int | OffsetAndMetadata) -> None:
        if isinstance(to, OffsetAndMetadata):
            self.placed[-1] = (to.offset, to.leader_epoch)
        else:
            self.placed.append((to, UNKNOWN))

    def pause(self, _tp: TopicPartition) -> None:
        pass


def test_a_rebalance_between_a_restore_and_its_seek_places_the_old_position_whole() -> None:
    source: Any = KafkaSource.__new__(KafkaSource)
    source.topic, source._consumer, source._doubted = "events", Consumer(), DoubtedPositions()
    source._positions, source._announced, source._lost, source._paused = Positions(), {0}, set(), {0}
    source._positions.read(0, 27_008, 5)
    source.expect_epoch(0, 2)  # a snapshot at 23,192 was restored: the partition had been dropped
    source._on_assigned([TopicPartition("events", 0)])
    assert source._consumer.placed == [(27_008, 5)], "with epoch 2 its log would seem to end long before"
    assert source.epoch(0) == 2
