"""Validates that a consumer group belongs to one deployment: no other application, one revision, one configuration.

In: a connection, names of topics, the offsets that the group has committed. Out: nothing, or an error that says what to
do. Touches: nothing; it asks the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchstream.errors import ConfigError, DataLossError
from sketchstream_connectors.kafka.state.pointer import Pointer

if TYPE_CHECKING:
    from sketchstream_connectors.kafka.cluster.client import Connection


def foreign_offsets(connection: Connection, topic: str) -> tuple[list[int], bool]:
    """The partitions of a topic whose committed offset another client wrote, and whether any other offset is ours."""
    foreign, ours = [], False
    for place, committed in connection.admin.committed(connection.group).items():
        if place.topic != topic or committed.offset < 0:
            continue
        try:
            is_ours = Pointer.from_text(committed.metadata or "") is not None
        except DataLossError:  # a pointer of another release
            is_ours = True
        ours |= is_ours
        if not is_ours:
            foreign.append(place.partition)
    return sorted(foreign), ours


def require_own_group(connection: Connection, topic: str, state_topics: tuple[str, ...]) -> None:
    """Refuse a group in which only another application has committed offsets of the input.

    Offsets that were written over are another matter: the state topic still holds snapshots, and `recover` finds them.

    Raises:
        ConfigError: the group belongs to another application.
    """
    foreign, ours = foreign_offsets(connection, topic)
    if not foreign or ours:
        return
    for name in state_topics:
        described = connection.admin.topic(name)
        if described is None:
            continue
        if any(connection.admin.offsets(name, list(range(described.partitions)), "latest").values()):
            return
    partitions = ", ".join(map(str, foreign[:5])) + (", ..." if len(foreign) > 5 else "")
    raise ConfigError(
        f"kafka.group.id: another application has committed offsets of {topic!r} in group {connection.group!r} "
        f"(partition {partitions}): give this deployment a group.id of its own; if that application is gone for good, "
        "`sketchstream reset` takes the group over"
    )


def require_newest_revision(partition: int, revision: int, newest: int | None) -> None:
    """Halt a partition that a reset has not reached: readers would wait for it in every later window.

    Args:
        partition: partition that is taken.
        revision: revision of its pointer.
        newest: largest revision of all partitions; None: not known.

    Raises:
        DataLossError: another partition has a newer revision.
    """
    if newest is not None and revision < newest:
        raise DataLossError(
            f"partition {partition} is at revision {revision}, others at revision {newest}: a reset was interrupted; "
            "stop all workers and run `sketchstream reset` again, which finishes it"
        )
