"""States: updates against slow twins, decoding, closed positions, merges, marginals, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.convolution_losses import coordinates_of
from sketchstream.errors import DomainError, EstimateError, ItemError, SpecError, WeightError
from sketchstream.kinds.convolution.fourier.filters import DeclaredColumns
from sketchstream.kinds.convolution.reading.answers import answers, closed_values
from sketchstream.kinds.convolution.reading.series import join_windows
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise


def spec_of(kernel: object, length: int | None = None, **given: Any) -> ConvolutionSpec:
    return ConvolutionSpec(kernel, length, **{"epsilon": 1, "delta": "1e-6", "noise": "gaussian", **given})


def exact_columns(spec: ConvolutionSpec) -> np.ndarray:
    """Slow twin: the real Fourier coordinates of each unit vector, on the lattice, by dense transforms."""
    rows = []
    for n in range(spec.length):
        unit = np.zeros(spec.group.size)
        unit[n] = 1
        rows.append(np.rint(coordinates_of(spec.scheme.coordinates, spec.group.analyze(unit)) * spec.scheme.grid_scale))
    return np.array(rows).astype(np.int64)


SPECS = {
    "running sum": spec_of("sum", 32),
    "window, odd": spec_of("window:5", 61),
    "circular": spec_of([1, 1, 1, 0, 0, 0, 0], 7, mode="circular"),
    "bits": spec_of(np.arange(16.0) + 1, 16, group="bool"),
    "product": spec_of(np.arange(12.0) + 1, 12, group=[3, 4]),
    "pure": spec_of("sum", 16, noise="laplace_pure", delta=0),
    "gaps": spec_of(np.cos(np.arange(12) * 2 * np.pi * 2 / 12) + 1, 12, mode="circular"),
}


@pytest.mark.parametrize("name", SPECS)
def test_columns_equal_dense_transforms(name: str) -> None:
    spec = SPECS[name]
    found = spec.scheme.columns(np.arange(spec.length))
    assert np.max(np.abs(found - exact_columns(spec))) <= 1
    assert found.dtype == np.int64


@pytest.mark.parametrize("name", SPECS)
def test_every_way_to_update_gives_the_same_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS[name]
    random = np.random.default_rng(1)
    places, weights = random.integers(0, spec.length, 200), random.integers(-1, 2, 200)
    expected = (spec.scheme.columns(places) * weights[:, None]).sum(axis=0)
    by_batch, by_event, by_table = (
        np.zeros(spec.size, np.int64),
        np.zeros(spec.size, np.int64),
        np.zeros(spec.size, np.int64),
    )
    Updater(spec).apply(by_batch, places, weights)
    monkeypatch.setattr("sketchstream.kinds.convolution.update.ROWS_BYTES", 0)
    computed = Updater(spec)
    computed.apply(by_table, places, weights)
    for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
        computed.apply(by_event, [place], [weight])
    for found in (by_batch, by_event, by_table):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("layout", ["fourier", "time"])
@pytest.mark.parametrize(("length", "width"), [(60, 5), (61, 5), (32, 32)])
def test_noise_removed_answers_equal_numpy(layout: Any, length: int, width: int, seeded: Any) -> None:
    kernel = np.random.default_rng(5).normal(size=width)
    spec = spec_of(kernel, length, layout=layout)
    counts = np.random.default_rng(6).integers(0, 1000, length)
    quiet, fed = np.zeros(spec.size, np.int64), np.zeros(spec.size, np.int64)
    add_noise(spec, quiet, entropy=seeded(1))
    add_noise(spec, fed, entropy=seeded(1))
    Updater(spec).apply(fed, np.repeat(np.arange(length), counts))
    found = spec.scheme.decode(fed - quiet)[:length]
    assert np.max(np.abs(found - np.convolve(counts, kernel)[:length])) < 1e-6 * np.abs(kernel).sum() * 1000
    assert np.any(quiet)


def test_exclusive_or_convolution() -> None:
    random = np.random.default_rng(2)
    kernel, counts = random.normal(size=16), random.integers(0, 50, 16)
    spec = spec_of(kernel, 16, group="bool")
    state = np.zeros(spec.size, np.int64)
    Updater(spec).apply(state, np.repeat(np.arange(16), counts))
    direct = [sum(int(counts[b]) * kernel[a ^ b] for b in range(16)) for a in range(16)]
    assert spec.scheme.decode(state) == pytest.approx(direct, abs=1e-6)


def test_product_group_convolution() -> None:
    random = np.random.default_rng(2)
    kernel, counts = random.normal(size=(3, 4)), random.integers(0, 50, (3, 4))
    for layout in ("fourier", "time"):
        spec = spec_of(kernel.reshape(-1), 12, group=[3, 4], layout=layout)
        state = np.zeros(spec.size, np.int64)
        Updater(spec).apply(state, np.repeat(np.arange(12), counts.reshape(-1)))
        direct = [
            sum(counts[a, b] * kernel[(i - a) % 3, (j - b) % 4] for a in range(3) for b in range(4))
            for i in range(3)
            for j in range(4)
        ]
        assert spec.scheme.decode(state) == pytest.approx(direct, abs=1e-6)


def test_filters_that_look_ahead() -> None:
    spec = spec_of([1, 2, 3], 20, origin=1)
    state = np.zeros(spec.size, np.int64)
    counts = np.random.default_rng(3).integers(0, 9, 20)
    Updater(spec).apply(state, np.repeat(np.arange(20), counts))
    assert spec.scheme.decode(state)[:20] == pytest.approx(np.convolve(counts, [1, 2, 3])[1:21], abs=1e-6)


def test_several_filters_share_a_state() -> None:
    spec = spec_of(["window:4", "sum"], 24)
    state = np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    first, second = answers(spec, [spec.layer()], state)
    assert (first.filter.name, second.filter.name) == ("window:4", "sum")
    assert first.mse < second.mse
    alone = spec_of("window:4", 24)
    assert first.mse > float(alone.mse()[0])


def test_marginals_by_column_names() -> None:
    table = DeclaredColumns({"late": (0, 1), "day": ("mo", "tu", "we"), "way": ("in", "out")})
    spec = spec_of(["marginal:late,way", "marginal:day", "marginal:"], columns=table)
    random = np.random.default_rng(4)
    counts = random.integers(0, 20, spec.length)
    state = np.zeros(spec.size, np.int64)
    Updater(spec).apply(state, np.repeat(np.arange(spec.length), counts))
    cube = counts.reshape(table.shape)
    pairs, days, total = answers(spec, [spec.layer()], state)
    assert pairs.values == pytest.approx(cube.sum(axis=1).reshape(-1), abs=1e-6)
    assert days.values == pytest.approx(cube.sum(axis=(0, 2)), abs=1e-6)
    assert total.values == pytest.approx([cube.sum()], abs=1e-6)
    assert [row["day"] for row in days.rows()] == ["mo", "tu", "we"]
    assert pairs.cells is not None
    assert pairs.cells[1] == {"late": 0, "way": "out"}
    assert table.cell({"late": 1, "day": "we", "way": "out"}) == 11
    assert table.cell({"late": 1, "day": "su", "way": "out"}) is None
    assert table.cell({"late": 1}) is None
    assert "day=mo" in str(days)
    with pytest.raises(SpecError, match="marginal must name declared columns"):
        table.marginal(["late", "hour"])


def test_one_way_marginals_have_the_error_of_one_count() -> None:
    spec = spec_of("marginal:a", columns=dict.fromkeys("abcdefghij", (0, 1)))
    assert spec.scheme.spectrum.mean_magnitude == pytest.approx(1)
    assert spec.size == 2


@pytest.mark.parametrize("noise", ["gaussian", "counts"])
@pytest.mark.parametrize("kernel", ["sum", "window:5", "decay:0.9"])
def test_closed_positions_equal_the_final_answer(noise: Any, kernel: str) -> None:
    spec = spec_of(kernel, 16, noise=noise, layout="time", publish="closed", intrusion=False)
    state = np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    updater, transcript = Updater(spec), []
    random = np.random.default_rng(8)
    for position in range(16):
        # Events of later positions may have come already; those of closed ones come no more.
        updater.apply(state, random.integers(position, 16, 5))
        transcript.append(closed_values(spec, state, position, position + 1)[0])
    assert transcript == closed_values(spec, state, 0, 16).tolist()
    assert transcript == pytest.approx(spec.scheme.decode(state)[:16], abs=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "counts"])
@pytest.mark.parametrize("known", [20, 17, 3])
def test_windows_are_joined_with_the_window_before(noise: Any, known: int) -> None:
    """Also where the window before is shorter than the longest one, or shorter than the filter."""
    spec = spec_of(["window:5", "sum"], 20, noise=noise)
    counts = np.random.default_rng(9).integers(0, 30, known + 20)
    before, after = np.zeros(spec.size, np.int64), np.zeros(spec.size, np.int64)
    Updater(spec).apply(before, np.repeat(np.arange(known), counts[:known]))
    Updater(spec).apply(after, np.repeat(np.arange(20), counts[known:]))
    new, running = answers(spec, [spec.layer()], after)
    assert new.partial.tolist() == [True] * 4 + [False] * 16
    whole = join_windows(new, before, [spec.layer()], known)
    assert whole.values == pytest.approx(np.convolve(counts, np.ones(5))[known : known + 20], abs=1e-6)
    assert whole.partial.tolist() == [k < 4 - known for k in range(20)]
    factor = np.sqrt(2) * np.ones(4)
    if noise == "counts":
        factor = np.sqrt(np.minimum(np.arange(1, 5) + known, 5) / 5)
    assert whole.stderr[:4] == pytest.approx(new.stderr[10] * factor)
    assert whole.stderr[4:] == pytest.approx(new.stderr[4:])
    low, high = whole.interval().T
    assert np.all((high > low) & (whole.values >= low))
    assert join_windows(running, before, [spec.layer()]) is running
    with pytest.raises(EstimateError, match="completed before"):
        join_windows(whole, before, [spec.layer()])


@pytest.mark.parametrize("given", [{"noise": "counts"}, {"noise": "laplace_pure", "delta": 0}])
@pytest.mark.parametrize("length", [12, 80])
def test_joined_intervals_hold_where_noise_is_not_normal(given: dict[str, Any], length: int, seeded: Any) -> None:
    """Both windows' draws are in the first answers: intervals hold them at their rate, and no narrower ones would."""
    spec = spec_of("window:6", length, **given)
    source, inside, narrow = seeded(5), [], []
    for _ in range(400):
        states = [np.zeros(spec.size, np.int64) for _ in range(2)]
        for state in states:
            add_noise(spec, state, entropy=source)
        (alone,) = answers(spec, [spec.layer()], states[1])
        whole = join_windows(alone, states[0], [spec.layer()])
        half = (whole.interval()[:, 1] - whole.values)[:5]
        inside.append(np.abs(whole.values[:5]) <= half)
        narrow.append(np.abs(whole.values[:5]) <= (alone.interval()[:, 1] - alone.values)[:5])
    assert 0.92 < np.mean(inside) < 0.985
    assert np.mean(narrow) < 0.93


