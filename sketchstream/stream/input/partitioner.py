"""Computes the partition of an item in the same way as the producer's partitioner.

In: items, partition counts, a partition. Out: a mask of the items that belong there. Touches: nothing.
Source: Apache Kafka's default partitioner (murmur2, sign bit cleared, modulo); librdkafka's `rdkafka_partitioner.c`
(`consistent`: CRC-32, modulo; `murmur2`; `fnv1a`: absolute value, modulo, as Sarama's hash partitioner).

A `_random` variant differs only in records without a key, which it distributes at random; such records have no item in
their key. librdkafka's default, `consistent_random`, also distributes records with an *empty* key at random, so the
empty item belongs to no partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags
from sketchstream.items.arrays import Items
from sketchstream.spec import ClosedDomain

Partitioner = Literal["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random"]

PARTITIONERS: Final[tuple[Partitioner, ...]] = get_args(Partitioner)
FORMER: Final[Mapping[str, Partitioner]] = {"crc32": "consistent"}
"""Names of earlier releases, still read."""
HASHES: Final[Mapping[Partitioner, int]] = {
    "murmur2": 0,
    "murmur2_random": 0,
    "consistent": 1,
    "consistent_random": 1,
    "fnv1a": 2,
    "fnv1a_random": 2,
}
"""The hash function of each partitioner: MURMUR2, CRC32 or FNV1A of `stream.kernels`."""
SPREADS_EMPTY: Final[frozenset[Partitioner]] = frozenset({"consistent_random"})
"""Partitioners that send empty keys anywhere."""


@lru_cache(maxsize=1)
def _crc_table() -> npt.NDArray[np.uint64]:
    """The table of CRC-32 with the reflected polynomial 0xEDB88320."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    return table.astype(np.uint64)


def belongs(items: Items, partitioner: Partitioner, counts: Sequence[int], partition: int) -> Flags:
    """(n,) bool: whether the partitioner sends each item to `partition` under one of these partition counts.

    Args:
        items: n items; the record's key is their UTF-8 text, their bytes, or their decimal digits.
        partitioner: one of `PARTITIONERS`.
        counts: partition counts, each at least 1.
        partition: 0 <= partition.
    """
    from sketchstream.stream import kernels

    out = np.zeros(len(items), np.bool_)
    way = HASHES[partitioner]
    table = _crc_table()
    valid = np.array(sorted(set(counts)), np.uint64)
    arrays = items.whole().arrays
    test: Callable[..., None] = kernels.belongs_ints if items.type_name == "int" else kernels.belongs_spans
    test(*arrays, way, table, valid, partition, out)
    if items.type_name != "int" and partitioner in SPREADS_EMPTY:
        _, starts, ends = arrays
        out &= ends > starts
    return out


def public_hashes(items: Items) -> npt.NDArray[np.uint64]:
    """(n,) uint64: a public hash of each item that is independent of every partitioner's."""
    from sketchstream.stream import kernels

    out = np.empty(len(items), np.uint64)
    hash_all: Callable[..., None] = kernels.spread_ints if items.type_name == "int" else kernels.spread_spans
    hash_all(*items.whole().arrays, out)
    return out


def items_kept(domain: ClosedDomain, partitioner: Partitioner, counts: int | Sequence[int], partition: int) -> Flags:
    """(size,) bool: the items of a closed domain that have a slot in this partition's sketch.

    A public function of the list of items and the partition counts. If it keeps nothing, there is no sketch.
    """
    counts = [counts] if isinstance(counts, int) else counts
    if domain.items is None:
        return belongs(Items.of(np.arange(domain.size or 0, dtype=np.int64)), partitioner, counts, partition)
    out = np.zeros(len(domain.items), np.bool_)
    for kind in (int, str, bytes):
        here = [at for at, item in enumerate(domain.items) if type(item) is kind]
        if here:
            out[here] = belongs(Items.of([domain.items[at] for at in here]), partitioner, counts, partition)
    return out
