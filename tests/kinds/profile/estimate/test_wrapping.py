"""Counts that wrapped: which side each number errs on, how far, and that no number is wrong in silence.

In: laws of counts with heavy tails, kept modulo p. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import collections
import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.kinds.profile import export, pictures
from sketchstream.kinds.profile.estimate.intervals.wrapping import bound_kind, top_of
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.planner import plan
from sketchstream.kinds.profile.planner.heavy import large_enough_modulus, share_beyond
from sketchstream.kinds.profile.reconstruction import reconstruct
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile_answers import Profile
from sketchstream.query.differences import WRAPPED, difference
from sketchstream.spec import ClosedDomain, OpenDomain
from tests.helpers.heavy_laws import LAWS, names_of, run, truths

SCALARS = ["distinct", "total", "mean", "one_hit_ratio", "coverage"]


def profile(counts: Any, modulus: int = 32, seed: int = 0, epsilon: str = "4", **more: Any) -> Profile:
    observed = publish(
        [np.asarray(counts, np.int64) % modulus],
        epsilon=epsilon,
        rng=np.random.default_rng(seed),
        unit="item",
        form="bins",
        modulus=modulus,
        max_count=modulus - 1,
        grouped=True,
    )
    return reconstruct([observed], **{"method": "inverse", "max_count": modulus - 1, **more})


def heavy(users: int = 20_000, slots: int = 65_536, law: str = "log-normal 5, 1.5", seed: int = 0) -> Any:
    return np.pad(LAWS[law](np.random.default_rng(seed), users), (0, slots - users))


# The theory.


@given(
    counts=st.lists(st.integers(1, 200), min_size=1, max_size=60).filter(lambda some: any(c % 8 for c in some)),
    k=st.integers(1, 7),
    q=st.floats(0.01, 0.99),
)
def test_residues_err_on_the_side_that_is_said(counts: list[int], k: int, q: float) -> None:
    true = np.array(counts, np.int64)
    kept = true % 8
    kept = kept[kept > 0]
    names = [*SCALARS, f"at_least.{k}", f"exactly.{k}", f"quantile.{q}", "above"]
    before, after = truths(true, names, k), truths(kept, names, k)
    for name in names:
        lower = name not in ("one_hit_ratio", f"exactly.{k}")
        bound = before[name] + 1e-9 if lower else math.inf
        assert after[name] <= bound, name
        assert lower or after[name] >= before[name] - 1e-9, name


@given(shares=st.lists(st.floats(0.0, 1.0), min_size=30, max_size=120).filter(any), p=st.integers(2, 24))
def test_no_residue_holds_more_wrapped_items_than_the_top_on_average(shares: list[float], p: int) -> None:
    """For every law that falls from the top of the circle on, whatever it is below."""
    top, law = top_of(p), np.array(shares)
    law[top:] = np.sort(law[top:])[::-1]
    at = np.arange(law.size)
    most = law[at % p >= top].sum() / (p - top)
    for residue in range(p):
        assert law[(at >= p) & (at % p == residue)].sum() <= most + 1e-9


def test_a_law_that_rises_beyond_the_top_breaks_the_bound() -> None:
    """The assumption is needed: items that all have one multiple of p leave nothing at the top."""
    law = np.zeros(100)
    law[64] = 1.0
    assert law[np.arange(100) % 32 >= top_of(32)].sum() == 0.0
    assert law[np.arange(100) >= 32].sum() == 1.0


# What is covered.


def rates(law: str, modulus: int, runs: int, **more: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of runs in which each number is covered or a bound that holds, and in which its interval holds."""
    rng = np.random.default_rng(sum(law.encode()) + modulus)
    held: dict[str, list[tuple[bool, bool, bool]]] = collections.defaultdict(list)
    for _ in range(runs):
        for name, one in run(LAWS[law], modulus, rng, **more)[1].items():
            held[name].append(one)
    return (
        {name: float(np.mean([one[0] for one in some])) for name, some in held.items()},
        {name: float(np.mean([one[2] for one in some])) for name, some in held.items()},
    )