def test_standard_errors_of_merges_and_fresh_noise() -> None:
    spec = spec_of("window:8", 64, epsilon_publish="1/2")
    one, fresh = spec.layer(), spec.published_layer
    assert fresh is not None
    state = np.zeros(spec.size, np.int64)
    (bare,) = answers(spec, [one], state)
    (merged,) = answers(spec, [one] * 3, state)
    (sealed,) = answers(spec, [one, fresh], state)
    assert merged.mse == pytest.approx(3 * bare.mse)
    assert sealed.mse == pytest.approx(bare.mse * (1 + float(one.loss / fresh.loss)))
    equal = spec_of("window:8", 64)
    assert float(equal.mse([equal.layer(), equal.published_layer])[0]) == pytest.approx(2 * bare.mse)  # type: ignore[list-item]


def test_adding_states_is_associative_and_commutative() -> None:
    spec = spec_of("sum", 16)
    parts = [np.zeros(spec.size, np.int64) for _ in range(3)]
    for part in parts:
        add_noise(spec, part)
    a, b, c = parts
    assert np.array_equal((a + b) + c, a + (c + b))


def test_answers_as_data() -> None:
    spec = spec_of("window:3", 10)
    state = np.zeros(spec.size, np.int64)
    (found,) = answers(spec, [spec.layer()], state)
    data = found.to_dict()
    assert data["kind"] == "convolution"
    assert len(data["intervals"]) == 10
    row = next(found.rows())
    assert row["partial"]
    assert row["low"] == pytest.approx(-row["high"])
    assert "10 answers" in str(found)
    with pytest.raises(EstimateError):
        found.interval(1)
    with pytest.raises(EstimateError):
        answers(spec, [], state)


