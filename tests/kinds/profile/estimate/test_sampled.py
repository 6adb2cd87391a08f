"""Answers scaled up from a sample of items, of groups or of a domain: unbiased, covered, wrong factors seen.

In: made-up counts, fixed seeds. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sketchstream.items.arrays import Items
from sketchstream.items.key import Key
from sketchstream.kinds.groups.group_list import Groups, GroupSample
from sketchstream.kinds.profile.estimate import simulate
from sketchstream.kinds.profile.estimate.intervals.sampled import SampledNumbers, SampledRatios, Widened
from sketchstream.kinds.profile.estimate.sketch_facts import SketchFacts
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band
from sketchstream.kinds.profile.planner import plan
from sketchstream.kinds.profile.ranking import Ranking
from sketchstream.kinds.profile.reconstruction import reconstruct
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile_answers import Profile
from sketchstream.query.differences import difference, subtract
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain

MODULUS = 16
ITEMS = 600
SLOTS = 900
SAMPLE = GroupSample(3, 7, 2)
EPOCH = "2024-01-01T00:00:00Z"
GROUPS = Groups([f"g{i}" for i in range(7)], max_groups=2, limit="ranked")


def population(rng: np.random.Generator) -> np.ndarray:
    """Counts of the items of a group, 1 to 12, most of them small."""
    return np.minimum(rng.geometric(0.35, ITEMS), 12)


def inside(rng: np.random.Generator) -> np.ndarray:
    """Which of the items count, by the ranking of a fresh key."""
    ranking = Ranking.of(GROUPS, Key(rng.bytes(16)))
    (_, piece), *_ = Items.of(np.arange(ITEMS)).pieces()
    codes = np.full(ITEMS, SAMPLE.position, np.int32)
    return ranking.first(piece, codes, np.empty(ITEMS, np.uint64)) >= 0


def answer(
    rng: np.random.Generator,
    counts: np.ndarray,
    epsilon: str,
    domain: str,
    method: str,
    about: SketchFacts,
    **more: Any,
) -> Profile:
    """The profile of one group: only items that count leave a trace."""
    held = counts[inside(rng)].astype(np.int64)
    if domain == "closed":
        counters = [np.concatenate([held, np.zeros(SLOTS - held.size, np.int64)])]
    else:
        counters = simulate.hash_counts(held, 2048, 2, rng)
    published = simulate.publish(
        counters,
        epsilon=epsilon,
        rng=rng,
        unit="item",
        modulus=MODULUS,
        form=more.get("form", "bins"),
        open_domain=domain == "open",
    )
    return reconstruct([published], method=method, max_count=MODULUS - 1, about=about)


@pytest.mark.statistics
@pytest.mark.parametrize(("unit", "size", "users", "rate"), [("item", 800, 240, "1/2"), ("event", 4000, 900, "1/4")])
def test_sampled_domains_answer_for_all_items(unit: Any, size: int, users: int, rate: str) -> None:
    """Slots for a sample of the domain; without the sample's share hardly an interval holds the truth."""
    hits: dict[str, list[bool]] = {}
    unscaled = []
    for run in range(80):
        rng = np.random.default_rng(run)
        items, counts = rng.permutation(size)[:users], rng.geometric(0.4, users)
        spec = ProfileSpec("2", unit, ClosedDomain(size, sample_rate=rate))
        sketch = Sketch.create(spec, Key.generate())
        sketch.update(np.repeat(items, counts))
        profile = sketch.seal().profile(max_count=20)
        once, total = float((counts == 1).sum()), float(counts.sum())
        true = {"distinct": users, "at_least.2": users - once, "exactly.1": once, "exactly.0": size - users,
                "total": total, "mean": total / users, "one_hit_ratio": once / users,
                "entropy": math.log(total) - float(counts @ np.log(counts)) / total}  # fmt: skip
        for name, truth in true.items():
            found = profile.interval(name)
            hits.setdefault(name, []).append(found.low <= truth <= found.high)
        assert profile.to_dict()["sample"].keys() == {"share"}
        assert profile.number("at_least.0").value == pytest.approx(size)
        low, high = (end * float(Fraction(rate)) for end in (profile.distinct.low, profile.distinct.high))
        unscaled.append(low <= users <= high)
    rates = {name: float(np.mean(one)) for name, one in hits.items()}
    assert min(rates.values()) > 0.87, rates
    assert np.mean(list(rates.values())) > 0.93, rates
    assert np.mean(unscaled) < 0.4


