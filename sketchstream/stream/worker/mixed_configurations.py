"""Notices that members of one group run different configurations for longer than a rolling change takes.

In: the committed snapshots of all partitions, from time to time. Out: a sentence for operators. Touches: nothing.

Two deployments that share a group id divide the partitions between them. Each counts its own sketches in its own
partitions only, so every window of both lacks the other's partitions for good. A snapshot names the configuration that
wrote it. An old snapshot with another configuration proves nothing: nobody may run its partition any more. If newer
snapshots with that configuration follow, other workers use it now.
"""

from __future__ import annotations

from collections.abc import Sequence

from sketchstream.stream.interfaces import Peer

ASK_EVERY_S = 15.0
"""Seconds between two looks at other partitions' snapshots."""
LASTS_S = 45.0
"""Seconds for which another configuration has to be at work before it is named."""


class MixedConfigurations:
    """Watches the snapshots of a group's partitions.

    Args:
        fingerprint: fingerprint of this worker's configuration.
    """

    def __init__(self, fingerprint: bytes) -> None:
        self._fingerprint = fingerprint
        self._asked_at = float("-inf")
        self._since: float | None = None
        self._moved_at = 0.0
        self._newest: dict[bytes, list[int]] = {}

    def due(self, now: float) -> bool:
        """Whether to look again; the next look is then due `ASK_EVERY_S` later."""
        if now - self._asked_at < ASK_EVERY_S:
            return False
        self._asked_at = now
        return True

    def observe(self, peers: Sequence[Peer], now: float) -> None:
        """Compare the snapshots of all partitions with those of the last look."""
        newest: dict[bytes, list[int]] = {}
        for peer in peers:
            if peer.spec_fingerprint != self._fingerprint:
                newest.setdefault(peer.spec_fingerprint, []).append(peer.newest)
        for times in newest.values():
            times.sort()
        moved = any(name in self._newest and self._newest[name] != times for name, times in newest.items())
        self._newest = newest
        if moved:
            self._since = now if self._since is None else self._since
            self._moved_at = now
        elif now - self._moved_at > 2 * LASTS_S:
            self._since = None

    def warning(self, now: float) -> str:
        """A sentence while another configuration commits snapshots in this group; empty otherwise."""
        if self._since is None or now - self._since < LASTS_S - ASK_EVERY_S:
            return ""
        return (
            "workers with another configuration commit snapshots in this group: no window is complete until all have "
            "the same; two deployments need two group ids (kafka.group.id)"
        )
