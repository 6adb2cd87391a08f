"""Workloads without a matrix: runs of cells, strategies in closed form, each beside its dense, slow twin."""

from __future__ import annotations

import contextlib
import itertools
import math
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import sketchstream as ss
from helpers.commands import Run
from sketchstream.errors import EstimateError, FormatError, SpecError
from sketchstream.kinds.linear.tree import BlockTree
from sketchstream.kinds.workload import forecast
from sketchstream.kinds.workload.queries import factors
from sketchstream.kinds.workload.queries import runs as runs_module
from sketchstream.kinds.workload.queries.factors import Factor
from sketchstream.kinds.workload.queries.queries import Workload, marginals, product_workload, union
from sketchstream.kinds.workload.queries.runs import Runs
from sketchstream.kinds.workload.strategies import implicit
from sketchstream.kinds.workload.strategies.implicit import CELLS, Implicit, gaussian_levels, read_strategy
from sketchstream.kinds.workload.strategies.mechanism import Task, candidates, choose
from sketchstream.kinds.workload.strategies.optimise import optimise, reduce_matrix, too_large
from sketchstream.kinds.workload.strategies.projection import ANSWERS, nearest
from sketchstream.kinds.workload.strategies.strategy import Strategy, declared_size, from_matrix

ONE, DELTA = Fraction(1), Fraction(1, 10**6)
TREES = (CELLS, (), ((1, 3), (4, 2)), ((1, 2), (3, 1), (6, 5)), ((1, 1), (2, 1), (16, 7)))


def listed(rows: np.ndarray[Any, Any]) -> Workload:
    """The rows of a small matrix, held as runs."""
    found = Runs.of_matrix(rows)
    return Workload((("cell", found.size),), ((Factor("runs", found.size, listed=found),),))


def random_rows(seed: int, rows: int = 9, size: int = 23) -> np.ndarray[Any, Any]:
    """Random sums of three ranges."""
    random = np.random.default_rng(seed)
    out = np.zeros((rows, size), np.int64)
    for row in out:
        for low, high in np.sort(random.integers(0, size + 1, (3, 2)), axis=1):
            row[low:high] += random.integers(-2, 4)
    out[0, 0] += 1
    return out


def ranges(count: int = 10_000, size: int = 100_000, seed: int = 1) -> Workload:
    """Random ranges."""
    ends = np.sort(np.random.default_rng(seed).integers(0, size, (count, 2)), axis=1)
    return Workload.of_runs(size, np.arange(count), ends[:, 0], ends[:, 1] + 1)


def coefficients(strategy: Implicit) -> np.ndarray[Any, Any]:
    """(d, m) coefficients of the counters in the answers, counter by counter."""
    return np.array([strategy.answers(unit) for unit in np.eye(strategy.length, dtype=np.int64)]).T


@st.composite
def intervals(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, int]]]:
    """A number of cells, and (query, low, high, coefficient)."""
    size = draw(st.integers(1, 12))
    one = st.tuples(st.integers(0, 4), st.integers(0, size - 1), st.integers(1, size), st.integers(-3, 3))
    return size, [(q, low, max(low + 1, high), value) for q, low, high, value in draw(st.lists(one, max_size=12))]


# Runs.