def least(runs: int) -> float:
    """Five standard deviations below a coverage of 95%."""
    return 0.95 - 5.0 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("law", ["Zipf 1.9", "log-normal 5, 1.5", "negative binomial, 2.3% outliers"])
def test_no_number_of_heavy_users_is_wrong_in_silence(law: str) -> None:
    covered, _ = rates(law, 32, 60, method="inverse")
    assert all(share >= least(60) for share in covered.values()), covered


@pytest.mark.statistics
def test_outliers_that_the_noise_hides_are_covered_or_marked() -> None:
    """2.3% of users above the modulus, too evenly spread to show: the worst number of 20 in 800 runs."""
    covered, _ = rates("negative binomial, 2.3% outliers", 32, 800, method="inverse")
    assert min(covered.values()) >= 0.925, covered


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("modulus", [16, 32, 64])
@pytest.mark.parametrize("law", LAWS)
def test_no_number_of_any_heavy_law_is_wrong_in_silence(law: str, modulus: int) -> None:
    covered, _ = rates(law, modulus, 100, method="inverse")
    assert all(share >= least(100) for share in covered.values()), covered


def test_without_the_marks_the_check_would_fail() -> None:
    """The other direction: intervals as if no count had wrapped miss the truth in nearly every run."""
    counts = heavy()
    names = names_of(32)
    true = truths(counts[counts > 0], names, 31)
    missed: collections.Counter[str] = collections.Counter()
    for seed in range(20):
        found = profile(counts, seed=seed)
        found.facts = replace(found.facts, wrapping=None)
        for name in names:
            one = found.interval(name)
            missed[name] += not one.low <= true[name] <= one.high
    assert min(missed["total"], missed["mean"], missed["at_least.30"]) >= 15, missed


def test_a_light_tail_is_not_called_heavy() -> None:
    light = np.pad(np.random.default_rng(1).poisson(3, 20_000), (0, 45_536))
    shown = [profile(light, seed=seed).facts.wrapping for seed in range(60)]
    assert sum(one.shows for one in shown if one) <= 12, "5% are expected, five standard deviations above it"
    for seed in range(3):
        found = profile(light, seed=seed)
        assert found.distinct.bound is found.at_least(2).bound is found.exactly(1).bound is None
        assert (found.total.bound, found.mean.bound, found.entropy.bound) == ("lower", "lower", "modulo")


# How it is said.


def test_every_form_of_an_answer_marks_the_bounds() -> None:
    found = profile(heavy())
    assert found.facts.wrapping is not None
    assert found.facts.wrapping.shows
    data = json.loads(found.to_json())
    assert data["wrapping"]["modulus"] == 32
    assert data["wrapping"]["shows"] is True
    assert data["wrapping"]["items_at_most"] > (heavy() > 31).sum()
    assert (data["total"]["bound"], data["total"]["high"]) == ("lower", None)
    assert data["at_least"]["20"]["bound"] == data["above"]["bound"] == "lower"
    assert data["entropy"]["bound"] == "modulo"
    assert found.total.value < heavy().sum() * 0.9, "it is far too low, so the mark is needed"
    text = str(found)
    assert "events (lower bound)" in text
    assert "unknown" in text
    assert "counts are kept modulo 32" in " ".join(text.split())
    assert "share above 31" not in text, "nothing can be seen of it"
    rows = {row["count"]: row for row in csv.DictReader(io.StringIO(found.to_csv()))}
    assert (rows["20"]["bound"], rows["20"]["value"]) == ("lower", repr(data["at_least"]["20"]["value"]))
    row = next(csv.DictReader(io.StringIO(export.to_csv(found))))
    assert (row["total_bound"], row["mean_bound"], row["total_high"]) == ("lower", "lower", "")
    titles = [row[0] for row in pictures.tables(data)[0].rows]
    assert "events (lower bound)" in titles
    assert not any("with more than" in title for title in titles)
    assert any("lower bound" in row[0] for row in pictures.reach_table(data).rows)
    assert "modulo 32" in pictures.card(found)
    assert export.rows(found)[0][0].startswith("distinct items")


