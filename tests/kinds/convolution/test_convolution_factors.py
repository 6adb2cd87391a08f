"""Series with noise on blocks of a tree, or on a causal factor: against dense matrices, and by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream.errors import EstimateError, SpecError
from sketchstream.kinds.convolution.fourier.filters import parse_filter
from sketchstream.kinds.convolution.reading.answers import answers, closed_values
from sketchstream.kinds.convolution.reading.series import join_windows
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise
from sketchstream.kinds.linear.causal import CausalFactor, block_energies, dense_rows
from sketchstream.kinds.linear.tree import BlockTree, best_levels
from sketchstream.published import read_published
from sketchstream.stream.state.window_sketch import WindowSketch

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6"}
KERNELS = ("sum", "window:7", "average:24", "decay:0.9", "difference", "identity")


def decoder_of(spec: ConvolutionSpec) -> np.ndarray[Any, Any]:
    """(N, words) least squares estimates of the counts; those of a tree know nothing of its padding."""
    matrix = strategy_of(spec) / (spec.grid if spec.noise == "toeplitz" else 1)
    if spec.noise == "tree":
        cells = np.arange(spec.scheme.tree.cells)
        blocks = [weight * (cells // width == np.unique(cells // width)[:, None]) for width, weight in spec.levels]
        padded = np.concatenate(blocks)
        assert np.array_equal(padded[:, : spec.length], matrix)
        matrix = padded
    return np.linalg.pinv(matrix)[: spec.length]


def strategy_of(spec: ConvolutionSpec) -> np.ndarray[Any, Any]:
    """(words, N) the change of a state by one unit at each position, from updates."""
    index, out = Updater(spec), np.zeros((spec.size, spec.length), np.int64)
    for position in range(spec.length):
        state = np.zeros(spec.size, np.int64)
        index.apply(state, [position])
        out[:, position] = state
    return out


@st.composite
def specs(draw: st.DrawFn, noise: str) -> ConvolutionSpec:
    length = draw(st.integers(24, 90))
    kernel: Any = draw(st.one_of(st.sampled_from(KERNELS), st.sampled_from([["window:5", "sum"], [1, 0.5, -0.25]])))
    origin = draw(st.integers(0, 4)) if kernel in ("window:7", "average:24") else 0
    more: dict[str, Any] = {}
    if noise == "tree" and draw(st.booleans()):
        steps = draw(st.lists(st.integers(2, 4), max_size=2))
        widths = np.cumprod([1, *steps]).tolist()
        more["levels"] = [[width, draw(st.integers(1, 5))] for width in widths]
    return ConvolutionSpec(kernel, length, noise=noise, origin=origin, **GIVEN, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", ["tree", "toeplitz"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_answers_and_their_variances_are_those_of_dense_matrices(noise: str, data: st.DataObject) -> None:
    spec = data.draw(specs(noise))
    matrix = strategy_of(spec) / (spec.grid if noise == "toeplitz" else 1)
    counts = np.random.default_rng(spec.length).integers(-5, 9, spec.length)
    inverse = decoder_of(spec)
    layers = [spec.layer()]
    state = (matrix @ counts * (spec.grid if noise == "toeplitz" else 1)).round().astype(np.int64)
    for place, one in enumerate(spec.filters):
        rows = dense_rows(one.coefficients, np.arange(spec.length) + spec.origin, *[spec.length] * 2)
        full = spec.scheme.decode(state, place)
        assert full[: spec.length] == pytest.approx(rows @ counts, abs=1e-5)
        expected = np.sum((rows @ inverse) ** 2, axis=1)
        assert spec.scheme.position_variances[place] == pytest.approx(expected, rel=1e-6, abs=1e-12)
        answered = answers(spec, layers, state)[place]
        assert answered.stderr**2 == pytest.approx(expected * spec.scheme.word_variance(layers), rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_unit_moves_a_state_by_no_more_than_the_noise_was_made_for(data: st.DataObject) -> None:
    tree = data.draw(specs("tree"))
    assert int(np.abs(strategy_of(tree)).sum(axis=0).max()) == tree.scheme.sensitivity1
    factor = data.draw(specs("toeplitz"))
    norms = [math.sqrt(sum(int(one) ** 2 for one in column)) for column in strategy_of(factor).T]
    assert max(norms) <= factor.grid + math.sqrt(factor.length)
    assert min(norms) >= factor.grid - math.sqrt(factor.length)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_energies_of_blocks_are_sums_over_the_blocks(data: st.DataObject) -> None:
    length, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 9))
    kernel = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=1, max_size=50)), np.float64)
    first = data.draw(st.integers(0, 60))
    stop = first + data.draw(st.integers(1, 30))
    rows = dense_rows(kernel, np.arange(first, stop), length, length)
    rows = np.concatenate([rows, np.zeros((len(rows), -length % width))], axis=1)
    expected = np.sum(rows.reshape(len(rows), -1, width).sum(axis=2) ** 2, axis=1)
    assert block_energies(kernel, first, stop, length, width) == pytest.approx(expected)


def test_square_roots_of_filters_and_their_norms() -> None:
    for name in ("sum", "decay:0.9", "window:5"):
        written = parse_filter(name, 300)
        factor = CausalFactor(written.coefficients, 300)
        expected = np.zeros(300)
        expected[: len(written)] = written.coefficients
        assert np.convolve(factor.root, factor.root)[:300] == pytest.approx(expected, abs=1e-10)
        assert np.convolve(factor.root, factor.inverse)[:300] == pytest.approx(np.eye(300)[0], abs=1e-10)
    binomials = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, 300))])
    assert CausalFactor(np.ones(300), 300).root == pytest.approx(binomials, rel=1e-12)
    assert not CausalFactor(np.array([1.0, 9.0]), 2000).usable


@pytest.mark.parametrize(("size", "least"), [(64, 4.1621), (256, 6.1081)])
def test_running_sums_are_near_the_lower_bound(size: int, least: float) -> None:
    """The factor's error is within 9% of the nuclear norm's bound, that of the spectrum within 28%."""
    spec = ConvolutionSpec("sum", size, noise="toeplitz", **GIVEN)
    shaped = ConvolutionSpec("sum", size, noise="gaussian", **GIVEN)
    error = float(spec.scheme.position_variances[0].mean())
    assert least < error < 1.09 * least
    assert float(spec.mse()[0]) < 0.88 * float(shaped.mse()[0])


@pytest.mark.parametrize("epsilon", ["1/10", "1", "4"])
def test_searched_trees_are_as_good_as_any_of_two_levels(epsilon: str) -> None:
    spec = ConvolutionSpec("sum", 96, noise="tree", epsilon=epsilon)
    found = float(spec.mse()[0])
    for width in (2, 4, 8, 12, 16, 24, 48):
        for leaf, block in ((1, 1), (1, 2), (2, 1), (141, 115), (115, 141)):
            other = ConvolutionSpec("sum", 96, noise="tree", epsilon=epsilon, levels=[[1, leaf], [width, block]])
            assert found <= float(other.mse()[0]) * 1.003
    assert best_levels(50, lambda width: 50.0, lambda reach: 1.0 * reach**2) == ((1, 1),)


@pytest.mark.parametrize("noise", ["tree", "toeplitz"])
def test_short_windows_are_completed_with_the_window_before(noise: Any) -> None:
    spec = ConvolutionSpec("window:9", 40, noise=noise, **GIVEN)
    counts = np.random.default_rng(3).integers(0, 9, 70)
    states = []
    for part in (counts[:35], counts[35:]):
        state = np.zeros(spec.size, np.int64)
        Updater(spec).apply(state, np.arange(len(part)), part.clip(-1, 1))
        states.append(state)
    ones = counts.clip(-1, 1)
    layers = [spec.layer()]
    current = answers(spec, layers, states[1], length=35)[0]
    whole = join_windows(current, states[0], layers, 35)
    assert whole.values == pytest.approx(np.convolve(ones, np.ones(9))[35:70], abs=1e-6)
    inverse = decoder_of(spec)[:35]
    tails = dense_rows(np.ones(9), 35 + np.arange(8), 35, 35)
    expected = spec.scheme.word_variance(layers) * np.sum((tails @ inverse) ** 2, axis=1)
    assert whole.stderr[:8] ** 2 - current.stderr[:8] ** 2 == pytest.approx(expected, rel=1e-6)
    widths = np.diff(whole.interval(0.95), axis=1)[:, 0] / whole.stderr
    assert 3.6 < widths.min() <= widths.max() < 4.3


def test_closed_positions_do_not_depend_on_later_words() -> None:
    spec = ConvolutionSpec("sum", 60, noise="toeplitz", publish="closed", intrusion=False, step_ms=60_000, **GIVEN)
    state = np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    Updater(spec).apply(state, np.arange(60))
    cut = state.copy()
    cut[31:] = 0
    assert np.array_equal(closed_values(spec, cut, 0, 31), spec.scheme.decode(state)[:31])
    sketch = WindowSketch.create(spec)
    sketch.update([0, 3])
    shown = sketch.close_positions(0, 4)
    sketch.update([7])
    assert np.array_equal(sketch.seal().state[:4], shown.words)


@pytest.mark.statistics
@pytest.mark.parametrize("noise", ["tree", "toeplitz"])
def test_errors_and_intervals_are_those_of_simulated_sketches(noise: Any, seeded: Any) -> None:
    spec = ConvolutionSpec("window:24", 150, noise=noise, **GIVEN)
    layers, source = [spec.layer(), spec.published_layer], seeded(5)
    errors = np.empty((600, 150))
    for row in errors:
        state = np.zeros(spec.size, np.int64)
        for layer in layers:
            add_noise(spec, state, layer, source)
        row[:] = spec.scheme.decode(state)[:150]
    answered = answers(spec, layers, np.zeros(spec.size, np.int64))[0]  # type: ignore[arg-type]
    ratio = np.mean(errors**2, axis=0) / answered.stderr**2
    assert abs(float(ratio.mean()) - 1) < 0.04
    assert 0.7 < ratio.min() <= ratio.max() < 1.35
    inside = np.abs(errors) <= np.diff(answered.interval(0.95), axis=1)[:, 0] / 2
    assert float(inside.mean()) == pytest.approx(0.95, abs=0.006)


def test_levels_and_noises_that_cannot_be_are_refused() -> None:
    wrong: list[Any] = [
        [],
        [[2, 1]],
        [[1, 1], [3, 1], [5, 1]],
        [[1, 0]],
        [[1, 1, 1]],
        "x",
        [[1, 1], [64, 1]],
        [[1, 1.5]],
    ]
    for levels in wrong:
        with pytest.raises(SpecError, match="levels"):
            ConvolutionSpec("sum", 20, noise="tree", levels=levels, **GIVEN)
    with pytest.raises(SpecError, match="begin above 0"):
        ConvolutionSpec([0.0, 1.0], 50, noise="toeplitz", **GIVEN)
    with pytest.raises(SpecError, match="delta > 0"):
        ConvolutionSpec("sum", 50, noise="toeplitz", epsilon=1)
    with pytest.raises(SpecError, match="closed"):
        ConvolutionSpec("sum", 50, noise="tree", publish="closed", intrusion=False, **GIVEN)
    for noise in ("tree", "toeplitz"):
        with pytest.raises(SpecError, match="mode 'linear'"):
            ConvolutionSpec(np.ones(8), 8, mode="circular", noise=noise, **GIVEN)  # type: ignore[arg-type]
    spec = ConvolutionSpec("sum", 50, noise="tree", **GIVEN)
    with pytest.raises(EstimateError, match="autocovariance"):
        answers(spec, [spec.layer()], np.zeros(spec.size, np.int64))[0].autocovariance(3)
    assert BlockTree(20, ((1, 1), (8, 2))).cells == 24


@pytest.mark.parametrize("noise", ["tree", "toeplitz"])
def test_a_spec_comes_back_as_it_was(noise: Any) -> None:
    spec = ConvolutionSpec(["window:5", "sum"], 300, noise=noise, **GIVEN)
    again = ConvolutionSpec.from_dict(spec.to_dict())
    assert again.fingerprint == spec.fingerprint
    assert (again.levels, again.root, again.size) == (spec.levels, spec.root, spec.size)
    sketch = ss.Sketch.create(spec)
    sketch.update([0, 299], [1, -1])
    sealed = sketch.seal()
    assert read_published(sealed.to_bytes()).estimate()["sum"].values.shape == (300,)
