"""When a topic got the partitions that it has: what a start without a state has to know of records laid down before.

In: offsets and timestamps of a topic's records, asked of the brokers. Out: former numbers of partitions, and times.
Touches: the cluster, reading. Which records there are is decided by envelopes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.stream.input.partition_counts import MANY_RECORDS, PRODUCERS_LEARN_MS, growths

if TYPE_CHECKING:
    from sketchstream_connectors.kafka.cluster.client import Admin


def former_numbers(admin: Admin, topic: str, partitions: int) -> dict[int, int]:
    """Numbers of partitions that a topic had, with the time (ms) from which on no record was placed by them.

    Args:
        admin: asks the brokers.
        topic: name of the input.
        partitions: number of partitions that the topic has now.

    Raises:
        BrokerError: not all leaders answer.
    """
    first = admin.offsets_at(topic, range(partitions), 0)
    former = {}
    for number, came in growths(partitions, first).items():
        ends = admin.all_offsets(topic, range(number), "latest")
        until = admin.offsets_at(topic, range(number), came)
        if all(until.get(p, (ends[p],))[0] - first[p][0] >= MANY_RECORDS for p in range(number)):
            former[number] = came + PRODUCERS_LEARN_MS
    return former
