"""Answers: published vectors digit for digit, exact expected errors, coverage, and what does not apply is refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.denoising.expected import expected_errors, shrinkage_error, threshold_errors
from sketchstream.denoising.methods import (
    apply_facts,
    cut,
    denoise_by,
    shrink_to_mean,
    shrunk,
    soft,
    universal_threshold,
)
from sketchstream.errors import DomainError, EstimateError
from sketchstream.kinds import kind_of
from sketchstream.kinds.gaussian.answers import GaussianEstimate
from sketchstream.kinds.gaussian.quantiles import interval_reach, noise_law, sure_width, tails
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.noise.laws import DiscreteGaussian

Y = np.array([3.0, -1.0, 2.0, 0.5])
CUBES = np.array([math.isqrt(10**8 // j**3) for j in range(1, 4097)])
HARMONIC = 10**4 // np.arange(1, 4097)
ROOTS = np.array([math.isqrt(4 * 10**6 // j) for j in range(1, 4097)])
FLAT = np.full(1024, 100)
STEPS = np.arange(4096) % 8
SQUARES = 10**5 // np.arange(1, 65537) ** 2
HISTOGRAMS = [
    (CUBES, 0.1, 0.957054, 0.957022, 0.099521, 0.053, 0.053, 0.048),
    (CUBES, 1, 0.999393, 0.999392, 0.406444, 0.157, 0.157, 0.140),
    (HARMONIC, 0.1, 0.968237, 0.967905, 0.534693, 0.240, 0.240, 0.218),
    (HARMONIC, 1, 0.999556, 0.999551, 4.125758, 0.834, 0.834, 0.751),
    (ROOTS, 0.1, 0.867591, 0.787286, 2.958312, 0.879, 0.788, 0.745),
    (FLAT, 0.1, 0.883951, None, 7.180893, 1.00, None, None),
    (STEPS, 1, 0.495386, 0.227922, 0.979123, 0.636, 0.228, 0.228),
    (SQUARES, 0.1, 0.992083, 0.992083, 0.010882, 0.0061, 0.0061, 0.0056),
]


def estimate(state: object, method: str = "auto", **options: object) -> GaussianEstimate:
    counts = np.array(state, np.int64)
    spec = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=len(counts)))
    return GaussianEstimate(spec, [Fraction(1)], counts, method, **options)  # type: ignore[arg-type]


def test_published_vectors_of_the_denoisers() -> None:
    js = shrunk(Y, 1.0)
    assert js.values == pytest.approx([2.578947368, -0.859649123, 1.719298246, 0.429824561], abs=5e-10)
    assert js.risk == pytest.approx(3.719298245614, abs=5e-13)
    mean = shrink_to_mean(Y, 1.0)
    assert mean.values == pytest.approx([2.795918367, -0.768707483, 1.904761905, 0.568027211], abs=5e-10)
    assert mean.risk == pytest.approx(3.891156462585, abs=5e-13)
    threshold = universal_threshold(1.0, 4)
    assert threshold == pytest.approx(1.665109222315, abs=5e-13)
    moved = soft(Y, 1.0, threshold)
    assert moved.values == pytest.approx([1.334890778, 0, 0.334890778, 0], abs=5e-10)
    assert moved.risk == pytest.approx(6.795177444480, abs=5e-12)


def test_the_threshold_is_the_best_of_all_that_are_allowed() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        d = int(random.integers(2, 30))
        y = np.rint(random.normal(0, 3, d) + random.choice([0, 20], d, p=[0.8, 0.2]))
        allowed = [0.0, *(size for size in np.abs(y) if size <= universal_threshold(2.0, d))]
        best = min(soft(y, 2.0, one).risk for one in allowed)
        found = cut(y, 2.0)
        assert found.setting in allowed
        assert found.risk == pytest.approx(best, abs=1e-9)
        assert soft(y, 2.0, found.setting).risk == pytest.approx(best, abs=1e-9)


def test_factors_are_never_negative() -> None:
    for found in (shrunk(np.full(9, 0.1), 4.0), shrunk(np.zeros(9), 4.0)):
        assert found.setting == 0
        assert not found.values.any()
    flat = shrink_to_mean(np.full(9, 7.0), 4.0)
    assert flat.values.tolist() == [7.0] * 9


@pytest.mark.parametrize(
    ("d", "risk"), [(4, 0.7838338208), (10, 0.6209130103), (100, 0.5124621847), (1000, 0.5012496247)]
)
def test_published_errors_of_shrinkage(d: int, risk: float) -> None:
    assert shrinkage_error(d, 1.0, d, positive=False) / d == pytest.approx(risk, abs=5e-11)


@pytest.mark.parametrize(("d", "risk"), [(10, 0.12576739), (100, 0.01075791)])
def test_published_errors_of_positive_part_shrinkage_at_zero(d: int, risk: float) -> None:
    assert shrinkage_error(0, 1.0, d) / d == pytest.approx(risk, abs=5e-9)


def test_large_norms_go_over_into_the_expansion() -> None:
    below, above = (shrinkage_error(2e6 * one, 1.0, 1000) for one in (1 - 1e-6, 1 + 1e-6))
    assert 1000 - above == pytest.approx((1000 - below) * (1 - 2e-6), rel=1e-7)


@pytest.mark.parametrize(
    ("epsilon", "d", "js", "threshold"),
    [
        (0.01, 10, 0.54559, 0.71673),
        (0.01, 100, 0.08913, 0.08397),
        (0.01, 1000, 0.00937, 0.00842),
        (0.1, 100, 0.81018, 3.0065),
        (0.1, 1000, 0.29534, 0.41516),
        (1, 1000, 0.96107, 8.6214),
    ],
)
def test_mean_estimation_has_its_published_errors(epsilon: float, d: int, js: float, threshold: float) -> None:
    variance = ss.calibrate(epsilon, 1e-4, math.sqrt(d) / 500) ** 2
    prior = 1 + 1 / (12 * 500)
    random = np.random.default_rng(2018)
    means = random.normal(0, math.sqrt(prior), (400, d))
    found = np.mean([shrinkage_error(float(one @ one), variance, d) for one in means]) / (d * variance)
    assert found == pytest.approx(js, rel=0.03)
    cuts = threshold_errors(means.reshape(-1), variance, universal_threshold(variance, d)).mean() / variance
    assert cuts == pytest.approx(threshold, rel=0.03)


@pytest.mark.parametrize("row", HISTOGRAMS, ids=lambda row: f"{len(row[0])}-{row[0][0]}-{row[1]}")
def test_histograms_have_their_published_expected_errors(row: tuple) -> None:
    counts, epsilon, js, js_mean, threshold, soft_sure, auto, _ = row
    variance, d = ss.calibrate(epsilon, 1e-6) ** 2, len(counts)
    found = {name: error / (d * variance) for name, error in expected_errors(counts, variance).items()}
    assert found["raw"] == pytest.approx(1)
    assert found["js"] == pytest.approx(js, abs=5.5e-7)
    if js_mean is not None:
        assert found["js_mean"] == pytest.approx(js_mean, abs=5.5e-7)
    fixed = threshold_errors(counts.astype(float), variance, universal_threshold(variance, d)).sum()
    assert fixed / (d * variance) == pytest.approx(threshold, abs=5.5e-7)
    assert found["soft_sure"] == pytest.approx(soft_sure, rel=0.035)
    if auto is not None:
        assert found["auto"] <= auto * 1.035


@pytest.mark.statistics
@pytest.mark.parametrize("row", HISTOGRAMS, ids=lambda row: f"{len(row[0])}-{row[0][0]}-{row[1]}")
def test_auto_is_the_best_column_of_every_histogram(row: tuple) -> None:
    counts, epsilon, *_, auto, clipped = row
    sigma, d = float(ss.calibrate(epsilon, 1e-6)), len(counts)
    random, runs = np.random.default_rng(77), 8 if len(counts) > 10_000 else 16
    names = ("raw", "js", "js_mean", "soft_sure", "empirical_bayes", "auto")
    errors: dict[str, list[float]] = {name: [] for name in (*names, "clipped")}
    for _ in range(runs):
        y = counts + random.normal(0, sigma, d)
        for name in names:
            values = denoise_by(y, sigma**2, name).values
            errors[name].append(float(np.sum((values - counts) ** 2)) / (d * sigma**2))
        clean = apply_facts(denoise_by(y, sigma**2).values, nonnegative=True)
        errors["clipped"].append(float(np.sum((clean - counts) ** 2)) / (d * sigma**2))
    mean = {name: float(np.mean(found)) for name, found in errors.items()}
    error = {name: float(np.std(found)) / math.sqrt(runs) for name, found in errors.items()}
    best = min(names[:-1], key=mean.__getitem__)
    assert mean["auto"] <= mean[best] + 4 * error[best]
    assert mean["auto"] <= 1.03**2 * mean[best] + 1 / d  # one variance of one slot is what the weights may cost
    expected = expected_errors(counts, sigma**2)
    for name in ("raw", "js", "js_mean"):
        assert abs(mean[name] - expected[name] / (d * sigma**2)) < 5 * error[name] + 1e-6
    if auto is not None:  # what the best of the other methods has
        assert mean["auto"] <= auto * 1.03 + 4 * error["auto"]
        assert mean["clipped"] <= clipped * 1.03 + 4 * error["clipped"]
    assert mean["clipped"] <= mean["auto"] * (1 + 1e-9)


def test_auto_shrinks_about_the_mean_if_slots_are_few_and_is_raw_if_noise_is_little() -> None:
    assert denoise_by(np.arange(3.0), 9.0).method == "raw"
    assert denoise_by(np.arange(4.0), 9.0).method == "js_mean"
    assert estimate([3, -1, 2, 5]).method == "js_mean"
    spec = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4))
    little = [Fraction(9, 10)]
    assert GaussianEstimate(spec, little, np.arange(4)).method == "raw"
    with pytest.raises(EstimateError, match="variance 1 or more"):
        GaussianEstimate(spec, little, np.arange(4), "js")


def test_what_does_not_apply_is_refused() -> None:
    for method, counts, variance, target in (
        ("softer", Y, 1.0, None),
        ("soft", Y[:1], 1.0, None),
        ("js", Y[:2], 1.0, None),
        ("js_mean", Y[:3], 1.0, None),
        ("soft_sure", Y[:1], 1.0, None),
        ("empirical_bayes", Y[:3], 1.0, None),
        ("weighted", Y[:3], 1.0, None),
        ("target", Y, 1.0, None),
        ("js", Y, 1.0, Y),
        ("target", Y, 1.0, Y[1:]),
        ("target", Y, 1.0, np.full(4, np.nan)),
    ):
        with pytest.raises(EstimateError):
            denoise_by(counts, variance, method, target)


def test_shrinking_towards_a_target_is_shrinking_what_is_left() -> None:
    goal = np.array([2.0, 0, 2, 0])
    found = estimate([3, -1, 2, 5], "target", target=goal)
    assert found.values == pytest.approx(goal + shrunk(np.array([3.0, -1, 2, 5]) - goal, 1.0).values)
    assert found.method == "target"


def test_refinements_are_applied_in_order() -> None:
    values = np.array([-2.0, 1.0, 3.0])
    assert apply_facts(values, nonnegative=True).tolist() == [0, 1, 3]
    assert apply_facts(values, nonnegative=True, total=8.0).tolist() == [0, 2, 6]
    assert apply_facts(values, nonnegative=True, total=5.0, whole=True).tolist() == [0, 1, 4]
    assert apply_facts(np.array([-2.0, 1.0]), total=9.0).tolist() == [-2, 1]  # a sum below 0 cannot be scaled


def test_counts_and_sums_in_user_units() -> None:
    spec = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(items=["a", 5, b"c"]), max_weight="1/4", fraction_bits=2)
    answers = GaussianEstimate(spec, [Fraction(64), Fraction(36)], np.array([40, -8, 11], np.int64), "raw")
    assert answers.values.tolist() == [10, -2, 2.75]
    assert answers.stderr.tolist() == [2.5] * 3
    assert answers.variance == Fraction(25, 4)
    one = answers.count(5)
    assert (one.value, one.stderr) == (-2, 2.5)
    assert (one.low, one.high) == (-2 - 19 / 4, -2 + 20 / 4)  # 1.96 standard errors of 10 quarters, in whole quarters
    assert answers.interval(0.9)[0].tolist() == [10 - 16 / 4, 10 + 16 / 4]
    both = answers.sum(items=["a", b"c"])
    assert (both.value, both.stderr) == (12.75, pytest.approx(2.5 * math.sqrt(2)))
    assert answers.sum().value == answers.sum(0, 3).value == 10.75
    assert answers.sum(1).to_dict() == answers.sum(items=[5, b"c"]).to_dict()
    assert [one.item for one in answers.top(3)] == ["a", b"c", 5]
    assert json.loads(answers.to_json())["labels"]["item"] == ["a", 5, "63"]
    rows = list(answers.rows())
    assert [row["item"] for row in rows] == ["a", 5, b"c"]
    assert (rows[0]["low"], rows[0]["high"]) == tuple(answers.interval()[0])
    assert "a: 10" in str(answers)
    assert "10" not in repr(answers)


def test_questions_that_have_no_answer_are_refused() -> None:
    answers = estimate([1, 2, 3])
    for item in (3, -1, True, "1", 1.0):
        with pytest.raises(DomainError):
            answers.count(item)  # type: ignore[arg-type]
    for low, high in ((2, 2), (-1, 2), (0, 4), (True, 2)):
        with pytest.raises(DomainError):
            answers.sum(low, high)
    for items in ([], [1, 1]):
        with pytest.raises(DomainError):
            answers.sum(items=items)
    with pytest.raises(EstimateError):
        answers.sum(0, 1, items=[1])
    for k in (0, 4, True, 1.5):
        with pytest.raises(EstimateError):
            answers.top(k)  # type: ignore[arg-type]
    for level in (0, 1, math.nan, -0.5):
        with pytest.raises(EstimateError):
            answers.interval(level)
    with pytest.raises(EstimateError):
        GaussianEstimate(answers.spec, [], np.zeros(3, np.int64))
    with pytest.raises(EstimateError):
        GaussianEstimate(answers.spec, [Fraction(1)], np.zeros(4, np.int64))
    listed = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(items=["a", "b"]))
    outline = GaussianSpec.from_dict(listed.to_dict())
    nameless = GaussianEstimate(outline, [Fraction(1)], np.zeros(2, np.int64))
    with pytest.raises(DomainError, match="not at hand"):
        nameless.count("a")
    assert nameless.top(1)[0].item is None
    with pytest.raises(DomainError) as caught:
        GaussianEstimate(listed, [Fraction(1)], np.zeros(2, np.int64)).count("secret")
    assert "secret" not in str(caught.value)


LAYERS = [["1/4"], ["1"], ["22/7"], ["15"], ["16"], ["18330/1024", "18330/1024"], ["10.25", "10.3"], ["8192", "500"]]


@pytest.mark.parametrize("layers", LAYERS, ids="+".join)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_intervals_are_the_shortest_whole_ones_that_cover(layers: list[str], level: float) -> None:
    """By the exact law of the layers' sum; z sigma covers 94.0% instead of 95 at epsilon 1.35."""
    law = np.ones(1)
    for one in layers:
        radius = math.ceil(11 * math.sqrt(float(Fraction(one))))
        law = np.convolve(law, DiscreteGaussian(Fraction(one)).pmf(np.arange(-radius, radius + 1)))
    middle = len(law) // 2

    def covered(below: int, above: int) -> float:
        return float(law[middle - below : middle + above + 1].sum())

    variances = [Fraction(one) for one in layers]
    below, above = interval_reach(variances, level)
    assert above - below in (0, 1)
    assert covered(below, above) >= level - 1e-12
    shorter = (below, above - 1) if above > below else (below - 1, above)
    assert below == above == 0 or covered(*shorter) < level
    if len(layers) == 1:
        assert sure_width(variances, 1 - level) in (above, above + 1)


