"""Answers: every set of groups from one fit, sums that agree to the last digit, intervals that hold, ratios."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items
from sketchstream.kinds.groups.overlap import Overlap, SetEstimate
from sketchstream.kinds.profile.groups import Grouped
from sketchstream.kinds.profile.overlap.fit import RegionFit, answers_of

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
NAMES = ("a", "b", "c")
REGIONS = np.array([40.0, 90, 10, 180, 20, 60, 10])
COVARIANCE = np.diag(REGIONS) + 1.0


class Given:
    """A covariance that is written down."""

    def parts(self, weights: Any) -> Any:
        return weights @ np.linalg.cholesky(COVARIANCE), 0 * weights

    def variances(self) -> Any:
        return np.diag(COVARIANCE)


def answers(regions: Any = REGIONS, free: Any = None, **more: Any) -> Overlap:
    fit = RegionFit(np.asarray(regions if free is None else free), np.asarray(regions), Given())
    return answers_of(NAMES, [fit], **{"epsilon": Fraction(1, 4), "rate": 1.0, "most": None, **more})


def test_sets_are_sums_of_regions() -> None:
    o = answers()
    assert o.people.value == 410
    assert (o.reach("a").value, o.reach("a", "b").value, o.reach().value) == (270, 370, 410)
    assert (o.common("a", "b").value, o.common().value) == (70, 10)
    assert (o.only("a").value, o.only("a", not_in=["b"]).value, o.only("a", "b").value) == (180, 200, 60)
    assert o.increment("c", over=["a", "b"]).value == 40
    assert [o.at_least(k).value for k in (1, 2, 3)] == [410, 100, 10]
    assert [o.exactly(k).value for k in (1, 2, 3)] == [310, 90, 10]
    assert o.query("a & (b | ~c)").value == 250
    assert [row["value"] for row in o.regions()] == sorted(REGIONS, reverse=True)
    assert o.regions()[0]["in"] == ["a"]


def test_an_interval_comes_from_the_covariance_of_all_regions() -> None:
    o = answers()
    chosen = o.query("a & b")
    variance = 60 + 10 + 4  # two regions, and a covariance of 1 between any two
    assert chosen.stderr == pytest.approx(math.sqrt(variance))
    assert (chosen.high - chosen.low) / 2 == pytest.approx(1.959964 * chosen.stderr, rel=1e-6)
    assert o.query("a", level=0.5).high < o.query("a").high


def test_intervals_come_from_the_free_numbers_and_hold_the_value() -> None:
    o = answers(regions=[40, 90, 0, 180, 0, 60, 10], free=[50, 90, -300, 180, -30, 60, 10])
    found = o.only("b", "c")
    assert (found.value, found.low) == (0, 0)
    assert found.high == 0  # -300 + 1.96 sd is below 0: the interval is the value alone
    assert o.query("c").low <= o.query("c").value <= o.query("c").high
    assert all(row["low"] >= 0 and row["value"] >= 0 for row in o.rows())


def test_a_closed_domain_bounds_intervals_and_a_sample_scales_them_up() -> None:
    assert answers(most=415).people.high == 415
    half = answers(rate=0.5)
    assert half.people.value == 820
    sampled = math.sqrt(4 * 74 + 2 * 70 * 0.5 / 0.5)
    assert half.query("a & b").stderr == pytest.approx(sampled)


def test_a_share_has_fiellers_interval() -> None:
    o = answers()
    found = o.share("b", of="a")
    assert found.value == pytest.approx(70 / 270)
    x, y, xx, yy, xy = 70.0, 270.0, 74.0, 270.0 + 16, 70.0 + 8
    for end in (found.low, found.high):
        assert (x - end * y) ** 2 == pytest.approx(3.841459 * (xx - 2 * end * xy + end**2 * yy), rel=1e-5)
    nothing = answers(regions=[40, 90, 0, 0, 0, 0, 0])
    assert nothing.share("b", of="a").to_dict()["value"] == 0
    assert (nothing.share("b", of="a").low, nothing.share("b", of="a").high) == (0, 1)


def test_unknown_groups_are_refused() -> None:
    with pytest.raises(SpecError, match="no group 'd'"):
        answers().reach("d")
    with pytest.raises(SpecError, match="number must be a whole number from 1 to 3"):
        answers().at_least(4)
    assert isinstance(answers().reach("a"), SetEstimate)


def people(sizes: dict[str, int]) -> dict[str, Any]:
    """Items of each group, from numbers of items by exact set of groups."""
    found: dict[str, list[Any]] = {name: [] for name in NAMES}
    first = 0
    for inside, n in sizes.items():
        for name in inside:
            found[name].append(np.arange(first, first + n))
        first += n
    return {name: np.concatenate(parts) if parts else np.zeros(0, np.int64) for name, parts in found.items()}


SIZES = {"a": 1800, "ab": 600, "ac": 200, "abc": 100, "b": 900, "bc": 100, "c": 400}


def sealed(sizes: dict[str, int], seed: int = 0, domain: Any = None, key: ss.Key | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {"modulus": 16, "epsilon_publish": "1", "overlap": True, "epsilon_overlap": "1", **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = ss.ProfileSpec(
            given.pop("epsilon", "4"), "item", domain or ss.OpenDomain(2**14, 6), groups=ss.Groups(list(NAMES)), **given
        )
    sketch = ss.Sketch.create(spec, (key or ss.Key.generate()) if spec.needs_key else None)
    rng = np.random.default_rng(seed)
    for name, ids in people(sizes).items():
        counts = rng.geometric(0.5, len(ids))
        sketch.update(Grouped(np.full(len(ids), NAMES.index(name), np.int32), Items.of(ids)), counts)
    return sketch.seal()


def truth(expression: str) -> float:
    return {"a": 2700, "b": 1700, "c": 800, "a | b": 3700, "a & b": 700, "a & b & c": 100, "a - b": 2000}[expression]


@pytest.mark.parametrize("domain", [ss.OpenDomain(2**14, 6), ss.ClosedDomain(size=6000)], ids=["open", "closed"])
def test_at_a_huge_epsilon_every_set_is_what_the_stream_holds(domain: Any) -> None:
    noiseless = {"epsilon": "30", "epsilon_publish": "30", "epsilon_overlap": "30", "modulus": 128}
    o = sealed(SIZES, domain=domain, **noiseless).overlap()
    for expression in ("a", "b", "c", "a | b", "a & b", "a & b & c", "a - b"):
        found = o.query(expression)
        wanted = truth(expression)
        assert found.low - 5 * found.stderr <= wanted <= found.high + 5 * found.stderr
        if isinstance(domain, ss.ClosedDomain):
            assert found.value == pytest.approx(wanted, abs=0.01)


def test_answers_that_must_add_up_do_to_the_last_digit_of_json() -> None:
    found = json.loads(json.dumps(sealed(SIZES).overlap().to_dict()))
    value = {row["query"]: row["value"] for row in found["answers"]}
    region = {"".join(row["in"]): row["value"] for row in found["regions"]}
    assert value["a"] == region["a"] + region["ab"] + region["ac"] + region["abc"]
    assert value["a | b | c"] == found["people"]["value"] == sum(region.values())
    assert value["a"] + value["b - (a)"] + value["c - (a | b)"] == found["people"]["value"]
    assert sum(row["added"]["value"] for row in found["increments"]) == found["people"]["value"]
    reached = found["increments"][-1]["reached"]
    assert reached["value"] == found["people"]["value"]
    assert reached == pytest.approx(found["people"], rel=1e-9)
    assert found["consistent"] is True
    assert min(region.values()) >= 0


def test_some_of_many_groups_are_combined_at_a_time() -> None:
    names = [f"g{n}" for n in range(12)]
    spec = ss.ProfileSpec(
        "4", "item", ss.OpenDomain(2**12, 3), groups=ss.Groups(names), overlap=True, counts="presence"
    )
    sketch = ss.Sketch.create(spec, ss.Key.generate())
    sketch.update([(name, item) for name in ("g3", "g7", "g11") for item in range(700)])
    sealed = sketch.seal()
    o = sealed.overlap(["g11", "g3", "g0"])
    assert o.groups == ("g11", "g3", "g0")
    for expression, number in (("g11", 700), ("g3 & g11", 700), ("g0", 0)):
        found = o.query(expression)
        assert abs(found.value - number) < 6 * found.stderr
    with pytest.raises(SpecError, match="no group"):
        sealed.overlap(["g3", "x"])
    with pytest.raises(SpecError, match="each once"):
        sealed.overlap(["g3", "g3"])


def test_the_table_of_some_groups_is_the_sum_over_the_others() -> None:
    from sketchstream.kinds.profile.overlap.observations import _marginal

    cells = np.arange(16.0).reshape(2, 8)
    found = _marginal(cells, NAMES, ("c", "a"))
    assert found[0].tolist() == [0 + 2, 4 + 6, 1 + 3, 5 + 7]
    assert np.array_equal(_marginal(cells, NAMES, NAMES), cells)


def test_published_bytes_alone_give_the_same_answers() -> None:
    one = sealed(SIZES)
    again = ss.load(one.to_bytes())
    assert again.overlap().to_dict(covariance=True) == one.overlap().to_dict(covariance=True)


def test_partitions_are_one_whole_and_as_good_as_few() -> None:
    key = ss.Key.generate()
    halves = [{name: n // 2 for name, n in SIZES.items()}] * 2
    whole = ss.stack([sealed(half, seed, key=key) for seed, half in enumerate(halves)]).overlap()
    for expression in ("a", "a | b", "a & b"):
        found = whole.query(expression)
        assert abs(found.value - truth(expression)) < 6 * found.stderr
    unlike = ss.stack([sealed(SIZES, key=key), sealed({"a": 10}, key=key)]).overlap()
    assert abs(unlike.query("a").value - 2710) < 6 * unlike.query("a").stderr


@pytest.mark.statistics
def test_intervals_hold_for_overlaps_of_every_size() -> None:
    runs, held, asked, negative = 60, 0, 0, 0
    for run in range(runs):
        shared = [0.0, 0.1, 0.5, 0.9][run % 4]
        both = int(1500 * shared)
        sizes = {"a": 1500 - both, "ab": both, "b": 1500 - both, "c": 700}
        o = sealed(sizes, run).overlap()
        wanted = {"a": 1500, "a | b": 3000 - both, "a & b": both, "a - b": 1500 - both, "a & c": 0, "c - (a | b)": 700}
        for expression, number in wanted.items():
            found = o.query(expression)
            asked, held = asked + 1, held + (found.low <= number <= found.high)
            negative += found.value < 0 or found.low < 0
    assert negative == 0
    assert held / asked > 0.95 - 5 * math.sqrt(0.95 * 0.05 / runs / 2)  # answers of one run depend on each other


@pytest.mark.statistics
def test_the_predicted_errors_are_those_of_the_library() -> None:
    expressions = ("a", "a | b", "a & b", "a - b")
    found = [[o.query(one) for one in expressions] for o in (sealed(SIZES, run).overlap() for run in range(80))]
    for at, expression in enumerate(expressions):
        values = np.array([row[at].value for row in found])
        predicted = np.mean([row[at].stderr for row in found])
        assert abs(values.mean() - truth(expression)) < 5 * predicted / math.sqrt(80) + 0.1 * predicted
        assert 0.6 < values.std(ddof=1) / predicted < 1.4


def test_all_pairs_are_answered_where_nothing_is_asked() -> None:
    usual = answers().usual()
    assert usual[:3] == list(NAMES)
    assert all(f"{a} & {b}" in usual for a, b in combinations(NAMES, 2))
    assert usual[-2:] == ["b - (a)", "c - (a | b)"]


def test_rows_are_exported_and_shown_in_notebooks() -> None:
    spec = ss.ProfileSpec("3", "item", ss.ClosedDomain(size=90), groups=ss.Groups(["a", "<b>"]), overlap=True)
    sketch = ss.Sketch.create(spec)
    sketch.update([("a", item) for item in range(40)] + [("<b>", item) for item in range(20, 60)])
    found = sketch.seal().overlap()
    rows = found.rows(["a & '<b>'", "a"])
    frame = found.to_pandas(["a & '<b>'", "a"])
    assert frame.to_dict("records") == rows
    assert found.to_arrow(["a & '<b>'", "a"]).to_pylist() == rows
    assert found.to_csv().splitlines()[0] == "query,value,low,high,sd"
    assert len(found.to_csv().splitlines()) == 1 + len(found.rows())
    card = found._repr_html_()
    assert "In at least one of the 2 groups" in card
    assert "What each group adds" in card
    assert "<svg" in card
    assert "<b>" not in card
