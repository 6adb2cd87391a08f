"""The engine's own topics: required settings, creation, growth with the input, and access rights.

In: a connection and the names from a configuration. Out: a plan of changes, and the changes. Touches: topics of the
cluster, only when asked to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sketchstream_connectors.kafka.cluster.client import Connection, Topic

FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
STATE = {
    **FOR_EVER,
    "segment.bytes": str(16 * 2**20),
    "segment.ms": "120000",
    "file.delete.delay.ms": "1000",
    "message.timestamp.type": "LogAppendTime",  # a commit then learns the brokers' time
}
MAX_STEM_CHARACTERS = 220
"""Most characters of a group and a topic in a name; a topic's name has at most 249."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
LIKE_INPUT = ("retention.ms", "retention.bytes")


def state_topic(group: str, topic: str) -> str:
    """Name of the internal topic: no other group and topic have the same.

    Examples:
        >>> state_topic("reach", "events")
        'reach.events.state'
        >>> state_topic("x", "y.z") == state_topic("x.y", "z")
        False
    """
    return f"{_stem(group, topic, '.', _ILLEGAL.sub('_', group))}.state"


def transactional_id(group: str, topic: str, partition: int) -> str:
    """The fence of one partition: no other group, topic and partition have the same."""
    return f"{fence_prefix(group, topic)}{partition}"


def fence_prefix(group: str, topic: str) -> str:
    """What the transactional ids of all partitions begin with."""
    return f"{_stem(group, topic, '-', group)}-"


def history_fence(topic: str) -> str:
    """The transactional id of those who claim windows in a history topic."""
    return f"{topic}.boundary"


def former_state_topic(group: str, topic: str) -> str | None:
    """The internal topic's name in releases where two groups could share one; None where it is the same."""
    name = f"{group}.{topic}.state"
    return None if name == state_topic(group, topic) else name


def state_topics(group: str, topic: str) -> tuple[str, ...]:
    """The internal topic's name, and the one that older releases gave it if that is another."""
    former = former_state_topic(group, topic)
    return (state_topic(group, topic), *(() if former is None else (former,)))


def former_transactional_id(group: str, topic: str, partition: int) -> str | None:
    """The fence's name in releases where two groups could share one; None where it is the same."""
    name = f"{group}-{topic}-{partition}"
    return None if name == transactional_id(group, topic, partition) else name


def _stem(group: str, topic: str, separator: str, legible: str) -> str:
    """Group and topic joined. A digest follows where the separator alone would be ambiguous.

    Without a digest, neither has the separator in it; so no name without one equals a name with one.

    Args:
        group: group of the application.
        topic: input of the application.
        separator: one character.
        legible: the group as it may be written here.
    """
    if legible == group and separator not in group + topic and len(group) + len(topic) <= MAX_STEM_CHARACTERS:
        return f"{group}{separator}{topic}"
    digest = hashlib.blake2b(f"{len(group)}:{group}{topic}".encode(), digest_size=8, person=b"sketch-names")
    return f"{legible}{separator}{topic}"[:MAX_STEM_CHARACTERS] + separator + digest.hexdigest()


@dataclass(frozen=True)
class TopicNames:
    """Topics of one configuration; None where there is none of that kind."""

    group: str
    input: str
    sealed: str | None = None
    results: str | None = None
    dead_letter: str | None = None
    late: str | None = None
    history: str | None = None
    former_state: str | None = None

    @property
    def state(self) -> str:
        """The internal topic of snapshots."""
        return self.former_state or state_topic(self.group, self.input)

    def formerly(self) -> TopicNames | None:
        """Names with the state topic that an older release made; None where its name did not change."""
        former = former_state_topic(self.group, self.input)
        return None if former is None else replace(self, former_state=former)


@dataclass(frozen=True)
class WantedTopic:
    """One topic as it must be.

    `binding`: settings under which it would lose or hide data if they were others; the rest is advice.
    """

    name: str
    purpose: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    binding: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """What was done (or would be done) to one topic; `outcome`: created, grown, unchanged, wrong."""

    topic: str
    outcome: str
    text: str


def wanted_topics(connection: Connection, names: TopicNames) -> tuple[Topic, list[WantedTopic]]:
    """The input topic as it is, and ours as they must be. Raises ConfigError without an input topic."""
    input_topic = connection.admin.require_topic(names.input)
    configs = connection.admin.configs(names.input)
    like_input = {key: configs[key] for key in LIKE_INPUT if key in configs}
    n = input_topic.partitions
    topics = [WantedTopic(names.state, "snapshots", n, STATE, tuple(FOR_EVER))]
    if names.sealed:
        topics.append(WantedTopic(names.sealed, "sealed sketches", n, FOR_EVER, tuple(FOR_EVER)))
    if names.history:
        topics.append(WantedTopic(names.history, "the history", 1, FOR_EVER, tuple(FOR_EVER)))
    if names.results:
        topics.append(WantedTopic(names.results, "results", 1, {"cleanup.policy": "delete"}))
    for name, purpose in ((names.dead_letter, "dead letters"), (names.late, "late records")):
        if name:
            topics.append(WantedTopic(name, purpose, n, like_input))
    return input_topic, topics


