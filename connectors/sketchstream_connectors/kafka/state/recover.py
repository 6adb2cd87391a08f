"""Recovery of halted partitions by an operator: find the last snapshot, accept a loss, or start a new revision.

In: a connection and the names of a configuration. Out: findings, a plan, and (not with dry_run) the plan carried out.
Touches: committed offsets with their pointers and the state topic, through the same fence as a worker; the log of
committed offsets (`__consumer_offsets`), for reading.

Only a committed pointer has the place of a snapshot and its key. If another client overwrote the pointer, or it
was deleted or has expired, the log of committed offsets still holds it until compaction. The newest of our pointers in
that log belongs to the newest snapshot that ever took effect, so it covers everything that was published.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from sketchstream.errors import BrokerError, ConfigError, DataLossError
from sketchstream.stream.recover import Diagnosis, Outcome
from sketchstream.stream.state.checkpoint import mark_diverged, mark_partial
from sketchstream_connectors.decode.varints import read_varint
from sketchstream_connectors.kafka.cluster.client import Connection, Topic
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.cluster.topics import TopicNames
from sketchstream_connectors.kafka.input.positions import UNKNOWN
from sketchstream_connectors.kafka.state import blobs
from sketchstream_connectors.kafka.state.group_validation import foreign_offsets
from sketchstream_connectors.kafka.state.pointer import NAMING, Pointer
from sketchstream_connectors.kafka.state.traces import inputs_of, newest_revision
from sketchstream_connectors.kafka.state.transaction import Fence

OFFSETS_TOPIC = "__consumer_offsets"
STABLE_TIMEOUT_S = 90.0
"""Longest wait for the end of a transaction that is open in the topic of offsets, seconds."""
Start = Literal["beginning", "end", "committed"]


@dataclass(frozen=True)
class _Look:
    """A finding, and the pointer and the position that it is about."""

    finding: Diagnosis
    pointer: Pointer | None = None
    committed: int = -1


def require_empty(connection: Connection) -> None:
    """Refuse while workers of the group run, because both would decide about the partitions.

    Raises:
        ConfigError: the group has members.
    """
    members = connection.admin.ask_group(connection.group).get("members", [])
    if members:
        raise ConfigError(f"group {connection.group!r} has {len(members)} running workers: stop them first")


def recover(
    connection: Connection,
    names: TopicNames,
    *,
    accept_loss: bool = False,
    dry_run: bool = False,
    partitions: Collection[int] | None = None,
) -> list[Diagnosis]:
    """Examine every partition, and repair those that can be repaired.

    Args:
        connection: connection to the cluster; its group must have no running workers.
        names: the topics.
        accept_loss: continue behind records that are gone, with open windows marked as partial.
        dry_run: only examine.
        partitions: partitions to recover; default: all.

    Raises:
        ConfigError: workers run, or a topic is missing.
        BrokerError: the cluster does not answer.
    """
    if not dry_run:
        require_empty(connection)
    topic, states = _topics(connection, names)
    findings = []
    with contextlib.ExitStack() as stack:
        homes = {
            topic_id: _Home(
                topics, stack.enter_context(contextlib.closing(blobs.BlobReader(connection, names.input, topics.state)))
            )
            for topic_id, topics in states.items()
        }
        examiner = _Examiner(connection, names, topic, homes)
        for p in sorted(partitions if partitions is not None else range(topic.partitions)):
            look = examiner.look(p)
            if not dry_run and look.finding.outcome == "adopt" and look.pointer is not None:
                _commit(connection, names, p, look.committed, look.pointer)
            if not dry_run and look.finding.outcome == "accept" and look.pointer is not None and accept_loss:
                _move(connection, names, homes, p, look)
            findings.append(look.finding)
    return findings


def reset(
    connection: Connection, names: TopicNames, *, to: Start | int = "end", dry_run: bool = False, least: int = 0
) -> list[Diagnosis]:
    """Begin a new revision of all sketches in every partition at a given place, without any old state.

    What was published before stays published. A start before what was already counted counts events a second time, as
    a publication of its own: the ledger adds revisions. Always all partitions: a window whose partitions have
    different revisions would never be complete. A reset that was interrupted is finished: partitions that have begun
    its revision stay where they began.

    Args:
        connection: connection to the cluster; its group must have no running workers.
        names: the topics.
        to: "beginning", "end", "committed" (where the old revision stood), or a time in ms since 1970.
        dry_run: only report what would be done.
        least: the new revision is at least this one, where another topic of the input has it.

    Raises:
        ConfigError: workers run, or a topic is missing.
        BrokerError: the cluster does not answer.
    """
    if not dry_run:
        require_empty(connection)
    topic, states = _topics(connection, names)
    state_id, names = next(iter(states.items()))
    pointers = _committed_pointers(connection, names, topic)
    published = newest_revision(connection, names.sealed)
    begun = _interrupted_publication(pointers, published, topic)
    revision = (
        begun if begun is not None else 1 + max([published, *(pointer.revision for _, pointer in pointers.values())])
    )
    revision = max(revision, least)
    starts = _starts(connection, names, range(topic.partitions), to)
    foreign, _ = foreign_offsets(connection, names.input)
    findings = []
    for p in range(topic.partitions):
        position, pointer = pointers.get(p, (-1, None))
        if pointer is not None and pointer.revision == revision:
            text = f"revision {revision} has begun at position {position}, by a reset that was interrupted"
            findings.append(Diagnosis(p, "reset", text, position, revision))
            continue
        if not dry_run:
            fresh = Pointer(connection.admin.cluster_id(), topic.topic_id, state_id, revision)
            _commit(connection, names, p, starts[p], fresh)
            for names_of_state in states.values():
                _erase(connection, names_of_state, p, topic.topic_id)
        text = f"revision {revision} begins at position {starts[p]}"
        if p in foreign:
            text += "; its committed offset was written by another application, which must not use this group any more"
        findings.append(Diagnosis(p, "reset", text, starts[p], revision))
    return findings


def _interrupted_publication(pointers: Mapping[int, tuple[int, Pointer]], published: int, topic: Topic) -> int | None:
    """The revision of a reset that did not reach every partition; None if there is none to finish.

    Its partitions have a pointer without a snapshot: once workers ran, the revision is in use.
    """
    newest = max((pointer.revision for _, pointer in pointers.values()), default=0)
    reached = [pointer for _, pointer in pointers.values() if pointer.revision == newest]
    unused = newest > max(published, 0) and all(pointer.manifest < 0 for pointer in reached)
    return newest if unused and len(reached) < topic.partitions else None


# ------------------------------------------------------------------------------------------------------ looking


class _Home(NamedTuple):
    """A state topic: the names that include it, and a reader of it."""

    names: TopicNames
    reader: blobs.BlobReader


def _topics(connection: Connection, names: TopicNames) -> tuple[Topic, dict[str, TopicNames]]:
    """The input topic, and the existing state topics by topic id: the present one, then that of an older release."""
    topic = connection.admin.topic(names.input)
    former = names.formerly()
    states = {}
    for variant in [names, *([former] if former is not None else [])]:
        state_topic = connection.admin.topic(variant.state)
        if state_topic is not None:
            states[state_topic.topic_id] = variant
    for name, missing in ((names.input, topic is None), (names.state, not states)):
        if missing:
            raise ConfigError(
                f"topic {name!r} does not exist; `sketchstream topics create` creates the topics of this application"
            )
    assert topic is not None
    return topic, states


@dataclass(frozen=True)
class _Examiner:
    """Examines partitions as a worker that takes them would.

    Args:
        connection: connection to the cluster.
        names: the topics.
        topic: the input topic.
        homes: state topics by their ids.
    """

    connection: Connection
    names: TopicNames
    topic: Topic
    homes: Mapping[str, _Home]

    @cached_property
    def _logged(self) -> dict[int, tuple[int, Pointer]]:
        return logged_pointers(self.connection, self.names)

    def look(self, partition: int) -> _Look:
        """Examine one partition; if its pointer is missing, with the newest one that the log still holds."""
        committed = next(iter(self.homes.values())).reader.committed(partition)
        try:
            pointer = None if committed is None else Pointer.from_text(committed.metadata or "")
        except DataLossError as error:
            return self._adopt(partition, str(error))
        if committed is not None and pointer is not None:
            return self._judge(partition, committed.offset, pointer)
        topics = (*(home.names.state for home in self.homes.values()), self.names.sealed)
        ends = (self.connection.admin.offsets(name, [partition], "latest") for name in topics if name)
        if committed is None and not any(end.get(partition, 0) > 0 for end in ends):
            return _Look(Diagnosis(partition, "unstarted", "no offset, no trace: a worker starts it at its beginning"))
        gone = "its offset is gone" if committed is None else "its offset was written by another client"
        return self._adopt(partition, gone)

    def _adopt(self, partition: int, loss: str) -> _Look:
        """Judge the newest pointer that the log holds of a partition that has lost its own."""
        look = _Look(Diagnosis(partition, "lost", loss))
        if partition not in self._logged:
            return look
        position, pointer = self._logged[partition]
        judged = self._judge(partition, position, pointer)
        if judged.finding.outcome != "healthy":
            return judged if judged.finding.outcome == "lost" else look
        text = f"{loss}; its last snapshot was found: revision {pointer.revision} at position {position}"
        return _Look(Diagnosis(partition, "adopt", text, position, pointer.revision), pointer, position)

    def _judge(self, partition: int, position: int, pointer: Pointer) -> _Look:
        """Check that the snapshot of a pointer exists, and that its position is in the log."""

        def lost(text: str) -> _Look:
            return _Look(Diagnosis(partition, "lost", text, revision=pointer.revision), pointer, position)

        admin, source = self.connection.admin, self.names.input
        if pointer.cluster_id != admin.cluster_id():
            return lost("its pointer was written in another cluster")
        if pointer.topic_id != self.topic.topic_id:
            return lost("its pointer belongs to an earlier topic of the same name")
        if pointer.manifest >= 0 and pointer.state_id not in self.homes:
            return lost("its snapshot was in a state topic that was deleted and made again")
        if pointer.manifest >= 0:
            try:
                self.homes[pointer.state_id].reader.manifest(partition, pointer)
            except DataLossError:
                return lost("its snapshot is gone or does not open")
        first = admin.offsets(source, [partition], "earliest").get(partition, 0)
        last = admin.offsets(source, [partition], "latest").get(partition, position)
        outcome: Outcome = "healthy"
        resume_at, text = position, f"revision {pointer.revision} at position {position}"
        if position < first:
            text = f"records from {position} to {first - 1} were trimmed: it can continue at {first} with that loss"
            outcome, resume_at = "accept", first
        elif position > last:
            text = (
                f"the log was cut from {position} to {last}: it can continue at {last}; open windows may hold up to "
                f"{position - last} records that the log has lost"
            )
            outcome, resume_at = "accept", last
        return _Look(Diagnosis(partition, outcome, text, resume_at, pointer.revision), pointer, position)


def logged_pointers(connection: Connection, names: TopicNames) -> dict[int, tuple[int, Pointer]]:
    """Newest pointer for each partition in the log of committed offsets, with its position."""
    with connection.admin.client("asking for the log of committed offsets") as client:
        parts = len(client.describe_topics([OFFSETS_TOPIC])[0]["partitions"])
    place = _java_hash(names.group) % parts
    _wait_stable(connection, place)
    pointers: dict[int, tuple[int, Pointer]] = {}
    with contextlib.closing(Log(connection, OFFSETS_TOPIC, only=place)) as log:
        for record in log.advance():
            record_fields = _offset_record(record.key, record.value, names.group, names.input)
            if record_fields is None:
                continue
            partition, position, text = record_fields
            try:
                pointer = Pointer.from_text(text)
            except DataLossError:
                continue
            if pointer is not None:
                pointers[partition] = (position, pointer)
    return pointers


def _wait_stable(connection: Connection, place: int) -> None:
    """Wait until all present transactions in that log have ended: an open one of any group hides what follows it."""
    end = connection.admin.offsets(OFFSETS_TOPIC, [place], "latest").get(place, 0)
    deadline = time.monotonic() + STABLE_TIMEOUT_S
    while connection.admin.offsets(OFFSETS_TOPIC, [place], "stable").get(place, -1) < end:
        if time.monotonic() > deadline:
            raise BrokerError(
                f"a transaction has been open in {OFFSETS_TOPIC!r} for {STABLE_TIMEOUT_S:.0f} s: try again later"
            )
        time.sleep(0.5)


def _java_hash(text: str) -> int:
    """`String.hashCode()`, made positive as Kafka's `Utils.abs` does."""
    value = 0
    units = text.encode("utf-16-be")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


