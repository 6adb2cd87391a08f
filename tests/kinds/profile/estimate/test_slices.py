"""Open domains that are crowded and noisy: numbers under each possible number of items cover; errors by convolution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import ndtri

from sketchstream.kinds.profile.estimate.linear.line import linear
from sketchstream.kinds.profile.estimate.linear.shifts import joint_of_shifts
from sketchstream.kinds.profile.estimate.open_domain.collisions import read_part
from sketchstream.kinds.profile.estimate.open_domain.slices import Mixed, Slices, linearise_at, slices
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

COUNTS = np.random.default_rng(1).geometric(0.4, 8_000)


def crowded(rng, form, epsilon="0.25"):
    """SketchFacts two items a slot: half of them in a level with four."""
    found = hash_counts(COUNTS, 1 << 12, 4, rng)
    return publish(found, epsilon=epsilon, rng=rng, form=form, max_count=12, open_domain=True, grouped=True)


@pytest.mark.statistics
@pytest.mark.parametrize("form", ["cumulative", "bins"])
def test_intervals_of_crowded_and_noisy_levels_cover(form):
    """With errors taken at the estimated number of items 82 and 92 in 100 did, for the number that did least often."""
    rng, runs = np.random.default_rng([31, len(form)]), 100
    wanted = np.array([(COUNTS == 1).sum(), *((k <= COUNTS).sum() for k in (2, 5, 10))])
    hits = np.zeros(wanted.size)
    for _ in range(runs):
        known = reconstruct([crowded(rng, form)], method="monotone", max_count=12)._known
        low, high = (
            np.append(one[1], more[[2, 5, 10]])
            for one, more in zip(known.counts.ends(1.96), known.tails.ends(1.96), strict=True)
        )
        hits += (low <= wanted) & (high >= wanted)
    assert hits.min() > 0.92 * runs, hits / runs


def test_no_number_of_items_ends_above_that_of_all():
    rng = np.random.default_rng(32)
    for _ in range(5):
        profile = reconstruct([crowded(rng, "cumulative")], method="monotone", max_count=12)
        assert all(profile.at_least(k).high <= profile.distinct.high for k in (1, 2, 5, 10))


def test_at_the_true_number_of_items_once_seen_items_are_off_by_what_is_claimed():
    """Whatever the law of counts is taken to be: it is linear in the slots then."""
    rng, off = np.random.default_rng(33), []
    for _ in range(60):
        part = read_part(crowded(rng, "state"), 32)
        shape = part.model.scaled(COUNTS.size / part.model.items)
        found = linearise_at(part.levels, shape)
        share = found.joints[0][1] / found.variances[1][0]
        rest = found.variances[0][1] - share * found.joints[0][1]
        given = found.values[0][1] - share * (found.values[1][0] - COUNTS.size)
        off.append((given - (COUNTS == 1).sum()) / np.sqrt(rest))
    assert np.mean(off) == pytest.approx(0.0, abs=0.4)
    assert np.std(off) == pytest.approx(1.0, abs=0.3)


def test_slices_that_do_not_differ_in_width_make_the_usual_interval():
    """N(5 + 2 u, 3^2) over u ~ N(0, 1): N(5, 2^2 + 3^2)."""
    roots, chance = np.polynomial.hermite_e.hermegauss(15)
    one = Slices(chance / chance.sum(), 5.0 + 2.0 * roots[:, None], np.full((15, 1), 3.0))
    for level in (0.75, 0.975, 0.995):
        z = ndtri(level)
        assert one.quantile(z)[0] == pytest.approx(5.0 + z * np.sqrt(13.0), rel=1e-6)
    point = np.array([0.0])
    two = Mixed(point, point, point, (one, one.scaled(2.0)), 0)
    low, high = two.ends(1.96)
    assert low[0] == pytest.approx(15.0 - 1.96 * np.sqrt(65.0), rel=1e-6)
    assert high[0] == pytest.approx(15.0 + 1.96 * np.sqrt(65.0), rel=1e-6)


def test_few_numbers_of_items_say_what_many_say_where_it_is_well_known():
    rng = np.random.default_rng(34)
    found = hash_counts(COUNTS, 1 << 14, 2, rng)
    observed = publish(found, epsilon="3", rng=rng, form="state", open_domain=True, grouped=True)
    part = read_part(observed, 32)
    middle = linearise_at(part.levels, part.model)
    cells, tails = slices(part, middle, 1e9)
    assert cells.chance.size == 3
    for mine, value, variance in zip((cells, tails), middle.values, middle.variances, strict=True):
        width = 1.96 * np.sqrt(variance)
        assert mine.quantile(1.96)[1:10] == pytest.approx((value + width)[1:10], abs=0.05 * width[1:10].max())
        assert mine.quantile(-1.96)[1:10] == pytest.approx((value - width)[1:10], abs=0.05 * width[1:10].max())


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("span", [1, 3, 40])
def test_errors_by_convolution_are_those_one_by_one(form, layers, span):
    rng = np.random.default_rng(35)
    line = linear(publish([COUNTS], epsilon="0.7", rng=rng, form=form, layers=layers, max_count=60))
    steps, other = rng.normal(size=(2, span + 1))
    law = rng.dirichlet(np.ones(span + 1))
    one_by_one = line.joint(toeplitz(steps, np.zeros(span + 1)), other, law)
    for mine, theirs in zip(joint_of_shifts(line, steps, other, law), one_by_one, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)
