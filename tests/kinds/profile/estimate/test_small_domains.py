"""Small closed domains: the number of items that occurred from the exact law of what was published."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchstream.array_types import Floats
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.intervals.bounds import closed_domain_bands
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import MonotoneTails
from sketchstream.kinds.profile.estimate.uncertainty.small_domains import MAX_SLOTS_BY_LAW, small_domain_law
from sketchstream.kinds.profile.reconstruction import reconstruct

LEVELS = (0.5, 0.8, 0.95, 0.99)


def histogram(values: list[int], d: int, **more: Any) -> Observed:
    """What was published of one domain: `form`, `layers` (epsilons), `cost`, `parts`."""
    form = more.pop("form", "bins")
    return Observed(
        "item", form, False, tuple(("randomized-response", Fraction(one)) for one in more.pop("layers", ["1"])), (d,),
        (), (), np.arange(len(values)), np.array(values), None if form == "state" else Fraction(more.pop("cost", "1")),
        modulus=len(values), **more,
    )  # fmt: skip


def plausible(part: Observed) -> Floats:
    """The same by convolutions of whole laws: of single counters, and of the noise of every bin, one after another."""
    p, d = len(part.values[0]), part.slots[0]
    q, kept = part.q, math.prod(math.expm1(e) / (math.expm1(e) + p) for e in part.epsilons)
    far = math.ceil(math.log(1e-14) / math.log(q)) if q else 0
    one = (1.0 - q) / (1.0 + q) * q ** np.abs(np.arange(-far, far + 1.0)) if q else np.ones(1)

    def stretched(law: Floats, times: int) -> Floats:
        out = np.zeros((law.size - 1) * times + 1)
        out[::times] = law
        return out

    noise = np.ones(1)
    for _ in range(part.parts):
        for bin_ in range(p):
            noise = np.convolve(noise, stretched(one, 1 if bin_ else p - 1))
    zero, values = (noise.size - 1) // 2, part.values[0]
    y = p * int(values[1:].sum()) + (p - 1) * (d - int(values.sum())) + zero
    out = []
    for number in range(d + 1):
        law = noise
        for item in range(d):
            chance = (1.0 - kept) * (p - 1) / p + (kept if item < number else 0.0)
            law = np.convolve(law, stretched(np.array([1.0 - chance, chance]), p))
        out.append(min(law[: max(y + 1, 0)].sum(), law[max(y, 0) :].sum()))
    return np.array(out)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_law_is_that_of_all_counters_and_all_bins(data: st.DataObject) -> None:
    p, d, noisy = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5)), data.draw(st.booleans())
    layers = data.draw(st.lists(st.sampled_from(["1/2", "1", "3"]), min_size=1, max_size=2))
    if noisy:
        more: dict[str, Any] = {
            "cost": data.draw(st.sampled_from(["2", "4", "9"])),
            "parts": data.draw(st.integers(1, 2)),
        }
        values = data.draw(st.lists(st.integers(-5, 9), min_size=p, max_size=p))
    else:
        more, zeros = {"form": "state"}, data.draw(st.integers(0, d))
        values = [zeros, d - zeros, *[0] * (p - 2)]
    part = histogram(values, d, layers=layers, **more)
    found = small_domain_law([part])
    assert found is not None
    assert found.plausible == pytest.approx(plausible(part), abs=2e-9)


@pytest.mark.parametrize(
    ("p", "cost", "parts"),
    [(32, "1/100", 1), (32, "1e-8", 1), (32, "30", 1), (32, "2000", 1), (512, "1", 1), (2, "8", 3)],
)
@pytest.mark.parametrize("number", [0, 20, 40])
def test_the_law_is_about_the_normal_one_of_the_estimate(p: int, cost: str, parts: int, number: int) -> None:
    """Also where much noise leaves few frequencies, and where little noise leaves all of them."""
    d, kept = 40, laws.response_eigenvalue([2.0], p)
    chances = (1.0 - kept) * (p - 1) / p + np.array([0.0, kept])
    shown = round(float(chances @ [d - number, number]))
    part = histogram([d - shown, shown, *[0] * (p - 2)], d, layers=["2"], cost=cost, parts=parts)
    found = small_domain_law([part])
    assert found is not None
    for other in range(d + 1):
        mean = float(chances @ [d - other, other])
        variance = float(chances * (1.0 - chances) @ [d - other, other]) + part.noise_variance * (p - 1) / p
        beyond = max(abs(shown - mean) - 0.5, 0.0) / math.sqrt(variance)
        assert found.plausible[other] == pytest.approx(math.erfc(beyond / math.sqrt(2.0)) / 2.0, abs=0.2)


def test_ends_are_nested_over_levels_and_hold_the_most_plausible_number() -> None:
    rng = np.random.default_rng(50)
    for _ in range(40):
        part = publish([rng.integers(0, 3, 12)], epsilon="3", cost="3", rng=rng, unit="item", form="bins", modulus=8)
        found = small_domain_law([part])
        assert found is not None
        ends = [found.ends(normal_quantile(level)) for level in LEVELS]
        assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(ends))
        assert ends[0][0] <= int(np.argmax(found.plausible)) <= ends[0][1]
    far = small_domain_law([histogram([-9999, *[0] * 7], 3)])
    assert far is not None
    assert far.ends(2.0) == (0.0, 3.0), "what no number explains tells none from another"


def test_larger_domains_and_several_laws_have_the_ends_they_had() -> None:
    rng = np.random.default_rng(51)

    def seen(d: int, epsilon: str = "2") -> Observed:
        return publish([np.arange(d) % 3], epsilon=epsilon, rng=rng, unit="item", form="bins", modulus=16)

    for parts in ([seen(MAX_SLOTS_BY_LAW + 1)], [seen(10), seen(10, "1")]):
        tails = closed_domain_bands(parts, 15).tails
        assert small_domain_law(parts) is None
        assert isinstance(tails, MonotoneTails)
        assert tails.occurred is None
    for epsilon, form, d in (("1/4", "cumulative", 9), ("4", "bins", 9), ("4", "state", MAX_SLOTS_BY_LAW + 1)):
        assert small_domain_law([publish([np.arange(d)], epsilon=epsilon, rng=rng, form=form)]) is None


@pytest.mark.parametrize(("form", "layers"), [("cumulative", 1), ("cumulative", 2), ("state", 1)])
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 0, 0), (1, 1, 0), (9, 9, 0), (1, 1, 1), (1, 2, 9), (0,), (1,)])
def test_events_of_any_counts_are_covered_whatever_is_published(
    form: Any, layers: int, counts: tuple[int, ...]
) -> None:
    """The sum over all that may be published is exact. Normal ends covered 91 to 93% of some, at any level."""
    d, number = len(counts), sum(count > 0 for count in counts)
    laplace = tuple(("discrete-laplace", Fraction(4)) for _ in range(layers))
    moved = laws.noise_pmf([4.0] * layers, 20)
    law = laws.noise_pmf([4.0], 12) if form == "cumulative" else np.eye(1, 25, 12)[0]
    for count in counts:
        chance = float(moved[20 + 1 - count :].sum()) if count < 20 else 1.0
        law = np.convolve(law, [1.0 - chance, chance])
    held = np.zeros(len(LEVELS))
    for at, weight in enumerate(law):
        shown = at - 12
        if form == "state" and not 0 <= shown <= d:
            continue
        edges, values = (range(4), [shown, 0, 0]) if form == "cumulative" else (range(-1, 2), [d - shown, 0, shown])
        part = Observed("event", form, False, laplace, (d,), (), (), np.array(edges[-3:]), np.array(values),
                        None if form == "state" else Fraction(4))  # fmt: skip
        found = small_domain_law([part])
        assert found is not None
        ends = [found.ends(normal_quantile(level)) for level in LEVELS]
        held += [weight * (low <= number <= high) for low, high in ends]
    assert (held >= np.array(LEVELS) - 1e-6).all(), held


@pytest.mark.statistics
def test_ends_of_events_are_about_as_narrow_as_normal_ones() -> None:
    rng, widths = np.random.default_rng(58), np.zeros(2)
    h = np.array([1, 2] * 5 + [0] * 10)
    for _ in range(200):
        tails = closed_domain_bands(
            [publish([h], epsilon="4", cost="1", rng=rng, form="cumulative", max_count=20)], 20
        ).tails
        assert isinstance(tails, MonotoneTails)
        normal = tails.band.at(1).ends(normal_quantile(0.95))
        ends = tails.ends(normal_quantile(0.95))
        widths += [
            float(high.clip(0, 20) - low.clip(0, 20)) for low, high in ((e[1] for e in ends), (e[0] for e in normal))
        ]
    assert widths[0] <= widths[1] + 1.0 * 200


@pytest.mark.parametrize("method", ["likelihood", "inverse", "monotone"])
def test_numbers_of_small_domains_agree(method: str) -> None:
    rng = np.random.default_rng(52)
    forms: tuple[tuple[Any, Any], ...] = (("item", "bins"), ("item", "state"), ("event", "cumulative"))
    for (unit, form), d in itertools.product(forms, (1, 4, 30)):
        more = {"modulus": 16} if unit == "item" else {"max_count": 15}
        part = publish([np.arange(d) % 4], epsilon="4", rng=rng, unit=unit, form=form, **more)
        assert small_domain_law([part]) is not None
        profile = reconstruct([part], method=method, max_count=15)
        for level in LEVELS:
            value, low, high = profile.tail_ends(normal_quantile(level))[1:].T
            assert (np.diff(low) <= 0).all()
            assert (np.diff(high) <= 0).all()
            assert ((low <= value) & (value <= high)).all()
            zeros, items = profile._known.counts.ends(normal_quantile(level)), profile._known.tails
            least, most, _ = items.ends_and_ways(normal_quantile(level))
            assert (zeros[0][0], zeros[1][0]) == (d - most[1], d - least[1])
            shares = profile._known.fractions.ends(normal_quantile(level))
            assert (shares[0][0] * d, shares[1][0] * d) == pytest.approx((d - most[1], d - least[1]))


CELLS = [
    # modulus, epsilon, cost, layers, form, slots, items, largest mean width at 95%
    (16, 1, 1, 1, "bins", 3, 1, 3.0),  # from a variance: 89.8% are covered, width 2.7
    (16, 4, 4, 1, "bins", 2, 0, 1.5),  # 89.8%, 1.9
    (32, 2, 2, 1, "bins", 10, 0, 9.2),  # 88.4%, 9.3
    (32, 2, 2, 1, "bins", 30, 15, 27.5),  # 91.4%, 26.7
    (32, 4, 1, 1, "bins", 30, 0, 12.0),  # 92.0%, 22.5
    (32, 4, 1, 1, "bins", 100, 50, 28.9),  # 93.4%, 28.9
    (32, 2, 2, 2, "bins", 10, 3, 9.8),  # 90.0%, 9.1
    (16, 4, 4, 1, "state", 10, 7, 5.0),  # 88.2%, 3.9
]


@pytest.mark.statistics
@pytest.mark.parametrize(("p", "epsilon", "cost", "layers", "form", "d", "number", "widest"), CELLS)
def test_intervals_of_few_slots_cover_what_they_say(
    p: int, epsilon: int, cost: int, layers: int, form: Any, d: int, number: int, widest: float
) -> None:
    rng, h, runs = np.random.default_rng([53, p, d]), np.array([2] * number + [0] * (d - number)), 600
    hits, width = np.zeros((3, len(LEVELS))), 0.0
    for _ in range(runs):
        part = publish([h], epsilon=epsilon, cost=cost, layers=layers, rng=rng, unit="item", form=form, modulus=p)
        known = closed_domain_bands([part], p - 1)
        for at, z in enumerate(map(normal_quantile, LEVELS)):
            low, high = (end.clip(0, d) for end in known.tails.ends_and_ways(z)[:2])
            least, most = (end[0] for end in known.counts.ends(z))
            hits[:, at] += low[1] <= number <= high[1], least <= d - number <= most, low[2] <= number <= high[2]
            width += (high[1] - low[1]) / runs if LEVELS[at] == 0.95 else 0.0
    for at, level in enumerate(LEVELS):
        error = math.sqrt(level * (1.0 - level) / runs)
        assert (hits[:2, at] / runs >= level - 2.7 * error).all(), (level, hits[:, at] / runs)
    assert hits[2, 2] / runs >= 0.93
    assert width <= widest


@pytest.mark.parametrize("form", ["bins", "state"])
def test_no_entropy_is_refused_that_a_plausible_number_of_items_may_have(form: Any) -> None:
    for seed in range(40):
        rng = np.random.default_rng([54, seed])
        part = publish([np.array([1, 2, 0])], epsilon="1", rng=rng, unit="item", form=form, modulus=16)
        known, number = closed_domain_bands([part], 15), small_domain_law([part])
        assert number is not None
        for level in LEVELS:
            low, high = known.scalars["entropy"].ends(normal_quantile(level))
            assert 0.0 <= low[0] <= math.log(max(number.ends(normal_quantile(level))[0], 1.0))
            assert low[0] <= high[0] <= math.log(3.0)


@pytest.mark.statistics
def test_the_entropy_of_two_items_is_covered() -> None:
    """89.5% of intervals of 95% did without the limit, 71% of those of 80%."""
    rng, runs, truth = np.random.default_rng(55), 600, math.log(3.0) - 2.0 * math.log(2.0) / 3.0
    hits = np.zeros(len(LEVELS))
    for _ in range(runs):
        part = publish([np.array([1, 2, 0])], epsilon="1", rng=rng, unit="item", form="bins", modulus=16)
        ends = closed_domain_bands([part], 15).scalars["entropy"]
        hits += [low[0] <= truth <= high[0] for low, high in map(ends.ends, map(normal_quantile, LEVELS))]
    for level, hit in zip(LEVELS, hits / runs, strict=True):
        assert hit >= level - 2.7 * math.sqrt(level * (1.0 - level) / runs), (level, hit)
