"""Where the history of a sketch ends and its live windows begin: claims of both sides, one after the other.

In: the claims so far, a further one. Out: the claims with it, or a refusal. Touches: nothing; publishers keep claims
where the series is published, and add one only to those that it was made for.
Source: docs/backfill.md, "One series".

Laws (tests/stream/test_boundary.py):
1. No window is on both sides: the history's begin before `history`, live ones at `live` or later, and `history` is
   never beyond `live`.
2. A claim takes nothing away: `history` only grows, `live` only falls.
3. A claim that was made may be made again, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final

from sketchstream.errors import ConfigError, FormatError
from sketchstream.stream.windows.calendar import LATEST_MS, NO_TIME, iso

NO_LIVE_WINDOW: Final = LATEST_MS
"""The start of the first live window, where no live window has begun."""


@dataclass(frozen=True)
class Boundary:
    """The claims of one sketch in one revision.

    Args:
        history: windows that begin before then (ms) belong to the history; NO_TIME: none do.
        live: windows that begin then (ms) or later are live; NO_LIVE_WINDOW: none are.
        ledger: id of the ledger in which the history is booked; empty: none is.
    """

    history: int = NO_TIME
    live: int = NO_LIVE_WINDOW
    ledger: str = ""

    def with_live(self, start: int) -> Boundary:
        """Claim for workers the windows that begin at `start` or later, except those that a history has claimed."""
        return replace(self, live=max(self.history, min(self.live, start)))

    def with_history(self, through: int, ledger: str, sketch: str) -> Boundary:
        """Claim the windows that begin before `through` for a history.

        Raises:
            ConfigError: live windows begin earlier, or another ledger has the history; the message names the boundary.
        """
        if through > self.live:
            raise ConfigError(
                f"live windows of sketch {sketch} begin at {iso(self.live)}, and a window has one noise: end the "
                f"history there (--to {iso(self.live)}), or earlier"
            )
        if self.ledger not in ("", ledger):
            raise ConfigError(
                f"the history of sketch {sketch} through {iso(self.history)} is booked in another folder: use the "
                "one where its first backfill ran, whose rows say what was drawn, or begin a new revision"
            )
        return replace(self, history=max(self.history, through), ledger=ledger)

    def encode(self) -> bytes:
        """Canonical JSON.

        Examples:
            >>> Boundary.decode(Boundary(1, 2, "a").encode())
            Boundary(history=1, live=2, ledger='a')
        """
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Boundary:
        """The claims that `encode` wrote.

        Raises:
            FormatError: these bytes are none.
        """
        try:
            fields = json.loads(data)
            boundary = cls(int(fields["history"]), int(fields["live"]), str(fields["ledger"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            boundary = None
        if boundary is None or len(fields) != 3 or not NO_TIME <= boundary.history <= boundary.live <= NO_LIVE_WINDOW:
            raise FormatError("these bytes are no boundary between history and live windows")
        return boundary


Claim = Callable[[Boundary], Boundary]
"""What a publisher does with the claims so far: it returns them, with its own added if it needs one."""
