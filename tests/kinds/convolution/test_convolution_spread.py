"""Long series with noise on a causal factor, spread over the counts: dense matrices, bounds, draws, whole sketches."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import linalg

import sketchstream as ss
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution import mechanisms
from sketchstream.kinds.convolution.fourier.filters import parse_filter
from sketchstream.kinds.convolution.mechanisms.independent import base_draws
from sketchstream.kinds.convolution.mechanisms.positions import BEND, SpreadFactor
from sketchstream.kinds.convolution.mechanisms.spectral import MIN_CORRELATED, ROUNDING_SHARE
from sketchstream.kinds.convolution.mechanisms.synthesis import FRACTION, filter_draws
from sketchstream.kinds.convolution.reading.answers import answers, closed_values
from sketchstream.kinds.convolution.reading.series import join_windows
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise
from sketchstream.kinds.linear.causal import CausalFactor, dense_rows
from sketchstream.noise.entropy import Keystream
from sketchstream.published import read_published

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": "1e-6"}
LONG: dict[str, Any] = GIVEN | {"noise": "toeplitz"}
FALLING = ("sum", "window:7", "average:24", "decay:0.9", "decay:0.99", "identity")


@pytest.fixture
def from_40(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series of more than 40 positions count as long."""
    monkeypatch.setattr(mechanisms, "MAX_ROOT_POSITIONS", 40)


def mixing(factor: SpreadFactor) -> np.ndarray[Any, Any]:
    """(N, N) D T: noise of counts by what it is made of."""
    return factor.norms[:, None] * linalg.toeplitz(factor.inverse, np.zeros(factor.length))


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(FALLING), size=st.integers(30, 300))
@example(name="identity", size=31)
def test_a_unit_loses_no_more_than_was_promised_and_hardly_less(name: str, size: int) -> None:
    """Whatever T came out as: the columns of D's inverse times T's are what the noise has to hide."""
    factor = SpreadFactor(parse_filter(name, size).coefficients, size)
    assert factor.usable
    mixed = mixing(factor)
    losses = np.linalg.norm(np.linalg.inv(mixed), axis=0)
    assert losses.max() <= 1 + 1e-10
    assert losses.min() > 1 - 1e-6
    values = np.linalg.eigvalsh(mixed @ mixed.T)
    assert factor.least_variance <= values.min() * (1 + 1e-6)
    assert np.sqrt(np.diag(mixed @ mixed.T)).max() <= factor.largest_deviation


def test_a_wrong_series_is_found_or_paid_for() -> None:
    """Half the noise of one position, or series that are no inverses of each other, are not usable, or cost more."""

    right = SpreadFactor(np.ones(200), 200)
    for damage, usable in ((1e-4, True), (1e-2, False), (np.nan, False)):
        factor = SpreadFactor(np.ones(200), 200)
        factor.__dict__["root"] = right.root * np.where(np.arange(200) == 3, 1 + damage, 1.0)
        assert factor.usable == usable
        if usable:
            losses = np.linalg.norm(np.linalg.inv(mixing(factor)), axis=0)
            assert losses.max() <= 1 + 1e-10
    short = SpreadFactor(np.ones(200), 200)
    short.__dict__["norms"] = right.norms / 2
    assert np.linalg.norm(np.linalg.inv(mixing(short)), axis=0).max() > 1.9, "half the norms lose twice as much"


