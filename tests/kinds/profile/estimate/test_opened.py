"""Open domains: intervals cover in 300 runs each, small and noisy sketches get an estimate, crowded ones a refusal."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import sketchstream as ss
from helpers import thrown as bench
from sketchstream.errors import EstimateError
from sketchstream.kinds.options import METHODS
from sketchstream.kinds.profile.estimate.open_domain import cardinality, collisions
from sketchstream.kinds.profile.estimate.open_domain.collisions import alike, read_part
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.observations import observed_counts
from sketchstream.kinds.profile.reconstruction import reconstruct

RUNS = 300
NONE = np.zeros(0, dtype=np.int64)


def zipf(size):
    return np.minimum(np.random.default_rng(1).zipf(1.5, size), 10**6)


def geometric(size):
    return np.random.default_rng(1).geometric(0.4, size)


def seen(counts, slots, levels, rng, **options):
    options = {"epsilon": 1, "form": "cumulative", "max_count": 12, **options}
    return publish(hash_counts(counts, slots, levels, rng), rng=rng, open_domain=True, **options)


def truths(counts):
    total = counts.sum()
    out = {f"at_least.{k}": (counts >= k).sum() for k in (2, 5, 10)}
    entropy = math.log(total) - (counts * np.log(counts)).sum() / total
    return {
        **out, "distinct": counts.size, "f1": (counts == 1).sum(), "mean": total / counts.size,
        "one_hit_ratio": (counts == 1).mean(), "entropy": entropy,
    }  # fmt: skip


def covered(counts, slots, levels, **options):
    """Share of runs whose interval holds the truth, for each number."""
    wanted = truths(counts)
    hits = dict.fromkeys(wanted, 0)
    rng = np.random.default_rng(7)
    for _ in range(RUNS):
        profile = reconstruct([seen(counts, slots, levels, rng, **options)], method="monotone", max_count=12)
        for name, truth in wanted.items():
            found = profile.interval("counts")[1] if name == "f1" else profile.interval(name)
            low, high = found if name == "f1" else (found.low, found.high)
            hits[name] += low <= truth <= high
    return {name: count / RUNS for name, count in hits.items()}


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("counts", "slots", "levels", "options"),
    [
        pytest.param(geometric(5_000), 1 << 14, 4, {"epsilon": "0.25"}, id="noisy"),
        pytest.param(
            geometric(5_000), 1 << 14, 4, {"epsilon": "0.25", "form": "bins"}, id="bins", marks=pytest.mark.slow
        ),
        pytest.param(geometric(8_000), 1 << 12, 4, {}, id="crowded", marks=pytest.mark.slow),
        pytest.param(zipf(5_000), 1 << 14, 4, {"epsilon": "0.25", "form": "state"}, id="zipf", marks=pytest.mark.slow),
        pytest.param(
            zipf(5_000), 1 << 14, 4, {"form": "state"}, id="heavy items that share slots", marks=pytest.mark.slow
        ),
        pytest.param(
            geometric(5_000), 1 << 14, 4, {"epsilon": 2, "form": "bins", "unit": "item", "modulus": 32}, id="items"
        ),
    ],
)
def test_intervals_of_noisy_and_crowded_sketches_cover(counts, slots, levels, options):
    found = covered(counts, slots, levels, **options)
    # what noise hides of the far tail is counted in, and k+ numbers take the best of their neighbours: these cover more
    wide = ("mean", "entropy", *(name for name in found if name.startswith("at_least")))
    assert {name: share for name, share in found.items() if share < 0.91} == {}
    assert {name: share for name, share in found.items() if share > 0.985 and name not in wide} == {}


@pytest.mark.statistics
def test_the_distance_of_the_true_number_of_items_is_standard_normal():
    rng = np.random.default_rng(2)
    counts = geometric(3_000)
    distances = []
    for _ in range(RUNS):
        found = read_part(seen(counts, 1 << 12, 4, rng, epsilon="0.25"), 13).curve
        distances.append(np.interp(counts.size, found.items, found.distance))
    assert np.mean(distances) == pytest.approx(0.0, abs=0.25)
    assert np.std(distances) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "circulant"])
@pytest.mark.parametrize("counts", [NONE, geometric(5), geometric(300)], ids=["none", "five", "many"])
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
def test_a_few_items_in_a_small_noisy_sketch_get_an_estimate(method, counts, form):
    rng = np.random.default_rng(3)
    for slots, levels in ((64, 1), (1 << 10, 4)):
        profile = reconstruct([seen(counts, slots, levels, rng, epsilon="0.1", form=form)], method=method, max_count=12)
        for name in ("distinct", "mean", "total", "entropy", "one_hit_ratio", "coverage", "at_least.2", "quantile.0.5"):
            found = profile.interval(name)
            assert all(math.isfinite(number) for number in found.to_dict().values()), name
            assert found.low <= found.value <= found.high
        truth = {"distinct": counts.size, "total": counts.sum(), "at_least.2": np.sum(counts >= 2)}
        for name, true in truth.items():
            surely = profile.interval(name, 0.9999)
            assert surely.low <= true <= surely.high, name
        assert profile.distinct.low <= counts.size
        assert profile.entropy.high <= math.log(max(profile.distinct.high, 1.0)) + 1e-9
        profile.to_json()


def test_the_limit_of_the_number_of_items_is_stated_where_the_slots_set_none():
    rng = np.random.default_rng(4)
    profile = reconstruct([seen(geometric(300), 64, 1, rng, epsilon="0.25")], method="monotone", max_count=12)
    assert "no upper limit" in profile.covers
    assert profile.distinct.high >= 300
    clear = reconstruct([seen(geometric(300), 1 << 12, 2, rng)], method="monotone", max_count=12)
    assert "no upper limit" not in clear.covers


def test_what_noise_hides_of_large_counts_is_said_and_leaves_the_mean_open():
    rng = np.random.default_rng(6)
    noisy = reconstruct([seen(zipf(5_000), 1 << 14, 4, rng, form="bins")], method="monotone", max_count=12)
    assert "cannot be told from noise" in noisy.covers
    assert noisy.mean.low <= zipf(5_000).mean() <= noisy.mean.high
    bare = reconstruct([seen(zipf(5_000), 1 << 14, 4, rng, form="state")], method="monotone", max_count=12)
    assert "noise:" not in bare.covers


def test_only_a_sketch_with_every_level_overcrowded_is_refused():
    rng = np.random.default_rng(5)
    with pytest.raises(EstimateError, match="take more slots or more levels"):
        reconstruct([seen(geometric(50_000), 1 << 12, 1, rng)], method="monotone", max_count=12)
    more = reconstruct([seen(geometric(50_000), 1 << 12, 8, rng)], method="monotone", max_count=12)
    assert more.distinct.low <= 50_000 <= more.distinct.high


def test_an_empty_sketch_has_no_absurd_entropy():
    rng = np.random.default_rng(6)
    for epsilon in ("0.1", "1"):
        profile = reconstruct([seen(NONE, 1 << 14, 4, rng, epsilon=epsilon)], method="monotone", max_count=12)
        assert profile.entropy.high <= math.log(profile.distinct.high)
        assert profile.mean.high <= profile.total.high


def test_a_quantile_of_items_that_may_not_be_there_may_be_anything():
    rng = np.random.default_rng(11)
    for _ in range(10):
        profile = reconstruct([seen(geometric(50), 1 << 12, 2, rng, epsilon="0.25")], method="monotone", max_count=12)
        assert profile.distinct.low == 0.0
        found = profile.quantile(0.5)
        assert found.low <= 2.0 <= found.high


def test_a_stack_of_unequal_parts_counts_each_by_its_own_load():
    """Added up, parts with loads 1:2:4:8 show 17% too few items."""
    key, rng = ss.Key(bytes(range(16))), np.random.default_rng(21)
    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=1 << 14, levels=1))
    parts, start = [], 0
    for size in (2_000, 4_000, 8_000, 16_000):
        sketch = ss.Sketch.create(spec, key, origin=ss.Origin(partition=len(parts)))
        sketch.update(np.repeat(np.arange(start, start + size), rng.geometric(0.4, size)))
        parts.append(sketch.seal())
        start += size
    stacked = ss.stack(parts)
    assert [one.parts for one in observed_counts(stacked)] == [1, 1, 1, 1]
    distinct = stacked.profile(max_count=12).interval("distinct", 0.9999)
    assert distinct.low <= 30_000 <= distinct.high
    assert distinct.high <= 33_700  # five standard deviations (405) above its mean
    assert distinct.value == pytest.approx(30_000, rel=0.07)  # five, of 390


def test_equal_parts_are_added_and_many_groups_are_few():
    rng = np.random.default_rng(22)
    equal = [seen(geometric(3_000), 1 << 13, 2, rng) for _ in range(8)]
    assert [sorted(group) for group in alike(equal)] == [list(range(8))]
    sizes = [int(200 * 1.3**i) for i in range(16)]
    groups = alike([seen(geometric(size), 1 << 13, 2, rng) for size in sizes])
    assert 4 <= len(groups) <= 6
    assert sorted(i for group in groups for i in group) == list(range(16))


@pytest.mark.parametrize("options", [{"unit": "item", "modulus": 32, "epsilon": 2, "form": "bins"}, {"form": "state"}])
def test_what_is_said_does_not_depend_on_how_many_counts_are_asked_for(options):
    counts = np.minimum(np.random.default_rng(3).geometric(0.2, 20_000), 20)
    observed = seen(counts, 1 << 16, 1, np.random.default_rng(12), **{**options, "max_count": 31})
    few, many = (reconstruct([observed], max_count=n) for n in (5, 31))
    assert list(few._fit.heavy) == sorted(few._fit.heavy)
    for q in (0.5, 0.9, 0.99):
        assert few.quantile(q).value == many.quantile(q).value
        assert few.quantile(q).low <= np.quantile(counts, q) <= few.quantile(q).high
    assert few.at_least(5).value == pytest.approx(many.at_least(5).value)
    assert few.total.value == pytest.approx(many.total.value, rel=1e-6)


def test_intervals_widen_with_their_level_and_lie_around_the_value():
    profile = reconstruct([seen(geometric(5_000), 1 << 13, 4, np.random.default_rng(8))], max_count=12)
    for name in ("distinct", "at_least.2", "at_least.5", "mean", "entropy", "one_hit_ratio", "coverage", "above"):
        narrow, wide = profile.interval(name, 0.5), profile.interval(name, 0.99)
        assert wide.low <= narrow.low <= narrow.value <= narrow.high <= wide.high, name
        assert wide.high - wide.low > narrow.high - narrow.low, name
    assert profile.interval("distinct") == profile.interval("at_least.1")


def test_the_curve_falls_and_its_root_lies_between_its_ends():
    part = read_part(seen(geometric(5_000), 1 << 13, 4, np.random.default_rng(9)), 13)
    assert (np.diff(part.curve.items) > 0.0).all()
    assert (np.diff(part.curve.distance) <= 0.0).all()
    low, high = part.curve.ends(1.96)
    assert low < part.curve.value < high
    assert not cardinality.is_overcrowded(part.every, part.curve)


@pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
def test_many_thrown_items_fall_as_hashed_ones_do():
    counts = geometric(100_000)
    numbers = np.bincount(counts)
    slots, levels = 1 << 16, 6
    fast = bench.thrown(np.arange(numbers.size), numbers, slots, levels, np.random.default_rng(10))
    domain = ss.OpenDomain(slots=slots, levels=levels)
    spec = ss.ProfileSpec(epsilon="30", domain=domain, publish="state", intrusion=False)  # no noise to speak of
    sketch = ss.Sketch.create(spec, ss.Key(bytes(range(16))))
    sketch.update(np.repeat(np.arange(counts.size), counts))
    (state,) = observed_counts(sketch.seal())
    assert sum(int(level.sum()) for level in fast) == state.edges @ state.values.sum(axis=0) == counts.sum()
    for share, level, row in zip(domain.level_shares(), fast, state.values, strict=True):
        load = counts.size * share / level.size
        empty = math.exp(-load)
        sd = math.sqrt(level.size * empty * (1.0 - empty))
        for found in (int((level == 0).sum()), int(row[state.edges == 0].sum())):
            assert found == pytest.approx(level.size * empty, abs=5.0 * sd)
        spread = load * float((counts.astype(float) ** 2).mean())
        assert level.var() == pytest.approx(spread, rel=0.15)
        assert np.average(state.edges**2, weights=row) - np.average(state.edges, weights=row) ** 2 == pytest.approx(
            spread, rel=0.15
        )


def test_parts_whose_numbers_of_items_have_no_upper_end_are_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise may be so large that no number is too large; the first such part began no group, and ended the answer."""
    curve = SimpleNamespace(value=0.0, ends=lambda z: (0.0, math.inf))
    monkeypatch.setattr(collisions, "read_part", lambda part, span: SimpleNamespace(curve=curve))
    monkeypatch.setattr(collisions, "largest_resolved", lambda part, span: span)
    assert alike([object()] * 3) == [[0, 1, 2]]  # type: ignore[list-item]


