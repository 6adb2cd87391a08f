"""The history of a sealed topic: where a backfill publishes, and the boundary that it shares with workers.

In: claims; entries and frontiers of a history. Out: acknowledged records. Touches: the history topic, of one partition;
its fence.

Claims are records of this topic, the newest of a sketch and revision counts. One is added in a transaction under a
transactional id that all claimers share: who begins ends what another one has in flight, reads to the end, decides, and
commits only if nobody began after it. So every claim is made with all that are before it in the log. A topic of its own
keeps this away from the sealed topic, whose readers would wait for an open transaction; and it is read as a whole, for
a history comes after the live windows that it precedes in time.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sketchstream import faults
from sketchstream.errors import BrokerError, DataLossError, FencedError, FormatError
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.windows.boundary import Boundary, Claim
from sketchstream_connectors.kafka.cluster.client import (
    TRANSACTION_TIMEOUT_MS,
    Connection,
    know_partition,
    translate_errors,
)
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.cluster.topics import history_fence
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource

if TYPE_CHECKING:
    from kafka import KafkaProducer

BOUNDARY: Final = "boundary"
ATTEMPTS: Final = 20
"""Most attempts at a claim while others claim too."""
PAUSE_MS: Final = 200
"""Longest pause after the first attempt, in ms; later pauses are longer."""
WAIT_S: Final = 30.0
"""Longest wait for the end of a transaction."""


class KafkaHistory:
    """A `Publisher` that publishes a history to its topic, and keeps its boundary.

    Args:
        connection: connection to the cluster.
        topic: name of the history; `sketchstream topics create` makes it.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._bodies = KafkaPublisher(connection, topic)

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Publish in the only partition of the topic. See `Publisher.publish`."""
        self._bodies.publish(0, entries, frontiers)

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Add a claim, unless what is claimed needs no more: no claim is ever taken back. See `Publisher.settle`."""
        key = f"{BOUNDARY}/{sketch}/{revision}".encode()
        for attempt in range(ATTEMPTS):
            before = self._read(key)
            if claim(before) == before:
                return before
            with contextlib.suppress(FencedError):  # another process claims
                return self._add(key, claim)
            time.sleep(secrets.randbelow(PAUSE_MS * (attempt + 1)) / 1000)
        raise BrokerError(
            f"claiming windows of sketch {sketch} in {self._topic!r}: others claim too, tried {ATTEMPTS} times"
        )

    def _read(self, key: bytes) -> Boundary:
        """The newest claims of a sketch and revision.

        Raises:
            DataLossError: they are damaged: nobody knows which windows are whose.
        """
        newest = None
        with contextlib.closing(Log(self._connection, self._topic)) as log:
            for record in log.advance():
                if record.key == key:
                    newest = record
        if newest is None:
            return Boundary()
        try:
            return Boundary.decode(newest.value or b"")
        except FormatError as error:
            raise DataLossError(
                f"{self._topic!r}, offset {newest.offset}: {error}; begin a new revision with `sketchstream reset`"
            ) from None

    def _add(self, key: bytes, claim: Claim) -> Boundary:
        """Add a claim to those that are in the topic now.

        Raises:
            FencedError: another process began after this one; the claim was not made.
            BrokerError: it is not known whether it was.
        """
        with self._fence() as producer:
            before = self._read(key)
            boundary = claim(before)
            if boundary == before:
                return before
            with translate_errors(f"claiming windows in {self._topic!r}"):
                know_partition(producer, self._topic, 0)
                producer.begin_transaction()
                producer.send(self._topic, key=key, value=boundary.encode(), partition=0).get(timeout=WAIT_S)
                faults.checkpoint("boundary:sent")
                result = producer._transaction_manager.begin_commit()
                producer._sender.wakeup()
                if not result.wait(timeout_ms=WAIT_S * 1000):
                    raise BrokerError(f"a claim in {self._topic!r} made no progress for {WAIT_S:.0f} s")
            faults.checkpoint("boundary:named")
            return boundary

    @contextlib.contextmanager
    def _fence(self) -> Iterator[KafkaProducer]:
        """Open a producer that has ended what other claimers have in flight."""
        producer = self._connection.producer(
            transactional_id=history_fence(self._topic),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            client_id="sketchstream-boundary",
        )
        try:
            with translate_errors(f"claiming windows in {self._topic!r}"):
                producer.init_transactions()
            faults.checkpoint("boundary:fenced")
            yield producer
        finally:
            with contextlib.suppress(Exception):
                producer.close(timeout=0)

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Newest frontiers of the history."""
        with contextlib.closing(KafkaSealedSource(self._connection, self._topic, whole=True)) as source:
            frontiers = [frontier for frontier in source.read() if isinstance(frontier, Frontier)]
        newest = sorted(frontiers, key=lambda frontier: frontier.sequence)
        return {(frontier.sketch, frontier.revision, frontier.partition): frontier for frontier in newest}

    def close(self) -> None:
        """Close."""
        self._bodies.close()
