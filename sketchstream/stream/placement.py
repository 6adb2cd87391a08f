"""Which partition an item belongs to, recomputed as the producer's partitioner computes it.

In: items, partition counts, a partition. Out: a mask of the items that belong there. Touches: nothing.
Source: Apache Kafka's default partitioner (murmur2, sign bit cleared, modulo), librdkafka's `consistent` (CRC-32).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sketchstream.items import Ints, Items
from sketchstream.spec import ClosedDomain

Partitioner = Literal["murmur2", "crc32"]
Mask = npt.NDArray[np.bool_]


@lru_cache(maxsize=1)
def _crc_table() -> npt.NDArray[np.uint64]:
    """The table of CRC-32 with the reflected polynomial 0xEDB88320."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    return table.astype(np.uint64)


def belongs(items: Items, partitioner: Partitioner, counts: Sequence[int], partition: int) -> Mask:
    """(n,) bool: whether the partitioner sends each item to `partition` under one of these partition counts.

    Args:
        items: n items; the record's key is their UTF-8 text, their bytes, or their decimal digits.
        partitioner: "murmur2" or "crc32".
        counts: partition counts, each at least 1.
        partition: 0 <= partition.
    """
    from sketchstream.stream import kernels

    out = np.zeros(len(items), np.bool_)
    table = _crc_table() if partitioner == "crc32" else np.zeros(0, np.uint64)
    valid = np.array(sorted(set(counts)), np.uint64)
    whole = items.whole()
    if isinstance(whole, Ints):
        kernels.belongs_ints(whole.values, table, valid, partition, out)
    else:
        kernels.belongs_spans(whole.buffer, whole.starts, whole.ends, table, valid, partition, out)
    return out


def kept(domain: ClosedDomain, partitioner: Partitioner, count: int, partition: int) -> Mask:
    """(size,) bool: the items of a closed domain that have a slot in this partition's sketch.

    A public function of the list of items and the partition count. Where it keeps nothing, there is no sketch.
    """
    if domain.items is None:
        return belongs(Items.of(np.arange(domain.size or 0, dtype=np.int64)), partitioner, [count], partition)
    out = np.zeros(len(domain.items), np.bool_)
    for kind in (int, str, bytes):
        here = [at for at, item in enumerate(domain.items) if type(item) is kind]
        if here:
            out[here] = belongs(Items.of([domain.items[at] for at in here]), partitioner, [count], partition)
    return out