@pytest.mark.parametrize("epsilon", ["0.01", "0.1"])
def test_stacks_and_states_of_little_data_under_much_noise_have_answers(epsilon: str) -> None:
    rng = np.random.default_rng(3)
    counts = np.ones(50, np.int64)
    for _ in range(4):
        parts = [seen(counts, 1024, 2, rng, epsilon=epsilon) for _ in range(2)]
        alone = seen(counts[:10], 1024, 2, rng, epsilon=epsilon, form="state")
        for observed in (parts, [alone]):
            try:
                distinct = reconstruct(observed, max_count=12).distinct
            except EstimateError:
                continue
            assert 0.0 <= distinct.low <= distinct.value <= distinct.high


def test_a_quantile_is_never_a_count_that_no_item_can_have() -> None:
    """Where the noisy total is too low for the items above, the count that keeps it was shown, below 0."""
    rng = np.random.default_rng(5)
    below = 0
    for _ in range(20):
        profile = reconstruct([seen(np.full(500, 3), 1024, 2, rng, max_count=300)], max_count=300)
        below += bool(profile._fit.heavy.size) and profile._fit.heavy.min() < 0.0
        quantiles = [profile.quantile(q) for q in (0.5, 0.9, 0.999999, 1)]
        assert all(1.0 <= one.low <= one.value <= one.high for one in quantiles)
        assert [one.value for one in quantiles] == sorted(one.value for one in quantiles)
    assert below  # the case is among them