def _offset_record(key: bytes | None, value: bytes | None, group: str, topic: str) -> tuple[int, int, str] | None:
    """Partition, position and metadata of a committed offset of this group and topic (Kafka's own record format)."""
    try:
        if key is None or value is None or struct.unpack_from(">h", key)[0] not in (0, 1):
            return None
        at = 2
        names = []
        for _ in range(2):
            size: int = struct.unpack_from(">h", key, at)[0]
            names.append(key[at + 2 : at + 2 + size].decode())
            at += 2 + size
        partition: int = struct.unpack_from(">i", key, at)[0]
        if names != [group, topic]:
            return None
        version, position = struct.unpack_from(">hq", value)
        at = 10 + (4 if version >= 3 else 0)  # leader epoch
        if version >= 4:  # compact strings
            length, at = read_varint(value, at)
            length -= 1
        else:
            length = struct.unpack_from(">h", value, at)[0]
            at += 2
        return partition, position, value[at : at + max(length, 0)].decode()
    except (struct.error, UnicodeDecodeError, IndexError):
        return None


# ------------------------------------------------------------------------------------------------------ writing


def _committed_pointers(connection: Connection, names: TopicNames, topic: Topic) -> dict[int, tuple[int, Pointer]]:
    """Position and pointer that each partition has committed; partitions without a pointer are left out."""
    pointers: dict[int, tuple[int, Pointer]] = {}
    with contextlib.closing(blobs.BlobReader(connection, names.input, names.state)) as reader:
        for p in range(topic.partitions):
            committed = reader.committed(p)
            try:
                pointer = None if committed is None else Pointer.from_text(committed.metadata or "")
            except DataLossError:
                continue
            if committed is not None and pointer is not None:
                pointers[p] = committed.offset, pointer
    return pointers


