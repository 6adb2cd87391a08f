"""Published figures of the spectral mechanism, digit for digit: budgets, scales, errors, growth rates."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.convolution_losses import coordinates_of
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.filters import parse_filter
from sketchstream.kinds.convolution.fourier.group import Coordinates, Group
from sketchstream.kinds.convolution.fourier.spectrum import (
    MAX_ANY_LENGTH,
    MAX_PRIME,
    NoiseShape,
    Spectrum,
    choose_length,
    pad_filter,
    pure_shape,
    quick_length,
    smooth_length,
    spectral_shape,
    worst_loss,
)
from sketchstream.kinds.convolution.mechanisms.scheme import mu_of, rho_of
from sketchstream.kinds.convolution.spec import ConvolutionSpec

ONE, MILLIONTH = Fraction(1), Fraction(1, 10**6)
MU, BUDGET = float(mu_of(ONE, MILLIONTH)), float(2 * rho_of(ONE, MILLIONTH))


def circular(*kernel: float, shape: tuple[int, ...] | None = None) -> Spectrum:
    return Spectrum.of(Group(shape or (len(kernel),)), [np.array(kernel, np.float64)])


@pytest.mark.parametrize(
    ("epsilon", "mu", "rho"),
    [
        ("0.1", 0.027544650244, 0.000321047690),
        ("0.5", 0.124106149031, 0.006641524357),
        ("1", 0.236704380663, 0.024355970360),
        ("2", 0.448334740395, 0.088152688380),
    ],
)
def test_budgets_at_one_millionth(epsilon: str, mu: float, rho: float) -> None:
    assert float(mu_of(Fraction(epsilon), MILLIONTH)) == pytest.approx(mu, rel=3e-11)
    assert float(rho_of(Fraction(epsilon), MILLIONTH)) == pytest.approx(rho, rel=3e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [("0.5", "0.05", 0.491832983030), ("1", "1e-9", 0.181974807295), ("8", "1e-6", 1.531545117566)],
)
def test_mu_elsewhere(epsilon: str, delta: str, mu: float) -> None:
    assert float(mu_of(Fraction(epsilon), Fraction(delta))) == pytest.approx(mu, rel=3e-11)


def test_rho_at_a_large_delta() -> None:
    assert float(rho_of(Fraction(1, 2), Fraction(1, 20))) == pytest.approx(0.075547955679, rel=3e-9)


VECTORS: list[tuple[str, list[float], float, list[float], float, float, float, float, float]] = [
    ("delta", [1] + [0] * 7, 1, [4.2246788893] * 5, 17.847911718, 17.847911718, 41.057694899, 16, 1),
    ("ones", [1] * 8, 1, [1.4936495455, 0, 0, 0, 0], 17.847911718, 18.095308514, 41.057694899, 2, 1),
    (
        "window 3 of 8",
        [1, 1, 1, 0, 0, 0, 0, 0],
        1.457106781187,
        [2.9442776813, 3.2820980534, 5.0996385356, 7.9236856336, 5.0996385356],
        37.893975309,
        37.899720294,
        87.172062555,
        29.328474306,
        0.819622564,
    ),
    (
        "window 3 of 7",
        [1, 1, 1, 0, 0, 0, 0],
        1.458250134746,
        [2.9454326036, 3.4033777246, 6.8482500179, 5.6969104414],
        37.953467462,
        37.958263794,
        87.308919501,
        25.853971107,
        0.927352164,
    ),
    (
        "decay 1/2",
        [0.5**n for n in range(12)],
        1.073010302307,
        [3.0948077344, 3.4452781866, 4.0729960343, 4.6278169737, 5.0339417237, 5.2787232142, 5.3603642356],
        20.549212947,
        20.549921511,
        47.271822549,
        26.324937639,
        0.444227457,
    ),
    (
        "running sum 4 of 8",
        [1, 1, 1, 1, 0, 0, 0, 0],
        1.423879532511,
        [2.5205791097, 3.1185316675, 0, 4.8454933422, 0],
        36.185443826,
        36.399779518,
        83.241722386,
        18.671822914,
        0.960247564,
    ),
    (
        "difference",
        [1, -1, 0, 0, 0],
        1.231073414870,
        [0, 4.3232598583, 3.3987366940],
        27.049255409,
        27.134300728,
        62.224650894,
        11.897200947,
        0.884458247,
    ),
]


@pytest.mark.parametrize("vector", VECTORS, ids=[one[0] for one in VECTORS])
def test_vectors(vector: Any) -> None:
    _, kernel, mean, sigma, gauss, time, laplace, pure, _ = vector
    spectrum = circular(*kernel)
    exact = spectral_shape(spectrum, "gaussian", "fourier", 0)
    assert spectrum.mean_magnitude == pytest.approx(mean, rel=1e-9)
    assert np.sqrt(exact.relative)[: len(sigma)] / MU == pytest.approx(sigma, rel=1e-9)
    assert exact.mse(MU**2)[0] == pytest.approx(gauss, rel=1e-9)
    assert spectral_shape(spectrum, "gaussian", "time", 1 / 64).mse(MU**2)[0] == pytest.approx(time, rel=1e-9)
    assert spectral_shape(spectrum, "laplace", "fourier", 0).mse(BUDGET)[0] == pytest.approx(laplace, rel=5e-9)
    unitary = spectrum.magnitude / math.sqrt(len(kernel))
    assert 2 * np.sum(unitary ** (2 / 3)) ** 3 / len(kernel) == pytest.approx(pure, rel=1e-9)
    assert pure_shape(spectrum, len(kernel)).mse(1)[0] <= pure * (1 + 1e-9)


def test_exact_worst_position_of_pure_noise() -> None:
    assert pure_shape(circular(1, 1, 1, 0, 0, 0, 0, 0), 8).mse(1)[0] == pytest.approx(25.923959728, rel=1e-9)


def test_pure_noise_spends_epsilon_exactly_at_the_worst_position() -> None:
    spectrum = circular(1, 1, 1, 0, 0, 0, 0)
    shape = pure_shape(spectrum, 7)
    held = Coordinates.of(spectrum.group, shape.kept)
    scales = np.sqrt(held.spread(shape.relative))
    losses = [np.sum(np.abs(coordinates_of(held, spectrum.group.analyze(row))) / scales) for row in np.eye(7)]
    assert max(losses) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("positions", [1, 2, 300])
def test_the_loss_of_pure_noise_is_the_largest_sum_over_the_positions(positions: int) -> None:
    """Also if only the first position is scanned: weights that differ put the largest sum at any of them."""
    group = Group((300,))
    held = Coordinates.of(group, np.ones(group.size, np.bool_))
    weight = np.random.default_rng(positions).uniform(0.1, 1, group.size)
    weight = np.maximum(weight, weight[group.conjugate])
    spread = held.spread(weight)
    rows = np.eye(group.size)[:positions]
    sums = [float(np.abs(coordinates_of(held, group.analyze(row))) @ spread) for row in rows]
    assert max(sums) <= worst_loss(held, weight, positions) <= max(sums) * (1 + 1e-9)


def test_floors_in_layout_fourier() -> None:
    for kernel, mse in (
        ([1] * 8, 17.847911718),
        ([1] * 4 + [0] * 4, 36.188103653),
        ([1, -1, 0, 0, 0], 27.049644435),
    ):
        shape = spectral_shape(circular(*kernel), "gaussian", "fourier", 1 / 64)
        assert shape.mse(MU**2)[0] == pytest.approx(mse, rel=1e-9)


def test_scales_of_a_running_sum_in_layout_time() -> None:
    shape = spectral_shape(circular(1, 1, 1, 1, 0, 0, 0, 0), "gaussian", "time", 1 / 64)
    expected = [2.5333578921, 3.1296791162, 33.7974311146, 4.8335941926, 33.7974311146]
    assert np.sqrt(shape.relative)[:5] / MU == pytest.approx(expected, rel=1e-9)


def test_bit_vectors() -> None:
    spectrum = circular(1, 0, 0, 0, 1, 0, 0, 0, shape=(2, 2, 2))
    assert sorted(spectrum.eigenvalues[0].real.tolist()) == [0] * 4 + [2] * 4
    shape = spectral_shape(spectrum, "gaussian", "fourier", 0)
    assert np.sqrt(shape.relative[shape.kept]) / MU == pytest.approx([2.9872990910] * 4, rel=1e-9)
    assert shape.mse(MU**2)[0] == pytest.approx(17.847911718, rel=1e-9)
    assert pure_shape(spectrum, 8).mse(1)[0] == pytest.approx(8, rel=1e-9)
    bits = np.array([[c >> p & 1 for p in range(4)] for c in range(16)])
    kernel = ((bits[:, 0] == 0) & ((bits[:, 1] == 0) | (bits[:, 2] == 0) | (bits[:, 3] == 0))).astype(float)
    agree = circular(*kernel, shape=(2,) * 4)
    assert sorted(np.abs(agree.eigenvalues[0]).tolist(), reverse=True) == [7, 7] + [1] * 14
    assert agree.mean_magnitude == pytest.approx(1.75)
    assert spectral_shape(agree, "gaussian", "fourier", 0).mse(MU**2)[0] == pytest.approx(54.659229636, rel=1e-9)


def test_product_of_cyclic_groups() -> None:
    kernel = np.zeros((3, 4))
    kernel[0, 0] = kernel[0, 1] = kernel[1, 0] = 1
    spectrum = circular(*kernel.reshape(-1), shape=(3, 4))
    assert spectrum.mean_magnitude == pytest.approx(1.569601421309, rel=1e-9)
    assert spectral_shape(spectrum, "gaussian", "fourier", 0).mse(MU**2)[0] == pytest.approx(43.970983105, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "prefix", "window"),
    [
        (256, 7.542419, 7.029229),
        (1024, 10.160905, 7.144509),
        (4096, 13.168833, 7.154695),
        (16384, 16.566201, 7.155395),
        (65536, 20.353010, 7.155440),
    ],
)
def test_growth_of_running_sums_is_not_constant(n: int, prefix: float, window: float) -> None:
    """The error of running sums grows as the square of a logarithm, that of windows stays."""
    whole = parse_filter("sum", n)
    assert Spectrum.of(Group((2 * n,)), [pad_filter(whole, 0, 2 * n)]).mean_magnitude ** 2 == pytest.approx(
        prefix, abs=1e-6
    )
    short = parse_filter("window:64", n)
    assert Spectrum.of(Group((n + 63,)), [pad_filter(short, 0, n + 63)]).mean_magnitude ** 2 == pytest.approx(
        window, abs=1e-6
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("decay:0.9", 2.107847), ("decay:0.99", 4.566249)],
)
def test_decays_at_4096(name: str, expected: float) -> None:
    one = parse_filter(name, 4096)
    assert Spectrum.of(Group((8192,)), [pad_filter(one, 0, 8192)]).mean_magnitude ** 2 == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(("power", "expected"), [(0.5, 1.836385), (2, 1.038519)])
def test_power_laws_at_1024(power: float, expected: float) -> None:
    one = parse_filter((np.arange(1024) + 1.0) ** -power, 1024)
    assert Spectrum.of(Group((2048,)), [pad_filter(one, 0, 2048)]).mean_magnitude ** 2 == pytest.approx(
        expected, abs=1e-6
    )


def test_parity_of_the_transform_length_matters() -> None:
    whole = parse_filter("sum", 256)
    assert choose_length(whole, 0, 256) == 512
    odd = Spectrum.of(Group((511,)), [pad_filter(whole, 0, 511)]).mean_magnitude ** 2
    assert odd == pytest.approx(8.7993, abs=1e-4)


@pytest.mark.parametrize("n", [256, 1000, 4096, 65536, 65537])
def test_support_of_a_running_sum(n: int) -> None:
    spectrum = Spectrum.of(Group((2 * n,)), [pad_filter(parse_filter("sum", n), 0, 2 * n)])
    assert int(np.count_nonzero(spectrum.support)) == n + 1


def _precision(shape: NoiseShape) -> float:
    """The sum of 1 / scale^2 over the characters held, over their number: the budget again, up to rounding."""
    return float(np.sum(MU**2 / shape.relative[shape.kept]) / shape.spectrum.group.size)


@pytest.mark.parametrize("floor", [0, 1 / 64])
@pytest.mark.parametrize("layout", ["fourier", "time"])
def test_the_budget_is_used_exactly(floor: float, layout: Any) -> None:
    for _, kernel, *_ in VECTORS:
        if floor or layout == "fourier":
            shape = spectral_shape(circular(*kernel), "gaussian", layout, floor)
            assert _precision(shape) == pytest.approx(MU**2, rel=1e-12)


def test_quantized_variances_cost_next_to_nothing() -> None:
    n = 1 << 15
    shape = spectral_shape(
        Spectrum.of(Group((2 * n,)), [pad_filter(parse_filter("sum", n), 0, 2 * n)]), "gaussian", "fourier", 1 / 64
    )
    fewer = shape.quantized()
    assert len(np.unique(fewer.relative)) < 4096 < len(np.unique(shape.relative))
    assert _precision(fewer) <= MU**2
    assert shape.mse(1)[0] <= fewer.mse(1)[0] < shape.mse(1)[0] * (1 + 2e-6)


def test_filter_bank_of_all_marginals_beats_splitting() -> None:
    import itertools

    for k, expected in ((1, 4.331), (2, 9.273), (3, 13.187)):
        kernels = []
        for columns in itertools.combinations(range(10), k):
            cells = np.arange(1024)
            kernels.append(np.all([(cells >> p & 1) == 0 for p in columns], axis=0).astype(float))
        bank = Spectrum.of(Group((2,) * 10), kernels)
        found = spectral_shape(bank, "gaussian", "fourier", 0).mse(1)
        assert np.mean(found) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("epsilon", ["1"])
def test_which_spectral_noise_wins(epsilon: str) -> None:
    """Pure noise wins for few coefficients, Gaussian noise for many; noise on the counts is another candidate."""

    def best(kernel: object, length: int, mode: Any) -> str:
        errors = {}
        for noise, delta in (("gaussian", "1e-6"), ("laplace", "1e-6"), ("laplace_pure", "0")):
            spec = ConvolutionSpec(kernel, length, mode=mode, epsilon=epsilon, delta=delta, noise=noise)  # type: ignore[arg-type]
            errors[noise] = float(spec.mse()[0])
        return min(errors, key=errors.__getitem__)

    assert best(np.ones(64), 64, "circular") == "laplace_pure"
    assert best([1, 1, 1, 0, 0, 0, 0, 0], 8, "circular") == "laplace_pure"
    assert [best("sum", n, "linear") for n in (4, 8, 16, 64)] == [
        "laplace_pure",
        "laplace_pure",
        "gaussian",
        "gaussian",
    ]
    assert best([1] + [0] * 63, 64, "circular") == "gaussian"


@pytest.mark.parametrize(("epsilon", "last"), [("1", 18), ("0.5", 15), ("0.1", 14)])
def test_noise_on_the_counts_wins_for_short_windows(epsilon: str, last: int) -> None:
    def chosen(width: int) -> str:
        return ConvolutionSpec(f"window:{width}", 8760, epsilon=epsilon, delta="1e-6").noise

    assert chosen(last - 4) == "counts"
    assert chosen(last + 4) == "tree"


@pytest.mark.parametrize(("n", "expected"), [(100, 200), (745, 1490), (8760, 17520), (44640, 89280)])
def test_running_sums_take_twice_their_length_in_both_layouts(n: int, expected: int) -> None:
    written = parse_filter("sum", n)
    assert choose_length(written, 0, n, "time") == choose_length(written, 0, n) == expected
    for other in (expected - 1, expected + 100):
        worse = Spectrum.of(Group((other,)), [pad_filter(written, 0, other)]).mean_magnitude
        best = Spectrum.of(Group((expected,)), [pad_filter(written, 0, expected)]).mean_magnitude
        assert worse > 1.04 * best


def test_long_transforms_in_exact_integers_have_no_large_factors() -> None:
    assert quick_length(MAX_ANY_LENGTH) == MAX_ANY_LENGTH
    for shortest in (MAX_ANY_LENGTH + 1, 131071, 1000003):
        found = quick_length(shortest)
        assert shortest <= found < 1.01 * shortest
        assert smooth_length(found, MAX_PRIME) == found


def test_a_transform_length_that_is_written_down_is_kept() -> None:
    """States of a release that chose another length are read, and answered as well."""
    given: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "noise": "gaussian", "layout": "time"}
    spec = ConvolutionSpec("sum", 100, transform_length=210, **given)
    assert spec.transform_length == 210
    assert ConvolutionSpec.from_dict(spec.to_dict()).fingerprint == spec.fingerprint
    for wrong in (198, 0, 1.5, "x"):
        with pytest.raises(SpecError, match="transform_length"):
            ConvolutionSpec("sum", 100, transform_length=wrong, **given)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="mode 'linear'"):
        ConvolutionSpec(np.ones(8), 8, mode="circular", transform_length=16, **given)
