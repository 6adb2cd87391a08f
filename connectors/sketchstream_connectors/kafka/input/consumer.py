"""A consumer of one topic as a member of a group: how it is opened, and what its group may refuse.

In: a connection, a topic, what to call when partitions are assigned or lost. Out: a subscribed consumer. Touches: one
consumer and its group membership.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from sketchstream.errors import BrokerError, ConfigError
from sketchstream_connectors.kafka.cluster.client import Connection, spell_error, translate_errors
from sketchstream_connectors.kafka.fetch import fetch_patch

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

    OnPartitions = Callable[[Collection[TopicPartition]], None]

METADATA_TIMEOUT_S = 20.0
"""Longest wait for the partitions of the input, seconds."""


def open_consumer(
    connection: Connection, topic: str, path: fetch_patch.Decode, assigned: OnPartitions, lost: OnPartitions
) -> tuple[KafkaConsumer, fetch_patch.FetchPath]:
    """A new consumer with a new assignor, subscribed, and the path by which it reads.

    Args:
        connection: connection to the cluster; its `group.id` is the group.
        topic: the input topic.
        path: see `KafkaSource`.
        assigned: called with the partitions of a new assignment.
        lost: called with partitions of which everything held is stale.

    Raises:
        ConfigError: the raw path was asked for and is impossible.
        BrokerError: the cluster cannot be reached, or knows no partitions of the topic.
    """
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    consumer = connection.consumer(group_id=connection.group, partition_assignment_strategy=[StickyPartitionAssignor()])
    try:
        taken = fetch_patch.attach(consumer, path)
        _finish_rebalances(consumer)
        consumer.subscribe([topic], listener=_listener(assigned, lost))
        _await_metadata(consumer, topic)
    except BaseException:
        consumer.close(autocommit=False, timeout_ms=2000)
        raise
    return consumer, taken


def _await_metadata(consumer: KafkaConsumer, topic: str) -> None:
    """Wait for metadata: a group leader that does not know the topic's partitions assigns none of them."""
    deadline = time.monotonic() + METADATA_TIMEOUT_S
    with translate_errors(f"asking for the partitions of {topic!r}"):
        while not consumer.partitions_for_topic(topic):
            if time.monotonic() > deadline:
                raise BrokerError(f"no broker said which partitions {topic!r} has within {METADATA_TIMEOUT_S:.0f} s")
            time.sleep(0.1)


def require_accepted(error: Exception, connection: Connection) -> None:
    """Refuse settings with which a group takes no member, if an error of the client's poll says so.

    Raises:
        ConfigError: it does.
    """
    from kafka import errors

    never = errors.InvalidSessionTimeoutError | errors.InconsistentGroupProtocolError | errors.InvalidGroupIdError
    if isinstance(error, never):
        timeout = connection.option("session.timeout.ms")
        advice = (
            f'"session.timeout.ms" = {timeout} is outside of what the brokers allow (group.min.session.timeout.ms '
            "to group.max.session.timeout.ms)"
            if isinstance(error, errors.InvalidSessionTimeoutError)
            else "another application may use this group.id"
        )
        raise ConfigError(
            f"group {connection.group!r} takes no member with these settings: {advice}: {spell_error(error)}"
        ) from error


def _finish_rebalances(consumer: KafkaConsumer) -> None:
    """Let a leader whose poll ended in the middle of a rebalance take up its assignment in a later one.

    Where nothing but new partitions made it join, kafka-python 3.0 forgets the join as soon as the partitions are
    dealt: the member sends no heartbeats, keeps what it had, and is evicted.
    """
    coordinator = consumer._coordinator
    wanted = coordinator.need_rejoin

    def need_rejoin() -> bool:
        automatic = coordinator._subscription.partitions_auto_assigned()
        return bool(wanted() or (coordinator.rejoining and automatic))

    coordinator.need_rejoin = need_rejoin


def _listener(assigned: OnPartitions, lost: OnPartitions) -> object:
    """The client's listener. Its methods run on the client's own thread while the worker waits in `poll`."""
    from kafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        """Passes on what concerns positions."""

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            """Do nothing: what was revoked follows from the new assignment."""

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            assigned(partitions)

        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            lost(partitions)

    return Listener()