@pytest.mark.parametrize("name", ["sum", "window:24", "decay:0.99"])
@pytest.mark.parametrize("size", [300, 3000])
def test_variances_are_those_of_every_row_up_to_a_thousandth(name: str, size: int) -> None:
    coefficients = parse_filter(name, size).coefficients
    factor, exact = SpreadFactor(coefficients, size), CausalFactor(coefficients, size)
    assert factor.root == pytest.approx(exact.root, abs=1e-11)
    for rows, length in ((np.arange(size), size), (np.arange(size, size + 200), size), (np.arange(size), size // 2)):
        found, true = (one.variances(coefficients, rows, length) for one in (factor, exact))
        held = true > 1e-9
        assert found[held] == pytest.approx(true[held], rel=3 * BEND)
        assert found[~held] == pytest.approx(true[~held], abs=1e-6)
        assert found.mean() == pytest.approx(true.mean(), rel=3e-4)


def test_draws_are_filtered_exactly() -> None:
    """Against sums of exact rationals; what fixed point adds is far below what the base draws may be off."""
    random = np.random.default_rng(2)
    for size in (1, 2, 7, 33):
        series, scales = random.normal(size=size), np.abs(random.normal(size=size)) + 0.01
        with Keystream() as source:
            drawn = base_draws(size, gaussian=True, source=source)
        found = filter_draws(drawn, series, scales)
        for n in range(size):
            exact = sum(Fraction(float(series[j])) * int(drawn[n - j]) for j in range(n + 1))
            wanted = exact * Fraction(float(scales[n])) * (1 << (FRACTION - 128))
            assert abs(int(found[n]) - wanted) < 1 << 40


@pytest.mark.usefixtures("from_40")
def test_a_spec_spreads_noise_over_long_series_alone() -> None:
    short, long = (ConvolutionSpec(["window:5", "sum"], size, **LONG) for size in (40, 41))
    assert (short.scheme.by_columns, long.scheme.by_columns) == (True, False)
    again = ConvolutionSpec.from_dict(long.to_dict())
    assert (again.fingerprint, again.root, again.grid) == (long.fingerprint, long.root, long.grid)
    state = np.zeros(41, np.int64)
    Updater(long).apply(state, [3, 3])
    assert state.tolist() == [0, 0, 0, 2 * long.grid] + [0] * 37, "an event changes one word"
    least = long.scheme.factor.least_variance / long.scheme.scale_budget(long.layer())  # type: ignore[attr-defined]
    assert long.grid**2 * least >= MIN_CORRELATED / 4
    for size in (41, 200):  # the same noise as by columns
        one = ConvolutionSpec("sum", size, **LONG)
        exact = CausalFactor(np.ones(size), size).variances(np.ones(size), np.arange(size), size)
        assert one.scheme.position_variances[0] == pytest.approx(exact, rel=3e-3)
    for growing in ([1.0, 2.0], [1.0, -0.5], "difference"):
        with pytest.raises(SpecError, match="one whose coefficients do not grow"):
            ConvolutionSpec(growing, 60, **LONG)


@pytest.mark.statistics
@pytest.mark.usefixtures("from_40")
@pytest.mark.parametrize("scale", [1.0, 0.9])
def test_noise_is_what_the_spec_says_and_other_noise_is_refused(scale: float) -> None:
    """R D^-1 of the words are independent unit normals: mean of squares, correlations; answers keep their intervals."""
    spec, runs = ConvolutionSpec(["sum", "window:9"], 120, **LONG), 400
    states = np.zeros((runs, 120), np.int64)
    for state in states:
        add_noise(spec, state)
    sigma = 1 / np.sqrt(spec.scheme.scale_budget(spec.layer()))
    words = scale * states / spec.grid
    drawn = np.linalg.solve(mixing(spec.scheme.factor), words.T).T / sigma  # type: ignore[arg-type]
    off = abs(np.mean(drawn**2) - 1) / np.sqrt(2 / drawn.size)
    beside = abs(np.mean(drawn[:, 1:] * drawn[:, :-1])) * np.sqrt(drawn.size)
    assert (off < 4.5) == (scale == 1.0)
    assert beside < 4.5
    held = []
    for state in states:
        for one in answers(spec, [spec.layer()], np.rint(scale * state).astype(np.int64)):
            low, high = one.interval(0.95).T
            held.append(np.mean((low <= 0) & (high >= 0)))
    assert (0.93 < np.mean(held) < 0.97) == (scale == 1.0)


@pytest.mark.usefixtures("from_40")
def test_sketches_of_long_series_answer_merge_and_are_read_back() -> None:
    spec = ConvolutionSpec(["window:9", "sum"], 70, **LONG)
    events = np.random.default_rng(4).integers(0, 70, 5000)
    truth = np.bincount(events, minlength=70)
    parts = []
    for some in (events[:2000], events[2000:]):
        sketch = ss.Sketch.create(spec)
        sketch.update(some)
        parts.append(read_published(sketch.seal().to_bytes()))
    found = ss.stack(parts).estimate()
    for name, rows in (("window:9", np.ones(9)), ("sum", np.ones(70))):
        wanted = dense_rows(rows, np.arange(70), 70, 70) @ truth
        one = found[name]
        assert np.abs(one.values - wanted).max() < 6 * one.stderr.max()
    assert found["sum"].stderr[-1] == pytest.approx(np.sqrt(2) * parts[0].estimate()["sum"].stderr[-1])
    ledger = parts[0].ledger
    assert ledger.epsilon(Fraction(1, 10**6)) <= Fraction(1001, 1000)


@pytest.mark.usefixtures("from_40")
def test_closed_positions_do_not_depend_on_later_ones() -> None:
    spec = ConvolutionSpec(["sum", "decay:0.5"], 60, publish="closed", intrusion=False, step_ms=60_000, root=0, **LONG)
    state = np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    Updater(spec).apply(state, [0, 5, 20])
    later = state.copy()
    later[31:] += 12345
    for place in range(2):
        early = closed_values(spec, state, 0, 31, place)
        assert np.array_equal(early, closed_values(spec, later, 0, 31, place))
        assert early == pytest.approx(answers(spec, [spec.layer()], state)[place].values[:31], abs=1e-6)


@pytest.mark.usefixtures("from_40")
def test_long_windows_are_completed_with_the_window_before() -> None:
    spec = ConvolutionSpec("window:9", 50, **LONG)
    counts = np.random.default_rng(3).integers(0, 9, 95)
    former, state = np.zeros(50, np.int64), np.zeros(50, np.int64)
    former[:45], state[:] = counts[:45] * spec.grid, counts[45:] * spec.grid  # the window before has 45 positions
    whole = join_windows(answers(spec, [spec.layer()], state)[0], former, [spec.layer()], 45)
    assert whole.values == pytest.approx(np.convolve(counts, np.ones(9))[45:95], abs=1e-6)
    tail = dense_rows(np.ones(9), np.arange(45, 53), 50, 50)
    tail[:, 45:] = 0
    mixed = mixing(spec.scheme.factor)  # type: ignore[arg-type]
    own = dense_rows(np.ones(9), np.arange(8), 50, 50)
    wanted = np.sum((tail @ mixed) ** 2, axis=1) + np.sum((own @ mixed) ** 2, axis=1)
    assert whole.stderr[:8] ** 2 == pytest.approx(wanted * spec.scheme.word_variance([spec.layer()]), rel=3e-3)


def test_a_series_may_be_too_long_and_a_capacity_too_large() -> None:
    with pytest.raises(SpecError, match="at most 131072 positions"):
        ConvolutionSpec("sum", (1 << 17) + 1, **LONG)
    with pytest.raises(SpecError, match="capacity must stay below"):
        ConvolutionSpec("sum", 5000, capacity=1 << 61, **LONG)
    spec = ConvolutionSpec("sum", 5000, capacity=1 << 53, **LONG)
    least = spec.scheme.factor.least_variance / spec.scheme.scale_budget(spec.layer())  # type: ignore[attr-defined]
    assert spec.grid**2 * least * ROUNDING_SHARE >= 1


def test_the_choice_takes_the_factor_for_long_sums_as_it_does_for_short_ones() -> None:
    closed: dict[str, Any] = {"publish": "closed", "intrusion": False, "step_ms": 60_000}
    chosen = ConvolutionSpec("sum", 5000, **GIVEN, **closed)
    shaped = ConvolutionSpec("sum", 5000, noise="gaussian", layout="time", **GIVEN, **closed)
    assert (chosen.noise, chosen.scheme.by_columns) == ("toeplitz", False)
    assert float(chosen.mse()[0]) < 0.9 * float(shaped.mse()[0])
