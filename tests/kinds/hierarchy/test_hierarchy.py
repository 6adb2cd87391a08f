"""Counts in a declared tree: their estimates against dense algebra, their privacy, a worker that counts records."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

import sketchstream as ss
from helpers.commands import Run
from helpers.trees import below, best, random_tree, variances
from sketchstream import noise
from sketchstream.audit import cases
from sketchstream.errors import ConfigError, DomainError, EstimateError, FormatError, SpecError
from sketchstream.kinds.hierarchy.answers import estimate
from sketchstream.kinds.hierarchy.fit import fit_unbiased, nonnegative
from sketchstream.kinds.hierarchy.kind import KIND
from sketchstream.kinds.hierarchy.spec import HierarchySpec
from sketchstream.kinds.hierarchy.tree import Tree
from sketchstream.testing.driver import Driver

LEVELS = ["country", "city"]
CITIES = [("fr", "paris"), ("fr", "lyon"), ("de", "bonn"), ("de", "ulm"), ("it", "bonn")]
seeds = st.integers(0, 1 << 32)


def spec_of(**options: Any) -> HierarchySpec:
    return HierarchySpec(LEVELS, CITIES, **{"epsilon": "1", "delta": "1e-6", **options})


def drawn(seed: int) -> tuple[Tree, Any, list[int], Any]:
    """A tree, the leaves below each node, multipliers, and what the counters say."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    times = [*rng.integers(0, 4, len(tree.levels)).tolist(), int(rng.integers(1, 4))]
    return tree, below(tree), times, rng.normal(0, 3, tree.nodes)


# The tree.


@given(st.permutations(CITIES))
def test_a_tree_does_not_depend_on_the_order_of_its_paths(paths: list[tuple[str, str]]) -> None:
    spec = HierarchySpec(LEVELS, ["\t".join(one) for one in paths], "1", "1e-6")
    assert spec.fingerprint == spec_of().fingerprint
    assert [spec.tree.path(node) for node in range(spec.tree.nodes)] == [
        (), ("de",), ("fr",), ("it",), *sorted(CITIES)
    ]  # fmt: skip


@settings(max_examples=30)
@given(seeds)
def test_every_node_is_found_by_its_path_and_no_other_path_is(seed: int) -> None:
    tree = random_tree(np.random.default_rng(seed))
    paths = [tree.path(node) for node in range(tree.nodes)]
    assert [tree.find(path) for path in paths] == list(range(tree.nodes))
    assert [tree.leaf("\t".join(path)) for path in paths[tree.starts[-2] :]] == list(range(tree.leaves))
    for path in itertools.product("019", repeat=len(tree.levels)):
        assert (tree.find(path) is None) == (path not in paths)
    assert tree.find((*paths[-1], "0")) is None
    assert Tree.from_dict(json.loads(json.dumps(tree.to_dict()))).to_dict() == tree.to_dict()


@pytest.mark.parametrize(
    ("levels", "paths", "words"),
    [
        ([], CITIES, "levels must be 1 to 16 different names"),
        (["a", "a"], CITIES, "levels must be"),
        (["value", "a"], CITIES, "none of them a column of answers"),
        (LEVELS, [], "paths must be those of all leaves"),
        (LEVELS, [*CITIES, CITIES[0]], "each once, found 6 of 5 leaves"),
        (LEVELS, [("fr",)], "each path must have 2 names"),
        (LEVELS, [("fr", "")], "repeat its last name"),
        (LEVELS, [("fr", "a\tb")], "without tabs"),
    ],
)
def test_trees_that_cannot_be_are_refused(levels: Any, paths: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        HierarchySpec(levels, paths, "1", "1e-6")


@pytest.mark.parametrize(
    "change",
    [
        {"names": [["fr", "de", "it"], ["bonn", "ulm", "lyon", "paris", "bonn"]]},
        {"names": [["de", "fr", "it"], ["bonn", "bonn", "lyon", "paris", "bonn"]]},
        {"children": [[3], [2, 2, 2]]},
        {"children": [[3], [2, 3, 0]]},
        {"children": [[3], [2, 4, -1]]},
        {"levels": ["country"]},
        {"more": 1},
        {"names": None},
    ],
)
def test_damaged_trees_of_strangers_are_refused(change: dict[str, Any]) -> None:
    data = spec_of().to_dict()
    assert HierarchySpec.from_dict(data).to_dict() == data
    with pytest.raises(SpecError, match=r"tree must have|levels must be"):
        HierarchySpec.from_dict({**data, "tree": {**data["tree"], **change}})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multipliers": [1, 1]}, "multipliers must be 3 whole numbers, the root's first"),
        ({"multipliers": [1, 1, 0]}, "multipliers must be a whole number"),
        ({"multipliers": [1, -1, 1]}, "multipliers must be a whole number"),
        ({"capacity": 1 << 62, "multipliers": [1, 1, 9]}, "capacity must be at most"),
        ({"max_total": 3}, "max_total belongs to unit"),
        ({"unit": "item"}, "needs max_total: without"),
        ({"unit": "item", "max_total": 3, "max_weight": 4}, "max_weight"),
        ({"delta": 0}, "delta"),
        ({"signed": "yes"}, "signed"),
    ],
)
def test_specs_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        spec_of(**options)


