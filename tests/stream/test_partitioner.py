"""Partitions recomputed: equal to what the producers' partitioners say."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.items.arrays import Items
from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partitioner import PARTITIONERS, Partitioner, belongs, items_kept


def reference(key: bytes, way: str, count: int) -> int:
    """Partition of a key that is not empty, as the clients' sources say."""
    if way.startswith("consistent"):
        return zlib.crc32(key) % count
    if way.startswith("fnv1a"):
        hashed = 0x811C9DC5
        for byte in key:
            hashed = (hashed ^ byte) * 0x01000193 % 2**32
        return abs(hashed - 2**32 if hashed >= 2**31 else hashed) % count
    from kafka.partitioner.default import murmur2

    return int(murmur2(key) & 0x7FFFFFFF) % count


@pytest.mark.parametrize("way", PARTITIONERS)
@given(keys=st.lists(st.binary(max_size=40), min_size=1, max_size=20), count=st.integers(1, 70))
def test_bytes_go_where_the_client_sends_them(way: Partitioner, keys: list[bytes], count: int) -> None:
    for partition in {reference(keys[0], way, count), 0, count - 1}:
        found = belongs(Items.of(keys), way, [count], partition)
        nowhere = b"" if way == "consistent_random" else None
        assert found.tolist() == [key != nowhere and reference(key, way, count) == partition for key in keys]


@pytest.mark.parametrize("way", PARTITIONERS)
@given(ints=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20), count=st.integers(1, 70))
def test_ints_go_where_their_decimal_digits_go(way: Partitioner, ints: list[int], count: int) -> None:
    partition = reference(str(ints[0]).encode(), way, count)
    found = belongs(Items.of(ints), way, [count], partition)
    assert found.tolist() == [reference(str(item).encode(), way, count) == partition for item in ints]


def test_hashes_are_those_of_the_clients() -> None:
    # FNV-1a vectors of the algorithm's authors; -0x1B6A3FA4 is that of "foobar" taken absolutely, as librdkafka does
    assert reference(b"a", "fnv1a", 2**31) == 2**32 - 0xE40C292C
    assert reference(b"foobar", "fnv1a", 2**31) == 2**32 - 0xBF9CF968
    for key in (b"a", b"foobar", b"kafka"):
        places = [p for p in range(97) if belongs(Items.of([key]), "fnv1a", [97], p)[0]]
        assert places == [reference(key, "fnv1a", 97)]


def test_librdkafkas_default_sends_the_empty_key_anywhere_so_it_counts_nowhere() -> None:
    for way in PARTITIONERS:
        here = [bool(belongs(Items.of([b""]), way, [3], p)[0]) for p in range(3)]
        assert sum(here) == (0 if way == "consistent_random" else 1), way


def test_any_of_several_partition_counts_is_enough() -> None:
    keys = [b"k%d" % i for i in range(200)]
    found = belongs(Items.of(keys), "murmur2", [4, 6], 3)
    assert found.tolist() == [3 in (reference(key, "murmur2", 4), reference(key, "murmur2", 6)) for key in keys]


@pytest.mark.parametrize("domain", [ClosedDomain(size=100), ClosedDomain(items=["a", b"a", 5, "5", -1, "é"])])
def test_partitions_of_a_closed_domain_are_disjoint_and_cover_it(domain: ClosedDomain) -> None:
    masks = [items_kept(domain, "murmur2", 4, partition) for partition in range(4)]
    assert sum(mask.astype(int) for mask in masks).tolist() == [1] * (domain.size or 0)  # type: ignore[union-attr]
