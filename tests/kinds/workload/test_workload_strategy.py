"""Integer strategies: exact sensitivities, unbiased decoding, bytes; which mechanism `auto` takes."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import msgpack
import numpy as np
import pytest

from sketchstream.errors import ChecksumError, FormatError, SpecError
from sketchstream.kinds.linear.tree import Levels, tree_matrix
from sketchstream.kinds.workload.answers import estimate
from sketchstream.kinds.workload.forecast import forecast
from sketchstream.kinds.workload.queries.queries import Workload, marginals
from sketchstream.kinds.workload.queries.runs import pack_integers, unpack_integers
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies import mechanism
from sketchstream.kinds.workload.strategies.mechanism import (
    Task,
    add_noise,
    best_tree,
    candidates,
    choose,
    layer_law,
    projected_errors,
)
from sketchstream.kinds.workload.strategies.optimise import optimise, reduce_matrix, triangle
from sketchstream.kinds.workload.strategies.strategy import Strategy, attained_objective, from_matrix, from_shape
from sketchstream.noise.laws import DiscreteLaplace

ONE, DELTA = Fraction(1), Fraction(1, 10**6)
EXAMPLES = [
    "prefix:32",
    "windows:40:7",
    "marginals:6:1,2",
    "ranges:24",
    "prefix:5 x ranges:4",
    "prefix:9 x windows:8:3",
]


def gaussian(text: str) -> tuple[Workload, Strategy]:
    workload = Workload.named(text)
    return workload, choose(Task(workload, ONE, DELTA), "gaussian").strategy


@pytest.mark.parametrize("text", EXAMPLES)
def test_strategies_are_unbiased_and_waste_almost_nothing(text: str) -> None:
    workload, strategy = gaussian(text)
    matrix = workload.dense()
    back = matrix @ strategy.decoder
    assert np.abs(back @ strategy.matrix - matrix).max() <= 1e-12 * np.abs(matrix).max()
    shape = optimise(workload)
    assert attained_objective(workload, strategy) <= 1.00001 * shape.upper
    np.testing.assert_allclose(workload.variances(strategy.cell_covariance), (back**2).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("text", EXAMPLES)
def test_sensitivities_are_those_of_the_integers(text: str) -> None:
    for strategy in (gaussian(text)[1], choose(Task(Workload.named(text), ONE, DELTA), "laplace").strategy):
        columns = strategy.matrix.T.tolist()
        assert strategy.sensitivity2 == max(sum(value * value for value in column) for column in columns)
        assert strategy.sensitivity1 == max(sum(abs(value) for value in column) for column in columns)


def test_sensitivities_beyond_64_bits_stay_exact() -> None:
    matrix = np.array([[1 << 40, 3], [1 << 40, -(1 << 41)]], np.int64)
    strategy = from_matrix(Workload.named("prefix:2"), matrix, "queries")
    assert strategy.sensitivity2 == 9 + (1 << 82)
    assert strategy.sensitivity1 == (1 << 41) + 3


@pytest.mark.parametrize(("bits", "most"), [(8, 0.013), (12, 2.6e-3), (16, 1e-4), (20, 4e-6)])
def test_rounding_costs_what_is_said(bits: int, most: float) -> None:
    workload = Workload.named("prefix:64")
    shape = optimise(workload)
    root = np.linalg.cholesky(shape.covariance)
    from sketchstream.kinds.workload.strategies.strategy import _cells_root

    matrix = np.rint(np.ldexp(_cells_root(root, shape.reduced.columns), bits)).astype(np.int64)
    made = Strategy(matrix, "cells", bits, workload.digest)
    assert abs(attained_objective(workload, made) / shape.upper - 1) <= most


def test_two_prefixes_have_the_triangular_strategy_of_the_closed_form() -> None:
    workload = Workload.named("prefix:2")
    made = from_shape(workload, optimise(workload, tolerance=1e-12))
    np.testing.assert_allclose(made.matrix / 2**20, [[1, 0.3819660113], [0, 0.9241763718]], atol=3e-6)


def test_scales_are_raised_until_rounding_is_harmless() -> None:
    workload = Workload.named("prefix:64")
    shape = optimise(workload)
    made = from_shape(workload, shape, bits=4)
    assert made.bits in (12, 16)
    assert attained_objective(workload, made) <= 1.001 * shape.upper
    steep = Workload.of_matrix(np.array([[1.0, 1.0], [0.0, 1e-12]]))
    assert from_shape(steep, optimise(steep, tolerance=1e-9)).bits >= 20
    with pytest.raises(SpecError, match="could not be rounded"):
        from_shape(workload, dataclasses.replace(shape, upper=0.9 * shape.upper))


def test_real_queries_of_low_rank_are_nearly_unbiased() -> None:
    matrix = np.random.default_rng(4).normal(size=(5, 30))
    workload = Workload.of_matrix(matrix)
    made = from_shape(workload, optimise(workload))
    assert made.form == "rounded"
    assert np.abs(matrix @ made.decoder @ made.matrix - matrix).max() < 1e-5


@pytest.mark.parametrize(
    ("text", "mechanism", "size"),
    [
        ("prefix:32", "gaussian", 2_000),  # 528 entries of 3 bytes
        ("windows:40:7", "gaussian", 2_300),  # 595 entries of the factor instead of 1,360 of the matrix
        ("prefix:5 x ranges:4", "gaussian", 1_000),
        ("identity:300", "laplace", 300),
        ("marginals:4:1", "laplace", 400),
        ("prefix:64", "laplace", 9_000),
    ],
)
def test_bytes_bring_the_strategy_back(text: str, mechanism: str, size: int) -> None:
    workload = Workload.named(text)
    strategy = choose(Task(workload, ONE, DELTA), mechanism).strategy
    data = strategy.to_bytes()
    again = Strategy.from_bytes(data, workload)
    assert len(data) <= size
    assert again.digest == strategy.digest
    assert again.matrix.tolist() == strategy.matrix.tolist()
    assert (again.lower, again.upper, again.rank) == (strategy.lower, strategy.upper, strategy.rank)
    assert again.to_bytes() == data


def test_bytes_show_every_change() -> None:
    workload, strategy = gaussian("windows:40:7")
    data = strategy.to_bytes()
    changed = strategy.matrix.copy()
    changed[3, 5] ^= 1
    assert from_matrix(workload, changed, strategy.form).digest != strategy.digest
    with pytest.raises(FormatError, match="expected the bytes"):
        Strategy.from_bytes(b"nothing", workload)
    with pytest.raises(FormatError, match="another workload"):
        Strategy.from_bytes(data, Workload.named("windows:40:8"))
    for cut in (6, 40, len(data) // 2, len(data) - 10):
        with pytest.raises(FormatError):
            Strategy.from_bytes(data[:cut], workload)
    refused = 0
    for position in range(0, len(data), 19):
        broken = bytearray(data)
        broken[position] ^= 4
        try:
            found = Strategy.from_bytes(bytes(broken), workload)
        except FormatError:
            refused += 1
        else:  # the bounds of the optimiser are informative: the strategy is what it was
            assert found.matrix.tolist() == strategy.matrix.tolist()
    assert refused > 90


def test_a_strategy_with_a_lowered_sensitivity_is_refused() -> None:
    import msgpack

    workload, strategy = gaussian("prefix:8")
    data = strategy.to_bytes()
    size = int.from_bytes(data[4:8], "little")
    head = msgpack.unpackb(data[8 : 8 + size])
    head["sensitivity2"] = "1"
    first = msgpack.packb(head)
    with pytest.raises(ChecksumError, match="digest mismatch"):
        Strategy.from_bytes(data[:4] + len(first).to_bytes(4, "little") + first + data[8 + size :], workload)


@pytest.mark.parametrize("values", [[0], [127, -128], [128], [-129], [1 << 62, -(1 << 63)], [], [-1]])
def test_packed_integers_come_back_in_their_only_form(values: list[int]) -> None:
    data = pack_integers(np.array(values, np.int64))
    assert unpack_integers(data, len(values)).tolist() == values
    wide = bytes([data[0] + 1]) + b"".join(value.to_bytes(data[0] + 1, "little", signed=True) for value in values)
    with pytest.raises(FormatError):
        unpack_integers(wide, len(values))
    with pytest.raises(FormatError):
        unpack_integers(data + b"x", len(values))


def random_signs(d: int, n: int) -> Workload:
    return Workload.of_matrix(np.random.default_rng(1).integers(0, 2, (d, n)) * 2 - 1)


@pytest.mark.parametrize(
    ("text", "mechanism", "error"),
    [
        ("identity:64", "laplace", 1.84),
        ("prefix:64", "laplace", 34.4),
        ("prefix:256", "laplace", 70.8),
        ("windows:256:64", "laplace", 68.1),
        ("ranges:64", "laplace", 36.6),
        ("marginals:8:1", "l2ball", 36.6),
        ("marginals:8:2", "laplace", 117.85),
        ("marginals:8:3", "laplace", 58.9),
        ("marginals:8:1,2,3", "laplace", 75.3),
    ],
)
def test_auto_takes_the_smallest_predicted_error(text: str, mechanism: str, error: float) -> None:
    workload = Workload.named(text)
    found = choose(Task(workload, ONE, DELTA), "auto")
    assert found.mechanism == mechanism
    assert 0.9 * error < found.error / workload.count <= error * 1.005  # trees have become better than the published


@pytest.mark.parametrize("text", ["prefix:600", "trailing:700:30"])
def test_prefixes_have_a_strategy_that_needs_no_search(text: str) -> None:
    """Near the best, unbiased to the last bit of its integers, the same on every machine, and a few bytes."""
    workload = Workload.named(text)
    strategy = choose(Task(workload, ONE, DELTA), "gaussian").strategy
    assert strategy.form == "causal"
    again = Strategy.from_bytes(strategy.to_bytes(), workload)
    assert (again.digest, len(strategy.to_bytes())) == (strategy.digest, len(again.to_bytes()))
    assert len(strategy.to_bytes()) < 300
    inverse = np.linalg.inv(strategy.matrix.astype(np.float64))
    cells = np.random.default_rng(1).integers(0, 9, workload.size).astype(np.float64)
    assert strategy.estimate(strategy.matrix @ cells) == pytest.approx(cells, abs=1e-9)
    assert strategy.sum_coefficients == pytest.approx(inverse.sum(axis=0), abs=1e-12)
    spec = WorkloadSpec(text, ONE, DELTA, "gaussian")
    expected = np.sum((workload.dense() @ inverse) ** 2, axis=1)
    assert spec.variances == pytest.approx(expected, rel=1e-4)
    planned = forecast(spec)
    if text.startswith("prefix"):
        assert 1 < planned.rmse / planned.lower < 1.04
    data = msgpack.unpackb(strategy.to_bytes()[8:])
    wrong = msgpack.packb(data | {"width": 5})
    with pytest.raises(FormatError):
        Strategy.from_bytes(b"SKWS" + len(wrong).to_bytes(4, "little") + wrong, workload)


def test_estimates_of_a_tree_are_least_squares() -> None:
    for text in ("prefix:70", "ranges:33"):
        strategy = choose(Task(Workload.named(text), ONE, DELTA), "laplace").strategy
        if strategy.form == "tree":
            floats = strategy.matrix.astype(np.float64)
            assert strategy.decoder == pytest.approx(np.linalg.pinv(floats), abs=1e-9)
            assert strategy.cell_covariance == pytest.approx(np.linalg.inv(floats.T @ floats), abs=1e-9)
    assert choose(Task(Workload.named("prefix:70"), ONE, DELTA), "laplace").strategy.form == "tree"


def test_auto_takes_gaussian_noise_for_random_signs() -> None:
    workload = random_signs(64, 1024)
    found = choose(Task(workload, ONE, DELTA), "auto")
    assert found.mechanism == "gaussian"
    assert found.error / 64 == pytest.approx(1132, rel=0.01)


def test_a_small_rank_favours_the_ball() -> None:
    workload = random_signs(12, 100)
    ball, dense = choose(Task(workload, ONE, DELTA), "l2ball"), choose(Task(workload, ONE, DELTA), "gaussian")
    assert ball.error / dense.error == pytest.approx(13 / 17.8479, rel=1e-3)
    tried = candidates(Task(workload, ONE, DELTA), "auto")
    assert min(tried, key=lambda one: one.error).mechanism == "l2ball"
    errors = projected_errors(Task(workload, ONE, DELTA), tried)  # answers are projected, which favours another
    assert choose(Task(workload, ONE, DELTA), "auto").mechanism == tried[int(np.argmin(errors))].mechanism


def test_predicted_errors_of_projected_answers_are_those_of_drawn_noise() -> None:
    """The prediction invents noise and tables of few individuals, so that projection matters; these are drawn."""
    spec = WorkloadSpec("marginals:4:2", ONE, DELTA, "laplace", n_bound=60)
    tried = candidates(Task(spec.workload, ONE, DELTA), "auto")
    found = projected_errors(Task(spec.workload, ONE, DELTA, n_bound=60), tried)
    random, squares = np.random.default_rng(3), []
    place = np.arange(16) / 16
    for shares in (np.ones(16), 1 / (1.0 + random.permutation(16)), np.exp(-(((place - 0.3) / 0.15) ** 2)) + 0.02):
        for cells in random.multinomial(60, shares / shares.sum(), size=60):
            state = spec.strategy.matrix @ cells
            add_noise(spec.layer(), state)
            values = estimate(spec, [spec.layer()], state, feasible="auto").values
            squares.append(float(np.sum((values - spec.workload.apply(cells * 1.0)) ** 2)))
    ours = next(i for i, one in enumerate(tried) if one.strategy.form == spec.strategy.form)
    assert found[ours] == pytest.approx(np.mean(squares), rel=0.25)
    assert found[ours] < 0.8 * tried[ours].error


def test_predicted_errors_are_those_of_the_strategies() -> None:
    workload = Workload.named("ranges:12")
    for candidate in Task(workload, ONE, weight=3).laplace_candidates(12):
        law = layer_law("laplace", candidate.strategy, ONE, DELTA, 3)
        total = workload.variances(candidate.strategy.cell_covariance).sum() * law.variance
        assert candidate.error == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("text", ["marginals:4:1", "prefix:8"])
def test_predicted_errors_grow_with_the_square_of_the_weight(text: str) -> None:
    """Else `auto` would compare mechanisms by errors that they do not have."""
    workload = Workload.named(text)
    light, heavy = (candidates(Task(workload, ONE, DELTA, weight=weight), "auto") for weight in (1, 30))
    assert [one.mechanism for one in light] == [one.mechanism for one in heavy]
    assert {"gaussian", "laplace", "l2ball"} == {one.mechanism for one in light}
    for one, other in zip(light, heavy, strict=True):
        assert other.error == pytest.approx(900 * one.error, rel=0.1 if one.mechanism == "laplace" else 1e-9)


def test_queries_are_a_strategy_up_to_the_largest_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.named("ranges:3")
    assert workload.count == 6
    for most, found in ((7, True), (6, True), (5, False)):
        monkeypatch.setattr(mechanism, "MAX_RANK", most)
        made = Task(workload, ONE).laplace_candidates(3)
        assert ("queries" in {one.strategy.form for one in made}) == found


def tree_error(text: str, levels: Levels, epsilon: Fraction) -> float:
    """Total variance of the answers with a tree, from its matrix."""
    workload = Workload.named(text)
    blocks = tree_matrix(workload.size, levels, workload.size).astype(np.float64)
    unit = float(np.trace(np.linalg.solve(blocks.T @ blocks, workload.gram())))
    return unit * DiscreteLaplace(epsilon / sum(weight for _, weight in levels)).variance


def test_trees_are_as_good_as_the_published_one() -> None:
    """(1, 141), (16, 115) in 256ths is the published one for 64 prefixes, without regard to the integers."""
    tenth = Fraction(1, 10)
    assert best_tree(Workload.named("prefix:64").gram(), tenth) == ((1, 141), (16, 115))
    found = best_tree(Workload.named("prefix:64").gram(), Fraction(2))
    published = tree_error("prefix:64", ((1, 141), (16, 115)), Fraction(2))
    assert tree_error("prefix:64", found, Fraction(2)) < 0.97 * published


@pytest.mark.parametrize("text", ["prefix:64", "ranges:50", "trailing:90:12", "prefix:512"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), ONE, Fraction(4)])
def test_weights_of_a_tree_beat_equal_ones(text: str, epsilon: Fraction) -> None:
    levels = best_tree(Workload.named(text).gram(), epsilon)
    for branching in (2, 4, 8, 16):
        equal = tuple((branching**i, 1) for i in range(10) if branching**i < Workload.named(text).size)
        assert tree_error(text, levels, epsilon) < 1.01 * tree_error(text, equal, epsilon)


@pytest.mark.parametrize(
    ("mechanism", "delta", "text", "message"),
    [
        ("best", DELTA, "prefix:4", "mechanism must be one of"),
        ("gaussian", Fraction(0), "prefix:4", "delta must be > 0"),
        ("paper", Fraction(0), "prefix:4", "delta must be > 0"),
        ("l2ball", DELTA, "prefix:17", "rank 16 at most, found 17"),
        ("paper", DELTA, "identity:5000", "needs a matrix of the queries, and 5000 x 5000 are too many"),
        ("auto", DELTA, "ranges:5000", "at most 2\\^22 queries .*, found 12,502,500"),
    ],
)
def test_mechanisms_that_do_not_apply_are_refused(mechanism: str, delta: Fraction, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        choose(Task(Workload.named(text), ONE, delta), mechanism)


def test_a_matrix_of_too_high_a_rank_is_refused_before_it_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.linalg, "svd", lambda *_, **__: pytest.fail("this takes minutes"))
    for matrix in (np.eye(4200), np.tril(np.ones((4200, 4200))), np.vstack([np.ones((3, 4200)), np.eye(4200)])):
        with pytest.raises(SpecError, match="rank at least 4097 exceeds 4096"):
            reduce_matrix(matrix)


def test_a_triangle_is_never_larger_than_the_rank() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        rows, size = rng.integers(1, 9, 2)
        matrix = rng.integers(0, 2, (rows, size)) * rng.integers(1, 5, (rows, size))
        found.append((triangle(matrix != 0), np.linalg.matrix_rank(matrix)))
    assert all(least <= rank for least, rank in found)
    assert sum(least == rank for least, rank in found) > 100
    assert triangle(np.eye(7, dtype=bool), 5) == 5


def test_pure_privacy_needs_no_delta() -> None:
    found = choose(Task(marginals({"a": 2, "b": 2}, (1,)), ONE, Fraction(0)), "auto")
    assert found.mechanism in ("laplace", "l2ball")


@pytest.mark.parametrize("mechanism", ["paper", "plain"])
def test_mechanisms_for_comparison_are_worse(mechanism: str) -> None:
    workload = Workload.named("prefix:32")
    assert (
        choose(Task(workload, ONE, DELTA), mechanism).error > 1.3 * choose(Task(workload, ONE, DELTA), "gaussian").error
    )
