"""The counters beside the slots of a sketch: what they hold through its life, and which specs have which.

In: specs of large epsilon, whose noise is next to nothing. Out: verdicts. Touches: entropy.
"""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream import wire
from sketchstream.components import find_counter
from sketchstream.sketch import Sketch

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")

CLEAR = {"epsilon": "50", "total_share": "9/10"}
"""So little noise on the counters that they are exact but once in e^40."""
KEY = ss.Key(bytes(range(16)))


def value(published: Any, name: str) -> int | None:
    found = find_counter(published.counters, name)
    return None if found is None else found.value


def spec(**fields: Any) -> ss.ProfileSpec:
    return ss.ProfileSpec(**{"domain": ss.ClosedDomain(size=100), **CLEAR, **fields})


def test_the_total_is_the_sum_of_weights_and_counted_the_number_of_events() -> None:
    sketch = Sketch.create(spec(max_weight=2))
    sketch.update([1, 2, 99, 100], [2, -1, 2, 2], invalid="noop")
    sketch.update([5, 5], [1, 9], invalid="noop")
    sealed = sketch.seal()
    assert value(sealed, "counted") == 4
    assert value(sealed, "total") == 4
    assert value(sealed, "admitted") is None


def test_events_outside_a_sample_are_counted_and_weigh_nothing() -> None:
    sampled = spec(domain=ss.ClosedDomain(size=1000, sample_rate="1/4"))
    assert sampled.counted
    sketch = Sketch.create(sampled, KEY)
    sketch.update(np.arange(1000))
    kept = sketch.slots
    sealed = sketch.seal()
    assert value(sealed, "counted") == 1000
    assert value(sealed, "total") == kept < 500


@pytest.mark.parametrize("publish", ["histogram", "state"])
def test_counters_live_through_bytes_refresh_merge_stack_and_seal(publish: str) -> None:
    intrusion = None if publish == "histogram" else True
    this = spec(publish=publish, intrusion=intrusion, epsilon_records="50")
    parts = []
    for start in (0, 50):
        sketch = Sketch.create(this)
        sketch.update(np.arange(start, start + 30))
        sketch.admit(40)
        sketch = Sketch.from_bytes(sketch.to_bytes())
        sketch.refresh("50")
        sketch.update([start])
        assert value(sketch.release("50"), "total") == 31
        assert value(sketch.release("50"), "admitted") is None
        parts.append(sketch)
    sealed = [Sketch.from_bytes(part.to_bytes()).seal() for part in parts]
    again = [ss.load(one.to_bytes()) for one in sealed]
    assert [one.counters for one in again] == [one.counters for one in sealed]
    stacked = ss.load(ss.stack(again).to_bytes())
    assert (value(stacked, "total"), value(stacked, "admitted")) == (62, 80)
    assert len(find_counter(stacked.counters, "total").noise) == 6
    merged = ss.merge(parts)
    merged.update([3])
    merged.admit(1)
    total = merged.seal()
    assert (value(total, "total"), value(total, "admitted")) == (63, 81)
    if publish == "state":
        sums = ss.load(ss.merge(again).to_bytes())
        assert (value(sums, "total"), value(sums, "admitted")) == (62, 80)


def test_a_refused_batch_leaves_no_trace_in_the_counters() -> None:
    sketch = Sketch.create(spec())
    with pytest.raises(ss.DomainError):
        sketch.update([1, 2, 1000])
    with pytest.raises(ss.WeightError):
        sketch.update([1, 2, 3], [1, 1, 2])
    assert value(sketch.seal(), "total") == 0


def test_an_open_sketch_has_one_size_whatever_was_counted() -> None:
    sizes = set()
    for events in (0, 1, 1000, 10**6):
        sketch = Sketch.create(spec(epsilon_records="50"))
        sketch.update(np.zeros(events, np.int64))
        sketch.admit(events)
        sizes.add(len(sketch.to_bytes()))
    assert len(sizes) == 1


def test_a_closed_sketch_forgets_its_counters() -> None:
    sketch = Sketch.create(spec(epsilon_records="50"))
    sketch.update([1])
    sketch.admit(1)
    held = sketch._content.counters
    sketch.seal()
    assert not held.values.any()
    with pytest.raises(ss.SealedError):
        sketch.admit(1)
    for wrong in (-1, 1.5, True):
        with pytest.raises(ss.SpecError):
            Sketch.create(spec()).admit(wrong)