def test_autocovariance_of_the_noise() -> None:
    for noise in ("gaussian", "laplace", "counts"):
        spec = spec_of("sum", 16, noise=noise)
        (found,) = answers(spec, [spec.layer()], np.zeros(spec.size, np.int64))
        covariance = found.autocovariance(4)
        assert covariance[0] == pytest.approx(float(np.max(found.stderr)) ** 2, rel=1e-9)
        assert np.all(np.diff(covariance) < 0)


@pytest.mark.parametrize("layout", ["fourier", "time"])
def test_invalid_events(layout: Any) -> None:
    spec = spec_of("window:4", 20, layout=layout, max_weight=3)
    updater, state = Updater(spec), np.zeros(spec.size, np.int64)
    add_noise(spec, state)
    before = state.copy()
    for bad in ([20], [-1], [3, 23], [True], [1.0], ["a"], [2**70]):
        with pytest.raises((DomainError, ItemError)):
            updater.apply(state, bad)
    for weights in ([4], [-4], [1.5], [True], [-(2**63)], [1, 2]):
        with pytest.raises(WeightError):
            updater.apply(state, [0], weights)
    assert np.array_equal(state, before)
    updater.apply(state, [25, -3, 2, 5, 4], [1, 1, 4, -4, 0], invalid="noop")
    assert np.array_equal(state, before)
    updater.apply(state, [25, 2], [1, 3], invalid="noop")
    other = before.copy()
    updater.apply(other, [2, 2, 2])
    assert np.array_equal(state, other)
    updater.apply(state, [2], [-3.0])  # a whole number, however it is written
    assert np.array_equal(state, before)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kernel": []}, "empty"),
    ({"kernel": [[1, 2], [3, 4]]}, "one-dimensional"),
    ({"kernel": [1, float("nan")]}, "finite"),
    ({"kernel": np.array([1j])}, "real"),
    ({"kernel": [0, 0]}, "all zero"),
    ({"kernel": [1, -1e300]}, "coefficients of at most 1e.100"),
    ({"kernel": "windw:4"}, "kernel must be one of"),
    ({"kernel": "window:17"}, "from 1 to the length"),
    ({"kernel": "decay:1"}, "0 < A < 1"),
    ({"kernel": "absent.npy"}, "could not be read"),
    ({"kernel": "marginal:a"}, "columns"),
    ({"kernel": [1, 2, 3], "mode": "circular"}, "as many coefficients"),
    ({"kernel": np.ones(12), "length": 12, "group": "bool"}, "power of two"),
    ({"kernel": [1, 2], "origin": 2}, "origin"),
    ({"mode": "linear", "group": [4, 4], "kernel": np.ones(16)}, "circular"),
    ({"epsilon": 0}, "epsilon"),
    ({"epsilon": -1}, "epsilon"),
    ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": float("inf")}, "epsilon"),
    ({"delta": 1}, "delta"),
    ({"delta": -1}, "delta"),
    ({"delta": 0, "noise": "gaussian"}, "needs delta > 0"),
    ({"delta": 0, "noise": "laplace"}, "needs delta > 0"),
    ({"noise": "laplace_pure"}, "needs delta = 0"),
    ({"noise": "laplace_pure", "delta": 0, "layout": "time"}, "layout"),
    ({"noise": "normal"}, "noise must be one of"),
    ({"max_weight": 0}, "max_weight"),
    ({"unit": "item"}, "needs max_total"),
    ({"unit": "item", "max_total": 0}, "max_total"),
    ({"unit": "item", "max_total": 3, "max_weight": 3}, "max_weight belongs to unit"),
    ({"max_total": 3}, "belongs to unit"),
    ({"unit": "user"}, "unit must be 'event' or 'item'"),
    ({"floor": 1}, "floor"),
    ({"floor": 0, "layout": "time"}, "floor"),
    ({"capacity": 1 << 62}, "capacity"),
    ({"publish": "closed"}, "needs mode = 'linear'"),
    ({"publish": "closed", "intrusion": False}, "layout"),
    ({"publish": "closed", "intrusion": False, "layout": "time", "origin": 1}, "origin 1"),
    ({"length": 0}, "length"),
    ({"delta": "1e-40", "layout": "time"}, "use layout = 'fourier' or a larger delta"),
    ({"weights": [1, 2]}, "weights"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_refused_specs(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"kernel": "window:4", "length": 16, "epsilon": 1, "delta": "1e-6", "noise": "gaussian"}
    with pytest.raises(SpecError, match=said):
        ConvolutionSpec(**{**given, **change})


def test_a_peak_without_floor_is_refused() -> None:
    kernel = np.zeros(1024)
    kernel[0], kernel[1] = 1, -1 + 1e-11
    given: dict[str, Any] = {"mode": "circular", "epsilon": "0.001", "delta": "1e-9", "noise": "gaussian"}
    with pytest.raises(SpecError, match="raise floor"):
        ConvolutionSpec(kernel, 1024, floor=0, **given)
    assert ConvolutionSpec(kernel, 1024, **given).size == 1024


@pytest.mark.parametrize("name", SPECS)
def test_plain_data_and_back(name: str) -> None:
    spec = SPECS[name]
    again = ConvolutionSpec.from_dict(spec.to_dict())
    assert again == spec
    assert again.fingerprint == spec.fingerprint


def test_plain_data_of_automatic_choices_and_columns() -> None:
    made = [
        ConvolutionSpec("window:8", 64, epsilon=1, delta="1e-6"),
        ConvolutionSpec(np.ones(64), 64, mode="circular", epsilon=1, delta="1e-6"),
        ConvolutionSpec("sum", 512, epsilon=1, delta="1e-6", layout="time", publish="closed", intrusion=False),
        ConvolutionSpec(["marginal:a", "marginal:b"], columns={"a": (0, 1), "b": "uvw"[:0] or ("u", "v")}, epsilon=1),
        ConvolutionSpec("sum", 100, epsilon="1/3", unit="item", max_total=5, delta="1e-5", noise="laplace"),
    ]
    for spec in made:
        again = ConvolutionSpec.from_dict(spec.to_dict())
        assert again.fingerprint == spec.fingerprint
        assert (again.noise, again.layout, again.size) == (spec.noise, spec.layout, spec.size)
    assert len({spec.fingerprint for spec in made}) == len(made)


def test_plain_data_that_does_not_fit() -> None:
    data = SPECS["running sum"].to_dict()
    for change in ({"kind": "profile"}, {"transform_length": 65}, {"support": "00"}, {"colour": 1}):
        with pytest.raises(SpecError):
            ConvolutionSpec.from_dict({**data, **change})


def test_kernels_from_files(tmp_path: Any) -> None:
    np.save(tmp_path / "kernel.npy", np.array([1.0, 0.5]))
    spec = spec_of(str(tmp_path / "kernel.npy"), 16)
    assert spec.filters[0].coefficients.tolist() == [1, 0.5]
    assert ConvolutionSpec.from_dict(spec.to_dict()).fingerprint == spec.fingerprint
