"""Noise: exact laws, exact budgets, the fixed-point synthesis, and the hazards of storing a noisy state."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from helpers.convolution_losses import coordinates_of
from helpers.noise import oracle
from helpers.noise.words import Seeded
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.group import Coordinates, Group
from sketchstream.kinds.convolution.fourier.spectrum import Spectrum, spectral_shape
from sketchstream.kinds.convolution.mechanisms.independent import (
    ACCEPTED_BELOW,
    BASE,
    _sure_words,
    add_gaussian,
    add_laplace,
    base_draws,
)
from sketchstream.kinds.convolution.mechanisms.scheme import mu_of, rho_of
from sketchstream.kinds.convolution.mechanisms.spectral import MIN_CORRELATED
from sketchstream.kinds.convolution.mechanisms.synthesis import FRACTION, inverse_dft, roots, synthesize
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise
from sketchstream.noise import discrete_gaussian, discrete_laplace
from sketchstream.noise.entropy import Keystream
from sketchstream.noise.laws import DiscreteLaplace, battery

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "noise": "gaussian"}


def test_roots_of_unity_against_60_digits() -> None:
    with mpmath.workdps(80):
        for size in (1, 2, 3, 5, 8, 12, 67):
            real, imaginary = roots(size)
            for j in range(size):
                exact = mpmath.expjpi(mpmath.mpf(2 * j) / size)
                assert abs(mpmath.mpf(int(real[j])) / 2**FRACTION - exact.real) < mpmath.mpf(2) ** -(FRACTION - 2)
                assert abs(mpmath.mpf(int(imaginary[j])) / 2**FRACTION - exact.imag) < mpmath.mpf(2) ** -(FRACTION - 2)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8, 12, 35, 64, 67, 134])
def test_fixed_point_transforms_against_direct_sums(size: int) -> None:
    """Radices, mixed radices and Bluestein's way against exact sums of the roots; error below 2^-150."""
    random = np.random.default_rng(size)
    x = np.array([int(one) << 130 for one in random.integers(-(2**60), 2**60, (size, 2)).reshape(-1)], object)
    x = x.reshape(size, 2)
    y = x[:, ::-1].copy()
    real, imaginary = inverse_dft(x, y)
    cosine, sine = roots(size)
    for n in range(size):
        place = [n * k % size for k in range(size)]
        exact_real = (x * cosine[place][:, None] - y * sine[place][:, None]).sum(axis=0)
        exact_imaginary = (x * sine[place][:, None] + y * cosine[place][:, None]).sum(axis=0)
        for found, exact in ((real[n], exact_real), (imaginary[n], exact_imaginary)):
            assert all(abs(a - (b >> FRACTION)) < 1 << (FRACTION - 150) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize("shape", [(8,), (7,), (67,), (30,), (3, 4), (2, 2, 2)])
def test_synthesis_against_floats(shape: tuple[int, ...]) -> None:
    group = Group(shape)
    held = Coordinates.of(group, np.ones(group.size, np.bool_))
    random = np.random.default_rng(1)
    drawn, scales = random.normal(size=group.size), random.uniform(0.5, 30, group.size)
    exact = synthesize(held, np.array([int(Fraction(z) * 2**128) for z in drawn.tolist()], object), scales)
    expected = group.synthesize(held.transform(drawn * scales))
    assert (exact / 2**FRACTION).astype(float) == pytest.approx(expected, abs=1e-13)


def test_wide_gaussian_noise_has_its_law(seeded: Any) -> None:
    """Elements of different variance in one array, from one table: each against the exact normal quantiles."""
    sigmas = np.array([2.0**20, 3e6, 1e9, 2.0**34 + 0.5, 2.0**48])
    count = 40_000
    variances = np.repeat(np.floor(sigmas**2), count)
    out = np.zeros(len(variances), np.int64)
    add_gaussian(out, variances, seeded(3))
    for place, sigma in enumerate(sigmas.tolist()):
        drawn = out[place * count : (place + 1) * count] / sigma
        assert stats.kstest(drawn, "norm").pvalue > 1e-4
        assert np.var(drawn) == pytest.approx(1, abs=5 * math.sqrt(2 / count))
    wrong = out[:count] / sigmas[0] * 1.05
    assert stats.kstest(wrong, "norm").pvalue < 1e-4


def accepted(word: int, exponent: Fraction) -> bool:
    """Whether a uniform real that begins with this word is below exp(-exponent)."""
    uniform = Fraction(word, 1 << 32)
    return uniform + Fraction(1, 1 << 32) < 1 - exponent or uniform < oracle.exp_minus(exponent, 60)


def test_wide_gaussian_noise_equals_its_definition_word_by_word() -> None:
    """K, R, acceptance and sign of every element, read from the same words with Fractions."""
    variances = np.resize(np.array([2.0**40, 9.0 * 2**40, 2.0**60, 2.0**98]), 20_000)
    out = np.full(len(variances), 5, np.int64)
    add_gaussian(out, variances, Seeded(5))
    source, expected = Seeded(5), [5] * len(variances)
    pending, late = list(range(len(variances))), [0, 0]
    while pending:
        signed = np.zeros(2 * len(pending) + 64, np.int64)
        discrete_gaussian(signed, Fraction(BASE**2), source)
        cells = [z for z in signed.tolist() if z >= 0][: len(pending)]
        words, again = np.empty((4, len(cells)), np.uint32), []
        source.fill(words.reshape(-1))
        for i, k, (high, low, accept, sign) in zip(pending, cells, words.T.tolist(), strict=False):
            variance = int(variances[i])
            t = math.isqrt(variance) // BASE + 2
            rest = (high << 32 | low) >> (64 - t.bit_length())
            value = t * k + rest
            kept = accepted(accept, Fraction(value**2, 2 * variance) - Fraction(k * k, 2 * BASE**2))
            late[kept] += accept >= ACCEPTED_BELOW
            if rest < t and kept and not (sign >> 31 and value == 0):
                expected[i] += -value if sign >> 31 else value
            else:
                again.append(i)
        pending = again + pending[len(cells) :]
    assert out.tolist() == expected
    assert min(late) > 5, "late words, which E decides, are accepted and refused"


def test_laplace_noise_equals_its_definition_word_by_word() -> None:
    parts = np.resize(np.array([1, 3, 1000, 1 << 40]), 20_000)
    out = np.full(len(parts), 5, np.int64)
    add_laplace(out, parts, Seeded(6))
    source, expected = Seeded(6), [5] * len(parts)
    pending, late = list(range(len(parts))), [0, 0]
    while pending:
        cells = np.zeros(len(pending), np.int64)
        discrete_laplace(cells, Fraction(1, BASE), source)
        words, again = np.empty((4, len(pending)), np.uint32), []
        source.fill(words.reshape(-1))
        for i, z, (high, low, accept, sign) in zip(pending, cells.tolist(), words.T.tolist(), strict=True):
            t, k = int(parts[i]), z - 1 if z > 0 else -z
            rest = (high << 32 | low) >> (64 - t.bit_length())
            kept = accepted(accept, Fraction(rest, BASE * t))
            late[kept] += accept >= ACCEPTED_BELOW
            value = t * k + rest
            if rest < t and kept and not (sign >> 31 and value == 0):
                expected[i] += -value if sign >> 31 else value
            else:
                again.append(i)
        pending = again
    assert out.tolist() == expected
    assert min(late) > 5


def test_sure_words_are_below_every_true_acceptance() -> None:
    for sigma in (2.0**20, 2.0**30):
        sure, variance = _sure_words(int(sigma)), int(sigma**2)
        t = math.floor(sigma / BASE) + 2
        for k in (0, 1, 100, 511, 1500, 3000):
            exponent = Fraction((t * (k + 1)) ** 2, 2 * variance) - Fraction(k * k, 2 * BASE**2)
            assert (t * t) * BASE**2 >= variance
            assert int(sure[k]) / 2**32 < math.exp(-float(exponent))
            assert int(sure[k]) / 2**32 > math.exp(-float(exponent)) - float(exponent) ** 2 - 2e-9 or sure[k] == 0
        assert sure[-1] == 0


def test_small_variances_take_the_exact_tables(seeded: Any) -> None:
    out = np.zeros(50_000, np.int64)
    add_gaussian(out, np.full(len(out), 9.0), seeded(4))
    k = np.arange(-9, 10)
    law = np.exp(-(k**2) / 18.0)
    seen = np.array([np.sum(out == one) for one in k])
    expected = law / law.sum() * len(out)
    assert np.sum((seen - expected) ** 2 / expected) < stats.chi2.ppf(1 - 1e-6, len(k) - 1)
    assert np.var(out) == pytest.approx(9, rel=0.04)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_laplace_noise_has_its_law(parts: int, seeded: Any) -> None:
    out = np.zeros(60_000, np.int64)
    add_laplace(out, np.full(len(out), parts), seeded(parts))
    assert all(check.p_value > 1e-6 for check in battery(out, DiscreteLaplace(Fraction(1, BASE * parts))))
    off = battery(out, DiscreteLaplace(Fraction(20, 21 * BASE * parts)))
    assert min(check.p_value for check in off) < 1e-6


@pytest.mark.parametrize("gaussian", [True, False])
def test_base_draws_have_their_law(gaussian: bool, seeded: Any) -> None:
    drawn = (base_draws(40_000, gaussian=gaussian, source=seeded(2)) / 2**128).astype(float)
    assert stats.kstest(drawn, "norm" if gaussian else "laplace").pvalue > 1e-4
    low = np.array([int(one) & 0xFF for one in base_draws(20_000, gaussian=gaussian, source=Keystream())])
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 1e-9


def test_rounded_normal_and_discrete_gaussian_are_close() -> None:
    """The distance on which layout "time" spends some of delta, at scales where it can be computed."""
    for s, expected in ((1, 0.0165), (2, 0.0192), (4, 0.0199), (8, 0.0201)):
        k = np.arange(-12 * s, 12 * s + 1)
        law = np.exp(-(k**2) / (2 * s * s))
        rounded = stats.norm.cdf((k + 0.5) / s) - stats.norm.cdf((k - 0.5) / s)
        assert 0.5 * np.abs(law / law.sum() - rounded).sum() * s * s == pytest.approx(expected, abs=6e-5)


SPECS = [
    ConvolutionSpec([1, 1, 1, 0, 0, 0, 0, 0], 8, mode="circular", **GIVEN),
    ConvolutionSpec([1, 1, 1, 0, 0, 0, 0], 7, mode="circular", **GIVEN),
    ConvolutionSpec("decay:1/2", 12, **GIVEN),
    ConvolutionSpec("sum", 16, max_weight=5, **GIVEN),
    ConvolutionSpec("sum", 3000, **GIVEN),
    ConvolutionSpec(np.arange(16.0), 16, group="bool", **GIVEN),
    ConvolutionSpec(np.arange(12.0), 12, group=[3, 4], **GIVEN),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_worst_column_stays_within_the_ledgers_loss(spec: ConvolutionSpec) -> None:
    """The exact sum over the integer columns and variances, with the variance that smoothing uses up taken off."""
    layer = spec.layer()
    variances = [int(one) - 4 for one in spec.scheme.lattice_scales(layer).tolist()]
    places = np.arange(spec.length) if spec.length < 100 else np.array([0, 1, 1499, 2999])
    for row in spec.scheme.columns(places).tolist():
        if spec.size < 100:
            loss = sum(Fraction(a * a, v) for a, v in zip(row, variances, strict=True)) * spec.bound**2
            assert loss <= layer.loss
        else:
            loss_float = math.fsum(a * a / v for a, v in zip(row, variances, strict=True))
            assert loss_float <= float(layer.loss) * (1 + 1e-12)
    assert float(layer.loss) == pytest.approx(float(mu_of(Fraction(1), Fraction(1, 10**6))) ** 2, rel=1e-8)


def test_a_mutant_with_less_noise_is_refused_by_the_same_sum() -> None:
    spec = SPECS[0]
    row = spec.scheme.columns(np.arange(1)).tolist()[0]
    variances = [int(one * 0.999) for one in spec.scheme.lattice_scales(spec.layer()).tolist()]
    assert sum(Fraction(a * a, v) for a, v in zip(row, variances, strict=True)) > spec.layer().loss


@pytest.mark.parametrize("grid", [8, 64, 1024, 2**20])
def test_rounded_columns_cost_what_the_bound_says(grid: int) -> None:
    for kernel in ([1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]):
        group = Group((len(kernel),))
        shape = spectral_shape(Spectrum.of(group, [np.array(kernel, float)]), "gaussian", "fourier", 0)
        held = Coordinates.of(group, shape.kept)
        scale2 = held.spread(shape.relative).astype(float)
        for n in range(group.size):
            unit = np.zeros(group.size)
            unit[n] = 1
            exact = coordinates_of(held, group.analyze(unit))
            loss = np.sqrt(np.sum((np.rint(exact * grid) / grid) ** 2 / scale2))
            assert loss <= 1 + math.sqrt(group.size) / (2 * grid)


@pytest.mark.parametrize("noise", ["laplace", "laplace_pure"])
def test_laplace_columns_stay_within_the_budget(noise: Any) -> None:
    for kernel, length in (("sum", 16), ("window:3", 11)):
        delta = 0 if noise == "laplace_pure" else "1e-6"
        spec = ConvolutionSpec(kernel, length, epsilon=1, delta=delta, noise=noise, max_weight=3)
        layer = spec.layer()
        scales = [int(one) for one in spec.scheme.lattice_scales(layer).tolist()]
        for row in spec.scheme.columns(np.arange(length)).tolist():
            losses = [Fraction(abs(a) * 3, b) for a, b in zip(row, scales, strict=True)]
            total = sum(losses) if noise == "laplace_pure" else sum(one * one for one in losses) / 2
            assert total <= layer.loss
            assert float(total) == pytest.approx(float(layer.loss), rel=0.35)


def delta_of_losses(losses: np.ndarray, epsilon: float, up: bool) -> float:
    """Smallest delta of independent Laplace pairs with these losses, discretised to one side."""
    step, size = 1e-3, 1 << 14
    transform = np.ones(size // 2 + 1, complex)
    for loss in losses[losses > 1e-12]:
        edges = np.arange(-math.ceil(loss / step) - 1, math.ceil(loss / step) + 2)
        mass = np.zeros(size)
        # L = a with chance 1/2, -a with e^-a / 2, and between them density e^((l - a)/2) / 4.
        position = edges * step
        inside = (position > -loss) & (position < loss)
        left = np.maximum(position - step, -loss) if up else np.maximum(position, -loss)
        right = np.minimum(position, loss) if up else np.minimum(position + step, loss)
        weight = np.where(right > left, 0.5 * (np.exp((right - loss) / 2) - np.exp((left - loss) / 2)), 0)
        np.add.at(mass, edges % size, weight)
        ends = (
            (math.ceil(loss / step), math.ceil(-loss / step))
            if up
            else (math.floor(loss / step), math.floor(-loss / step))
        )
        mass[ends[0] % size] += 0.5
        mass[ends[1] % size] += 0.5 * math.exp(-loss)
        assert inside.any()
        assert mass.sum() == pytest.approx(1, abs=1e-9)
        transform *= np.fft.rfft(mass)
    law = np.fft.irfft(transform, size)
    value = np.fft.fftfreq(size, 1 / size) * step
    harmful = value > epsilon
    return float(np.sum(law[harmful] * -np.expm1(epsilon - value[harmful])))


@pytest.mark.parametrize(
    ("kernel", "low", "high"),
    [
        ([1, 1, 1, 0, 0, 0, 0], 0.01933, 0.01938),
        ([1, 1, 1, 0, 0, 0, 0, 0], 0.01975, 0.01980),
        ([1, 1, 1, 1, 0, 0, 0, 0], 0.02116, 0.02119),
        ([1] + [0] * 63, 0.0220, 0.0224),
    ],
)
def test_laplace_audit_by_exact_convolution(kernel: list[int], low: float, high: float) -> None:
    group = Group((len(kernel),))
    shape = spectral_shape(Spectrum.of(group, [np.array(kernel, float)]), "laplace", "fourier", 0)
    budget = float(2 * rho_of(Fraction(1, 2), Fraction(1, 20)))
    assert budget == pytest.approx(0.151095911359, rel=3e-9)
    held = Coordinates.of(group, shape.kept)
    scales = np.sqrt(held.spread(shape.relative).astype(float) / budget)
    worst_low = worst_high = 0.0
    for n in range(group.size):
        unit = np.zeros(group.size)
        unit[n] = 1
        losses = np.abs(coordinates_of(held, group.analyze(unit))) / scales
        assert np.sum(losses**2) == pytest.approx(budget, rel=1e-12)
        worst_low = max(worst_low, delta_of_losses(losses, 0.5, up=False))
        worst_high = max(worst_high, delta_of_losses(losses, 0.5, up=True))
    assert worst_low - 4e-4 <= high
    assert worst_high + 4e-4 >= low
    assert worst_high <= 0.05


def test_the_printed_composition_theorem_is_false() -> None:
    """Printed noise on 1,024 flat coordinates at epsilon 12: its exact delta is four times the promise."""
    epsilon, delta, count = 12.0, 1e-6, 1024
    loss = math.sqrt(epsilon**2 / (2 * math.log(1 / delta)) / count)
    step, size = 1e-4, 1 << 19
    found = []
    for up in (False, True):
        cells = np.arange(-math.ceil(loss / step), math.ceil(loss / step) + 1)
        edges = cells * step
        left = np.clip(edges - step if up else edges, -loss, loss)
        right = np.clip(edges if up else edges + step, -loss, loss)
        weight = 0.5 * (np.exp((right - loss) / 2) - np.exp((left - loss) / 2))
        mass = np.zeros(size)
        np.add.at(mass, cells % size, weight)
        side = math.ceil if up else math.floor
        mass[side(loss / step) % size] += 0.5
        mass[side(-loss / step) % size] += 0.5 * math.exp(-loss)
        law = np.fft.irfft(np.fft.rfft(mass) ** count, size)
        value = np.fft.fftfreq(size, 1 / size) * step
        harmful = value > epsilon
        found.append(float(np.sum(law[harmful] * -np.expm1(epsilon - value[harmful]))))
    assert found[0] > 2 * delta
    assert found[0] < 4.334e-6 < found[1] * 1.2


def test_every_coefficient_that_is_stored_has_noise() -> None:
    """Without a floor a stored zero coefficient would publish the series itself."""
    with pytest.raises(SpecError, match="floor"):
        ConvolutionSpec(np.ones(64), 64, mode="circular", layout="time", floor=0, **GIVEN)
    spec = ConvolutionSpec(np.ones(64), 64, mode="circular", layout="time", **GIVEN)
    state = np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    counts = np.random.default_rng(1).integers(0, 9, 64)
    Updater(spec).apply(state, np.repeat(np.arange(64), counts))
    open_part = (state - state.mean()) - spec.grid * (counts - counts.mean())
    assert np.mean(np.abs(open_part) > 0.5) >= 0.9
    assert ConvolutionSpec(np.ones(64), 64, mode="circular", **GIVEN).size == 1


def test_residues_of_a_state_say_nothing_of_the_data() -> None:
    """Noise is rounded where the data is whole: the remainder on the grid is uniform with and without data."""
    spec = ConvolutionSpec("sum", 8, layout="time", **GIVEN)
    object.__setattr__(spec, "grid", 4)  # few remainders, so that each is seen
    spec.scheme.grid = 4
    seen = np.zeros((2, spec.grid))
    for fed in (0, 1):
        for _ in range(120):
            state = np.zeros(spec.size, np.int64)
            assert state.dtype == np.int64
            add_noise(spec, state)
            if fed:
                Updater(spec).apply(state, np.repeat(np.arange(8), 7))
            seen[fed] += np.bincount(state % spec.grid, minlength=spec.grid)
    for row in seen:
        assert stats.chisquare(row).pvalue > 1e-6
    assert stats.chi2_contingency(seen).pvalue > 1e-6


def test_noise_never_comes_from_a_seeded_generator_unless_it_is_handed_in() -> None:
    spec = SPECS[0]
    first, second = np.zeros(spec.size, np.int64), np.zeros(spec.size, np.int64)
    add_noise(spec, first)
    add_noise(spec, second)
    assert not np.array_equal(first, second)


def test_states_of_another_size_are_refused() -> None:
    with pytest.raises(SpecError, match="words"):
        add_noise(SPECS[0], np.zeros(9, np.int64))
    with pytest.raises(SpecError, match="int64"):
        add_noise(SPECS[0], np.zeros(8, np.float64))  # type: ignore[arg-type]


def check_errors(spec: ConvolutionSpec, runs: int, seeded: Any, layers: int = 1) -> None:
    """Bias and mean squared error of `runs` empty states against the closed form, within 4 standard errors."""
    outputs = []
    source = seeded(11)
    for _ in range(runs):
        state = np.zeros(spec.size, np.int64)
        for _ in range(layers):
            add_noise(spec, state, entropy=source)
        outputs.append(spec.scheme.decode(state)[: spec.length])
    found = np.array(outputs)
    expected = float(spec.mse([spec.layer()] * layers)[0])
    if spec.noise == "counts":
        terms = np.ones(1)  # a sum around the whole circle is one number at all positions
    else:
        held = Coordinates.of(spec.group, spec.scheme.shape.kept)
        terms = held.spread(np.abs(spec.scheme.spectrum.eigenvalues[0]) ** 2 * spec.scheme.shape.relative).astype(float)
    spread = {"gaussian": 2, "counts": 6}.get(spec.noise, 5)
    error = math.sqrt(spread * np.sum(terms**2) / runs) / np.sum(terms)
    assert np.max(np.abs(found.mean(axis=0))) < 4.8 * math.sqrt(expected / runs)
    assert np.mean(found**2) / expected == pytest.approx(1, abs=4 * error)


@pytest.mark.parametrize(
    ("kernel", "length", "given", "closed"),
    [
        ([1] + [0] * 63, 64, {"mode": "circular"}, 17.8479),
        ([1] * 64, 64, {"mode": "circular"}, 17.8479),
        ([1] * 8 + [0] * 56, 64, {"mode": "circular"}, 59.1773),
        ("window:5", 61, {}, 47.9321),  # M = 65; 66 would give 48.158
        ("sum", 32, {}, 77.5488),
        ([1] * 8 + [0] * 56, 64, {"mode": "circular", "noise": "laplace"}, 136.1326),
    ],
)
def test_errors_equal_the_closed_form(kernel: Any, length: int, given: Any, closed: float, seeded: Any) -> None:
    spec = ConvolutionSpec(kernel, length, **{**GIVEN, "floor": 0, **given})
    assert float(spec.mse()[0]) == pytest.approx(closed, abs=6e-5)
    check_errors(spec, 300, seeded)


@pytest.mark.statistics
@pytest.mark.parametrize(
    "spec",
    [
        ConvolutionSpec("sum", 32, layout="time", **GIVEN),
        ConvolutionSpec("sum", 32, layout="time", epsilon=1, delta="1e-6", noise="laplace"),
        ConvolutionSpec("sum", 16, epsilon=1, delta=0, noise="laplace_pure"),
        ConvolutionSpec(np.ones(24), 24, mode="circular", epsilon="1/2", noise="counts"),
    ],
    ids=["time", "time, laplace", "pure", "counts"],
)
def test_errors_of_the_other_layouts(spec: ConvolutionSpec, seeded: Any) -> None:
    check_errors(spec, 400, seeded, layers=2)


def test_closed_forms_of_layout_time() -> None:
    spec = ConvolutionSpec("sum", 32, layout="time", **GIVEN)
    shape = float(spec.scheme.shape.mse(float(spec.layer().loss))[0])
    assert shape == pytest.approx(78.1478, abs=1e-4)
    energy = float(spec.scheme.spectrum.energy[0])
    for grid, expected in ((1, 80.8144), (4, 78.3144), (32, 78.1504)):
        assert shape + energy / (12 * grid**2) == pytest.approx(expected, abs=1e-4)
    for kernel, length, mode, least in (
        ("sum", 1024, "linear", 32),
        (np.ones(1024), 1024, "circular", 128),
        ("window:64", 1024, "linear", 8),
    ):
        found = ConvolutionSpec(kernel, length, mode=mode, layout="time", **GIVEN)  # type: ignore[arg-type]
        assert found.grid >= least  # by the error of rounding; finer so that every direction has enough noise
        assert found.grid**2 * np.min(found.scheme.scales2(found.layer())) >= MIN_CORRELATED
    coarse = ConvolutionSpec("sum", 32, layout="time", capacity=1 << 61, **GIVEN | {"epsilon": "1/10", "delta": "1e-5"})
    unrounded = coarse.scheme.shape.mse(coarse.scheme.scale_budget(coarse.layer()))
    assert coarse.grid == 1
    assert coarse.mse() == pytest.approx(unrounded + 32 / 12), "noise is rounded on the coarsest grid too"
    full = ConvolutionSpec("sum", 1024, layout="time", capacity=1 << 50, **GIVEN)
    assert 32 <= full.grid <= 1 << 10