# Estimates.


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_unbiased_estimates_are_those_of_dense_least_squares(seed: int) -> None:
    tree, leaves, times, counts = drawn(seed)
    scale = np.array(times)[tree.depths]
    best_ = leaves @ np.linalg.pinv(leaves * scale[:, None])
    found, variance = fit_unbiased(tree, counts, [float(one * one) for one in times])
    assert np.allclose(found, best_ @ (scale * counts), atol=1e-9)
    assert np.allclose(variance, (best_**2).sum(axis=1), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.01, 1.0, 7.5, 300.0]))
def test_nonnegative_estimates_are_the_nearest_consistent_ones(seed: int, whole: float) -> None:
    tree, leaves, times, counts = drawn(seed)
    scale = np.array(times)[tree.depths].astype(float)
    precisions = (np.array(times, float) ** 2).tolist()
    found = nonnegative(tree, counts, precisions, whole)
    assert found.min() >= 0
    assert found[0] == pytest.approx(whole, abs=1e-9)
    assert np.allclose(leaves @ found[tree.starts[-2] :], found, atol=1e-9)
    matrix = np.vstack([leaves * scale[:, None], np.full(tree.leaves, 1e4)])  # hardly another whole pays
    goal = np.append(scale * counts, 1e4 * whole)
    other = lsq_linear(matrix, goal, (0, np.inf), method="bvls", tol=1e-14).x
    squares = [float(((matrix @ one - goal) ** 2).sum()) for one in (found[tree.starts[-2] :], other)]
    assert squares[0] == pytest.approx(squares[1], rel=1e-5, abs=1e-5)
    free = fit_unbiased(tree, counts, precisions)[0]
    if free.min() >= 0:
        assert np.allclose(nonnegative(tree, counts, precisions, float(free[0])), free, atol=1e-9)


@pytest.mark.parametrize(("leaves", "groups"), [(500, 1), (500, 10)])
def test_the_whole_of_a_sparse_tree_is_within_its_interval(leaves: int, groups: int) -> None:
    paths = [(f"{at % groups}", f"{at}") for at in range(leaves)]
    for _ in range(5):
        sketch = ss.Sketch.create(HierarchySpec(["x", "y"], paths, "1", "1e-6"))
        sketch.update(paths[:20])
        found = sketch.seal().estimate(method="nonnegative")
        assert found.values[0] == pytest.approx(max(found.unbiased[0], 0.0), abs=1e-9)
        low, high = found.interval()[0]
        assert low <= found.values[0] <= high
        assert found.values[found.spec.tree.depths == 1].sum() == pytest.approx(found.values[0], abs=1e-6)


