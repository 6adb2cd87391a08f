"""The spec of each window, while a changed configuration takes effect at one time in all partitions.

In: the time from which windows have the sketches that are configured now, specs of the former configuration. Out: the
spec of a window. Touches: nothing.
Source: docs/streams.md, "Changing the configuration while windows are open".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sketchstream.kinds.interface import Spec
from sketchstream.stream.interfaces import Peer
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.plans import SketchPlan

CHANGE_AHEAD_MS = 600_000
"""How far beyond the latest event time changed sketches begin: time for all workers to be started anew."""


@dataclass
class WindowSpecs:
    """Which windows still have the spec of a former configuration.

    Args:
        begins: windows that start then (ms) or later have the sketches that are configured now; NO_TIME: all have.
        former: specs of earlier windows, by the name of the sketch, where they differ.
    """

    begins: int = NO_TIME
    former: dict[str, Spec] = field(default_factory=dict)

    def at(self, plan: SketchPlan, start: int) -> Spec:
        """The spec of a window of this plan that starts then."""
        former = self.former.get(plan.name)
        return plan.spec if former is None or start >= self.begins else former


def boundary(peers: Sequence[Peer], fingerprint: bytes, newest: int) -> int:
    """The time from which windows have the sketches that are configured now; the same in all partitions.

    If a partition already has this configuration, its snapshot says the time. Otherwise it is a time so far ahead
    of all partitions that the others learn of it before they reach it.

    Args:
        peers: snapshots of all partitions; none if there is only one (a file), which needs no agreement.
        fingerprint: fingerprint of the configuration.
        newest: latest event time of the partition that asks.
    """
    begins = [peer.begins for peer in peers if peer.spec_fingerprint == fingerprint]
    if begins or not peers:
        return max(begins, default=NO_TIME)
    latest = max([newest, *(peer.newest for peer in peers)])
    return NO_TIME if latest == NO_TIME else latest + CHANGE_AHEAD_MS
