"""Several topics as one input over ports in memory: numbers of partitions, restarts, idle topics, growth, readers.

In: records of two topics. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.two_topics import BASE, MINUTE, Two, state_of
from sketchstream.query.sealed import SealedReader
from sketchstream.stream.monitoring.exposition import exposition
from sketchstream.testing.memory import MemorySealed
from sketchstream.topics import TOPIC_STRIDE

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def test_windows_hold_both_topics_once_over_restarts() -> None:
    two = Two(2, 1)
    truth = np.zeros(40, np.int64)
    for round_ in range(3):
        for item in range(10 * round_, 10 * round_ + 15):
            at = BASE + 1000 * item
            two.send(0, item % 2, item % 40, at)
            two.send(1, 0, (item * 7) % 40, at)
            truth[item % 40] += 1
            truth[(item * 7) % 40] += 1
        two.run(40)
        two.start()  # the one before is gone with what it had not committed
    two.send(0, 0, None, BASE + 2 * MINUTE)
    two.send(0, 1, None, BASE + 2 * MINUTE)
    two.run()
    (window,) = two.windows().values()
    assert (window.partitions, window.missing) == (3, (TOPIC_STRIDE,)), "one topic has not passed it"
    two.send(1, 0, None, BASE + 2 * MINUTE)
    two.run()
    (window,) = two.windows().values()
    assert window.whole
    assert window.partitions == 3
    assert not window.repartitioned
    assert [part.origin.partition for part in window.parts] == [0, 1, TOPIC_STRIDE]
    assert state_of(window) == truth.tolist()
    assert [{entry.partition for entry in one.log} for one in two.publishers] == [{0, 1}, {TOPIC_STRIDE}]


def test_a_topic_of_which_nothing_was_heard_leaves_windows_incomplete() -> None:
    two = Two(1, 1)
    two.send(0, 0, 1, BASE)
    two.send(0, 0, None, BASE + 2 * MINUTE)
    two.run(20)
    (window,) = two.windows().values()
    assert window.missing == (TOPIC_STRIDE,)
    alone = SealedReader(MemorySealed(two.publishers[0]))
    assert next(alone.windows("seen")).whole, "read as one topic, it is complete"


def test_a_silent_topic_follows_the_others_and_all_follow_the_clock() -> None:
    two = Two(2, 1)
    two.send(1, 0, 3, BASE)
    for minute in range(6):
        for partition in range(2):
            two.send(0, partition, 1, BASE + minute * MINUTE)
        two.run(60)
    assert two.windows()[BASE].whole
    two.run(1200)
    assert all(window.whole for window in two.windows().values())


def test_a_topic_that_grows_changes_no_number_and_no_window_of_the_other() -> None:
    two = Two(1, 1)
    two.send(0, 0, 1, BASE)
    two.send(1, 0, 2, BASE)
    two.run(20)
    two.logs[0].partitions.append([])
    two.start()
    assert two.source.numbers() == [0, 1, TOPIC_STRIDE]
    two.send(0, 1, 3, BASE + MINUTE)
    for topic, partition in ((0, 0), (0, 1), (1, 0)):
        two.send(topic, partition, None, BASE + 3 * MINUTE)
    two.run()
    found = two.windows()
    assert found[BASE].whole
    assert state_of(found[BASE])[:4] == [0, 1, 1, 0]
    assert state_of(found[BASE + MINUTE])[:4] == [0, 0, 0, 1]
    assert found[BASE + MINUTE].partitions == 3


def test_metrics_name_the_topic_of_each_partition() -> None:
    two = Two(2, 1)
    two.run(5)
    shown = exposition(two.worker.metrics, two.worker.gauges, ["clicks", "orders"]).decode()
    places = [('clicks"', "0"), ('clicks"', "1"), ('orders"', "0")]
    for topic, partition in places:
        assert f'partition="{partition}",status="running",topic="{topic} ' in shown.replace('"}', '" }')
    assert f'"{TOPIC_STRIDE}"' not in shown
