"""The ranking of groups by a keyed hash: a permutation, uniform in every place, and nearly so in pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sketchstream import kernels
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile.ranking import Ranking, smallest_prime
from sketchstream.spec import OpenDomain


def counted(hashes: np.ndarray, groups: int, most: int) -> np.ndarray:
    """(groups, n) whether each item counts in each group."""
    out = []
    for group in range(groups):
        codes = np.full(hashes.size, group, np.int32)
        kept = np.empty(hashes.size, np.int32)
        kernels.first_groups(hashes, codes, most, groups, smallest_prime(groups), kept)
        assert set(np.unique(kept)) <= {-1, group}
        out.append(kept == group)
    return np.array(out)


def exact(groups: int, most: int) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Inclusion probabilities of groups and of pairs, by every permutation that the definition has."""
    prime = smallest_prime(groups)
    single, pairs, number = np.zeros(groups), dict.fromkeys(itertools.combinations(range(groups), 2), 0), 0
    for factor, shift in itertools.product(range(1, prime), range(prime)):
        walked = []
        for group in range(groups):
            place = (factor * group + shift) % prime
            while place >= groups:
                place = (factor * place + shift) % prime
            walked.append(place)
        assert sorted(walked) == list(range(groups)), "a permutation"
        for turn in range(groups):
            inside = [group for group in range(groups) if (walked[group] + turn) % groups < most]
            assert len(inside) == most
            number += 1
            single[inside] += 1
            for pair in itertools.combinations(inside, 2):
                pairs[pair] += 1
    return list(single / number), {pair: times / number for pair, times in pairs.items()}


@pytest.mark.parametrize("groups", [2, 3, 4, 6, 8, 9, 10, 14, 24])
def test_every_group_has_the_same_probability_exactly_and_every_pair_nearly(groups: int) -> None:
    for most in {1, 2, groups // 2, groups - 1} - {groups}:
        if not 1 <= most < groups:
            continue
        single, pairs = exact(groups, most)
        assert single == pytest.approx([most / groups] * groups, rel=1e-12)
        uniform = most * (most - 1) / (groups * (groups - 1))
        share = most / groups
        # of two groups' samples, in correlation: -1 / (groups - 1) if all rankings were equally probable
        off = max(abs(found - uniform) for found in pairs.values()) / (share * (1 - share))
        assert off <= 0.12
        if smallest_prime(groups) == groups:
            assert off < 1e-12, "pairs are exactly uniform for a prime number of groups"


@pytest.mark.parametrize(("groups", "most"), [(2, 1), (5, 2), (9, 2), (24, 5), (1000, 3), (10_000, 9_999)])
def test_an_item_counts_in_exactly_so_many_groups(groups: int, most: int) -> None:
    hashes = np.random.default_rng(1).integers(0, 2**63, 40, dtype=np.uint64) * np.uint64(2)
    hashes[:4] = [0, 2**64 - 1, 2**32 - 1, 2**63]
    assert (counted(hashes, groups, most).sum(axis=0) == most).all()


def test_groups_have_their_share_of_many_items() -> None:
    n, groups, most = 60_000, 9, 2
    hashes = np.random.default_rng(2).integers(0, 2**64, n, dtype=np.uint64)
    share = most / groups
    bound = 5 * np.sqrt(share * (1 - share) / n)
    inside = counted(hashes, groups, most)
    assert abs(inside.mean(axis=1) - share).max() < bound
    both = (inside.astype(float) @ inside.T.astype(float)) / n
    assert abs(both[~np.eye(groups, dtype=bool)] - 1 / 36).max() < 0.01


def test_the_ranking_follows_from_key_kind_and_item_alone() -> None:
    key, other = Key(bytes(range(16))), Key(bytes(16))
    groups = Groups([f"g{i}" for i in range(9)], max_groups=2, limit="ranked")

    def codes(key: Key, items: list[object], group: int) -> list[int]:
        batch = Items.of(items)
        found = []
        for _, piece in batch.pieces():
            hashes = np.empty(len(piece), np.uint64)
            given = np.full(len(piece), group, np.int32)
            found += Ranking.of(groups, key).first(piece, given, hashes).tolist()
        return found

    items = [f"u{i}" for i in range(300)]
    assert codes(key, items, 4) == codes(key, items[:150], 4) + codes(key, items[150:], 4)
    assert codes(key, items, 4) != codes(other, items, 4)
    assert codes(key, [one.encode() for one in items], 4) != codes(key, items, 4)
    assert key.ranking_key("str") != key.item_key("str")
    assert repr(Ranking.of(groups, key)) == "Ranking(groups=9, most=2)"
    assert codes(key, items, -1) == [-1] * 300


def test_a_place_in_the_ranking_says_nothing_about_the_slot() -> None:
    key = Key(bytes(range(16)))
    items = np.arange(40_000)
    slots = Index.build(OpenDomain(8, 1), key).locate(Items.of(items))
    groups = Groups(["a", "b", "c", "d"], max_groups=1, limit="ranked")
    (_, piece), *_ = Items.of(items).pieces()
    hashes = np.empty(items.size, np.uint64)
    inside = Ranking.of(groups, key).first(piece, np.zeros(items.size, np.int32), hashes) == 0
    table = np.bincount(slots * 2 + inside, minlength=16).reshape(8, 2)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / items.size
    assert ((table - expected) ** 2 / expected).sum() < 24.3, "chi squared with 7 degrees, 99.9%"