@given(asked=intervals(), data=st.data())
def test_runs_are_their_matrix(asked: tuple[int, list[tuple[int, int, int, int]]], data: st.DataObject) -> None:
    size, parts = asked
    dense = np.zeros((5, size), np.int64)
    for query, low, high, value in parts:
        dense[query, low:high] += value
    columns = np.array(parts, np.int64).reshape(-1, 4).T
    if not dense.any():
        with pytest.raises(SpecError, match="no effect"):
            Runs.of(size, *columns, queries=5)
        return
    found = Runs.of(size, *columns, queries=5)
    assert np.array_equal(found.dense(), dense)
    assert len(found.lows) == np.count_nonzero(np.diff(dense, prepend=0) * (dense != 0))  # as few as there can be
    table = np.array(data.draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=size, max_size=size)))
    assert np.array_equal(found.apply(table), dense @ table)  # both wrap
    assert np.array_equal(found.apply(np.ones((size, 2))), np.repeat(dense.sum(axis=1), 2).reshape(5, 2))
    width, power = data.draw(st.integers(1, size)), data.draw(st.sampled_from([2, 4]))
    padded = np.pad(dense, ((0, 0), (0, -size % width))).reshape(5, -1, width)
    assert np.array_equal(found.energies(width, power), (padded.sum(axis=2) ** power).sum(axis=1))
    assert [found.column_sums(power).tolist() for power in (0, 1, 2)] == [
        (np.abs(dense) ** power * (dense != 0)).sum(axis=0).tolist() for power in (0, 1, 2)
    ]
    cells = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=4)), np.int64)
    assert np.array_equal(found.column_of(cells, cells - 2), dense[:, cells] @ (cells - 2))
    edges = np.array(sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=3))}))
    means = [dense[:, low:high].mean(axis=1) for low, high in itertools.pairwise(edges.tolist())]
    np.testing.assert_allclose(found.means(edges), np.array(means).T, atol=1e-12)
    again = Runs.from_dict(size, 5, found.to_dict())
    assert again.to_dict() == found.to_dict()
    assert np.array_equal(Runs.of_matrix(sparse.csr_array(dense)).dense(), dense)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((9, [0.5], [1], [2]), "whole numbers"),
        ((9, [[0]], [[1]], [[2]]), "whole numbers"),
        ((9, [-1], [1], [2]), "queries from 0"),
        ((9, [0], [2], [2]), "0 <= low < high <= 9"),
        ((9, [0], [2], [10]), "0 <= low < high <= 9"),
        ((9, [0], [2], [3], [1 << 20]), "below 2\\^20"),
        ((9, [0, 0], [2, 2], [3, 3], [1 << 19, 1 << 19]), "below 2\\^20"),
        ((9, [0, 0], [2, 2], [3, 3], [1, -1]), "no effect"),
        ((9, [1 << 40], [2], [3]), "at most 2\\^22 queries"),
        ((9, np.zeros((1 << 22) + 1, np.int8), [1], [2]), "at most 2\\^22 queries and 2\\^22 runs"),
        ((1 << 25, [0], [2], [3]), "cells of a workload"),
    ],
)
def test_runs_that_cannot_be_are_refused(given_: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Workload.of_runs(*given_)


def test_what_is_too_large_is_refused_before_any_work() -> None:
    tracemalloc.start()
    wide = sparse.csr_array((np.ones(5_000_000, np.int8), (np.arange(5_000_000), np.arange(5_000_000))))
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for asked, message in (
        (lambda: Workload.of_matrix(wide), "found 5,000,000 and 5,000,000; ask fewer queries"),
        (lambda: ss.WorkloadSpec("ranges:5000", "1", "0"), "at most 2\\^22 queries .* found 12,502,500"),
        (lambda: Workload.of_matrix(sparse.csr_array(([0.5], ([5], [5])), (70_000, 70_000))), "fractions"),
    ):
        with pytest.raises(SpecError, match=message):
            asked()
    assert tracemalloc.get_traced_memory()[1] - before < 100e6
    tracemalloc.stop()


def test_few_queries_get_the_best_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ranges(20, 60)
    assert asked.products[0][0].name == "matrix"
    assert not too_large(asked)
    assert ranges(2, 1 << 22).products[0][0].name == "runs"
    monkeypatch.setattr(factors, "WRITTEN_OUT", 10)
    assert ranges(20, 60).products[0][0].name == "runs"
    assert ranges(9, 60).products[0][0].name == "matrix"


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload.named("identity:4096"), False),
        (Workload.named("identity:5000"), True),
        (Workload.named("windows:9000:3"), True),
        (Workload.named("ranges:100 x ranges:100"), True),
        (product_workload({"a": Factor("ranges", 50), "b": Factor("total", 20_000)}), False),
        (marginals({"a": 100, "b": 100}, (1,)), False),
        (marginals({"a": 100, "b": 100}, (1, 2)), True),
        (listed(random_rows(1)), True),
        (union(listed(random_rows(1)), listed(random_rows(2))), True),
    ],
)
def test_which_workloads_have_no_matrix(workload: Workload, expected: bool) -> None:
    assert too_large(workload) == expected


