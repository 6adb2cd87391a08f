"""Findings about halted partitions and what can be done, the same type for every store.

In: nothing. Out: `Finding`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["healthy", "unstarted", "adopt", "accept", "lost", "reset"]


@dataclass(frozen=True)
class Finding:
    """What is true of one partition, and what can be done.

    Args:
        partition: of the input.
        outcome: healthy (a worker can take it), unstarted (nothing there, nothing to recover), adopt (what was lost
            was found again, elsewhere), accept (records are gone: it can go on, its open windows marked), lost (only
            `reset` helps), reset (a new revision begins).
        text: for people.
        position: where it would go on; -1 if it would not.
        revision: of its sketches.
    """

    partition: int
    outcome: Outcome
    text: str
    position: int = -1
    revision: int = 0
