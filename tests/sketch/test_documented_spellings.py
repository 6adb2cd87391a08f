"""The spellings of the Python interface that scripts of users rely on, each called as they call it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sketchstream as ss

CLOSED = ss.ClosedDomain(size=100_000)


def test_the_life_of_a_profile(tmp_path: Path) -> None:
    key = ss.Key.generate()
    key.save(tmp_path / "k")
    assert ss.Key.load(tmp_path / "k").id == key.id
    spec = ss.ProfileSpec(epsilon="1", unit="event", domain=CLOSED, max_count=300)
    sketch = ss.Sketch.create(spec, key)
    for items in (np.arange(1000), [1, 2, 3], pa.array([1, 2, 3])):
        sketch.update(items)
    sketch.update(np.arange(5), weights=np.ones(5, np.int64))
    sketch = ss.Sketch.from_bytes(sketch.to_bytes(), key)
    sketch.release(epsilon="0.1")
    assert (sketch.ledger.loss(), str(sketch.ledger.loss(intrusion=True))) == (1, "11/10")
    release = sketch.seal()
    assert release.form == "cumulative"
    assert release.edges.shape == release.values.shape
    release.save(tmp_path / "r.sealed")
    assert ss.load(tmp_path / "r.sealed").to_bytes() == release.to_bytes()
    assert release.guarantee().unit == "event"
    profile = release.profile(method="likelihood", max_count=300)
    assert profile.fractions.shape == profile.counts.shape == (301,)
    assert profile.fractions.sum() + profile.above.value == pytest.approx(1)
    numbers = [profile.distinct, profile.total, profile.mean, profile.entropy, profile.one_hit_ratio, profile.coverage,
               profile.at_least(3), profile.quantile(0.9), profile.above]  # fmt: skip
    assert all(number.low <= number.value <= number.high for number in numbers)
    profile.plot(tmp_path / "p.png")
    for method in ("circulant", "inverse", "monotone"):
        release.profile(method=method)
    for norm in (1, 2, math.inf):
        release.profile(method="circulant", norm=norm)


def test_intervals_are_asked_by_name_or_of_all_numbers() -> None:
    profile = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=CLOSED, max_count=5)).seal().profile()
    for level in (0.5, 0.99):
        named = profile.number("distinct", level)
        assert profile.interval("distinct", level=level) == profile.interval("distinct", level) == named
        for name in ("fractions", "counts"):
            ends = profile.interval(name, level=level)
            assert ends.shape == (6, 2)
            assert np.array_equal(ends, profile.number(name, level))
        assert np.array_equal(profile.interval(level), profile.interval(level=level))
    assert profile.interval("distinct") == profile.distinct
    assert np.array_equal(profile.interval(), profile.interval(0.95))


def test_sites_are_merged_and_partitions_stacked() -> None:
    item = ss.ProfileSpec(
        epsilon="1/2", unit="item", modulus=32, domain=ss.OpenDomain(slots=2**20, levels=8), epsilon_publish="1/2"
    )
    assert item.max_count == 31
    domain = ss.OpenDomain(slots=2**12, levels=8)
    site = ss.ProfileSpec(epsilon="1", domain=domain, publish="state", intrusion=False)
    key, states = ss.Key.generate(), []
    for batch in (["a", "b"], (b"abc", np.array([0, 1, 3]))):
        sketch = ss.Sketch.create(site, key)
        sketch.update(batch)
        states.append(sketch.seal())
    assert math.isfinite(ss.merge(states).profile().distinct.value)
    merged = ss.merge([ss.Sketch.create(site, key), ss.Sketch.create(site, key)])
    merged.update(["a"])
    parts = [ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=CLOSED)).seal() for _ in range(2)]
    assert ss.stack(parts).profile().distinct.low >= 0


def test_other_kinds_are_specified_by_the_order_of_their_parameters() -> None:
    domain = ss.ClosedDomain(size=100)
    counts = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", "event", domain, max_weight=1, fraction_bits=0), key=None)
    assert counts.ledger.epsilon("1e-6") <= 1
    assert ss.GaussianSpec("1", "1e-6", "item", max_total=3, max_per_slot=2, domain=domain).max_total == 3
    rows = ss.ProjectionSpec(ss.ClosedDomain(size=10), domain, 16, "1", "1e-6", "item", max_norm=3, max_features=9)
    assert rows.max_features == 9
    queries = ss.WorkloadSpec("prefix:16", "1", "1e-6", "auto", unit="event", max_weight=1, objective="total")
    assert queries.length >= 1
    series = ss.ConvolutionSpec("sum", 64, group="cyclic", mode="linear", epsilon="1", delta="1e-6", floor="1/64")
    assert series.length == 64


def test_a_row_is_at_distance_zero_from_itself() -> None:
    spec = ss.ProjectionSpec(ss.ClosedDomain(size=10), ss.ClosedDomain(size=100), 16, "1", "1e-6")
    sketch = ss.Sketch.create(spec)
    sketch.update(ss.Pairs([1, 2], [3, 4]))
    same = sketch.seal().estimate().distance([1, 2, 1], [1, 2, 2])
    for numbers in (same.value, same.stderr, same.low, same.high):
        assert [str(number) for number in numbers[:2]] == ["0.0", "0.0"], "not -0, and not nan"
    assert same.stderr[2] > 0
