"""Rows of sums (law 11) where kinds differ most: samples, long batches, large sums, residues, groups with counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sketchstream as ss

KEY = ss.Key(bytes(range(16)))
N = 20_000
"""Rows: several blocks of the compiled loops, and their pipeline."""


def same_by_rows(spec: Any, items: Any, sums: Any, events: Any, *, take: Any = None) -> Any:
    """A sketch that counted rows, compared with one that counted an event at a time from the same noise."""
    made = ss.Sketch.create(spec, KEY if spec.needs_key else None)
    rows, ones = (ss.Sketch.from_bytes(made.to_bytes(), made.key) for _ in range(2))
    rows.update_sums(items, sums, events, invalid="noop")
    whole, rest = np.divmod(sums, np.maximum(events, 1))
    for turn in range(int(events.max())):
        chosen = np.flatnonzero(events > turn)
        ones.update(take(items, chosen), (whole + (turn < rest))[chosen], invalid="noop")
    assert (rows._state == ones._state).all()
    assert (rows._state != made._state).any()
    assert rows._content.counters.values.tolist() == ones._content.counters.values.tolist()
    return made, rows


def chosen_of(items: Any, chosen: Any) -> Any:
    return items[chosen]


def draws(most: int) -> tuple[Any, Any, Any]:
    """(N,) items, sums of weights of at most `most`, and numbers of events, the same in every run."""
    mixed = (np.arange(N, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    events = (mixed % np.uint64(5)).astype(np.int64)
    sums = ((mixed >> np.uint64(5)) % np.uint64(2 * most + 1)).astype(np.int64) - most
    return (mixed % np.uint64(70_001)).astype(np.int64), sums * events, events


@pytest.mark.parametrize(
    "domain",
    [ss.OpenDomain(1 << 13, 3), ss.ClosedDomain(size=60_000), ss.ClosedDomain(size=60_000, sample_rate="1/4")],
)
def test_long_batches_of_rows_count_as_their_events(domain: Any) -> None:
    items, sums, events = draws(1000)
    spec = ss.ProfileSpec("1", domain=domain, max_weight=1000, max_count=2000)
    assert spec.counted
    same_by_rows(spec, items, sums, events, take=chosen_of)


@pytest.mark.parametrize("text", [False, True])
def test_residues_take_sums_of_any_size(text: bool) -> None:
    items, sums, events = draws(1 << 38)
    named: Any = np.char.mod("%d", items).astype(object) if text else items
    spec = ss.ProfileSpec("1", "item", ss.OpenDomain(1 << 12, 2), modulus=101)
    same_by_rows(spec, named, sums, events, take=chosen_of)


@pytest.mark.parametrize("ranked", [False, True])
def test_each_group_counts_the_events_of_its_rows(ranked: bool) -> None:
    items, sums, events = draws(3)
    names = np.array(["a", "b", "elsewhere"], object)[items % 3]
    if ranked:
        groups, fields = ss.Groups(["a", "b"], True, max_groups=1, limit="ranked"), {"unit": "item", "modulus": 16}
    else:
        groups, fields = ss.Groups(["a", "b"]), {"max_weight": 3, "counted": True, "total_share": "1/20"}
    spec = ss.ProfileSpec("1", domain=ss.OpenDomain(1 << 10, 2), groups=groups, **fields)  # type: ignore[arg-type]
    pairs = ss.Pairs(names, items)
    made, rows = same_by_rows(spec, pairs, sums, events, take=lambda given, chosen: given.take(chosen))
    moved = rows._content.counters.values - made._content.counters.values
    if not ranked:
        assert moved[2:].tolist() == [int(events[items % 3 == group].sum()) for group in range(2)]


def test_series_add_many_rows_and_few() -> None:
    for layout, few in (("time", 40), ("time", N), ("fourier", 40), ("fourier", N)):
        items, sums, events = (one[:few] for one in draws(2))
        items = items % 90 - 1
        spec = ss.ConvolutionSpec(
            "window:24",
            85,
            noise="gaussian",
            layout=layout,
            max_weight=2,
            epsilon="1",
            delta="1e-6",
            counted_share="1/9",
        )
        same_by_rows(spec, items, sums, events, take=chosen_of)


def test_large_sums_of_rows_wrap_in_the_type_of_the_counter() -> None:
    spec = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=8), max_weight=1 << 19, counted=True)
    made = ss.Sketch.create(spec)
    rows = ss.Sketch.from_bytes(made.to_bytes())
    many = 1 << 43  # of weight 1 << 19: near the largest int64
    rows.update_sums([3], [(1 << 62) - 5], [many])
    width = 8 * spec.dtype.itemsize
    moved = int(rows._state[3]) - int(made._state[3])  # type: ignore[index]
    assert (moved - ((1 << 62) - 5)) % (1 << width) == 0
    assert rows._content.counters.values.tolist() == [
        int(made._content.counters.values[0]) + (1 << 62) - 5,
        int(made._content.counters.values[1]) + many,
    ]
    with pytest.raises(ss.WeightError, match="position 0"):
        rows.update_sums([3], [1 << 62], [(1 << 43) - 1])


def test_presence_is_no_sum_and_says_why() -> None:
    groups = ss.Groups(["a", "b"])
    spec = ss.ProfileSpec("2", "item", ss.OpenDomain(64, 2), groups=groups, overlap=True, counts="presence")
    sketch = ss.Sketch.create(spec, KEY)
    before = sketch._state.copy()  # type: ignore[union-attr]
    with pytest.raises(ss.SpecError, match="fresh random residue"):
        sketch.update_sums([("a", "x")], [1], [1])
    assert (sketch._state == before).all()


def test_rows_are_refused_whole() -> None:
    sketch = ss.Sketch.create(ss.ProfileSpec("1", domain=ss.ClosedDomain(size=8), max_weight=3))
    before = sketch._state.copy()  # type: ignore[union-attr]
    for sums, events in ([1], [1, 1]), ([1, 1], [1]), (None, [1, 1]), ([1, 1], None), ([1, 1 << 63], [1, 1]):
        with pytest.raises(ss.WeightError):
            sketch.update_sums([1, 2], sums, events)
    with pytest.raises(ss.ItemError, match="noop"):
        sketch.update_sums([1], [1], [1], invalid="skip")  # type: ignore[arg-type]
    assert (sketch._state == before).all()