def test_a_stack_with_a_part_that_has_no_total_has_none() -> None:
    old = Sketch.create(spec(total_share=0))
    old.update([1])
    new = Sketch.create(spec(total_share="1/10", epsilon_records="1"))
    new.update([2])
    stacked = ss.stack([new.seal(), old.seal()])
    assert stacked.counters == ()
    assert stacked.profile(method="inverse").distinct.value == pytest.approx(2, abs=1e-6)


def test_states_with_other_counters_cannot_be_merged() -> None:
    states = [
        Sketch.create(spec(publish="state", intrusion=False, total_share=share)).seal() for share in ("1/2", "1/3")
    ]
    with pytest.raises(ss.MergeError, match="total_share"):
        ss.merge(states)


def test_specs_say_what_is_kept() -> None:
    domain = ss.ClosedDomain(size=10)
    plain = ss.ProfileSpec(epsilon=1, domain=domain)
    assert (plain.total_share, plain.counted, plain.epsilon_records) == (F(1, 40), False, 0)
    item = ss.ProfileSpec(epsilon=1, unit="item", modulus=16, domain=domain)
    assert (item.total_share, item.counted) == (0, False)
    assert ss.ProfileSpec(epsilon=1, unit="item", modulus=16, domain=domain, max_total=9).total_share == F(1, 40)
    assert ss.ProfileSpec(epsilon=1, domain=domain, max_weight=2).counted
    assert not ss.ProfileSpec(epsilon=1, domain=domain, max_weight=2, counted=False).counted
    assert not ss.ProfileSpec(epsilon=1, domain=domain, max_weight=2, total_share="0").counted
    for fields in ({}, {"counted": True}, {"total_share": "1/7"}, {"epsilon_records": "0.1"}, {"max_weight": 4}):
        made = ss.ProfileSpec(epsilon=1, domain=domain, **fields)
        assert ss.ProfileSpec.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"total_share": "1"}, "below 1"),
        ({"total_share": "-1"}, "positive"),
        ({"total_share": "x"}, "rational"),
        ({"counted": "yes"}, "True or False"),
        ({"counted": True, "total_share": 0}, "total_share above 0"),
        ({"max_total": 5}, "unit = 'item'"),
        ({"unit": "item", "modulus": 16, "total_share": "1/40"}, "max_total"),
        ({"unit": "item", "modulus": 16, "max_total": 5, "total_share": 0}, "total_share = 0"),
        ({"unit": "item", "modulus": 16, "max_total": 0}, "max_total"),
        ({"unit": "item", "modulus": 16, "max_total": 5, "counted": True}, "unit = 'event'"),
        ({"unit": "item", "modulus": 16, "epsilon_records": "1/10"}, "would show an item"),
        ({"epsilon_records": "-1"}, "positive"),
    ],
)
def test_specs_refuse_what_cannot_be_kept(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ss.SpecError, match=said):
        ss.ProfileSpec(epsilon=1, domain=ss.ClosedDomain(size=10), **fields)


def test_specs_of_version_1_keep_their_bytes_and_fingerprints() -> None:
    old = {
        "kind": "profile",
        "epsilon": "1",
        "unit": "event",
        "domain": {"kind": "closed", "size": 40},
        "max_count": 300,
        "publish": "histogram",
        "epsilon_publish": "1",
        "max_weight": 3,
        "bits": 32,
    }
    read = ss.ProfileSpec.from_dict(old)
    assert read.to_dict() == old
    assert read.fingerprint.hex() == "d6e3aa48261fa18e6d7f748a0eb5f157"
    assert read.total_share == 0
    sketch = Sketch.create(read)
    assert wire.version_of(sketch.to_bytes()) == 1
    assert sketch.layers[0].parameter == F(1, 3)
    assert wire.version_of(sketch.seal().to_bytes()) == 1


def test_bytes_say_the_version_that_they_need() -> None:
    plain = Sketch.create(spec(total_share=0))
    assert wire.version_of(plain.to_bytes()) == 1
    counted = Sketch.create(spec())
    assert wire.version_of(counted.to_bytes()) == 2
    assert wire.version_of(ss.stack([plain.seal(), counted.seal()]).to_bytes()) == 2
    placed = Sketch.create(spec(total_share=0), origin=ss.Origin(name="a", partitions=(4, 8)))
    data = placed.to_bytes()
    assert wire.version_of(data) == 2
    assert Sketch.from_bytes(data).origin.partition_counts == (4, 8)
    assert Sketch.from_bytes(data).origin.repartitioned
    old = bytearray(data)
    old[4] = 1
    with pytest.raises(ss.ChecksumError):
        Sketch.from_bytes(bytes(old))
