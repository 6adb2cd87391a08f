"""What the worker decides about its partitions, without doing any of it: what is due, what fits, what an error means.

In: slots, settings, a time, errors. Out: decisions. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sketchstream.errors import DataLossError, SketchstreamError
from sketchstream.stream.assigned_partition import Settings, Slot
from sketchstream.stream.interfaces import Chunk
from sketchstream.stream.sketch_state import Rules
from sketchstream.stream.windows import LATEST_MS, iso

MAX_OUTBOX_BYTES = 64 << 20
"""Sealed bytes of one partition that wait for publication before it is paused."""
STRANGE_ERRORS, STRANGE_S = 5, 60.0
"""Errors of an unknown kind in a row after which a partition halts, and the seconds that they must go on for.

What a client raises while a broker comes back is not always an error of its own tree; that passes."""
LEAST_COPIES = 32 << 20
"""Bytes of captured snapshots that may always wait for their commit; beyond, a sixteenth of the states' own memory."""

MAX_REFUSED_BYTES = 16 << 20
"""Bytes of refused records of one partition that wait for their topic before it is paused and committed."""
UNCONFIRMED = 10
"""Future records in one chunk at which a clock that nothing confirms is doubted; fewer may have wrong clocks."""

Due = Literal["nothing", "snapshot", "save", "rewrite"]
"""`snapshot`: the partition only moved on, so it can wait; `save`: something waits for its commit."""


def due(slot: Slot, now: float, settings: Settings) -> Due:
    """What a running partition without a job should do now."""
    state = slot.state
    assert state is not None
    if slot.rewrite_at is not None and now >= slot.rewrite_at:
        return "rewrite"
    if slot.refused_bytes > MAX_REFUSED_BYTES:
        return "save"
    waited = now - slot.saved_at
    publish = state.to_publish and waited >= settings.publish_every_s and now >= slot.publish_at
    if publish:
        return "save"
    return "snapshot" if state.changed() and waited >= settings.snapshot_every_s else "nothing"


def takes_again(slot: Slot, now: float, polls: int, *, member: bool) -> bool:
    """Whether a dropped partition may be taken.

    Args:
        slot: the partition.
        now: seconds.
        polls: how many there were.
        member: the group has answered since the drop that we are one of its members. A zombie that took a partition
            would fence its present owner.
    """
    return slot.state is None and polls > slot.dropped_at and now >= slot.retry_at and member


def full(slot: Slot) -> bool:
    """Whether so much waits for publication, or for the topics of refused records, that nothing more is read."""
    outbox = 0 if slot.state is None else slot.state.outbox_bytes
    return outbox > MAX_OUTBOX_BYTES or slot.refused_bytes > MAX_REFUSED_BYTES


def flows(slot: Slot) -> bool:
    """Whether a partition that was slowed down may be read again."""
    return slot.tokens >= 0 and not full(slot)


def fits(slot: Slot, slots: Collection[Slot]) -> bool:
    """Whether one more captured snapshot stays small beside the states; one may always wait for its commit."""
    flying = sum(one.job_bytes for one in slots if one.job is not None and one.job_kind == "commit")
    if not flying or slot.state is None:
        return True
    states = sum(one.state.state_bytes for one in slots if one.state is not None)
    return flying + slot.state.dirty_bytes <= max(LEAST_COPIES, states // 16)


def check_clock(chunk: Chunk, clock_ms: int, rules: Rules) -> None:
    """Refuse to judge by a clock that nothing confirms, and that would refuse most of a chunk as future.

    Raises:
        DataLossError: the worker's clock is slow, or most producers' clocks are fast.
    """
    times = chunk.decoded.times
    future = int(np.count_nonzero((times > clock_ms + rules.max_ahead_ms) & (times < LATEST_MS)))
    if future >= UNCONFIRMED and 2 * future > times.size:
        msg = (
            f"partition {chunk.partition}: clock: most of the records from position {chunk.from_position} on lie more "
            f"than input.max_ahead beyond this worker's clock, {iso(clock_ms)}, and the brokers' time is not known "
            "yet; set the clock right, or input.max_ahead if the records are"
        )
        raise DataLossError(msg)


@dataclass(frozen=True)
class Verdict:
    """What an error means for its partition.

    Args:
        halts: it is not tried again.
        text: why; never the text of an error that is not ours, which may hold data.
        strange: errors of an unknown kind in a row, this one included.
        since: when the first of those came, seconds.
    """

    halts: bool
    text: str
    strange: int = 0
    since: float = 0.0


def verdict(slot: Slot, error: BaseException, now: float) -> Verdict:
    """Judge an error of a partition."""
    if isinstance(error, DataLossError):
        return Verdict(True, str(error))
    if isinstance(error, SketchstreamError):
        return Verdict(False, str(error))
    strange, text = slot.strange + 1, type(error).__name__
    since = slot.strange_since if slot.strange else now
    if strange < STRANGE_ERRORS or now - since < STRANGE_S:
        return Verdict(False, text, strange, since)
    return Verdict(True, f"partition {slot.partition}: {text}, {strange} times in a row", strange, since)


def pause_s(failures: int) -> float:
    """How long a partition waits after so many failures in a row, seconds."""
    return float(min(5.0, 0.1 * 2 ** min(failures - 1, 6)))