def create(
    connection: Connection, names: TopicNames, *, replication: int | None = None, dry_run: bool = False
) -> list[Change]:
    """Make what is missing and grow what is too small; existing settings are never changed, only reported.

    Args:
        connection: connection to the cluster.
        names: the topics.
        replication: copies of new topics; default: as many as the input has.
        dry_run: only report what would be done.
    """
    input_topic, ours = wanted_topics(connection, names)
    copies = replication or input_topic.replication
    changes: list[Change] = []
    for topic in ours:
        existing = connection.admin.topic(topic.name)
        if existing is None:
            configs = {**topic.configs, "min.insync.replicas": str(2 if copies >= 3 else 1)}
            if not dry_run:
                _create(connection, topic, copies, configs)
            text = f"{topic.purpose}, {topic.partitions} partitions, {copies} copies"
            changes.append(Change(topic.name, "created", text))
            continue
        if existing.partitions < topic.partitions:
            if not dry_run:
                connection.admin.grow(topic.name, topic.partitions)
            changes.append(Change(topic.name, "grown", f"from {existing.partitions} to {topic.partitions} partitions"))
        problems = _problems(connection, topic)
        changes += [Change(topic.name, "wrong", text) for text in problems]
        if not problems and existing.partitions >= topic.partitions:
            changes.append(Change(topic.name, "unchanged", f"{topic.purpose}, {existing.partitions} partitions"))
    return changes


def _create(connection: Connection, topic: WantedTopic, copies: int, configs: Mapping[str, str]) -> None:
    with connection.admin.client(f"creating topic {topic.name!r}") as client:
        client.create_topics(
            {topic.name: {"num_partitions": topic.partitions, "replication_factor": copies, "configs": dict(configs)}},
            timeout_ms=15_000,
        )
        client.wait_for_topics([topic.name], timeout_ms=30_000)


def _problems(connection: Connection, topic: WantedTopic) -> list[str]:
    """Settings of an existing topic under which data would be lost or hidden."""
    if not topic.binding:
        return []
    configs = connection.admin.configs(topic.name)
    return [
        f"{key} is {configs.get(key)!r} and must be {topic.configs[key]!r}"
        for key in topic.binding
        if configs.get(key) != topic.configs[key]
    ]


@dataclass(frozen=True)
class Right:
    """One thing that a worker's principal must be allowed, and what for.

    Args:
        resource_type: topic, group or transactional_id.
        name: name of the resource; `pattern` "prefixed": of all that begin so.
        operation: name in access rules. Reading or writing implies describing.
        why: what it is needed for.
    """

    resource_type: str
    name: str
    pattern: str
    operation: str
    why: str


def rights(names: TopicNames) -> Iterator[Right]:
    """What a worker's principal must be allowed, and nothing more (proved by tests/connectors/kafka/test_rights.py)."""
    yield Right("topic", names.input, "literal", "read", "reads events, and commits positions")
    yield Right("topic", names.input, "literal", "describe_configs", "lets `validate` compare retentions")
    grow = "gives the topic partitions when the input gets more; without it `topics create` must"
    yield Right("topic", names.state, "literal", "read", "takes partitions over")
    yield Right("topic", names.state, "literal", "write", "commits snapshots")
    yield Right("topic", names.state, "literal", "delete", "erases superseded snapshots")
    yield Right("topic", names.state, "literal", "describe_configs", "checks that the topic forgets nothing")
    yield Right("topic", names.state, "literal", "alter", grow)
    if names.sealed:
        yield Right("topic", names.sealed, "literal", "read", "knows how far others have published")
        yield Right("topic", names.sealed, "literal", "write", "publishes")
        yield Right(
            "topic", names.sealed, "literal", "describe_configs", "lets `validate` see that nothing is forgotten"
        )
        yield Right("topic", names.sealed, "literal", "alter", grow)
    if names.history:
        yield Right("topic", names.history, "literal", "read", "knows which windows a history has")
        yield Right("topic", names.history, "literal", "write", "claims live windows")
        fence = history_fence(names.history)
        yield Right("transactional_id", fence, "literal", "write", "claims one after the other")
    if names.results:
        yield Right("topic", names.results, "literal", "read", "knows which results are out")
        yield Right("topic", names.results, "literal", "write", "publishes results")
    for name in (names.dead_letter, names.late):
        if name:
            yield Right("topic", name, "literal", "write", "sends refused records")
    yield Right("group", names.group, "literal", "read", "is a member of the group")
    prefix = fence_prefix(names.group, names.input)
    yield Right("transactional_id", prefix, "prefixed", "write", "takes partitions, and commits")


def acls(names: TopicNames) -> Iterator[tuple[str, str, str, Sequence[str]]]:
    """Access rules by resource: (resource type, name, pattern, operations)."""
    by_resource: dict[tuple[str, str, str], list[str]] = {}
    for right in rights(names):
        by_resource.setdefault((right.resource_type, right.name, right.pattern), []).append(right.operation)
    for (resource_type, name, pattern), operations in by_resource.items():
        yield resource_type, name, pattern, operations
