"""Checks a configuration against the live cluster before a worker starts.

In: a connection and a configuration. Out: warnings, one line each. Touches: one transactional id of ours that belongs
to no partition. A sample of the input is read and discarded; no item is shown or kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError
from sketchstream.stream.formats import RECORD_TIME
from sketchstream_connectors.kafka.cluster.client import TRANSACTION_TIMEOUT_MS, Connection, translate_errors
from sketchstream_connectors.kafka.cluster.topics import Right, TopicNames, create, rights, wanted_topics
from sketchstream_connectors.kafka.input import sample as kafka_sample
from sketchstream_connectors.kafka.state.group_validation import foreign_offsets
from sketchstream_connectors.kafka.state.pointer import MAX_POINTER_BYTES

if TYPE_CHECKING:
    from sketchstream.config.loader import Config

OPERATIONS = ("read", "write", "delete", "alter", "describe_configs")
ASK_AGAIN_S = 0.2
"""Pause before a question is asked again, seconds."""
PROBE = "validate"
"""The end of the transactional id that is tried; those of partitions end in a number."""
UNBOUNDED_MS = 2**62
"""A limit of this size or more stands for no limit: the default of brokers is the largest int64."""
STATE_ERASED_MS = 26 * 60_000
"""Superseded snapshots leave the disk within about 26 minutes: a silent partition's last rewriting, retention check."""


def check(
    connection: Connection, config: Config, names: TopicNames, sample: kafka_sample.TopicSample | None = None
) -> list[str]:
    """Return everything that looks wrong, most serious first.

    Args:
        connection: connection to the cluster.
        config: configuration to be checked.
        names: names of its topics.
        sample: sample of the input, read already; default: one is read.

    Raises:
        ConfigError: the input topic does not exist.
        BrokerError: the cluster does not answer.
    """
    problems = list(_access(connection, names))
    try:
        wanted_topics(connection, names)
        problems += [
            f"topic {c.topic}: {c.text}" for c in create(connection, names, dry_run=True) if c.outcome == "wrong"
        ]
        problems += _timestamps_and_retention(connection, config, names)
        problems += _brokers(connection)
        problems += _sample(connection, config, names, sample)
        problems += _group(connection, names)
    except BrokerError as error:
        if not problems:
            raise
        problems.append(f"nothing more could be checked: {error}")
    return problems


