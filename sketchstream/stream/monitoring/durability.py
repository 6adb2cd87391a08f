"""How long what one partition has counted has been waiting for its commit, and what was sealed for its publication.

In: what happened to the partition, times of the monotonic clock. Out: ages, and a sentence for operators when nothing
becomes durable. Touches: nothing.

A partition can read and count although no commit succeeds: the state topic is gone, the broker is over its quota, the
disk is full. Nothing is lost by that, but nothing is published either, and all of it is read again after a restart.
"""

from __future__ import annotations

FAILING_S = 15.0
"""Seconds without a commit or publication after which their failures are reported: a broker's restart takes less."""
SLOW_S = 10.0
"""Seconds after which a commit of a small state that is still being written is mentioned; large ones have longer."""
WRITTEN_BYTES_PER_S = 4 << 20
"""Rate at which a broker is expected to take a snapshot at least."""


class Durability:
    """Ages of one partition's commit and publication."""

    def __init__(self) -> None:
        self.position: int | None = None
        """Position that the newest commit holds; None: not known yet."""
        self._uncommitted_since: float | None = None
        self._unpublished_since: float | None = None
        self._captured: tuple[int, float] = (0, 0.0)
        self._committed_at: float | None = None
        self._published_at: float | None = None
        self._commit_error = ""
        self._publish_error = ""

    def restored(self, position: int) -> None:
        """Note what was committed when the partition was taken. Earlier failures still count."""
        self.position = position

    def changed(self, now: float) -> None:
        """Note that something is not committed."""
        if self._uncommitted_since is None:
            self._uncommitted_since = now

    def captured(self, position: int, now: float) -> None:
        """Note that a snapshot of this position was captured."""
        self._captured = position, now

    def committed(self, *, changed: bool, now: float = 0.0) -> None:
        """Note that the captured snapshot is durable; `changed`: something has happened since."""
        self.position, since = self._captured
        self._committed_at = now
        self._uncommitted_since = since if changed else None
        self._commit_error = ""

    def commit_failed(self, reason: str) -> None:
        """Note why the last snapshot was not committed."""
        self._commit_error = reason

    def published(self, reason: str, now: float, *, anything: bool = True) -> None:
        """Note that all that was sealed is published, or why not; `anything`: there was something to publish."""
        self._publish_error = reason
        if not reason and anything:
            self._published_at = now
        if not reason:
            self._unpublished_since = None
        elif self._unpublished_since is None:
            self._unpublished_since = now

    def commit_age_s(self, now: float) -> float:
        """Seconds for which something has been waiting for a commit; 0: everything is committed."""
        return 0.0 if self._uncommitted_since is None else now - self._uncommitted_since

    def publication_age_s(self, now: float) -> float:
        """Seconds for which something sealed and committed has been waiting for its publication; 0: nothing is."""
        return 0.0 if self._unpublished_since is None else now - self._unpublished_since

    def since_commit_s(self, now: float) -> float | None:
        """Seconds since the last commit; None: there was none yet."""
        return None if self._committed_at is None else now - self._committed_at

    def since_publication_s(self, now: float) -> float | None:
        """Seconds since the last publication; None: there was none yet."""
        return None if self._published_at is None else now - self._published_at

    def stall_reason(self, now: float, within_s: float) -> str:
        """Why nothing becomes durable, for operators; empty while all is well.

        Args:
            now: seconds.
            within_s: an older commit is reported even if nothing has failed.
        """
        age = self.commit_age_s(now)
        if self._commit_error and age >= FAILING_S:
            return f"nothing was committed for {age:.0f} s: {self._commit_error}"
        if age >= within_s:
            return f"nothing was committed for {age:.0f} s, the limit is {within_s:.0f} s"
        waited = self.publication_age_s(now)
        if waited >= FAILING_S:
            return f"sealed sketches have been waiting for {waited:.0f} s to be published: {self._publish_error}"
        return ""
