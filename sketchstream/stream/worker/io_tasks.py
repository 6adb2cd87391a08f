"""Tasks for a worker's threads: take a partition, commit a snapshot, publish what is committed.

In: a store, a publisher, an optional sink; snapshots that the worker captured, and what they hold for publication.
Out: states and results. Touches: its interfaces; never a state that the worker is updating.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sketchstream.errors import BrokerError, DataLossError, SketchstreamError
from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import (
    Clock,
    Fresh,
    Peer,
    Publisher,
    Sink,
    Snapshot,
    StateStore,
)
from sketchstream.stream.state import checkpoint
from sketchstream.stream.state.outbox import Publications
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.window_specs import boundary
from sketchstream.stream.windows.calendar import NO_TIME, iso

event_log = EventLog("sketchstream.worker")


@dataclass(frozen=True)
class Done:
    """The result of a job: its snapshot, if any, is durable; publishing may have failed.

    Args:
        publications: what was to be published.
        error: error of the publication, which does not affect the state.
        blob_bytes: size of the blobs of the committed snapshot.
        seconds: time that the commit took.
        begins: when the sketches configured now begin in all partitions; see `Snapshot`.
    """

    publications: Publications = field(repr=False)
    error: SketchstreamError | None
    blob_bytes: int = 0
    seconds: float = 0.0
    begins: int = NO_TIME


@dataclass(frozen=True)
class IoTasks:
    """The jobs of one worker; each may raise what its interfaces raise."""

    rules: Rules
    store: StateStore
    publisher: Publisher
    sink: Sink | None
    clock: Clock

    def take(self, partition: int, partitions: int) -> PartitionState | Fresh:
        """Become the owner of a partition, and rebuild its state.

        Raises:
            DataLossError: going on would lose or repeat data.
        """
        taken = self.store.take(partition)
        if not isinstance(taken, Fresh):
            return checkpoint.restore(self.rules, partition, taken, partitions, self.store.peers())
        frontiers = self.publisher.frontiers()
        if any(frontier[1] == taken.revision and frontier[2] == partition for frontier in frontiers):
            raise DataLossError(
                f"partition {partition}: nothing is stored, but sketches of it were published; counting again "
                "would publish a second noisy view of the same events. `sketchstream recover` looks for its "
                "snapshot, `sketchstream reset` starts a new revision"
            )
        elsewhere: dict[str, int] = {}
        for frontier in frontiers.values():
            if frontier.revision == taken.revision:
                through = frontier.sealed_without(partition)
                elsewhere[frontier.sketch] = max(through, elsewhere.get(frontier.sketch, through))
        return replace(taken, sealed_elsewhere=elsewhere, peers=self.store.peers())

    def commit(self, partition: int, snapshot: Snapshot, publications: Publications) -> Done:
        """Wait for the acknowledgement of refused records, commit the snapshot, publish what it holds."""
        began = self.clock.monotonic()
        try:
            if self.sink is not None:
                self.sink.flush(partition)
            self.store.commit(partition, snapshot)
        finally:
            snapshot.release()
        seconds = self.clock.monotonic() - began
        published = self.publish(partition, publications)
        begins = NO_TIME
        if snapshot.newest < snapshot.begins:
            with suppress(BrokerError):  # the next commit asks again
                begins = boundary(self.store.peers(), self.rules.fingerprint, NO_TIME)
        return Done(publications, published.error, snapshot.blob_bytes, seconds, begins)

    def live_from(self, sketch: str, revision: int, start: int) -> int:
        """Claim the windows of a sketch that begin at `start` or later; returns the time (ms) where live ones begin."""
        boundary = self.publisher.settle(sketch, revision, lambda before: before.with_live(start))
        if boundary.history > start:
            text = (
                f"windows of sketch {sketch} before {iso(boundary.history)} are published from a table (backfill), so "
                "records before that boundary are late"
            )
            event_log.warning("history", text, sketch=sketch, revision=revision, boundary=iso(boundary.history))
        return max(boundary.history, start)

    def peers(self) -> Sequence[Peer]:
        """What the snapshots of all partitions say; nothing while no broker answers."""
        try:
            return self.store.peers()
        except SketchstreamError:
            return ()

    def publish(self, partition: int, publications: Publications) -> Done:
        """Publish what is committed."""
        try:
            if any(publications):
                self.publisher.publish(partition, *publications)
        except SketchstreamError as error:
            return Done(publications, error)
        return Done(publications, None)


class Inline(Executor):
    """Runs jobs at once, in the caller's thread: for files, tests and the driver."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
