"""Finds what earlier runs left in the cluster: the input topic and the revision that a snapshot belongs to.

In: a connection and names of topics. Out: plain values. Touches: the state topic, the sealed topic and the group's
offsets, for reading.

Deleting a topic also deletes the group's committed offsets, and with them the pointers. The state topic remains, and
its manifests name their input in clear text. If that is not the current topic, the input was recreated. If it is,
offsets were deleted, and a worker must not start from the beginning.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sketchstream.errors import DataLossError
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.sealed import Headers, read_key
from sketchstream_connectors.kafka.state.pointer import Pointer

if TYPE_CHECKING:
    from sketchstream_connectors.kafka.cluster.client import Connection

TOPIC_ID, REVISION = "ss-topic-id", "ss-revision"
TAIL = 256
"""Number of last records of a partition among which the newest manifest, or revision, nearly always is."""


@dataclass(frozen=True)
class Trace:
    """Trace of the newest snapshot of a partition: the input's topic id, and the revision."""

    topic_id: str
    revision: int


def trace_headers(topic_id: str, revision: int) -> Headers:
    """Headers of a manifest's first record."""
    return [(TOPIC_ID, topic_id.encode()), (REVISION, b"%d" % revision)]


def newest_trace(connection: Connection, state_topic: str, partition: int) -> Trace | None:
    """Read the trace of the newest committed manifest of a partition in the state topic; None where there is none."""
    for tail in (TAIL, None):
        trace: Trace | None = None
        with contextlib.closing(Log(connection, state_topic, tail=tail, only=partition)) as log:
            for record in log.advance():
                headers = dict(record.headers)
                if TOPIC_ID in headers:
                    trace = Trace(headers[TOPIC_ID].decode(), int(headers[REVISION]))
        if trace is not None:
            return trace
    return None


def inputs_of(connection: Connection, state_topic: str, partition: int) -> set[str]:
    """Topic ids of the inputs whose committed manifests are in a partition of a state topic."""
    with contextlib.closing(Log(connection, state_topic, only=partition)) as log:
        every_header = (dict(record.headers) for record in log.advance())
        return {headers[TOPIC_ID].decode() for headers in every_header if TOPIC_ID in headers}


def newest_revision(connection: Connection, sealed_topic: str | None, *, tail: int | None = None) -> int:
    """Largest revision that was published, among the last `tail` records if it is given; -1 where nothing ever was."""
    newest = -1
    if sealed_topic is None or connection.admin.topic(sealed_topic) is None:
        return newest
    with contextlib.closing(Log(connection, sealed_topic, tail=tail)) as log:
        for record in log.advance():
            key = read_key(record.key)
            if key is not None:
                newest = max(newest, key.revision)
    return newest


def pointers_of(connection: Connection, input_topic: str, topic_id: str) -> list[Pointer]:
    """Committed pointers of all partitions of this input, those of another release left out."""
    pointers = []
    for tp, committed in connection.admin.committed(connection.group).items():
        try:
            pointer = Pointer.from_text(committed.metadata or "") if tp.topic == input_topic else None
        except DataLossError:
            continue
        if pointer is not None and pointer.topic_id == topic_id:
            pointers.append(pointer)
    return pointers


def revision_of(connection: Connection, input_topic: str, topic_id: str) -> int | None:
    """Largest revision that a committed pointer of any partition of this input names; None where there is none."""
    return max((pointer.revision for pointer in pointers_of(connection, input_topic, topic_id)), default=None)


def next_revision(connection: Connection, input_topic: str, topic_id: str, sealed_topic: str | None, used: int) -> int:
    """The revision under which an input that was created again is counted: the same for every partition.

    Published revisions are looked for before pointers are: whoever publishes under a new revision has committed a
    pointer with it, so either both are seen, or neither is and the same number comes out.

    Args:
        connection: connection to the cluster.
        input_topic: name of the input.
        topic_id: id of the input now.
        sealed_topic: where sealed sketches are.
        used: the revision of the partition that begins anew.
    """
    published = newest_revision(connection, sealed_topic, tail=TAIL)
    begun = revision_of(connection, input_topic, topic_id)
    return begun if begun is not None else 1 + max(published, used)