def _starts(connection: Connection, names: TopicNames, partitions: Sequence[int], to: Start | int) -> dict[int, int]:
    """The positions at which to start."""
    from kafka import TopicPartition

    first = connection.admin.all_offsets(names.input, partitions, "earliest")
    last = connection.admin.all_offsets(names.input, partitions, "latest")
    if to == "beginning":
        return first
    if to == "end":
        return last
    if to == "committed":
        with contextlib.closing(blobs.BlobReader(connection, names.input, names.state)) as reader:
            committed = {p: reader.committed(p) for p in partitions}
        return {p: min(max(c.offset, first[p]), last[p]) if c is not None else first[p] for p, c in committed.items()}
    with connection.admin.client("looking a time up") as client:
        times = client.list_partition_offsets({TopicPartition(names.input, p): int(to) for p in partitions})
    return {tp.partition: int(o.offset) if o.offset >= 0 else last[tp.partition] for tp, o in times.items()}


class _Operator(NamedTuple):
    """A `Committer` while no worker of the group runs."""

    group: str

    def group_metadata(self) -> str:
        """The group."""
        return self.group

    def epoch(self, partition: int) -> int:
        """Nothing was read."""
        return UNKNOWN


@contextlib.contextmanager
def _take_fence(connection: Connection, names: TopicNames, partition: int, state_id: str) -> Iterator[Fence]:
    """Take the partition's fence, which locks out every earlier owner."""
    Fence.end_former(connection, names.input, partition)
    fence = Fence.open(connection, names.input, names.state, state_id, partition)
    try:
        fence.take()
        yield fence
    finally:
        fence.producer.close(timeout=5)


