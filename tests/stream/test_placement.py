"""Partitions recomputed: equal to what the producers' partitioners say."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.items import Items
from sketchstream.spec import ClosedDomain
from sketchstream.stream.placement import Partitioner, belongs, kept


def reference(key: bytes, way: str, count: int) -> int:
    if way == "crc32":
        return zlib.crc32(key) % count
    from kafka.partitioner.default import murmur2

    return int(murmur2(key) & 0x7FFFFFFF) % count


@pytest.mark.parametrize("way", ["murmur2", "crc32"])
@given(keys=st.lists(st.binary(max_size=40), min_size=1, max_size=20), count=st.integers(1, 70))
def test_bytes_go_where_the_client_sends_them(way: Partitioner, keys: list[bytes], count: int) -> None:
    for partition in {reference(keys[0], way, count), 0, count - 1}:
        found = belongs(Items.of(keys), way, [count], partition)
        assert found.tolist() == [reference(key, way, count) == partition for key in keys]


@pytest.mark.parametrize("way", ["murmur2", "crc32"])
@given(ints=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20), count=st.integers(1, 70))
def test_ints_go_where_their_decimal_digits_go(way: Partitioner, ints: list[int], count: int) -> None:
    partition = reference(str(ints[0]).encode(), way, count)
    found = belongs(Items.of(ints), way, [count], partition)
    assert found.tolist() == [reference(str(item).encode(), way, count) == partition for item in ints]


def test_any_of_several_partition_counts_is_enough() -> None:
    keys = [b"k%d" % i for i in range(200)]
    found = belongs(Items.of(keys), "murmur2", [4, 6], 3)
    assert found.tolist() == [3 in (reference(key, "murmur2", 4), reference(key, "murmur2", 6)) for key in keys]


@pytest.mark.parametrize("domain", [ClosedDomain(size=100), ClosedDomain(items=["a", b"a", 5, "5", -1, "é"])])
def test_partitions_of_a_closed_domain_are_disjoint_and_cover_it(domain: ClosedDomain) -> None:
    masks = [kept(domain, "murmur2", 4, partition) for partition in range(4)]
    assert sum(mask.astype(int) for mask in masks).tolist() == [1] * (domain.size or 0)  # type: ignore[union-attr]