def test_a_share_of_slots_is_known_unless_partitions_are_missing() -> None:
    about = SketchFacts(kept=(4000, Fraction(1, 4)))
    assert about.share(1020) == Fraction(1020, 4000)
    assert about.share(500) == about.share(0) == Fraction(1, 4)
    both = SketchFacts(sample=SAMPLE, kept=(4000, Fraction(1, 4)))
    assert both.share(1000) == SAMPLE.share / 4


def test_a_plan_of_a_sampled_domain_has_its_slots_and_its_error() -> None:
    given: dict[str, Any] = {"epsilon": "4", "unit": "item", "epsilon_publish": "1"}
    whole, part = (
        plan(ProfileSpec(domain=ClosedDomain(4000, sample_rate=rate), **given), items=2000) for rate in (None, "1/4")
    )
    assert (whole.to_dict()["slots"], part.to_dict()["slots"]) == (4000, 1000)
    assert part["distinct"].sd > math.sqrt(2000 * 3) > whole["distinct"].sd
    simulated = plan(part.spec, items=2000, runs=60)
    assert simulated["distinct"].simulated == pytest.approx(part["distinct"].sd, rel=0.3)


def truths(counts: np.ndarray, domain: str) -> dict[str, float]:
    """What a curator with all items of the group would say."""
    total, once = float(counts.sum()), float((counts == 1).sum())
    found = {
        "distinct": float(ITEMS),
        "at_least.2": float((counts >= 2).sum()),
        "at_least.6": float((counts >= 6).sum()),
        "exactly.1": once,
        "total": total,
        "mean": total / ITEMS,
        "one_hit_ratio": once / ITEMS,
        "coverage": 1 - once / total,
        "entropy": math.log(total) - float(counts @ np.log(counts)) / total,
    }
    if domain == "closed":
        found["exactly.0"] = float(SLOTS - ITEMS)
    return found


def covered(
    runs: int, epsilon: str, domain: str, sample: GroupSample | None, method: str = "inverse", seed: int = 1
) -> tuple[dict[str, float], dict[str, float]]:
    """Share of the runs in which intervals hold the truth, and the mean error in its standard errors, by name."""
    hits: dict[str, list[bool]] = {}
    errors: dict[str, list[float]] = {}
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        counts = population(rng)
        profile = answer(rng, counts, epsilon, domain, method, SketchFacts(sample=sample))
        share = profile.interval("fractions")
        base = SLOTS if domain == "closed" else ITEMS
        for name, truth in truths(counts, domain).items():
            found = profile.interval(name)
            hits.setdefault(name, []).append(found.low <= truth <= found.high)
            errors.setdefault(name, []).append(found.value - truth)
        truth = float((counts == 2).sum()) / base
        hits.setdefault("fraction of 2", []).append(bool(share[2, 0] <= truth <= share[2, 1]))
    rates = {name: float(np.mean(one)) for name, one in hits.items()}
    bias = {name: float(np.mean(one) / (np.std(one) / math.sqrt(runs) + 1e-12)) for name, one in errors.items()}
    return rates, bias


@pytest.mark.statistics
@pytest.mark.parametrize("domain", ["closed", "open"])
@pytest.mark.parametrize("epsilon", ["30", "3"])
def test_intervals_of_the_whole_group_hold_the_truth_and_with_a_wrong_factor_do_not(epsilon: str, domain: str) -> None:
    runs = 250 if domain == "closed" else 120
    rates, bias = covered(runs, epsilon, domain, SAMPLE)
    least = 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    assert {name: rate for name, rate in rates.items() if rate < least} == {}
    for name in ("distinct", "at_least.2", "exactly.1", "total"):
        assert abs(bias[name]) < 4, (name, bias[name])
    # the mutants: no factor, and that of one more group an item
    for wrong in (None, GroupSample(3, 7, 3)):
        broken, off = covered(30, epsilon, domain, wrong)
        assert broken["distinct"] < 0.7, (wrong, broken["distinct"])
        assert abs(off["distinct"]) > 8


