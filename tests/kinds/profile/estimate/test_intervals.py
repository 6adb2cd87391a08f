"""95% intervals cover the truth in about 95% of 300 runs: both kinds of domain, every form, both units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.options import METHODS
from sketchstream.kinds.profile.estimate.intervals.bounds import closed_domain_bands
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

pytestmark = pytest.mark.statistics

SLOW = pytest.mark.slow
RUNS = 300
LOW, HIGH = 0.91, 0.985
SHARES = np.array([0.4, 0.2, 0.12, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01, 0.02, 0.01])
SCALARS = ("mean", "total", "entropy", "one_hit_ratio", "coverage")
Z = normal_quantile(0.95)


def items(size):
    return np.repeat(np.arange(1, 12), np.rint(SHARES * size).astype(int))


def zipf(exponent, most, size):
    return np.minimum(np.random.default_rng(17).zipf(exponent, size), most)


def truths(counts):
    total = counts.sum()
    out = {f"at_least.{k}": float((counts >= k).sum()) for k in (2, 5, 10)}
    once = (counts == 1).sum()
    return {
        **out, "distinct": counts.size, "f1": once, "mean": total / counts.size, "total": total,
        "entropy": np.log(total) - (counts * np.log(counts)).sum() / total, "one_hit_ratio": once / counts.size,
        "coverage": 1 - once / total,
    }  # fmt: skip


def padded(counts, zeros):
    return np.random.default_rng(18).permutation(np.append(np.zeros(zeros, dtype=np.int64), counts))


def ends(known, name):
    """Ends of an interval as they are before an estimate joins, of a k+ number those that it has by itself."""
    if name in SCALARS:
        low, high = known.scalars[name].ends(Z)
        return low[0], high[0]
    band, k = (known.counts, 1) if name == "f1" else (known.tails.band, int(name.partition(".")[2] or 1))
    low, high = band.ends(Z)
    return low[k], high[k]


def missed(draw, wanted, n, least=LOW, most=HIGH):
    """Numbers of a closed domain whose intervals hold the truth in too few or too many of the runs."""
    hits = dict.fromkeys(wanted, 0)
    for _ in range(RUNS):
        known = closed_domain_bands([draw()], n)
        for name, truth in wanted.items():
            low, high = ends(known, name)
            hits[name] += low <= truth * (1 + 1e-9) and truth * (1 - 1e-9) <= high
    return {name: count / RUNS for name, count in hits.items() if not least <= count / RUNS <= most}


@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("epsilon", ["0.25", "1"])
def test_closed_domain_of_events(epsilon, form):
    rng, counts = np.random.default_rng(1), items(10_000)
    h = padded(counts, 10_000)

    def draw():
        return publish([h], epsilon=epsilon, rng=rng, form=form, max_count=40, grouped=True)

    assert missed(draw, truths(counts), 40) == {}


@pytest.mark.parametrize(
    ("form", "epsilon"), [("bins", 2), pytest.param("bins", 1, marks=SLOW), pytest.param("state", 2, marks=SLOW)]
)
def test_closed_domain_of_items(form, epsilon):
    rng, counts = np.random.default_rng(2), items(10_000)
    h = padded(counts, 10_000)

    def draw():
        return publish([h], epsilon=epsilon, rng=rng, form=form, unit="item", modulus=16, grouped=True)

    assert missed(draw, truths(counts), 15) == {}


@pytest.mark.parametrize("form", [pytest.param("state", marks=SLOW), pytest.param("cumulative", marks=SLOW), "bins"])
def test_two_layers_of_a_merge(form):
    rng, counts = np.random.default_rng(3), items(10_000)
    h = padded(counts, 10_000)
    assert (
        missed(
            lambda: publish([h], epsilon=1, rng=rng, form=form, layers=2, max_count=40, grouped=True),
            truths(counts),
            40,
        )
        == {}
    )


@pytest.mark.parametrize("form", [pytest.param("cumulative", marks=SLOW), "bins"])
def test_stacked_parts(form):
    rng, counts = np.random.default_rng(6), items(8_000)
    parts = np.array_split(padded(counts, 8_000), 4)

    def draw():
        each = [publish([h], epsilon=1, rng=rng, form=form, max_count=40, grouped=True) for h in parts]
        return replace(each[0], slots=(16_000,), values=sum(one.values for one in each), parts=4)

    assert missed(draw, truths(counts), 40) == {}


@SLOW
def test_parts_of_different_epsilon():
    rng, counts = np.random.default_rng(7), items(8_000)
    parts = np.array_split(padded(counts, 8_000), 2)
    hits, wanted = dict.fromkeys(truths(counts), 0), truths(counts)
    for _ in range(RUNS):
        known = closed_domain_bands(
            [publish([h], epsilon=e, rng=rng, form="bins", grouped=True) for h, e in zip(parts, (1, 2), strict=True)],
            40,
        )
        for name, truth in wanted.items():
            low, high = ends(known, name)
            hits[name] += low <= truth <= high
    assert {name: n / RUNS for name, n in hits.items() if not LOW <= n / RUNS <= HIGH} == {}


@pytest.mark.parametrize("form", [pytest.param("state", marks=SLOW), "cumulative", pytest.param("bins", marks=SLOW)])
@pytest.mark.parametrize("population", ["few", pytest.param("small", marks=SLOW)])
def test_ratios_hold_where_the_divisor_is_lost_in_the_noise(population, form):
    rng, counts = np.random.default_rng(8), items(200 if population == "few" else 500)
    h = padded(counts, 10_000 if population == "few" else 500)

    def draw():
        return publish([h], epsilon="0.25", rng=rng, form=form, max_count=40, grouped=True)

    wanted = {name: truth for name, truth in truths(counts).items() if name not in ("total", "entropy")}
    assert missed(draw, wanted, 40) == {}
    # intervals of noise may be cut at possible values, which makes them cover more, never less
    assert missed(draw, truths(counts), 40, most=1.0) == {}


@pytest.mark.parametrize("form", ["cumulative", "bins"])
@pytest.mark.parametrize(("exponent", "most"), [pytest.param(1.5, 10**6, marks=SLOW), (2.0, 10**5)])
def test_heavy_tails(exponent, most, form):
    rng, counts = np.random.default_rng(9), zipf(exponent, most, 20_000)
    h = padded(counts, 20_000)

    def draw():
        return publish([h], epsilon=1, rng=rng, form=form, max_count=30, grouped=True)

    wanted = truths(counts)
    open_ended = ("mean", "total", "entropy", "coverage")  # what noise hides of the tail leaves them open
    assert missed(draw, {name: wanted[name] for name in wanted if name not in open_ended}, 30) == {}
    assert missed(draw, {name: wanted[name] for name in open_ended}, 30, most=1.0) == {}


def test_the_tail_that_noise_hides_is_said_and_light_tails_have_none():
    rng = np.random.default_rng(10)
    heavy = padded(zipf(1.5, 10**6, 20_000), 20_000)
    known = closed_domain_bands([publish([heavy], epsilon="0.25", rng=rng, form="bins")], 30)
    assert "cannot be told from noise" in known.covers
    light = padded(items(20_000), 20_000)
    seen = publish([light], epsilon=1, rng=rng, form="cumulative", max_count=100)
    known = closed_domain_bands([seen], 30)
    assert "none is taken to be there" in known.covers
    low, high = ends(known, "mean")
    assert high - low < 1.0
    assert "the noise (" in (bare := closed_domain_bands([publish([heavy], epsilon="0.25", rng=rng)], 30).covers)
    assert "shows" not in bare
    assert "told" not in bare


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_intervals_widened_to_hold_its_value(method):
    rng, counts = np.random.default_rng(11), items(1000)
    for form in ("state", "cumulative", "bins"):
        seen = publish([padded(counts, 1000)], epsilon="0.5", rng=rng, form=form, max_count=40)
        profile, known = reconstruct([seen], method=method, max_count=40), closed_domain_bands([seen], 40)
        assert profile.covers == known.covers
        for name, k in (("distinct", 1), ("at_least.2", 2), ("at_least.41", 41)):
            low, high = (min(max(end[k], 0.0), 2000) for end in known.tails.ends(Z))
            found = profile.interval(name)
            assert found.low <= min(low, found.value) + 1e-9
            assert found.high >= max(high, found.value) - 1e-9
        for name in SCALARS:
            low, high = (max(end, 0.0) for end in ends(known, name))
            found = profile.interval(name)
            assert found.low == pytest.approx(min(low, found.value))
            assert found.high == pytest.approx(max(high, found.value))
        low, high = (min(max(end, 0.0), 2000) for end in ends(known, "f1"))
        assert profile.interval("counts")[1] == pytest.approx(
            [min(low, profile.counts[1]), max(high, profile.counts[1])]
        )


@pytest.mark.parametrize(
    "options", [{}, {"form": "cumulative", "layers": 2}, {"form": "bins", "unit": "item", "modulus": 16}]
)
def test_noise_drawn_by_groups_has_the_law_of_noise_drawn_by_slots(options):
    rng, h = np.random.default_rng(12), padded(items(700), 300)
    edges = np.arange(-3, 12) if options.get("unit") != "item" else np.arange(16)

    def draw(grouped):
        seen = publish([h], epsilon=1, rng=rng, grouped=grouped, **options)
        return [seen.values[0][seen.edges == edge].sum() for edge in edges]

    one, other = (np.array([draw(grouped) for _ in range(400)], dtype=float) for grouped in (False, True))
    spread = one.std(axis=0)
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 5 * spread * np.sqrt(2 / 400)).all()
    assert other.std(axis=0) == pytest.approx(spread, rel=0.25)


def covered(draw, wanted, n, method="monotone"):
    """Share of runs whose interval, as a user sees it, holds the truth, for each number."""
    hits = dict.fromkeys(wanted, 0)
    for _ in range(RUNS):
        profile = reconstruct([draw()], method=method, max_count=n)
        for name, truth in wanted.items():
            if name == "f1":
                low, high = profile.interval("counts")[1]
            else:
                found = profile.interval(name)
                low, high = found.low, found.high
            hits[name] += low <= truth <= high
    return {name: count / RUNS for name, count in hits.items()}


def judged(counts):
    return {name: truth for name, truth in truths(counts).items() if name in JUDGED}


JUDGED = ("distinct", "f1", "at_least.2", "at_least.5", "at_least.10", "mean")


@SLOW
@pytest.mark.parametrize(
    ("unit", "form"), [("event", "state"), ("event", "cumulative"), ("event", "bins"), ("item", "bins")]
)
def test_open_domain(unit, form):
    rng = np.random.default_rng(4)
    counts = items(20_000)
    more = {"unit": "item", "modulus": 32} if unit == "item" else {"max_count": 40}
    epsilon = 2 if unit == "item" else 1

    def draw():
        return publish(
            hash_counts(counts, 1 << 16, 4, rng), epsilon=epsilon, rng=rng, form=form, open_domain=True, **more
        )

    found = covered(draw, judged(counts), 31 if unit == "item" else 40)
    assert {
        name: share
        for name, share in found.items()
        if not LOW <= share <= (1.0 if name.startswith("at_least") else HIGH)
    } == {}


@pytest.mark.slow
def test_the_default_method_keeps_the_coverage():
    rng, counts = np.random.default_rng(5), items(10_000)
    h = padded(counts, 10_000)
    found = covered(
        lambda: publish([h], epsilon=1, rng=rng, form="cumulative", max_count=12), judged(counts), 12, "likelihood"
    )
    assert {
        name: share
        for name, share in found.items()
        if not LOW <= share <= (1.0 if name.startswith("at_least") else HIGH)
    } == {}