@pytest.mark.parametrize("heaviest", [1, 5_000])
def test_totals_and_means_have_no_upper_end_whether_heavy_users_show_or_not(heaviest: int) -> None:
    """Two users of 5,000 events move the mean of 2,000 by 5, and nothing in the residues shows them."""
    counts = np.r_[np.random.default_rng(3).geometric(0.5, 2_000), [heaviest] * 2, np.zeros(6_000)].astype(np.int64)
    found = profile(counts)
    assert found.facts.wrapping is not None
    assert not found.facts.wrapping.shows
    for name in ("total", "mean"):
        number = found.number(name)
        assert (number.bound, number.high) == ("lower", math.inf)
        assert number.low <= {"total": counts.sum(), "mean": counts.sum() / 2_002}[name]


def test_a_profile_of_events_has_no_marks() -> None:
    observed = publish([heavy()], epsilon="1", rng=np.random.default_rng(0))
    data = reconstruct([observed], method="inverse", max_count=40).to_dict()
    assert "wrapping" not in data
    assert '"bound"' not in json.dumps(data)


def test_a_small_max_count_sees_the_same_tail() -> None:
    """Whether counts near the modulus show does not hang on the largest count that is asked for."""
    counts = heavy()
    for limit in (5, 23, 24, 31):
        one = profile(counts, max_count=limit).facts.wrapping
        assert one is not None
        assert one.shows
        assert float(one.top.low[0]) == pytest.approx(float(profile(counts).known_tail(top_of(32)).low[0]), rel=1e-6)


def test_quantiles_beyond_the_modulus_have_no_upper_end() -> None:
    found = profile(heavy(law="log-normal 10, 1.5"))
    assert found.quantile(0.99).high == math.inf
    assert found.quantile(0.99).bound == "lower"
    assert found.quantile(0.99).to_dict()["high"] is None


def test_a_difference_of_bounds_is_one_of_counts_modulo_p_only() -> None:
    answers = []
    for day in (1, 2):
        window = {"window_start": f"2026-01-0{day}T00:00:00Z", "window_end": f"2026-01-0{day + 1}T00:00:00Z"}
        answers.append({**profile(heavy(seed=day)).to_dict(), **window})
    mean = difference(None, *answers, "mean")
    assert (mean.bound, mean.low, mean.high) == ("modulo", None, None)
    assert WRAPPED in mean.assumes
    assert mean.title.endswith("(lower bound)")
    items = difference(None, *answers, "distinct")
    assert items.low is not None


def test_always_is_what_profiles_say_where_nothing_shows() -> None:
    light = profile(np.pad(np.full(20_000, 2), (0, 45_536)))
    assert light.facts.wrapping is not None
    if not light.facts.wrapping.shows:
        for name in ("total", "mean", "coverage", "entropy", "distinct"):
            assert light.interval(name).bound == bound_kind(name, counted=False), name
    assert bound_kind("total", counted=True) is None


# Before any data are there.


def test_plans_say_how_many_heavy_users_to_expect() -> None:
    spec = ProfileSpec("4", "item", OpenDomain(65_536, 8), epsilon_publish="1")
    note = next(one for one in plan(spec, items=20_000, mean=5).notes if "heavy-tailed" in one)
    assert "2.40% of the items have 32 or more" in note
    assert "modulus 128 leaves 0.18%" in note
    assert share_beyond(32, 5) == pytest.approx(
        (LAWS["log-normal 5, 1.5"](np.random.default_rng(0), 400_000) > 31).mean(), rel=0.1
    )
    assert large_enough_modulus(1.5, 32) == 32
    few = ProfileSpec("4", "item", ClosedDomain(size=60_000), modulus=512)
    assert not any("modulus 1024" in one for one in plan(few, items=20_000, mean=2).notes)