def test_a_large_tree_is_answered_in_linear_time_and_memory() -> None:
    paths = [(str(i), str(j), str(k)) for i in range(10) for j in range(30) for k in range(100)]
    tree, rng = Tree.of(["a", "b", "c"], paths), np.random.default_rng(2)
    leaves = rng.poisson(rng.gamma(0.3, 10, tree.leaves)).astype(float)
    truth = np.concatenate([np.bincount(way - way.min(), leaves) for way in tree.ways])
    noisy = truth + rng.normal(0, 20, tree.nodes)
    free = fit_unbiased(tree, noisy, [1.0] * 4)[0]
    kept = nonnegative(tree, noisy, [1.0] * 4, max(free[0], 0.0))
    errors = [float(np.sqrt(np.mean((one - truth) ** 2))) for one in (noisy, free, kept)]
    assert errors[2] < 0.6 * errors[1]
    assert errors[1] < errors[0]
    for level, parents in enumerate(tree.parents):
        parts = np.split(kept, tree.starts[1:-1])
        assert np.allclose(np.bincount(parents, parts[level + 1]), parts[level], atol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16, 32, 64), (1, 3, 10, 100), (1, 50, 3000), (1, 2)])
def test_equal_shares_of_the_noise_are_nearly_the_best(sizes: tuple[int, ...]) -> None:
    equal, optimal, leaves = (
        float(sum(variances(sizes, one))) for one in ([1] * len(sizes), best(sizes), [*[0] * (len(sizes) - 1), 1])
    )
    assert optimal <= equal < 1.05 * optimal
    assert leaves > 1.1 * equal


def test_the_optimal_workload_of_the_same_counts_is_hardly_better() -> None:
    paths = [(f"{at // 8}", f"{at}") for at in range(32)]
    spec = HierarchySpec(["x", "y"], paths, "1", "1e-6")
    each = 1 / np.array(spec.tree.sizes)[spec.tree.depths]  # every level counts the same
    optimal = ss.WorkloadSpec(below(spec.tree), "1", "1e-6", "gaussian", row_weights=(100 * each).tolist())
    errors = [ss.Sketch.create(one).seal().estimate(method="unbiased").stderr for one in (spec, optimal)]
    ours, theirs = (math.sqrt(each @ one**2) for one in errors)
    assert 0.999 < ours / theirs < 1.02


# Privacy.


@pytest.mark.parametrize("options", [{"max_weight": 2}, {"unit": "item", "max_total": 3, "max_weight": 2}])
def test_no_unit_moves_the_state_farther_than_its_sensitivity(options: dict[str, Any]) -> None:
    """The theorem by enumeration: every unit's shift, one of them as long as the sensitivity says."""
    spec = spec_of(multipliers=[1, 3, 2], **options)
    most = spec.max_total or spec.max_weight
    lengths, moved = [], []
    for events in itertools.product(range(len(CITIES)), range(-spec.max_weight, spec.max_weight + 1), repeat=2):
        batch = [events[:2], events[2:]] if spec.unit == "item" else [events[:2]]
        if sum(abs(weight) for _, weight in batch) > most:
            continue
        sketch = ss.Sketch.create(spec)
        before = sketch._state.copy()
        sketch.update([CITIES[at] for at, _ in batch], [weight for _, weight in batch])
        shift = sketch._state - before
        lengths.append(int((shift**2).sum()))
        moved.append(int(np.count_nonzero(shift)))
    assert max(lengths) == spec.sensitivity2 == most**2 * (1 + 9 + 4)
    assert max(moved) <= spec.coordinates