def _commit(connection: Connection, names: TopicNames, partition: int, position: int, pointer: Pointer) -> None:
    """Commit an offset with its pointer, through the fence."""
    with _take_fence(connection, names, partition, pointer.state_id) as fence:
        fence.begin(position, replace(pointer, naming=NAMING), _Operator(names.group))


def _move(connection: Connection, names: TopicNames, homes: Mapping[str, _Home], partition: int, look: _Look) -> None:
    """Commit the same snapshot at another position, with windows marked as partial, in one transaction."""
    pointer, position = look.pointer, look.finding.position
    assert pointer is not None
    if pointer.manifest < 0:
        _commit(connection, names, partition, position, pointer)
        return
    names, reader = homes[pointer.state_id]
    manifest = reader.manifest(partition, pointer)
    inner = dict(manifest["manifest"])
    inner["position"] = position
    if position < look.committed:
        mark_diverged(inner)
    else:
        mark_partial(inner)
    manifest["position"], manifest["manifest"] = position, inner
    with _take_fence(connection, names, partition, pointer.state_id) as fence:
        fence.move(position, manifest, replace(pointer, naming=NAMING), _Operator(names.group))


def _erase(connection: Connection, names: TopicNames, partition: int, input_id: str) -> None:
    """Delete every snapshot of a partition: what a reset leaves behind must not stay readable.

    A state topic of an older release that holds another application's snapshots is left unchanged.
    """
    if names.former_state is not None:
        others = inputs_of(connection, names.state, partition) - {input_id}
        if others & connection.admin.topic_ids().keys():
            return
    for _ in range(5):
        end = connection.admin.offsets(names.state, [partition], "latest").get(partition, 0)
        if end == 0:
            return
        connection.admin.delete_before(names.state, {partition: end})
        if connection.admin.offsets(names.state, [partition], "earliest").get(partition) == end:
            return
        time.sleep(0.2)
