"""Crowded sketches of groups: full ones are refused, and levels that wrapped counts hide are not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.errors import EstimateError
from sketchstream.items.arrays import Items
from sketchstream.kinds.profile.groups import Grouped
from sketchstream.kinds.profile.overlap.channel import Channel
from sketchstream.kinds.profile.overlap.fit import has_empty_slots, trusted_levels
from sketchstream.kinds.profile.overlap.law import Patterns
from sketchstream.kinds.profile.overlap.wraps import CountLaw, Wraps

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
NAMES = ("a", "b", "c")
KINDS: dict[str, dict[str, Any]] = {
    "presence": {"counts": "presence"},
    "modulus 8": {"modulus": 8, "epsilon_publish": "1"},
    "modulus 16": {"modulus": 16, "epsilon_publish": "1"},
    "without histograms": {"modulus": 16, "histograms": False},
}
GEOMETRIC = np.array([0.2 * 0.8**7, *0.2 * 0.8 ** np.arange(7.0)])


def sealed(slots: int, levels: int, kind: str, sets: list[np.ndarray[Any, Any]], mean: float, seed: int) -> Any:
    """A sketch of three groups whose items come a geometric number of times."""
    spec = ss.ProfileSpec(
        "4", "item", ss.OpenDomain(slots, levels), groups=ss.Groups(list(NAMES)), overlap=True, epsilon_overlap="1",
        **KINDS[kind],
    )  # fmt: skip
    sketch, rng = ss.Sketch.create(spec, ss.Key.generate()), np.random.default_rng(seed)
    for at, ids in enumerate(sets):
        counts = None if kind == "presence" else rng.geometric(1 / mean, len(ids))
        sketch.update(Grouped(np.full(len(ids), at, np.int32), Items.of(ids)), counts)
    return sketch.seal()


@pytest.mark.statistics
@pytest.mark.parametrize("kind", KINDS)
def test_full_sketches_are_refused_whatever_the_noise_says(kind: str) -> None:
    for run in range(12):
        for slots, levels, load in ((256, 1, 30), (2048, 1, 10), (1024, 4, 100)):
            items = np.arange(load * slots)
            sets = [items] * 3 if run % 2 else list(np.split(items[: len(items) // 3 * 3], 3))
            if run % 2 or load >= 30:
                with pytest.raises(EstimateError, match=r"use more slots or levels"):
                    sealed(slots, levels, kind, sets, 2.0, run).overlap()


@pytest.mark.statistics
@pytest.mark.parametrize(("modulus", "most"), [(8, 3), (32, 3), (16, 6)])
def test_answers_hold_where_counts_end_at_a_cap(modulus: int, most: int) -> None:
    """Counts of 1 to `most` alike: a tail continued from them took one item in `modulus` for wrapped."""
    rng, held, off = np.random.default_rng(8), [], []
    spec = ss.ProfileSpec(
        "10", "item", ss.OpenDomain(2048, 2), epsilon_publish="10", modulus=modulus, groups=ss.Groups(["a", "b"]),
        overlap=True,
    )  # fmt: skip
    for _ in range(30):
        sketch, member = ss.Sketch.create(spec, ss.Key.generate()), rng.random((500, 2)) < 0.4
        for at in range(2):
            ids = np.flatnonzero(member[:, at])
            sketch.update(Grouped(np.full(len(ids), at, np.int32), Items.of(ids)), rng.integers(1, most + 1, len(ids)))
        found = sketch.seal().overlap()
        for query, true in (("a", member[:, 0].sum()), ("a & b", member.all(axis=1).sum())):
            row = found.query(query)
            held.append(row.low <= true <= row.high)
            off.append((row.value - true) / true)
    assert np.mean(held) > 0.8
    assert abs(np.mean(off)) < 0.04


@pytest.mark.statistics
def test_intervals_hold_where_counts_wrap_in_crowded_levels() -> None:
    """Means of 5 at modulus 8: without the rule, "a" and "a & b" were covered in 0 to 3 of 100 sketches."""
    held = []
    for run in range(15):
        for items, shift in ((150_000, 1.0), (30_000, 0.0)):
            third = items // 3 if shift else items
            sets = [np.arange(third) + int(at * shift * third) for at in range(3)]
            found = sealed(2**14, 6, "modulus 8", sets, 5.0, run).overlap()
            both = 0 if shift else third
            for query, true in (("a", third), ("a & b", both), ("a - b", third - both)):
                row = found.query(query)
                held.append(row.low <= true <= row.high)
    assert np.mean(held) > 0.85


@pytest.mark.parametrize(("load", "few", "many"), [(0.02, True, True), (0.4, True, False), (6.0, False, False)])
def test_levels_are_used_where_wrapped_counts_hide_less_than_the_noise(load: float, few: bool, many: bool) -> None:
    channel = Channel.of_layers([4.0], 8)
    law = CountLaw(GEOMETRIC / GEOMETRIC.sum(), 0.0)
    for slots, wanted in ((2e3, few), (1e6, many)):
        table = Patterns(np.zeros((1, 4)), np.ones(1), slots, 8.0, channel, is_open=True, wrapped=1 / 8)
        known = Patterns(
            np.zeros((1, 4)), np.ones(1), slots, 8.0, channel, is_open=True, wrapped=1 / 8, wraps=Wraps.of([law] * 2, 8)
        )
        loads = np.full((2, 1), load)
        assert trusted_levels(known, loads).all() == wanted
        assert trusted_levels(table, loads).all() <= wanted  # a law that nothing tells may hide more
        assert trusted_levels(Patterns(np.zeros((1, 4)), np.ones(1), slots, 8.0, channel, is_open=True), loads).all()


def test_wrapped_sums_that_hide_are_bounded_alike_for_large_moduli() -> None:
    loads = np.array([0.1, 1.0, 5.0])
    for modulus in (64, 65):
        law = 0.8 ** np.arange(modulus, dtype=float)
        hidden = Wraps.of([CountLaw(law / law.sum(), 0.0)], modulus).hidden(0, loads)
        crowded = 1 - np.exp(-loads) * (1 + loads)
        assert (hidden >= 0).all()
        assert (hidden <= crowded * (0.1 + 1.1 / modulus) / 4).all()


def test_a_group_has_empty_slots_only_beyond_what_noise_makes() -> None:
    channel = Channel.of_presence([4.0], 56)
    for share, wanted in ((0.0, False), (0.005, False), (0.2, True)):
        full = 1000 * (channel.full - (channel.full - channel.empty) * share)
        table = Patterns(np.array([[1000 - full, full]]), np.ones(1), 1000.0, 8.0, channel, is_open=True)
        assert has_empty_slots(table, 0) == wanted
