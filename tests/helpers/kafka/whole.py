"""Record batches and records in one piece, for tests that compare pieces with it.

In: batches as bytes, pieces of records. Out: `Records`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sketchstream.array_types import Ints
from sketchstream_connectors.decode.records import Records, no_records, read_only
from sketchstream_connectors.kafka.fetch.compression import Buffer
from sketchstream_connectors.kafka.fetch.record_batch import read_batches


def parse_batches(
    data: Buffer,
    from_position: int,
    *,
    check_crc: bool = True,
    aborted: Iterable[tuple[int, int]] | None = None,
) -> Records:
    """All records of whole batches in `data`, in one piece; see `read_batches`."""
    parts = list(read_batches(data, from_position, check_crc=check_crc, aborted=aborted, chunk_bytes=None))
    return join(parts) if parts else no_records(from_position, from_position)


def join(parts: Sequence[Records]) -> Records:
    """Consecutive records of one partition as one; `parts` has at least one."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0] + [p.buffer.size for p in parts[:-1]])

    def moved(name: str) -> Ints:
        """One column of bounds, counted from the joined buffer's start."""
        columns = [np.asarray(getattr(p, name)) for p in parts]
        return np.concatenate([np.where(c < 0, -1, c + s) for c, s in zip(columns, shifts, strict=True)])

    return Records(
        offsets=np.concatenate([p.offsets for p in parts]),
        timestamps=np.concatenate([p.timestamps for p in parts]),
        buffer=read_only(np.concatenate([p.buffer for p in parts])),
        key_start=moved("key_start"),
        key_end=moved("key_end"),
        value_start=moved("value_start"),
        value_end=moved("value_end"),
        from_position=parts[0].from_position,
        next_position=parts[-1].next_position,
        leader_epoch=parts[-1].leader_epoch,
        framed=all(p.framed for p in parts),
    )
