"""Mistakes that only a live cluster can show, before a worker starts.

In: a connection and a configuration. Out: warnings, one line each. Touches: nothing; a sample of the input is read and
thrown away, and no item of it is shown or kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.errors import BrokerError
from sketchstream.stream.placement import belongs
from sketchstream_connectors.kafka_client import TRANSACTION_TIMEOUT_MS, Connection
from sketchstream_connectors.kafka_pointer import LARGEST
from sketchstream_connectors.kafka_sealed import Log
from sketchstream_connectors.kafka_topics import Names, acls, create
from sketchstream_connectors.kafka_worker import decoder_of
from sketchstream_connectors.records import from_client_records

if TYPE_CHECKING:
    from sketchstream.stream.config import Config

SAMPLE = 500
UNBOUNDED_MS = 2**62
STATE_ERASED_MS = 26 * 60_000
"""Superseded snapshots leave the disk within about 26 minutes: a silent partition's last rewriting, retention check."""


def check(connection: Connection, config: Config, names: Names) -> list[str]:
    """Everything that looks wrong, most serious first.

    Raises:
        ConfigError: the input topic does not exist.
        BrokerError: the cluster does not answer.
    """
    found = [f"topic {c.topic}: {c.text}" for c in create(connection, names, dry_run=True) if c.kind == "wrong"]
    found += _timestamps_and_retention(connection, config, names)
    found += _brokers(connection)
    found += _sample(connection, config, names)
    found += _access(connection, names)
    found += _group(connection, names)
    return found


def _timestamps_and_retention(connection: Connection, config: Config, names: Names) -> Iterator[str]:
    settings = connection.admin.configs(names.input)
    kind = settings.get("message.timestamp.type")
    if kind == "LogAppendTime" and config.input.time == "record":
        yield (
            "input.time = 'record' on a topic with message.timestamp.type = LogAppendTime: events are counted where "
            "they arrived at the broker, not where they happened"
        )
    after = int(settings.get("message.timestamp.after.max.ms", UNBOUNDED_MS))
    if kind != "LogAppendTime" and after > 10 * max(config.input.max_ahead, 1):
        yield (
            f"the topic takes record timestamps {'without limit' if after >= UNBOUNDED_MS else f'{after} ms'} ahead of "
            "the clock (message.timestamp.after.max.ms): one wrong producer can close all windows early"
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
    """Limits of the brokers that pointers and transactions run into."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with connection.admin.client("asking for the brokers' settings") as client:
        node = client.describe_cluster()["brokers"][0]
        number = node.get("broker_id", node.get("node_id"))
        found = client.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(number))], config_filter="all")
    settings = next(iter(found["broker"].values()))
    limits = {"offset.metadata.max.bytes": LARGEST, "transaction.max.timeout.ms": TRANSACTION_TIMEOUT_MS}
    for name, needed in limits.items():
        value = settings.get(name, {}).get("value")
        if value is not None and int(value) < needed:
            yield f"the brokers' {name} is {value}, workers need at least {needed}"


def _sample(connection: Connection, config: Config, names: Names) -> Iterator[str]:
    """The newest records of every partition: readable, old, and each item in the partition that it belongs to."""
    decoder, now = decoder_of(config), time.time_ns() // 1_000_000
    settings = connection.admin.configs(names.input)
    retention = int(settings.get("retention.ms", "-1"))
    by_partition: dict[int, list[object]] = {}
    log = Log(connection, names.input, tail=SAMPLE)
    try:
        for record in log.advance():
            by_partition.setdefault(record.partition, []).append(record)
    finally:
        log.close()
    given = connection.admin.topic(names.input)
    partitions = given.partitions if given is not None else 1
    misplaced = poison = total = unreadable = 0
    oldest = now
    for partition, sample in by_partition.items():
        records = from_client_records(sample)  # type: ignore[arg-type]
        decoded = decoder.decode(records)
        total += len(records)
        poison += int(np.count_nonzero(decoded.poison))
        unreadable += int(np.count_nonzero(decoded.times == np.iinfo(np.int64).min))
        oldest = min(oldest, int(records.timestamps.min(initial=now)))
        if config.checked and config.input.partitioner != "unchecked":
            here = belongs(decoded.items, config.input.partitioner, [partitions], partition)
            misplaced += int(np.count_nonzero(~here & decoded.valid))
    if not total:
        return
    if misplaced:
        yield (
            "items of a sample lie in partitions that the partitioner does not send them to: the topic is keyed by "
            "something else, or its producer uses another partitioner (input.partitioner); such events are not counted"
        )
    if poison * 20 > total:
        yield "more than one in twenty records of a sample hold no item: check input.format, item and item_type"
    if unreadable * 20 > total:
        yield "more than one in twenty records of a sample have no readable time: check input.time"
    if retention >= 0 and settings.get("message.timestamp.type") != "LogAppendTime" and oldest < now - retention:
        yield (
            "records of a sample are older by their timestamps than the topic's retention: they can be trimmed at any "
            "moment, read or not; raise retention.ms for a back-fill"
        )


def _access(connection: Connection, names: Names) -> Iterator[str]:
    """Whether the cluster has access rules, and none of them names what a worker needs."""
    from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ResourcePatternFilter, ResourceType
    from kafka.admin._acls import ACLResourcePatternType

    try:
        with connection.admin.client("asking for access rules") as client:
            everything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
            rules, _ = client.describe_acls(
                ACLFilter(
                    principal=None,
                    host="*",
                    operation=ACLOperation.ANY,
                    permission_type=ACLPermissionType.ANY,
                    resource_pattern=everything,
                )
            )
    except BrokerError:
        return  # no authorizer, or not allowed to ask: nothing to say
    if not rules:
        return
    have = {(rule.resource_pattern.resource_type.name.lower(), rule.resource_pattern.resource_name) for rule in rules}
    for kind, name, _, operations in acls(names):
        if kind != "cluster" and (kind, name) not in have and (kind, "*") not in have:
            yield f"no access rule names {kind} {name!r}; a worker needs {', '.join(operations)}"


def _group(connection: Connection, names: Names) -> Iterator[str]:
    """Offsets of other topics in our group: another application uses its name."""
    # On a new cluster the first question makes the offsets topic, and the coordinator comes a moment later.
    found = connection.admin._ask(
        "asking for the group's offsets", lambda client: client.list_group_offsets({names.group: None})
    )
    offsets = found[names.group]
    others = sorted({tp.topic for tp in offsets} - {names.input})
    if others:
        yield (
            f"group {names.group!r} has offsets of other topics ({', '.join(others[:3])}): another application uses "
            "it, and could commit where a worker does"
        )