def test_files_of_runs_and_of_sparse_matrices(tmp_path: Path) -> None:
    wanted = ranges(700, 30_000)
    held = wanted.runs
    query = np.repeat(np.arange(700), np.diff(held.starts))
    np.savez(tmp_path / "ranges.npz", size=30_000, query=query, low=held.lows, high=held.highs)
    assert Workload.named(str(tmp_path / "ranges.npz")).digest == wanted.digest
    cells = np.arange(20_000)
    sparse.save_npz(tmp_path / "cells.npz", sparse.csr_array((np.full(20_000, 2), (cells, cells)), (20_000, 20_000)))
    read = Workload.named(str(tmp_path / "cells.npz"))
    assert read.products[0][0].name == "runs"
    assert np.array_equal(read.apply(np.arange(20_000.0)), 2 * np.arange(20_000.0))
    np.savez(tmp_path / "no.npz", low=held.lows)
    with pytest.raises(SpecError, match="could not be read"):
        Workload.named(str(tmp_path / "no.npz"))
    again = Workload.from_dict(wanted.to_dict())
    assert again.digest == wanted.digest


# Strategies.


@pytest.mark.parametrize("levels", TREES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_strategy_without_a_matrix_is_its_dense_twin(levels: Any, seed: int) -> None:
    """Answers, variances, covariance, fourth powers and sensitivities are those of the matrix."""
    dense = random_rows(seed)
    strategy = Implicit(listed(dense), levels)
    decoder, matrix = coefficients(strategy), strategy.matrix
    np.testing.assert_allclose(decoder @ matrix, dense, atol=1e-9)  # unbiased
    np.testing.assert_allclose(strategy.variances, np.square(decoder).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(strategy.fourths, (decoder**4).sum(axis=1), rtol=1e-9)
    if levels:  # least squares over the cells and the padding
        tree = BlockTree(dense.shape[1], levels)
        wide = Implicit(listed(np.pad(dense, ((0, 0), (0, tree.cells - tree.size)))), levels).matrix.astype(float)
        padded = np.pad(dense, ((0, 0), (0, tree.cells - tree.size)))
        np.testing.assert_allclose(decoder @ decoder.T, padded @ np.linalg.inv(wide.T @ wide) @ padded.T, atol=1e-9)
    sums = [np.abs(matrix) ** power for power in (1, 2)]
    assert [strategy.sensitivity1, strategy.sensitivity2] == [int(one.sum(axis=0).max()) for one in sums]
    assert strategy.largest == np.abs(matrix).max()


@pytest.mark.parametrize("levels", TREES)
@pytest.mark.parametrize("metric", ["state", "answers", "both"])
def test_projections_without_a_matrix_are_those_of_the_dense_twin(levels: Any, metric: Any) -> None:
    for seed in range(4):
        dense, random = random_rows(seed), np.random.default_rng(seed)
        strategy = Implicit(listed(dense), levels)
        state = strategy.matrix @ random.integers(0, 9, 23) + random.integers(-30, 30, strategy.length)
        columns, found = strategy.matrix.astype(float), np.zeros(23)
        point = state.astype(float)
        if levels and metric != "state":  # distances of answers, beside those of states
            found = strategy.tree.solve(state)
            share = ANSWERS * strategy.length / float(strategy.variances.sum()) if metric == "both" else 1.0
            columns = np.concatenate([columns * (metric == "both"), share**0.5 * dense])
            point = np.concatenate([point * (metric == "both"), share**0.5 * dense @ found])
        for bound in (5.0, 400.0):
            wanted = nearest(point, columns, bound, found, 1e-7).histogram
            seen = strategy.nearest(state, bound, 1e-7, metric)
            assert seen.histogram.min() >= 0
            assert seen.histogram.sum() <= bound * (1 + 1e-9)
            np.testing.assert_allclose(columns @ seen.histogram, columns @ wanted, atol=2e-3)


def test_the_individuals_are_the_sum_of_the_cells() -> None:
    random = np.random.default_rng(2)
    for levels in TREES:
        if levels:
            strategy = Implicit(listed(random_rows(1)), levels)
            state = random.integers(-50, 50, strategy.length)
            total, variance = strategy.individuals(state)
            sums = np.array([strategy.tree.solve(unit).sum() for unit in np.eye(strategy.length, dtype=np.int64)])
            assert total == pytest.approx(sums @ state)
            assert variance == pytest.approx(sums @ sums)


@pytest.mark.parametrize(
    "workload",
    [
        listed(random_rows(3)),
        marginals({"a": 4, "b": 3, "c": 5}, (1, 2)),
        Workload.named("prefix:6 x ranges:4"),
        Workload.named("windows:9:2"),
    ],
    ids=["runs", "marginals", "product", "windows"],
)
def test_gram_matrices_are_applied_without_being_made(workload: Workload) -> None:
    table = np.random.default_rng(1).normal(size=workload.size)
    np.testing.assert_allclose(workload.gram_times(table), workload.gram() @ table, atol=1e-9)


def test_lists_of_cells_are_projected_by_default_and_gain_much() -> None:
    """Ten thousand lists over as many cells, of which few are not empty; intervals still hold."""
    random = np.random.default_rng(4)
    chosen = np.concatenate([random.choice(10_000, 10, replace=False) for _ in range(2000)])
    asked = Workload.of_runs(10_000, np.repeat(np.arange(2000), 10), chosen, chosen + 1)
    spec = ss.WorkloadSpec(asked, "1", "1e-6", "laplace", strategy=Implicit(asked, CELLS))
    items = random.zipf(1.5, 3000) % 10_000
    sketch = ss.Sketch.create(spec)
    sketch.update(items)
    sealed = sketch.seal()
    found, raw = sealed.estimate(), sealed.estimate("unbiased")
    truth = asked.apply(np.bincount(items, minlength=10_000).astype(float))
    assert found.method == "cap"
    assert np.mean((found.values - truth) ** 2) < 0.3 * np.mean((raw.values - truth) ** 2)
    low, high = found.interval().T
    assert np.all((low <= found.values) & (found.values <= high))
    assert 0.93 < np.mean((low <= truth) & (truth <= high)) <= 1


@pytest.mark.parametrize("levels", TREES)
def test_updates_add_columns_of_the_matrix(levels: Any) -> None:
    random = np.random.default_rng(3)
    strategy = Implicit(listed(random_rows(7)), levels)
    for n in (0, 1, 2, 50, 3000):
        cells, weights = random.integers(-2, 26, n), random.integers(-(1 << 62), 1 << 62, n)
        inside = (cells >= 0) & (cells < 23)
        for given_ in (weights, None):
            state = random.integers(-(1 << 63), (1 << 63) - 1, strategy.length)
            wanted = state + strategy.matrix[:, cells[inside]] @ (np.ones(n, int) if given_ is None else given_)[inside]
            strategy.add(state, cells, given_)
            assert np.array_equal(state, wanted)


@pytest.mark.parametrize("seed", range(4))
def test_errors_and_choices_are_those_of_the_dense_strategies(seed: int) -> None:
    dense = random_rows(seed, 12, 40)
    assert np.linalg.matrix_rank(dense) == 12
    matrix = Workload.of_matrix(dense)
    twins = [
        from_matrix(matrix, np.eye(40, dtype=np.int64), "identity"),
        from_matrix(matrix, dense, "queries", rank=12),
    ]
    held = [Implicit(listed(dense), CELLS), Implicit(listed(dense), ())]
    for twin, ours in zip(twins, held, strict=True):
        there = ss.WorkloadSpec(matrix, "1", "0", "laplace", strategy=twin)
        here = ss.WorkloadSpec(ours.workload, "1", "0", "laplace", strategy=ours)
        np.testing.assert_allclose(here.variances, there.variances)
        np.testing.assert_allclose(here.heaviness, there.heaviness)
        assert (here.integral, here.layer(), here.cost(here.layer())) == (
            there.integral, there.layer(), there.cost(there.layer()),
        )  # fmt: skip
        state = np.random.default_rng(seed).integers(-99, 99, here.length)
        np.testing.assert_allclose(ours.answers(state), matrix.apply(twin.estimate(state.astype(float))), atol=1e-9)
    for epsilon in (ONE, Fraction(1, 10), Fraction(5)):
        known = {one.strategy.form: one.error for one in Task(matrix, epsilon).laplace_candidates(12)}
        tried = candidates(Task(held[0].workload, epsilon, Fraction(0)), "laplace")  # the best first
        found = {one.strategy.form: one.error for one in reversed(tried)}
        for form in ("identity", "queries"):
            assert math.isclose(known[form], found[form])
        assert (known["identity"] < known["queries"]) == (found["identity"] < found["queries"])
        assert "tree" not in known or tried[0].error < 1.3 * known["tree"]


@pytest.mark.parametrize(("delta", "wanted"), [("1e-6", "gaussian"), ("0", "laplace")])
def test_the_least_error_is_chosen(delta: str, wanted: str) -> None:
    """Of queries over cells apart each cell is in one query: the answers themselves have the least noise."""
    cells = np.arange(3000)
    apart = Workload.of_runs(30_000, cells, 10 * cells, 10 * cells + 10)
    mechanism: Any = "auto" if delta == "0" else "gaussian"
    spec = ss.WorkloadSpec(apart, "1", delta, mechanism)
    assert (spec.mechanism, spec.strategy.form, spec.length) == (wanted, "queries", 3000)
    tried = candidates(Task(apart, ONE, DELTA), "auto")
    assert {(one.mechanism, one.strategy.form) for one in tried} >= {
        (mechanism, form) for mechanism in ("gaussian", "laplace") for form in ("queries", "identity")
    }
    for objective, weights in (("max", None), ("total", np.full(3000, 2.0))):
        found = candidates(Task(apart, ONE, DELTA, objective=objective, row_weights=weights), "auto")
        scale = 1 / 3000 if objective == "max" else 2
        assert math.isclose(min(one.error for one in found), scale * min(one.error for one in tried))
    single = Workload.of_runs(30_000, cells, 10 * cells, 10 * cells + 1)
    plain = choose(Task(union(single), ONE, Fraction(0)), "auto")
    assert plain.strategy.form in ("queries", "identity")


def test_levels_for_gaussian_noise_are_the_best_of_their_widths() -> None:
    from scipy.optimize import minimize

    workload = ranges(60, 128, seed=4)
    held = workload.products[0][0].runs

    def spread(levels: Any) -> float:
        tree = BlockTree(128, levels)
        return float(tree.variances([held.energies(width).sum() for width, _ in levels]))

    found = gaussian_levels(128, lambda width: float(held.energies(width).sum()))
    ours = spread(found) * sum(weight**2 for _, weight in found)
    widths = [1 << level for level in range(8)]
    traces = np.array([held.energies(width).sum() / width for width in widths])
    details = -np.diff(traces, append=0.0)

    def objective(logs: np.ndarray[Any, Any]) -> float:
        squares = np.exp(logs) / np.exp(logs).sum()
        return float((details / np.cumsum(squares * widths)).sum())

    best = min(minimize(objective, np.random.default_rng(seed).normal(size=8)).fun for seed in range(3))
    assert best * (1 - 1e-6) < ours < 1.001 * best
    assert ours < spread(CELLS)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_below_the_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = random_rows(seed, 14, 30)
    workload, best = listed(dense), optimise(Workload.of_matrix(dense), tolerance=1e-6)
    strategy = Implicit(workload, CELLS)
    assert 0.97 * best.upper < strategy.least_total <= best.upper  # as many blocks as different columns
    monkeypatch.setattr(implicit, "BLOCKS", 6)
    assert 0 < Implicit(workload, ()).least_total <= best.upper
    held = workload.products[0][0].runs
    nuclear = reduce_matrix(dense.astype(float)).singular.sum() ** 2 / np.count_nonzero(dense.any(axis=0))
    assert 0 < held.pair_bound() <= nuclear
    sets = (np.random.default_rng(seed).random((400, 900)) < 0.05).astype(np.int64)
    singular = np.linalg.svd(sets.astype(float), compute_uv=False).sum() ** 2 / 900
    assert 0.5 * singular < Runs.of_matrix(sets).pair_bound() < singular
    monkeypatch.setattr(runs_module, "MAX_PAIRS", 0)
    assert held.pair_bound() == 0


def test_strategies_of_strangers() -> None:
    workload = listed(random_rows(5))
    for levels in TREES:
        strategy = Implicit(workload, levels)
        data = strategy.to_bytes()
        read = read_strategy(data, workload)
        assert isinstance(read, Implicit)
        assert (read.digest, read.to_bytes(), read.levels) == (strategy.digest, data, levels)
        assert declared_size(data) == strategy.length + strategy.size
        for at in range(8, len(data)):
            altered = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            with contextlib.suppress(FormatError, SpecError):
                assert read_strategy(altered, workload).digest == strategy.digest
        with pytest.raises(FormatError, match="another workload"):
            read_strategy(data, listed(random_rows(6)))
        with pytest.raises(FormatError):
            Strategy.from_bytes(data, workload)
        with pytest.raises(FormatError, match="impossible shape"):
            read_strategy(data + b"\0", workload)
    assert len({Implicit(workload, levels).digest for levels in TREES}) == len(TREES)
    with pytest.raises(SpecError, match="levels of a tree"):
        Implicit(workload, ((2, 1),))


def test_products_over_several_columns_have_noise_on_their_cells() -> None:
    workload = marginals({"a": 90, "b": 70}, (1, 2))
    spec = ss.WorkloadSpec(workload, "1", "1e-6")
    assert isinstance(spec.strategy, Implicit)
    assert spec.strategy.levels == CELLS
    assert np.array_equal(spec.variances, np.repeat([70.0, 90.0, 1.0], [90, 70, 6300]))
    assert np.array_equal(spec.strategy.fourths, spec.variances)
    assert forecast.forecast(spec).lower == 0
    sketch = ss.Sketch.create(spec)
    sketch.update(np.arange(6300))
    found = sketch.seal().estimate()
    assert np.abs((found.table("a") - 70) / found.stderr[:90]).max() < 9
    with pytest.raises(SpecError, match="only queries over one column"):
        Implicit(workload, ()).to_bytes()


# Sketches.


@pytest.fixture(scope="module")
def small() -> dict[str, ss.WorkloadSpec]:
    workload = ranges(800, 5000)
    levels = {"queries": (), "identity": CELLS, "tree": ((1, 3), (8, 2), (64, 2))}
    return {
        f"{mechanism}, {form}": ss.WorkloadSpec(workload, "1", "1e-6", mechanism, strategy=Implicit(workload, one))
        for mechanism in ("gaussian", "laplace")
        for form, one in levels.items()
    }


CASES = [f"{mechanism}, {form}" for mechanism in ("gaussian", "laplace") for form in ("queries", "identity", "tree")]


@pytest.mark.parametrize("name", CASES)
def test_sketches_are_published_merged_and_read(name: str, small: dict[str, ss.WorkloadSpec]) -> None:
    spec = small[name]
    items = np.random.default_rng(5).integers(0, 5000, 4000)
    parts = [ss.Sketch.create(spec) for _ in range(2)]
    for part, some in zip(parts, (items[:3000], items[3000:]), strict=True):
        part.update(some)
    opened = ss.Sketch.from_bytes(parts[0].to_bytes())
    sealed = ss.merge([opened, parts[1]]).seal()
    read = ss.load(sealed.to_bytes())
    assert read.to_bytes() == sealed.to_bytes()
    assert read.spec.fingerprint == spec.fingerprint
    assert ss.WorkloadSpec.from_dict(spec.to_dict()).fingerprint == spec.fingerprint
    found, truth = read.estimate(), spec.workload.apply(np.bincount(items, minlength=5000).astype(float))
    assert found.method == ("cap" if "identity" in name else "unbiased")
    assert np.abs((found.values - truth) / found.stderr).max() < 12
    ends = found.interval(0.95)
    assert np.all((ends[:, 0] <= found.values) & (found.values <= ends[:, 1]))
    raw = read.estimate("unbiased").values
    assert spec.integral == np.array_equal(raw, np.rint(raw))
    with pytest.raises(EstimateError, match=r"'simplex' needs the matrix of the strategy, .* use method 'cap'"):
        read.estimate("simplex", n_bound=4000)
    if "queries" in name:
        with pytest.raises(EstimateError, match="n_bound="):
            read.estimate("cap")
    capped = read.estimate("cap", n_bound=4000).values
    assert 0 <= capped.min() <= capped.max() <= 4000 * (1 + 1e-9)
    assert np.abs((capped - truth) / found.stderr).max() < 12


def test_fingerprints_stay_as_they_are() -> None:
    """The spec decides the integers of a state; these are the same on every machine and in every version."""
    cells = np.arange(600)
    workload = Workload.of_runs(5000, cells, 8 * cells, 8 * cells + 9, 1 + cells % 3)
    found = [
        ss.WorkloadSpec(workload, "1", "0", "laplace", strategy=Implicit(workload, levels)).fingerprint.hex()
        for levels in (CELLS, (), ((1, 3), (8, 2), (64, 2)))
    ]
    assert found == [
        "0ca4d6a50586e25c4f7c0ffcb4ccbd1b",
        "420bd45bdfaa214e5ded039b3c688ae1",
        "736955f617760485b05d09c961592a61",
    ]


@pytest.mark.statistics
@pytest.mark.parametrize("name", CASES)
def test_errors_have_the_stated_law(name: str, small: dict[str, ss.WorkloadSpec]) -> None:
    """The mean squared error of some answers over 500 sketches is the stated variance, and no other."""
    few, errors, inside = np.array([0, 100, 200, 300]), [], []
    for _ in range(500):
        found = ss.Sketch.create(small[name]).seal().estimate("unbiased")
        errors.append((found.values / found.stderr)[few])
        low, high = found.interval(0.95)[few].T
        inside.append((low <= 0) & (high >= 0))
    for scale, accepted in ((1.0, True), (0.9, False), (1.1, False)):
        assert (abs(np.square(errors).mean() / scale**2 - 1) < 0.09) == accepted
    assert abs(np.mean(errors)) < 0.1
    assert 0.93 < np.mean(inside) < 0.975


def test_ten_thousand_ranges_over_a_hundred_thousand_cells() -> None:
    tracemalloc.start()
    workload = ranges()
    spec = ss.WorkloadSpec(workload, "1", "1e-6")
    sketch = ss.Sketch.create(spec)
    items = np.random.default_rng(2).integers(0, 100_000, 1_000_000)
    sketch.update(items)
    found = ss.load(sketch.seal().to_bytes()).estimate()
    found.interval(0.95)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    truth = workload.apply(np.bincount(items, minlength=100_000).astype(float))
    assert np.abs((found.values - truth) / found.stderr).max() < 12
    assert peak < 400e6  # a matrix takes 8e9
    assert spec.strategy.form == "tree"
    known = forecast.forecast(spec)
    identity = forecast.forecast(ss.WorkloadSpec(workload, "1", "1e-6", "laplace", strategy=Implicit(workload, CELLS)))
    assert known.lower < known.rmse < identity.rmse / 8
    assert known.break_even == pytest.approx(forecast.break_even(spec))
    assert "levels=((1, " in repr(spec)


def test_the_plan_says_the_gap(run: Run, tmp_path: Path) -> None:
    held = ranges(600, 20_000).products[0][0].runs
    np.savez(tmp_path / "ranges.npz", size=20_000, query=np.arange(600), low=held.lows, high=held.highs)
    asked = ("plan", "--kind", "workload", "--workload", tmp_path / "ranges.npz", "--epsilon", "1")
    for more, words in (
        (("--delta", "1e-6"), "times that of any strategy with Laplace noise"),
        (("--delta", "1e-2"), "times that of any unbiased Gaussian noise"),
        (("--delta", "1e-6", "--objective", "max", "--format", "json"), '"certified_gap":null'),
    ):
        found = run(*asked, *more)
        assert found.code == 0, found
        assert words in found.out
    assert "600 queries over 20,000 cells" in run(*asked).out
