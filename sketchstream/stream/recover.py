"""Findings about halted partitions and what can be done, the same type for every store.

In: nothing. Out: `Diagnosis`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["healthy", "unstarted", "adopt", "accept", "lost", "reset"]


@dataclass(frozen=True)
class Diagnosis:
    """The condition of one partition, and what can be done.

    Args:
        partition: partition of the input.
        outcome: healthy (a worker can take it), unstarted (nothing to recover), adopt (what was lost was found
            elsewhere), accept (records are gone: it can continue with its open windows marked), lost (only `reset`
            helps), reset (a new revision begins).
        text: description for people.
        position: where it would continue; -1 if it would not.
        revision: revision of its sketches.
    """

    partition: int
    outcome: Outcome
    text: str
    position: int = -1
    revision: int = 0
