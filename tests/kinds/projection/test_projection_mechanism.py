"""The state: a twin of updates, linearity, no-ops, noise, no memory of features; adversaries of public matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.projection_attack import delta_lower_bound, direction, empty_state, extremes, within
from sketchstream.errors import ItemError
from sketchstream.kinds.projection import calibration, mechanism
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.mechanism import apply, creation_sigma2, sensitivity2
from sketchstream.kinds.projection.spec import ProjectionSpec
from sketchstream.noise import discrete_gaussian
from sketchstream.privacy.calibration.continuous import delta_of

Apply = Callable[..., None]


class Words:
    """An entropy source of a fixed seed, for tests."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def fill(self, words: Any) -> None:
        words[...] = self.random.integers(0, 1 << 32, words.shape, np.uint32)


def events(seed: int, spec: ProjectionSpec, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random events; some are outside their domains or too heavy."""
    random = np.random.default_rng(seed)
    most = spec.lattice.most
    rows = random.integers(-1, spec.users.size + 1, size)
    features = random.integers(-1, spec.features.size + 1, size)
    weights = random.integers(-most - 1, most + 2, size)
    weights[::2] %= min(most, 1000) + 1
    for column in (rows, features, weights):
        column[random.integers(0, size, 4)] = (-(2**63), 2**63 - 1, -(2**62), 2**62)
    return rows, features, weights


def twin(spec: ProjectionSpec, batch: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """X R with Python's integers, modulo 2^64."""
    matrix = spec.projection_matrix()
    out = [[0] * spec.k for _ in range(spec.users.size)]
    for u, j, q in zip(*(one.tolist() for one in batch), strict=True):
        if 0 <= u < spec.users.size and 0 <= j < spec.features.size and abs(q) <= spec.lattice.most:
            out[u] = [cell + q * int(r) for cell, r in zip(out[u], matrix.rows([j])[0], strict=True)]
    return np.array([[(cell + 2**63) % 2**64 - 2**63 for cell in row] for row in out], np.int64)


@pytest.mark.parametrize("family", ["gaussian", "rademacher", "srht", "identity"])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("bits", [20, 36])
def test_updates_equal_their_twin(family: Any, kept: bool, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        monkeypatch.setattr("sketchstream.kinds.projection.matrices.matrix.PRECOMPUTED", 0)
        monkeypatch.setattr(mechanism, "EVENTS", 50)
    # 45 columns are added in all three widths: four vectors at a time, one, and single cells
    k = None if family == "identity" else 45
    spec = ProjectionSpec(7, 40, k, 1, "1e-6", matrix=family, max_weight=2**bits, fraction_bits=3, capacity=2**40)
    batch = events(1, spec, 300)
    sizes = np.abs(batch[2])[np.abs(batch[2]) <= spec.lattice.most]
    assert (sizes >= 2**31).any() == (bits == 36)
    assert (sizes < 2**31).any()
    state = empty_state(spec)
    apply(spec, spec.projection_matrix(), state, *batch)
    assert np.array_equal(state, twin(spec, batch))


def test_states_are_linear_and_wrap() -> None:
    spec = ProjectionSpec(5, 30, 8, 1, "1e-6", max_weight=3)
    matrix = spec.projection_matrix()
    noise = empty_state(spec)
    discrete_gaussian(noise, creation_sigma2(spec), Words(5))
    again = empty_state(spec)
    discrete_gaussian(again, creation_sigma2(spec), Words(5))
    assert np.array_equal(noise, again)
    assert np.unique(noise).size == noise.size
    batch = events(2, spec, 500)
    apply(spec, matrix, noise, *batch)
    exact = noise - again
    assert np.array_equal(exact, twin(spec, batch))
    order = np.random.default_rng(6).permutation(500)
    parts = [empty_state(spec), empty_state(spec)]
    for part, chosen in zip(parts, (order[:100], order[100:]), strict=True):
        apply(spec, matrix, part, *(one[chosen] for one in batch))
    assert np.array_equal(parts[0] + parts[1], exact)
    apply(spec, matrix, noise, batch[0], batch[1], -batch[2])
    assert np.array_equal(noise, again)
    full = np.full(spec.shape, 2**63 - 1, np.int64)
    apply(spec, matrix, full, np.array([0]), np.array([0]), np.array([1]))
    assert full[0, 0] == -(2**63) + 35  # R[0, 0] is 36


def test_a_batch_of_unequal_lengths_changes_nothing() -> None:
    spec = ProjectionSpec(5, 30, 8, 1, "1e-6")
    state = empty_state(spec)
    with pytest.raises(ItemError, match="one length, found 2, 1, 2"):
        apply(spec, spec.projection_matrix(), state, np.array([0, 1]), np.array([0]), np.array([1, 1]))
    assert not state.any()


def remembers(update: Apply, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether something outside the state depends on which features a batch had, or rows are not made anew."""
    monkeypatch.setattr("sketchstream.kinds.projection.matrices.matrix.PRECOMPUTED", 0)
    spec = ProjectionSpec(4, 1000, 16, 1, "1e-6")
    matrix, made = spec.projection_matrix(), []
    rows_of = Matrix.rows

    def counted(self: Matrix, features: Any) -> Any:
        made.append(np.asarray(features).tolist())
        return rows_of(self, features)

    monkeypatch.setattr(Matrix, "rows", counted)
    zeros, ones = np.zeros(3, np.int64), np.ones(3, np.int64)
    traces = []
    for features in ([1, 2, 3], [1, 2, 3], [700, 2, 3]):
        made.clear()
        update(spec, matrix, empty_state(spec), zeros, np.array(features), ones)
        traces.append((sorted(made[0]) == sorted(features) if made else False, sorted(vars(matrix))))
    return not all(fresh for fresh, _ in traces) or len({str(held) for _, held in traces}) > 1


def test_no_row_of_the_matrix_outlives_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not remembers(apply, monkeypatch)


def test_a_cache_of_recent_features_is_a_mutant_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cache: dict[int, Any] = {}

    def cached(spec: Any, matrix: Any, state: Any, rows: Any, features: Any, weights: Any) -> None:
        missing = [one for one in features.tolist() if one not in cache]
        if missing:
            cache.update(zip(missing, matrix.rows(missing), strict=True))
        for u, j, q in zip(rows, features, weights, strict=True):
            state[u] += q * cache[int(j)].astype(np.int64)

    assert remembers(cached, monkeypatch)


def test_noise_has_the_variance_of_its_parameter_and_no_other() -> None:
    spec = ProjectionSpec(2000, 30, 50, 1, "1e-6", matrix="rademacher")
    layer = creation_sigma2(spec)
    state = empty_state(spec)
    discrete_gaussian(state, layer, Words(8))
    share = float((state.astype(float) ** 2).mean() / float(layer))
    assert abs(share - 1) < 5 * (2 / state.size) ** 0.5
    assert abs(share * 1.05 - 1) > 5 * (2 / state.size) ** 0.5
    assert abs(np.corrcoef(state[:, 0], state[:, 1])[0, 1]) < 5 / 2000**0.5


def test_extreme_rows_stay_within_their_promises_and_reach_the_sensitivity() -> None:
    base: dict[str, Any] = {"users": 1 << 20, "features": 1000, "k": 32, "epsilon": 1, "delta": "1e-6"}
    for more in (
        {"max_weight": 3},
        {"unit": "item", "max_total": 7},
        {"unit": "item", "max_norm": 10_000},
        {"unit": "item", "max_norm": 10_000, "max_features": 4},
        {"unit": "item", "max_norm": 10_000, "matrix": "srht"},
        {"unit": "item", "max_norm": 1000, "max_total": 5000, "fraction_bits": 4},
    ):
        spec = ProjectionSpec(**base, **more)
        found = extremes(spec, spec.projection_matrix())
        assert found
        assert all(within(spec, one) and one.shift2 <= sensitivity2(spec) for one in found)
        if "max_features" not in more and "fraction_bits" not in more:
            share = max(one.shift2 for one in found) / sensitivity2(spec)
            assert share > (0.9 if more.get("matrix") == "srht" else 0.98)
    spec = ProjectionSpec(**base, unit="item", max_norm=100_000)
    heavy = extremes(spec, spec.projection_matrix())[-1]
    assert heavy.name == "top singular direction"
    assert not within(ProjectionSpec(**base, unit="item", max_norm=99_000), heavy)


def observed(parameter: Fraction, shift: float, along: np.ndarray, seed: int, runs: int) -> tuple[Any, Any]:
    """Statistics of an observer without and with the row, from exact discrete noise."""
    cells = np.zeros((2 * runs, along.size), np.int64)
    discrete_gaussian(cells, parameter, Words(seed))
    statistic = cells.astype(float) @ along
    return statistic[:runs], statistic[runs:] + shift


@pytest.mark.statistics
def test_theorem_1_on_a_public_matrix_is_broken_and_ours_is_not() -> None:
    spec = ProjectionSpec(1 << 20, 1000, 100, 1, "1e-6", "item", max_norm=10_000)
    matrix = spec.projection_matrix()
    worst = max(extremes(spec, matrix), key=lambda one: one.shift2)
    along, shift, runs = direction(matrix, worst), math.sqrt(worst.shift2), 120_000
    printed = calibration.paper_theorem_1(1, "1e-6", 100) * 10_000
    theirs = calibration.on_grid(Fraction(printed) ** 2 * 100 * 4096)
    for parameter, broken in ((theirs, True), (creation_sigma2(spec), False)):
        sigma = math.sqrt(parameter)
        # The likelihood ratio exceeds e^epsilon beyond this; no sample is looked at to find it.
        threshold = sigma * sigma / shift + shift / 2
        bound = delta_lower_bound(*observed(parameter, shift, along, 11, runs), 1.0, threshold, 0.999)
        exact = delta_of(1, sigma, shift)
        assert bound <= exact
        assert (bound > 1e-3) == broken
        assert (exact > 9e-3) if broken else (exact <= 1e-6)