@pytest.mark.parametrize(
    ("epsilon", "layers", "less", "least"),
    [
        ("2", 1, 0.920, 0.957),
        ("3", 1, 0.937, 0.977),
        ("4", 1, 0.893, 0.972),
        ("2", 2, 0.939, 0.960),
        ("3", 2, 0.925, 0.960),
        ("4", 2, 0.922, 0.968),
    ],
)
def test_what_whole_intervals_can_cover_at_large_epsilon(epsilon: str, layers: int, less: float, least: float) -> None:
    """The best interval of each width, over all places: coverage jumps over 94 to 96% or ends near its upper edge."""
    sigma2 = ss.calibrate_discrete(epsilon, "1e-6").sigma2
    law = np.ones(1)
    for _ in range(layers):
        law = np.convolve(law, DiscreteGaussian(sigma2).pmf(np.arange(-30, 31)))
    best = [float(np.convolve(law, np.ones(width)).max()) for width in range(1, 30)]
    first = next(place for place, covered in enumerate(best) if covered >= 0.95)
    assert (best[first - 1], best[first]) == pytest.approx((less, least), abs=6e-4)
    assert sum(interval_reach([sigma2] * layers, 0.95)) == first


def test_wide_noise_and_sums_go_over_into_the_normal_law() -> None:
    near, far = (interval_reach([Fraction(one)], 0.95) for one in ((1 << 20) - 1, 1 << 20))
    assert far == (2007, 2007)
    assert near in ((2006, 2007), (2007, 2007))
    assert interval_reach([Fraction(100)], 0.95, 4) == interval_reach([Fraction(400)], 0.95) == (39, 39)


