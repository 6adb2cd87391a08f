"""The state of one partition: open windows with their sketches, watermark, outbox; a function of the record sequence.

In: chunks of one partition, in order. Out: outcomes for counters and sinks, snapshots, sealed entries, frontiers.
Touches: its own sketches; entropy when a window opens or is sealed. No file, no network, and no clock but one that
measures how long sealing takes.

If `applying`, `sealing` or `capturing` needs a fresh partition count of the input, it stops and says so. Its caller
asks the cluster and resumes it with the answer. It also stops before long work (the noise of a large window, or of one
of many, its seal, a copy of thousands), which its caller may leave to another thread; until it is resumed, nothing else
may change the state.

Laws (tests/stream/test_partition.py):
1. The division of a record sequence into chunks does not matter: windows get the same events, the same records are
   late.
2. A window is opened by the envelope of an admitted record alone, whatever its payload holds; or by the watermark,
   where positions are published when they close.
3. A sealed window never reopens, and its open state is in no later snapshot.
4. A restored state continues exactly like the state from which the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partition_counts import Steps, perform, unanswered
from sketchstream.stream.interfaces import Peer, Restored, Snapshot
from sketchstream.stream.state import checkpoint
from sketchstream.stream.state.buffers import Buffers
from sketchstream.stream.state.partition_windows import PartitionWindows
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.work_pace import copying_takes_long
from sketchstream.stream.windows.windows import NO_TIME


class PartitionState(PartitionWindows):
    """The whole state of one partition. Create one with `fresh` or `restore`. See `PartitionWindows`."""

    @classmethod
    def fresh(
        cls,
        rules: Rules,
        partition: int,
        position: int,
        partitions: int,
        *,
        revision: int = 0,
        partial: bool = False,
        sealed_elsewhere: Mapping[str, int] | None = None,
        peers: Sequence[Peer] = (),
        former_counts: Mapping[int, int | None] | None = None,
    ) -> PartitionState:
        """Create the state of a partition without a past.

        Args:
            rules: rules of the worker.
            partition: partition of the input.
            position: where it begins.
            partitions: number of partitions of the input now.
            revision: revision of the sketches.
            partial: records before `position` are gone or skipped: the first windows may lack some.
            sealed_elsewhere: see `interfaces.Fresh`.
            peers: snapshots of all partitions.
            former_counts: see `interfaces.Source`; None: no other.
        """
        state = cls(rules, partition, position, partitions, revision)
        state.counts.restore(former_counts or {})
        state.counts.passed(position)
        state._partial = partial
        if any(peer.spec_fingerprint != rules.fingerprint for peer in peers):
            state.specs.begins = checkpoint.boundary(peers, rules.fingerprint, NO_TIME)
        for name, through in (sealed_elsewhere or {}).items():
            sketch_state = state.sketch_states.get(name)
            if sketch_state is not None and through > sketch_state.progress.through:
                sketch_state.evidence.seal(sketch_state.plan, NO_TIME, through)
                sketch_state.progress.through = sketch_state.progress.published = through
                state._announce(sketch_state)
        return state

    def capture(self, buffers: Buffers | None = None) -> Snapshot:
        """Like `capturing`, without a cluster to ask for partitions."""
        return unanswered(self.capturing(buffers))

    def capturing(self, buffers: Buffers | None = None) -> Steps[Snapshot]:
        """Copy the state completely for the store, after sealing what is due. The caller commits or drops it.

        Asks for the partition count before the first window is sealed, and if a domain is closed.

        Args:
            buffers: memory for the copies of open states; None: fresh memory.
        """
        yield from self.sealing()
        yield from self._close()
        if any(isinstance(window.sketch.spec.domain, ClosedDomain) for window in self._open_windows()):
            # the size of what is written then never tells that a misplaced item made us ask
            yield from self._ask_partitions()
        for state in self.sketch_states.values():
            grown = state.plan is not None and state.frontier.partitions not in (NO_TIME, self.partitions)
            if grown or self._reports(state):
                self._announce(state)
        long = copying_takes_long(sum(window.unsaved for window in self._open_windows()))
        return (yield from perform(partial(checkpoint.write, self, buffers), long=long))

    @classmethod
    def restore(
        cls, rules: Rules, partition: int, restored: Restored, partitions: int, peers: Sequence[Peer] = ()
    ) -> PartitionState:
        """Restore the state that a snapshot holds.

        Args:
            rules: rules of the worker. Its sketches may differ from the snapshot's: open windows finish under the spec
                with which they began, new sketches begin with the next window.
            partition: partition of the input.
            restored: snapshot that the store has.
            partitions: number of partitions of the input now.
            peers: snapshots of all partitions: changed sketches begin at one time in all of them.

        Raises:
            DataLossError: the snapshot cannot be used; the message says why and what to do.
        """
        state = cls(rules, partition, restored.position, partitions)
        checkpoint.read(state, restored, peers)
        state.set_partitions(partitions)
        return state
