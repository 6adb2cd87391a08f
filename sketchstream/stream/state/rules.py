"""Parameters that all partitions of a worker share.

In: public parameters, the hash key. Out: `Rules`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sketchstream.stream.input.partitioner import Partitioner
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.quorum import DEFAULT, Quorum

if TYPE_CHECKING:
    from sketchstream.items.key import Key


@dataclass(frozen=True)
class Rules:
    """The parameters that all partitions of a worker share; all but the key are public.

    Args:
        sketches: what is counted.
        key: hash key, if any of them needs one.
        lateness_ms: how long a window stays open behind the watermark.
        max_ahead_ms: how far an event time may lie beyond the clock.
        quorum: the conditions under which the watermark moves.
        partitioner: recomputes an item's partition; None: unknown, or records are not partitioned by item.
        fingerprint: fingerprint of the set of sketches.
        unkeyed: whether the input is not partitioned by item, so that no item can be misplaced.
    """

    sketches: tuple[SketchPlan, ...]
    key: Key | None = field(default=None, repr=False)
    lateness_ms: int = 600_000
    max_ahead_ms: int = 600_000
    quorum: Quorum = DEFAULT
    partitioner: Partitioner | None = None
    fingerprint: bytes = b""
    unkeyed: bool = False