def test_the_law_of_layers_is_their_convolution() -> None:
    points = np.arange(-60, 61)
    one, other = DiscreteGaussian(Fraction(1, 2)).pmf(points), DiscreteGaussian(Fraction(2)).pmf(points)
    wanted = np.convolve(np.convolve(one, one), np.convolve(other, other))
    found = noise_law([Fraction(1, 2), Fraction(2)], 2)
    radius, middle = len(found) // 2, len(wanted) // 2
    assert found == pytest.approx(wanted[middle - radius : middle + radius + 1], abs=1e-15)
    assert tails(found)[0] == pytest.approx(1 - wanted[middle])


@pytest.mark.parametrize("variances", [["16"], ["18330/1024"], ["9", "9"], ["1"] * 20, ["1/3"] * 60, ["1000000"]])
@pytest.mark.parametrize("miss", [0.3, 0.05, 1e-4, 1e-9])
def test_sure_widths_are_sure(variances: list[str], miss: float) -> None:
    layers = [Fraction(one) for one in variances]
    width, total = sure_width(layers, miss), float(sum(layers))
    if len(layers) == 1:
        points = np.arange(width + 1, width + 1 + math.ceil(14 * math.sqrt(total)))
        beyond = 2 * float(DiscreteGaussian(layers[0]).pmf(points).sum())
    else:
        radius = math.ceil(12 * math.sqrt(total))
        law = np.ones(1)
        for one in layers:
            law = np.convolve(law, DiscreteGaussian(one).pmf(np.arange(-radius // 3, radius // 3 + 1)))
        beyond = 2 * float(law[len(law) // 2 + width + 1 :].sum())
    assert 0 < beyond <= miss
    assert beyond >= miss / 60 or float(min(layers)) < 1


@pytest.mark.statistics
@pytest.mark.parametrize("truth", ["equal", "falling", "two"])
def test_top_covers_all_selected_counts_at_once(truth: str) -> None:
    d, k, runs, sigma2 = 300, 8, 2000, Fraction(36)
    counts = {
        "equal": np.full(d, 500),
        "falling": 20_000 // np.arange(1, d + 1),
        "two": np.repeat([900, 30], [10, d - 10]),
    }[truth]
    spec = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=d))
    random = np.random.default_rng(5)
    together = naive = 0
    for _ in range(runs):
        state = counts + np.rint(random.normal(0, 6, d)).astype(np.int64)
        top = GaussianEstimate(spec, [sigma2], state, "raw").top(k)
        together += all(one.low <= counts[one.slot] <= one.high for one in top)
        naive += all(abs(one.value - counts[one.slot]) <= interval_reach([sigma2], 0.95)[1] for one in top)
    assert together / runs >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    assert naive / runs < 0.85  # intervals that ignore the selection are refused


def population(seed: int) -> np.ndarray:
    """True counts of a random law: small or large, sparse or dense, flat or falling."""
    random = np.random.default_rng(seed)
    d = int(random.choice([70, 300, 1000]))
    laws = {
        "poisson": lambda: random.poisson(random.choice([0.5, 3.0, 40.0]), d),
        "zipf": lambda: np.minimum(random.zipf(random.uniform(1.4, 2.5), d), 10**6),
        "geometric": lambda: random.geometric(random.choice([0.5, 0.05]), d),
        "levels": lambda: random.choice([0, 10, 200], d),
        "spread": lambda: random.integers(0, random.choice([100, 10**5]), d),
    }
    counts = laws[str(random.choice(list(laws)))]()
    counts[random.random(d) < random.choice([0, 0.5, 0.9])] = 0
    return counts


def test_counts_in_two_groups_have_posterior_means_though_none_is_near_the_middle_of_both() -> None:
    """An even number of counts, half of them so far from the others that one grid does not hold both."""
    noisy = np.repeat([0.0, 10_000.0], 40) + np.random.default_rng(3).normal(0, 1, 80)
    found = denoise_by(noisy, 1.0, "empirical_bayes").values
    assert np.sum((found[:40]) ** 2) < np.sum(noisy[:40] ** 2) / 4
    np.testing.assert_array_equal(found[40:], noisy[40:])  # outside the grid, as they are


def test_weights_fall_with_the_estimated_errors_and_agree_where_nothing_can_be_told() -> None:
    random = np.random.default_rng(6)
    levels = random.choice([0, 100], 80) + random.normal(0, 5, 80)
    far = denoise_by(levels, 25.0)
    assert far.method == "weighted"
    np.testing.assert_allclose(far.values, denoise_by(levels, 25.0, "empirical_bayes").values, atol=0.01)
    y = random.normal(0, 5, 80)
    found = denoise_by(y, 25.0)
    three = [denoise_by(y, 25.0, name) for name in ("js_mean", "js", "empirical_bayes")]
    assert min(one.risk for one in three) <= found.risk <= max(one.risk for one in three)
    lowest, highest = np.min([one.values for one in three], axis=0), np.max([one.values for one in three], axis=0)
    assert np.all((lowest - 1e-9 <= found.values) & (found.values <= highest + 1e-9))
    for one in three:
        assert not np.allclose(found.values, one.values)  # none is left alone where all seem equally good


@pytest.mark.statistics
def test_weights_lose_less_than_choosing_by_the_least_estimated_error() -> None:
    """Small signals, where the choice is made by the noise: what is lost against the best method, in variances."""
    names = ("js_mean", "js", "empirical_bayes")
    lost, chosen = [], []
    for seed in range(12):
        random = np.random.default_rng([9, seed])
        counts = np.where(np.arange(70) % 24 < 12, 0, random.poisson(random.choice([2, 20]), 70)).astype(float)
        if seed % 2:
            counts = np.minimum(random.zipf(1.7, 70), 10_000) * (random.random(70) < 0.5)
        sigma = 10 ** random.uniform(0.3, 1.5)
        errors = []
        for _ in range(30):
            y = counts + random.normal(0, sigma, 70)
            found = [denoise_by(y, sigma**2, name) for name in names]
            least = min(found, key=lambda one: one.risk)
            each = (*found, denoise_by(y, sigma**2), least)
            errors.append([float(np.sum((one.values - counts) ** 2)) / sigma**2 for one in each])
        mean = np.mean(errors, axis=0)
        lost.append(mean[3] - mean[:3].min())
        chosen.append(mean[4] - mean[:3].min())
    assert np.mean(lost) <= 1.5
    assert max(lost) <= 8 * math.log(1 + 2 * math.e)  # the bound for methods that are linear in the counts
    assert np.mean(chosen) > np.mean(lost)


@pytest.mark.statistics
@pytest.mark.parametrize("seed", range(6))
def test_auto_is_within_3_percent_of_the_best_on_counts_held_out(seed: int) -> None:
    """No number was tuned on these; the long version is `bench/accuracy.py --part page`."""
    counts = population(1000 + seed)
    random = np.random.default_rng([2, seed])
    sigma = math.sqrt(2) * float(ss.calibrate(10 ** random.uniform(-1, 0.6), 1e-6))
    names, runs = ("raw", "js", "js_mean", "soft_sure", "empirical_bayes", "auto"), 15
    errors, claimed = np.zeros((runs, len(names))), np.zeros(runs)
    for run in range(runs):
        y = counts + random.normal(0, sigma, len(counts))
        found = [denoise_by(y, sigma**2, name) for name in names]
        errors[run] = [np.sum((one.values - counts) ** 2) / sigma**2 for one in found]
        claimed[run] = found[-1].expected_loss / sigma**2
    mean, error = errors.mean(axis=0), errors.std(axis=0) / runs**0.5
    best = int(mean[:-1].argmin())
    assert mean[-1] <= 1.03**2 * mean[best] + 4 * error[best]
    assert (claimed > 0).all()  # an error is never said to be 0
    known = math.sqrt(2 * len(counts))  # what is lost in the noise of all slots together
    assert abs(claimed.mean() - mean[-1]) <= 0.05 * mean[-1] + known


def test_an_error_that_is_lost_in_the_noise_is_never_said_to_be_0() -> None:
    """Hourly counts of a timetable at epsilon 1/4: half of the slots empty, the others small."""
    random = np.random.default_rng(4)
    counts = np.where(np.arange(4000) % 24 < 12, 0, random.poisson(2.0, 4000))
    spec = GaussianSpec("1/4", "1e-6", domain=ss.ClosedDomain(size=4000))
    sigma, errors, best, said = math.sqrt(float(sum(spec.published_variances))), [], [], []
    for _ in range(20):
        state = counts + np.rint(random.normal(0, sigma, 4000)).astype(np.int64)
        found = GaussianEstimate(spec, spec.published_variances, state)
        said.append(found.estimated_rmse)
        errors.append(float(np.mean((found.values - counts) ** 2)))
        best.append(float(np.mean((shrink_to_mean(state.astype(float), sigma**2).values - counts) ** 2)))
    assert np.mean(errors) <= np.mean(best) + 4 * np.std(best) / 20**0.5 + sigma**2 / 4000
    assert np.mean(errors) < 1.2 * np.mean(best)  # the least of all estimated errors has 1.4
    assert min(said) > 0.5
    assert max(said) < 8  # a third of sigma: the noise of 4,000 slots does not tell more


def test_means_of_real_records_are_denoised_as_in_the_paper() -> None:
    """Balle & Wang 2018, section 5: 500 records of d numbers around a normal mean; delta 1e-4, one record replaced."""
    random = np.random.default_rng(6)
    for epsilon, d, js, cutting in ((0.01, 100, 0.08913, 0.08397), (0.1, 1000, 0.29534, 0.41516)):
        sigma = float(ss.calibrate(epsilon, 1e-4, math.sqrt(d) / 500))
        ratios: dict[str, list[float]] = {"js": [], "soft": [], "auto": []}
        for _ in range(60):
            records = random.normal(0, 1, d) + random.uniform(-0.5, 0.5, (500, d))
            truth = records.mean(axis=0)
            noisy = truth + random.normal(0, sigma, d)
            for name, found in ratios.items():
                found.append(float(np.sum((ss.denoise(noisy, sigma, name).values - truth) ** 2)) / (d * sigma**2))
        for name, wanted in (("js", js), ("soft", cutting)):
            error = np.std(ratios[name]) / 60**0.5
            assert abs(np.mean(ratios[name]) - wanted) < 0.03 * wanted + 4 * error
        assert np.mean(ratios["auto"]) <= 1.06 * js + 1 / d  # it does not know that the mean is 0
    for wrong in ((np.zeros((2, 2)), 1.0), (np.array([np.nan] * 4), 1.0), (np.zeros(4), 0.0), (np.zeros(4), "1")):
        with pytest.raises(EstimateError):
            ss.denoise(*wrong)  # type: ignore[arg-type]


def test_a_text_for_an_id_is_refused_without_the_name_of_its_type() -> None:
    spec = GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=200))
    answers = GaussianEstimate(spec, spec.published_variances, np.zeros(200, np.int64))
    with pytest.raises(DomainError, match=r"ids from 0 to 199, found a text that is not an id$"):
        answers.count("N14228")


@pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
@pytest.mark.parametrize("epsilon", ["1", "12", "15"])
def test_the_standard_error_is_that_of_noise_of_a_few_whole_numbers(epsilon: str) -> None:
    spec = GaussianSpec(epsilon, "1e-6", domain=ss.ClosedDomain(size=40_000))
    answers = ss.Sketch.create(spec).seal().estimate(method="raw")
    ratio = float(np.mean(answers.raw**2)) / float(answers.stderr[0]) ** 2
    doubt = float(np.std(answers.raw**2)) / float(np.mean(answers.raw**2)) / 200
    assert abs(ratio - 1) < 6 * doubt
    assert float(answers.variance) == pytest.approx(float(answers.stderr[0]) ** 2)
    name, expected = kind_of(spec).expected_error(spec)
    assert (name, expected) == ("count", pytest.approx(float(answers.stderr[0])))
    wrong = ratio * float(answers.variance / sum(spec.published_variances))  # with sigma2 in place of the variance
    assert (epsilon == "1") == (abs(wrong - 1) < 6 * doubt)