@pytest.mark.statistics
@pytest.mark.parametrize("domain", ["closed", "open"])
def test_intervals_need_the_variance_of_the_sample(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled, but with the noise's variance alone, they miss at an epsilon at which noise is next to nothing."""

    def scaled(self: Any, z: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low, high, way = self.inner.ends_and_ways(z)
        return low / self.share, high / self.share, way / self.share

    rates, _ = covered(50, "30", domain, SAMPLE)
    assert rates["distinct"] > 0.85
    monkeypatch.setattr("sketchstream.kinds.profile.estimate.intervals.sampled.SampledTails.ends_and_ways", scaled)
    rates, _ = covered(50, "30", domain, SAMPLE)
    assert rates["distinct"] < 0.6


@pytest.mark.statistics
@pytest.mark.parametrize("domain", ["closed", "open"])
def test_the_default_method_is_scaled_alike(domain: str) -> None:
    rates, _ = covered(20, "30", domain, SAMPLE, method="likelihood")
    assert min(rates.values()) > 0.75
    assert float(np.mean(list(rates.values()))) > 0.9


def test_few_items_have_intervals_that_hold_them() -> None:
    """Wilson's interval: with no item in the sample there may be several in the group."""

    class Nothing:
        def __init__(self, value: float) -> None:
            self.value = value

        def ends(self, z: float) -> tuple[np.ndarray, np.ndarray]:
            return np.array([self.value]), np.array([self.value])

    p, z = 2 / 7, 1.959964
    for truth in (0, 1, 2, 3, 5, 8, 13, 40):
        held = 0.0
        for seen in range(truth + 1):
            low, high = (float(end[0]) for end in SampledNumbers(Nothing(seen), p, 1.0).ends(z))
            assert low <= seen / p <= high
            law = math.comb(truth, seen) * p**seen * (1 - p) ** (truth - seen)
            held += law * (low <= truth <= high)
        assert held > 0.90, (truth, held)
    for seen in range(11):
        low, high = (float(end[0]) for end in SampledRatios(Nothing(seen / 10), 1 / 10).ends(z))
        assert -1e-12 <= low <= seen / 10 <= high <= 1 + 1e-12
        root = math.sqrt(seen / 10 * (1 - seen / 10) / 10 + z * z / 400)  # Wilson's interval, written out
        centre = seen / 10 + z * z / 20
        assert (low, high) == pytest.approx(
            [(centre - z * root) / (1 + z * z / 10), (centre + z * root) / (1 + z * z / 10)]
        )


def test_missing_ends_stay_missing_and_errors_add_as_squares() -> None:
    class Given:
        def __init__(self, low: float, high: float) -> None:
            self.pair = np.array([low]), np.array([high])

        def ends(self, z: float) -> tuple[np.ndarray, np.ndarray]:
            return self.pair

    low, high = Widened(Given(10.0, math.inf), 4.0).ends(2.0)
    assert (low[0], high[0]) == (6.0, math.inf)
    low, high = Widened(Given(10.0, 16.0), 4.0, factor=2.0, shift=1.0).ends(2.0)
    assert (low[0], high[0]) == (27.0 - math.sqrt(36.0 + 16.0), 27.0 + math.sqrt(36.0 + 16.0))
    low, high = SampledRatios(Given(-math.inf, math.inf), 0.1).ends(2.0)
    assert (low[0], high[0]) == (-math.inf, math.inf)


@pytest.mark.parametrize("method", ["likelihood", "inverse", "monotone"])
def test_all_numbers_agree_with_each_other(method: str) -> None:
    rng = np.random.default_rng(5)
    profile = answer(rng, population(rng), "30", "closed", method, SketchFacts(sample=SAMPLE))
    assert profile.facts.sample == {"share": "2/7", "groups": 7}
    assert profile.to_dict()["sample"] == {"share": "2/7", "groups": 7}
    assert "an item counts in 2 of 7 groups" in profile.covers
    assert profile.fractions.sum() + profile.above.value == pytest.approx(1.0)
    assert profile.counts.sum() + SLOTS * profile.above.value == pytest.approx(SLOTS)
    assert profile.distinct.value == pytest.approx(SLOTS - profile.counts[0], abs=1e-6)
    assert profile.at_least(0).value == SLOTS
    assert profile.at_least(0).low == profile.at_least(0).high == SLOTS
    assert profile.total.value == pytest.approx(profile.mean.value * profile.distinct.value, rel=1e-9)


def test_a_counted_total_is_scaled_with_the_bound_of_one_item() -> None:
    rng = np.random.default_rng(6)
    counts = population(rng)
    value, draws = round(counts.sum() * 2 / 7), (Fraction(1, 10),)
    plain = answer(np.random.default_rng(7), counts, "30", "open", "inverse", SketchFacts(total=(value, draws)))
    profile = answer(
        np.random.default_rng(7),
        counts,
        "30",
        "open",
        "inverse",
        SketchFacts(total=(value, draws), sample=SAMPLE, max_total=12),
    )
    assert profile.total.value == pytest.approx(value * 3.5)
    assert profile.mean.value == pytest.approx(plain.mean.value)
    noise = (plain.total.high - plain.total.low) / 2 * 3.5
    wide = (profile.total.high - profile.total.low) / 2
    assert wide == pytest.approx(math.hypot(noise, 1.959964 * math.sqrt(2.5 * 12 * value * 3.5)), rel=1e-6)
    assert profile.mean.high - profile.mean.low > plain.mean.high - plain.mean.low


def test_more_items_than_a_closed_domain_has_are_not_found() -> None:
    """All items count by chance or by design: scaled up they would be more than there are."""
    counters = [np.full(SLOTS, 2, np.int64)]
    rng = np.random.default_rng(8)
    published = simulate.publish(counters, epsilon="30", rng=rng, unit="item", modulus=MODULUS, form="bins")
    profile = reconstruct([published], method="likelihood", max_count=15, about=SketchFacts(sample=SAMPLE))
    assert profile.distinct.value == pytest.approx(SLOTS)
    assert profile.fractions[0] == pytest.approx(0.0, abs=1e-9)
    assert (profile.fractions >= 0).all()


def test_items_that_are_known_to_be_absent_can_be_added() -> None:
    rng = np.random.default_rng(9)
    profile = answer(rng, population(rng), "30", "closed", "inverse", SketchFacts(sample=SAMPLE))
    more = profile.with_zeros(100)
    assert more.distinct == profile.distinct
    assert more.at_least(0).low == SLOTS + 100
    assert more.counts[0] == pytest.approx(profile.counts[0] + 100)
    before, after = profile.interval("counts"), more.interval("counts")
    assert after[0] == pytest.approx(before[0] + 100)
    assert after[1:] == pytest.approx(before[1:])
    assert more.interval("fractions")[0] * (SLOTS + 100) == pytest.approx(after[0])


@pytest.mark.parametrize(
    ("field", "value"), [("position", 7), ("position", -1), ("groups", 1), ("most", 0), ("most", 7), ("most", 1.5)]
)
def test_samples_that_cannot_be_are_refused(field: str, value: Any) -> None:
    given: dict[str, Any] = {"position": 3, "groups": 7, "most": 2, field: value}
    with pytest.raises(ValueError, match=rf"sample\.{field}"):
        GroupSample(**given)


@pytest.mark.parametrize(("groups", "most"), [(2, 1), (8, 4), (20, 2)])
def test_a_difference_of_two_groups_with_the_same_items_is_covered(groups: int, most: int) -> None:
    """Their samples are negatively correlated; taken as independent the intervals of two groups are too short."""
    listed = Groups([f"g{i}" for i in range(groups)], max_groups=most, limit="ranked")
    items, runs, held, independent = 400, 400, 0, 0
    (_, piece), *_ = Items.of(np.arange(items)).pieces()
    for run in range(runs):
        ranking = Ranking.of(listed, Key(np.random.default_rng([9, run]).bytes(16)))
        answers: list[dict[str, Any]] = []
        for position in (0, groups // 2):
            codes = np.full(items, position, np.int32)
            seen = float((ranking.first(piece, codes, np.empty(items, np.uint64)) >= 0).sum())
            band = Band(np.array([seen]), np.array([seen]), np.zeros(1))
            low, high = SampledNumbers(band, most / groups, 1.0).ends(1.959964)
            one = {"value": seen * groups / most, "low": float(low[0]), "high": float(high[0])}
            share = {"share": str(Fraction(most, groups)), "groups": groups}
            answers.append({"group": position, "sample": share, "distinct": one, "window_start": EPOCH})
        found = difference(None, *answers, "distinct")
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
        _, least, largest = subtract(found.first, found.second)
        assert least is not None
        assert largest is not None
        independent += least <= 0 <= largest
    assert held >= (0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)) * runs
    if groups == 2:
        assert independent < 0.9 * runs
    assert independent <= held