MUTANTS = {
    "a level is forgotten": (
        "sensitivity2",
        property(lambda self: self.weight**2 * sum(map(abs, self.multipliers[1:]))),
    ),
    "the weight is not squared": ("sensitivity2", property(lambda self: self.weight * len(self.multipliers))),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_audit_finds_a_sensitivity_that_is_too_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    audit: Any = dict(cases.audits())["hierarchy"]

    def passes() -> bool:
        audit.specs.cache_clear()
        return dict(audit.checks(True))["create, event"]()[0]

    assert passes()
    with monkeypatch.context() as patch:
        patch.setattr(HierarchySpec, *MUTANTS[name])
        assert not passes()
    assert passes()


@pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
@pytest.mark.parametrize(("epsilon", "times"), [("1/10", 1), ("8", 1), ("40", 1), ("40", 5)])
def test_intervals_cover_the_truth_as_often_as_they_say(epsilon: str, times: int) -> None:
    spec = spec_of(epsilon=epsilon, signed=True, multipliers=[times, times, times])
    variance = spec.sigma2(spec.epsilon, spec.delta)
    hits = np.zeros((400, spec.tree.nodes, 3))
    for at in range(len(hits)):
        state = np.zeros(spec.tree.nodes, np.int64)
        noise.discrete_gaussian(state, variance)
        found = estimate(spec, variance, state)
        low, high = found.interval().T
        far = np.abs(found.values) / found.stderr
        hits[at] = np.stack([(low <= 0) & (high >= 0), far <= 0.5, far < 9], axis=1)
    covered, narrow, sane = hits.reshape(-1, 3).mean(axis=0)
    assert covered > 0.935
    assert sane == 1
    if epsilon in ("1/10", "8"):
        assert covered < 0.99
        assert narrow < 0.6, "half of a standard error is no interval"


# Answers.


def test_counts_far_below_zero_are_not_cut_and_say_so() -> None:
    """Without signed = true, 500 of weight -1 were told as 0, with the interval from 0 to 0."""
    sketch = ss.Sketch.create(spec_of())
    sketch.update([("fr", "lyon")] * 500, [-1] * 500)
    published = sketch.seal()
    found = published.estimate()
    low, high = found.count("fr", "lyon").low, found.count("fr", "lyon").high
    assert low <= -500 <= high
    assert found.method == "unbiased"
    assert "set signed = true" in str(found)
    assert published.estimate(method="nonnegative").values.min() >= 0
    small = ss.Sketch.create(spec_of())
    small.update([("fr", "lyon")] * 5)
    assert "signed" not in str(small.seal().estimate())


def test_answers_add_up_and_are_asked_by_path() -> None:
    with pytest.warns(ss.NoPrivacyWarning):
        spec = spec_of(epsilon="40")
    sketch = ss.Sketch.create(spec)
    sketch.update([("fr", "paris")] * 50 + [("it", "bonn")] * 7 + [("de", "ulm")] * 3)
    sketch.update(["fr\tparis", "fr\tlyon"], [1, -1], invalid="noop")
    found = sketch.seal().estimate()
    assert found.count().value == pytest.approx(60, abs=5)
    assert found.count("fr").value == pytest.approx(50, abs=5)
    assert found.count("fr", "paris").value + found.count("fr", "lyon").value == pytest.approx(found.count("fr").value)
    assert found.method == "nonnegative"
    assert found.values.min() >= 0
    assert found.interval()[:, 0].min() >= 0
    for path in (("es",), ("fr", "bonn"), ("fr", "paris", "x")):
        with pytest.raises(DomainError, match="no node of this path"):
            found.count(*path)
    assert [row["country"] for row in found.rows()][:4] == [None, "de", "fr", "it"]


def test_some_levels_are_asked_for_and_others_refused() -> None:
    published = ss.Sketch.create(spec_of()).seal()
    found = published.estimate(levels=["country"], method="unbiased")
    assert [row["country"] for row in found.rows()] == ["de", "fr", "it"]
    assert found.number("count.2").value == found.count("fr").value
    with pytest.raises(DomainError, match="other levels"):
        found.count()
    with pytest.raises(EstimateError, match="levels are all, country, city, found 'town'"):
        published.estimate(levels=["town"])
    with pytest.raises(FormatError, match="9 counters"):
        KIND.require_state(spec_of(), 8, np.zeros(8, np.int64))


# A configuration, and a worker.


CONFIGURATION = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "visits"
[input]
topic = "visits"
time = "ts"
partitioned_by = "none"
[[sketch]]
name = "places"
window = "1h"
kind = "hierarchy"
epsilon = 40
delta = "1e-6"
levels = ["country", "city"]
level_fields = { country = "where.country" }
"""
LISTED = 'paths = [["fr", "paris"], ["fr", "lyon"], ["de", "bonn"], ["de", "ulm"], ["it", "bonn"]]\n'


@pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
def test_a_worker_counts_the_records_of_two_partitions_at_all_levels() -> None:
    driver = Driver(CONFIGURATION + LISTED, partitions=2, now="2024-01-01T00:00:00Z")
    rng = np.random.default_rng(3)
    truth: dict[tuple[str, ...], int] = {}
    for number in range(300):
        country, city = [*CITIES, ("fr", "ulm"), ("es", "bonn")][rng.integers(7)]
        record: dict[str, Any] = {"where": {"country": country}, "city": city, "ts": "2024-01-01T00:10:00Z"}
        if number % 50 == 7:
            del record["city"]
        elif (country, city) in CITIES:
            for path in ((), (country,), (country, city)):
                truth[path] = truth.get(path, 0) + 1
        driver.send(record, timestamp="2024-01-01T00:10:00Z", partition=number % 2)
    driver.run()
    driver.snapshot()
    driver.kill()
    driver.advance(hours=3)
    (window,) = driver.windows("places")
    found = ss.stack(window.parts).estimate() if len(window.parts) > 1 else window.parts[0].estimate()
    for path, number in truth.items():
        assert abs(found.count(*path).value - number) < 10 * found.count(*path).stderr + 1
    assert found.count().value == pytest.approx(truth[()], abs=12)
    assert found.values.min() >= 0


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("", "paths takes the leaves, or paths_file"),
        (LISTED + "domain = { size = 3 }\n", "domain does not belong to kind 'hierarchy'"),
        (LISTED + 'paths_file = "cities.txt"\n', "paths takes the leaves, or paths_file"),
        ('paths_file = "missing.txt"\n', "missing.txt"),
        (LISTED.replace('"lyon"', '"paris"'), "each once"),
        (LISTED + "multipliers = [1, 1]\n", "multipliers must be 3 whole numbers"),
    ],
)
def test_blocks_that_cannot_be_are_refused(block: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Driver(CONFIGURATION + block, partitions=1, now="2024-01-01T00:00:00Z")


def test_a_tree_from_a_file_is_planned_and_counted_by_commands(tmp_path: Path, run: Run) -> None:
    block = 'kind = "hierarchy"\nepsilon = 1\ndelta = "1e-6"\nlevels = ["country", "city"]\npaths_file = "cities.txt"\n'
    Path("places.toml").write_text(block)
    Path("cities.txt").write_text("".join(f"{country}\t{city}\n" for country, city in CITIES))
    told = run("plan", "--kind", "hierarchy", "--table", "places.toml", "--format", "json")
    assert told.code == 0, told.err
    plan = json.loads(told.out)
    exact = spec_of(counted_share="1/40", epsilon_records="1/10")  # the defaults of configurations
    variance = exact.sigma2(exact.epsilon, exact.delta) * 2
    assert plan["rmse"] == pytest.approx(math.sqrt(float(variance) * exact.variances.mean()))
    assert plan["quantity"] == "count"
    assert "error of one count" in run("plan", "--table", "places.toml").out
    helped = run("plan", "--kind", "hierarchy", "--help")
    assert (helped.code, "--table PATH" in helped.out) == (0, True)
    bare = run("plan", "--kind=hierarchy").err
    assert "Missing option '--table' (see `sketchstream plan --kind hierarchy --help`)" in bare
    assert run("create", "-o", "a.sketch", "--table", "places.toml").code == 0
    seen = [json.dumps(dict(zip(LEVELS, one, strict=True))) for one in [*CITIES, CITIES[0], ("es", "bonn")]]
    Path("seen.jsonl").write_text("\n".join(seen))
    fields = [part for level in LEVELS for part in ("--field", f"{level}={level}")]
    done = run("update", "a.sketch", "seen.jsonl", "--format", "jsonl", *fields)
    assert done.code == 0, done.err
    assert run("seal", "a.sketch", "-o", "a.sealed").code == 0
    rows = json.loads(run("estimate", "a.sealed", "--format", "json").out)
    assert rows["labels"]["city"][-2:] == ["paris", "bonn"]
    assert len(rows["values"]) == 9
