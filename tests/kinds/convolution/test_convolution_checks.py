"""Verification of drawn noise, figures before creation, and coverage of intervals."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.convolution_losses import (
    exact_loss,
    extreme_neighbours,
    spectral_loss,
    verified_delta,
)
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.forecast import advice, figure, forecast
from sketchstream.kinds.convolution.mechanisms.scheme import mu_of
from sketchstream.kinds.convolution.reading import quantiles
from sketchstream.kinds.convolution.reading.answers import answers
from sketchstream.kinds.convolution.reading.quantiles import _by_inversion, _quantile_by_inversion, normal_half_width
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise
from sketchstream.kinds.linear.causal import dense_rows
from sketchstream.spec import NoPrivacyWarning

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6"}
MADE = [
    ConvolutionSpec("sum", 16, noise="gaussian", **GIVEN),
    ConvolutionSpec("window:5", 23, noise="gaussian", unit="item", max_total=7, **GIVEN),
    ConvolutionSpec("window:5", 23, noise="laplace", max_weight=3, **GIVEN),
    ConvolutionSpec("window:5", 23, noise="laplace_pure", epsilon=1),
    ConvolutionSpec("window:5", 23, noise="counts", max_weight=2, **GIVEN),
    ConvolutionSpec(["window:5", "sum"], 40, noise="tree", max_weight=2, **GIVEN),
    ConvolutionSpec(["window:5", "sum"], 40, noise="toeplitz", max_weight=2, **GIVEN),
    ConvolutionSpec(np.arange(8.0), 8, group="bool", noise="gaussian", **GIVEN),
]


@pytest.mark.parametrize("spec", MADE, ids=lambda spec: f"{spec.noise} {spec.size}")
def test_no_neighbour_loses_more_than_the_layer_says(spec: ConvolutionSpec) -> None:
    losses = [exact_loss(spec, one) for one in extreme_neighbours(spec)]
    assert 0 < max(losses) <= spec.layer().loss
    assert max(losses) >= spec.layer().loss * Fraction(2, 3)
    assert verified_delta(spec) <= float(spec.delta)
    assert losses.index(max(losses)) < 3


@pytest.mark.parametrize("spec", MADE[:4], ids=lambda spec: f"{spec.noise} {spec.size}")
def test_mutants_of_the_noise_are_refused(spec: ConvolutionSpec) -> None:
    layer, right = spec.layer(), spec.scheme.lattice_scales(spec.layer())
    weaker, single = right * 0.9, right.copy()
    single[len(single) // 2] /= 40
    flat = np.full(len(right), np.floor(right.min()))
    for wrong in (weaker, single, flat):
        assert max(exact_loss(spec, one, layer, np.floor(wrong)) for one in extreme_neighbours(spec)) > layer.loss
    nothing = right.copy()
    nothing[0] = 0
    with pytest.raises((SpecError, ZeroDivisionError)):
        exact_loss(spec, extreme_neighbours(spec)[0], layer, nothing)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_layout_time_uses_its_budget(noise: Any) -> None:
    spec = ConvolutionSpec("sum", 200, noise=noise, layout="time", max_weight=4, **GIVEN)
    assert spectral_loss(spec) <= float(spec.layer().loss)
    assert spectral_loss(spec) == pytest.approx(float(spec.layer().loss), rel=1e-9)
    assert verified_delta(spec) <= 1e-6
    assert spec.scheme.sampling_delta(spec.epsilon, spec.delta) < Fraction(1, 10**21)
    with pytest.raises(SpecError, match="spectral_loss"):
        exact_loss(spec, extreme_neighbours(spec)[0])


def test_verification_refuses_a_layer_that_promises_too_much() -> None:
    from dataclasses import replace

    spec = MADE[0]
    with pytest.raises(SpecError, match="noise is too small"):
        verified_delta(spec, replace(spec.layer(), loss=spec.layer().loss * Fraction(101, 100)))


@pytest.mark.statistics
def test_privacy_of_layout_time_against_the_best_test(seeded: Any) -> None:
    """The likelihood ratio of present and absent event, on states as drawn, hits the exact delta and not less."""
    with pytest.warns(NoPrivacyWarning, match="delta above 1e-3"):
        spec = ConvolutionSpec(
            [1, 1, 1, 0, 0, 0, 0], 7, mode="circular", epsilon="1/2", delta="1/20", noise="gaussian", layout="time"
        )
    assert float(mu_of(Fraction(1, 2), Fraction(1, 20))) == pytest.approx(0.491832983030, rel=3e-11)
    precision = np.fft.ifft(1 / spec.scheme.scales2(spec.layer())).real
    source, runs = seeded(5), 2000
    statistic = []
    for _ in range(runs):
        state = np.zeros(spec.size, np.int64)
        add_noise(spec, state, entropy=source)
        statistic.append(state / spec.grid @ precision)
    absent = np.array(statistic) - precision[0] / 2
    present = absent + precision[0]
    for found, exact in ((absent, 0.103381), (present, 0.220446)):
        assert np.mean(found > 0.5) == pytest.approx(exact, abs=4.5 * math.sqrt(exact * (1 - exact) / runs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_privacy_of_layout_time_over_many_draws(seeded: Any) -> None:
    for kernel in ([1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]):
        spec = ConvolutionSpec(
            kernel, len(kernel), mode="circular", epsilon="1/2", delta="1/20", noise="gaussian", layout="time"
        )
        precision = np.fft.ifft(1 / spec.scheme.scales2(spec.layer())).real
        source, runs = seeded(6), 30_000
        loss = np.empty(runs)
        for run in range(runs):
            state = np.zeros(spec.size, np.int64)
            add_noise(spec, state, entropy=source)
            loss[run] = state / spec.grid @ precision
        absent, present = np.mean(loss - precision[0] / 2 > 0.5), np.mean(loss + precision[0] / 2 > 0.5)
        error = math.sqrt((present + math.exp(1) * absent) / runs)
        assert present - math.exp(0.5) * absent == pytest.approx(0.05, abs=4 * error)
        spent = np.maximum(0, -np.expm1(0.5 - loss - precision[0] / 2))  # the same delta, with less variance
        assert np.mean(spent) == pytest.approx(0.05, abs=4.5 * float(np.std(spent)) / math.sqrt(runs))


def test_figures_before_creation() -> None:
    rows = forecast("window:168", 744, **GIVEN)
    assert rows == tuple(sorted(rows, key=lambda row: row.rmse[0]))
    assert {(row.noise, row.layout) for row in rows} >= {
        ("gaussian", "fourier"),
        ("gaussian", "time"),
        ("counts", "time"),
    }
    chosen = figure(ConvolutionSpec("window:168", 744, **GIVEN))
    assert chosen.rmse[0] == min(row.rmse[0] for row in rows)
    assert figure(ConvolutionSpec("window:168", 744, **GIVEN), parts=3).rmse[0] == pytest.approx(
        chosen.rmse[0] * math.sqrt(2)
    )
    assert chosen.to_dict()["words"] == chosen.words
    with pytest.raises(SpecError):
        forecast("window:0", 10, **GIVEN)


def test_advice_names_what_is_better() -> None:
    assert advice(ConvolutionSpec("window:24", 744, **GIVEN)) == ""
    table = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    assert "2 cells" in advice(ConvolutionSpec("marginal:a", columns=table, **GIVEN))


@pytest.mark.parametrize(("width", "limit"), [(64, 0.34), (168, 0.25)])
def test_errors_against_gaussian_noise_on_the_counts(width: int, limit: float) -> None:
    for epsilon in ("1", "0.5"):
        spec = ConvolutionSpec(f"window:{width}", 8760, epsilon=epsilon, delta="1e-6", noise="gaussian")
        on_counts = math.sqrt(width) / float(mu_of(Fraction(epsilon), Fraction(1, 10**6)))
        assert math.sqrt(float(spec.mse()[0])) / on_counts <= limit


def test_quantiles_of_sums_of_laplace_draws() -> None:
    for level in (0.5, 0.9, 0.95, 0.999):
        assert _quantile_by_inversion(np.array([math.sqrt(0.5)]), level) == pytest.approx(
            -math.log1p(-level) * math.sqrt(0.5), abs=2e-3
        )
        many = np.full(400, math.sqrt(1 / 800))
        assert _quantile_by_inversion(many, level) == pytest.approx(
            float(normal_half_width(level, np.array(3 / 400))), abs=2e-3
        )


@pytest.mark.parametrize(
    ("coefficients", "epsilon"),
    [
        ((1.0,), Fraction(1, 10**6)),
        ((1.0,) * 24, Fraction(1, 10**9)),
        ((1.0, 2.0, 5.0), Fraction(1, 10**4)),
        ((1.0, 0.9, 0.81, 0.729), Fraction(1, 10**4)),
    ],
    ids=["one draw", "window", "multiples", "decay"],
)
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_half_widths_of_wide_noise_cover_at_their_level(
    coefficients: tuple[float, ...], epsilon: Fraction, level: float
) -> None:
    """Sums over 2^15 lattice points: the work stays fixed, and the coverage is right to a fifth of a per cent."""
    lattice = 0.0 if 0.9 in coefficients else 1.0
    half = _by_inversion([(np.array(coefficients), epsilon)], level, lattice)
    random, runs = np.random.default_rng(5), 1 << 20
    draws = np.zeros(runs)
    for coefficient in coefficients:
        draws += coefficient * random.laplace(scale=1 / float(epsilon), size=runs)
    within = int(np.count_nonzero(np.abs(draws) <= half))
    allowed = 0.002 + 5 * math.sqrt(level * (1 - level) / runs)
    assert abs(within / runs - level) <= allowed
    narrow = int(np.count_nonzero(np.abs(draws) <= 0.97 * half))
    assert narrow / runs < level - 5 * math.sqrt(level * (1 - level) / runs)  # a half width 3% too small is seen


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("kernel", "size", "epsilon", "levels"),
    [
        ("identity", 24, 3, ((1, 1), (4, 1))),
        ("sum", 64, 4, ((1, 1), (8, 1))),
        (["sum", "identity"], 128, 4, ((1, 1), (32, 1))),
        ("window:8", 64, 8, ((1, 1), (4, 2))),
        ("decay:0.9", 64, 2, ((1, 1), (8, 1))),
    ],
)
def test_answers_of_a_tree_with_little_noise_are_covered(
    kernel: str | list[str], size: int, epsilon: int, levels: tuple[tuple[int, int], ...]
) -> None:
    """Errors are multiples of a step there, and levels between two of them; by kurtosis alone, 82% were held of 95."""
    spec = ConvolutionSpec(kernel, size, epsilon=epsilon, noise="tree", levels=levels)
    found, runs = answers(spec, [spec.layer()] * 2, np.zeros(spec.size, np.int64)), 40_000
    epsilons = np.full(runs, float(spec.scheme.count_epsilon(spec.layer())))
    random = np.random.default_rng(3)
    for filtered, answer in zip(spec.filters, found, strict=True):
        for place in (0, 1, 5, size - 1):
            row = np.zeros((1, size))
            row[:, :size] = dense_rows(filtered.coefficients, np.array([place]), size, size)
            error = np.zeros(runs)
            for coefficient in spec.scheme.tree.coefficients(row)[0]:
                for _ in range(2 if abs(coefficient) > 1e-12 else 0):
                    drawn = random.geometric(-np.expm1(-epsilons)) - random.geometric(-np.expm1(-epsilons))
                    error += coefficient * drawn
            for level in (0.5, 0.8, 0.95, 0.99):
                low, high = answer.interval(level)[place]
                half, allowed = (high - low) / 2, 4.5 * math.sqrt(level * (1 - level) / runs) + 0.002
                assert (np.abs(error) <= half + 1e-9).mean() > level - allowed
                assert (np.abs(error) < 0.98 * half - 1e-9).mean() < level + allowed


def test_half_widths_beyond_the_exact_inversion_continue_those_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = [(np.array([1.0, 1.0, 3.0]), Fraction(1, 60))]
    exact = _by_inversion(sums, 0.95, 1.0)
    monkeypatch.setattr(quantiles, "EXACT", 0)
    assert exact <= _by_inversion(sums, 0.95, 1.0) <= exact * 1.003 + 1


def test_intervals_of_sums_with_large_weights_take_no_more_memory_than_others() -> None:
    spec = ConvolutionSpec("window:24", 744, noise="counts", max_weight=10**9, capacity=1 << 50, **GIVEN)
    estimate = answers(spec, [spec.layer()], np.zeros(spec.size, np.int64))[0]
    tracemalloc.start()
    try:
        low, high = estimate.interval().T
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 24
    assert np.all(high - low > 10**9)


COVERED = {
    "gaussian": ConvolutionSpec("window:24", 168, noise="gaussian", **GIVEN),
    "gaussian, item": ConvolutionSpec("sum", 100, noise="gaussian", unit="item", max_total=9, **GIVEN),
    "pure, one coefficient": ConvolutionSpec(np.ones(16), 16, mode="circular", noise="laplace_pure", epsilon=1),
    "pure, a few": ConvolutionSpec("sum", 6, noise="laplace_pure", epsilon=1),
    "laplace, many": ConvolutionSpec("decay:0.9", 100, noise="laplace", **GIVEN),
    "counts, decay": ConvolutionSpec("decay:0.99", 150, noise="counts", epsilon="1/4"),
    "counts, average": ConvolutionSpec("average:24", 60, noise="counts", epsilon="1/10"),
}


@pytest.mark.statistics
@pytest.mark.parametrize("name", COVERED)
def test_intervals_hold_at_their_rate(name: str, seeded: Any) -> None:
    """Each position within 4.5 standard errors of 95%; whole-numbered noise may cover more, never less."""
    spec, runs, source = COVERED[name], 600, seeded(12)
    counts = np.random.default_rng(1).integers(0, 40, spec.length)
    truth_state = np.zeros(spec.size, np.int64)
    updater = Updater(spec)
    updater.apply(truth_state, np.repeat(np.arange(spec.length), counts))
    (truth,) = answers(spec, [spec.layer()], truth_state)
    layers = [spec.layer(), spec.layer(*([2] if spec.delta == 0 else [2, "1e-5"]))]
    covered = np.zeros(spec.length)
    half: Any = None
    for _ in range(runs):
        state = truth_state.copy()
        for layer in layers:
            add_noise(spec, state, layer, source)
        (found,) = answers(spec, layers, state)
        if half is None:
            low, high = found.interval().T
            half = (high - low) / 2
        covered += np.abs(found.values - truth.values) <= half + 1e-7
    error = math.sqrt(0.95 * 0.05 / runs)
    assert np.min(covered / runs) > 0.95 - 4.5 * error
    most = 0.975 if name == "counts, average" else 0.95
    assert np.max(covered / runs) < most + 4.5 * error
    alone = 4.5 * error if name == "pure, one coefficient" else 0.01  # all answers are then one number
    assert 0.95 - alone <= np.mean(covered / runs) <= (0.95 + alone if most == 0.95 else 0.985)