def timestamps_ahead_ms(settings: Mapping[str, str]) -> int | None:
    """How far a topic's record timestamps may lie beyond the brokers' clock, from its settings; None: without limit."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return 0
    after = int(settings.get("message.timestamp.after.max.ms", UNBOUNDED_MS))
    return None if after >= UNBOUNDED_MS else after


def _timestamps_and_retention(connection: Connection, config: Config, names: TopicNames) -> Iterator[str]:
    settings = connection.admin.configs(names.input)
    kind = settings.get("message.timestamp.type")
    if kind == "LogAppendTime" and config.input.time == RECORD_TIME:
        yield (
            "input.time = 'record' on a topic with message.timestamp.type = LogAppendTime: events are counted where "
            "they arrived at the broker, not where they happened"
        )
    after = timestamps_ahead_ms(settings)
    if after is None or after > 10 * max(config.max_ahead, 1):
        yield (
            f"the topic takes record timestamps {'without limit' if after is None else f'{after} ms'} ahead of "
            "the clock (message.timestamp.after.max.ms): where a producer's clock is fast, its timestamps are too"
        )
    state = connection.admin.configs(names.state) if connection.admin.topic(names.state) is not None else {}
    if state.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
        yield (
            f"topic {names.state}: message.timestamp.type is {state['message.timestamp.type']!r}, not 'LogAppendTime': "
            "workers cannot compare their clocks with the brokers'"
        )
    retention = int(settings.get("retention.ms", "-1"))
    if retention < 0:
        return
    needed = config.input.lateness + (config.input.idle or 0)
    if retention < needed:
        yield (
            f"the topic keeps records for {retention // 1000} s, less than lateness and idle time together "
            f"({needed // 1000} s): a worker that stands still loses records"
        )
    if retention < STATE_ERASED_MS:
        yield (
            f"the topic keeps records for {retention // 1000} s, superseded snapshots stay on disk for up to "
            f"{STATE_ERASED_MS // 1000} s: for that long their difference shows events that the topic has forgotten"
        )


def _brokers(connection: Connection) -> Iterator[str]:
    """Find limits of the brokers that pointers and transactions would exceed."""
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import ClusterAuthorizationFailedError

    try:
        with connection.admin.client("asking for the brokers' settings") as client:
            node = client.describe_cluster()["brokers"][0]
            number = node.get("broker_id", node.get("node_id"))
            resource = ConfigResource(ConfigResourceType.BROKER, str(number))
            configs = client.describe_configs([resource], config_filter="all")
    except BrokerError as error:
        if isinstance(error.__cause__, ClusterAuthorizationFailedError):
            return  # only operators may ask for this, and workers need not
        raise
    settings = next(iter(configs["broker"].values()))
    limits = {"offset.metadata.max.bytes": MAX_POINTER_BYTES, "transaction.max.timeout.ms": TRANSACTION_TIMEOUT_MS}
    for name, needed in limits.items():
        value = settings.get(name, {}).get("value")
        if value is not None and int(value) < needed:
            yield f"the brokers' {name} is {value}, workers need at least {needed}"


def _sample(
    connection: Connection, config: Config, names: TopicNames, sample: kafka_sample.TopicSample | None
) -> Iterator[str]:
    """Check the newest records: their fields, the partitions of their items, their age."""
    settings = connection.admin.configs(names.input)
    retention = int(settings.get("retention.ms", "-1"))
    newest = sample or kafka_sample.read(connection, config, kafka_sample.FEW_RECORDS)
    mistakes, doubts = newest.fields.verdict()
    yield from (*mistakes, *doubts)
    if newest.misplaced:
        yield (
            "items of a sample lie in partitions that the partitioner does not send them to: the topic is keyed by "
            "something else, or its producer uses another partitioner (input.partitioner); such events are not counted"
        )
    now = time.time_ns() // 1_000_000
    appended = settings.get("message.timestamp.type") == "LogAppendTime"
    if retention >= 0 and not appended and newest.oldest_ms < now - retention:
        yield (
            "records of a sample are older by their timestamps than the topic's retention: they can be trimmed at any "
            "moment, read or not; raise retention.ms for a back-fill"
        )


def missing_rights(connection: Connection, names: TopicNames) -> list[Right]:
    """The rights that this connection's principal lacks for a worker; none if the cluster has no access control.

    Brokers report a principal's rights on the topics and groups that it may describe; for the others only the right to
    describe them is named. For transactional ids, one of ours is tried that belongs to no partition, so that no
    worker is fenced.
    """
    missing: list[Right] = []
    allowed: dict[tuple[str, str], set[str] | None] = {}
    for right in rights(names):
        place = (right.resource_type, right.name)
        if right.resource_type == "transactional_id":
            if not _may_fence(connection, right.name + PROBE):
                missing.append(right)
            continue
        hidden = place in allowed and allowed[place] is None
        if place not in allowed:
            allowed[place] = _allowed_operations(connection, *place)
        if not hidden and right.operation not in (allowed[place] or ()):
            missing.append(right)
    return missing


def _allowed_operations(connection: Connection, kind: str, name: str) -> set[str] | None:
    """The operations on one topic or group that the brokers allow us, in lower case; None if we may not describe it.

    Brokers that have just started answer with passing errors, from which no rights follow: they are asked again.

    Raises:
        BrokerError: no answer about rights within the connection's patience.
    """
    from kafka import errors

    deadline = time.monotonic() + connection.patience_ms / 1000
    while True:
        error, operations = _description(connection, kind, name)
        if error is errors.UnknownTopicOrPartitionError:
            return set(OPERATIONS)  # what is missing is the topic, not a right
        if error is errors.GroupIdNotFoundError:  # not joined by anybody yet: its rights are not known yet
            return {"read"} if _may_join(connection, name) else set()
        if issubclass(error, errors.AuthorizationError):
            return None
        if operations:
            return {str(operation).lower() for operation in operations}
        if time.monotonic() > deadline:
            raise BrokerError(f"asking what is allowed with {kind} {name!r}: {error.__name__}")
        time.sleep(ASK_AGAIN_S)


def _description(connection: Connection, kind: str, name: str) -> tuple[type[Exception], Collection[Any] | None]:
    """The error with which the brokers describe a topic or group, and the operations that they allow us, if given.

    Without an error, a topic or group whose allowed operations are not given may not be described.
    """
    from kafka import errors

    if kind == "group":
        try:
            description = connection.admin.ask_group(name)
        except BrokerError as error:
            if isinstance(error.__cause__, errors.GroupAuthorizationFailedError):
                return errors.GroupAuthorizationFailedError, None
            raise
        code = re.match(r"\[Error (-?\d+)\]", str(description.get("error") or ""))
        kind_of_error = errors.NoError if code is None else errors.for_code(int(code[1]))
    else:
        with connection.admin.client(f"asking what is allowed with topic {name!r}") as client:
            (description,) = client.describe_topics([name])
        kind_of_error = errors.for_code(description["error_code"])
    operations = description.get("authorized_operations")
    if kind_of_error is errors.NoError and not operations:
        kind_of_error = errors.TopicAuthorizationFailedError
    return kind_of_error, operations


def _may_join(connection: Connection, group: str) -> bool:
    """Whether we may join a group without members: tested by leaving it under an unknown member id."""
    from kafka.admin import MemberToRemove
    from kafka.errors import GroupAuthorizationFailedError

    stranger = MemberToRemove(group_instance_id=f"{group}-{PROBE}")
    try:
        with connection.admin.client("asking what is allowed with the group") as client:
            answer = client.remove_group_members(group, [stranger])
    except BrokerError as error:
        return not isinstance(error.__cause__, GroupAuthorizationFailedError)
    return GroupAuthorizationFailedError.__name__ not in str(answer)


def _may_fence(connection: Connection, transactional_id: str) -> bool:
    """Whether a transactional id can be taken."""
    from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = connection.producer(transactional_id=transactional_id)
    try:
        with translate_errors("trying a transactional id"):
            producer.init_transactions()
    except BrokerError as error:
        if isinstance(error.__cause__, TransactionalIdAuthorizationFailedError):
            return False
        raise
    finally:
        producer.close(timeout=2)
    return True


def _access(connection: Connection, names: TopicNames) -> Iterator[str]:
    """The rights that a worker lacks."""
    for right in missing_rights(connection, names):
        kind = right.resource_type.replace("_", " ")
        which = f"{right.name!r}" if right.pattern == "literal" else f"{right.name!r} and whatever follows"
        yield f"{kind} {which}: the right to {right.operation} is missing; with it a worker {right.why}"


def _group(connection: Connection, names: TopicNames) -> Iterator[str]:
    """Offsets of another application in our group."""
    foreign, ours_too = foreign_offsets(connection, names.input)
    if foreign:
        yield (
            f"group {names.group!r} has offsets of {names.input!r} that another application committed (partitions "
            f"{', '.join(map(str, foreign[:5]))}): "
            + ("these partitions will halt" if ours_too else "a worker will not start; choose another kafka.group.id")
        )
    others = sorted({tp.topic for tp in connection.admin.committed(names.group)} - {names.input})
    if others:
        yield (
            f"group {names.group!r} has offsets of other topics ({', '.join(others[:3])}): another application uses "
            "it, and could commit where a worker does"
        )
