"""What a profile says: consistent numbers, exports, refusals; and that no method moves what has no noise."""

from __future__ import annotations

import csv
import io
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.cli import show
from sketchstream.errors import EstimateError, MissingExtraError
from sketchstream.kinds.estimates import Estimate
from sketchstream.kinds.options import METHODS
from sketchstream.kinds.profile import export
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty, xlogx
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.profile_numbers import Facts
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import MonotoneTails
from sketchstream.kinds.profile.export import reach_steps
from sketchstream.kinds.profile.reconstructed import ReconstructedProfile
from sketchstream.kinds.profile.reconstruction import reconstruct

H = np.concatenate([np.zeros(3000, dtype=np.int64), np.random.default_rng(0).geometric(0.3, 3000), [250, 400, 9000]])
ITEMS = np.random.default_rng(1).geometric(0.4, 20_000)


def closed(form="state", epsilon=1, h=H, seed=0, **more):
    return publish([h], epsilon=epsilon, rng=np.random.default_rng(seed), form=form, **more)


def opened(form="state", epsilon=1, items=ITEMS, seed=0, **more):
    rng = np.random.default_rng(seed)
    return publish(hash_counts(items, 1 << 16, 6, rng), epsilon=epsilon, rng=rng, form=form, open_domain=True, **more)


def close_to(estimate, truth):
    return estimate.low <= truth <= estimate.high


@given(slots=st.integers(1, 2**40), size=st.integers(1, 40), seed=st.integers(0, 2**32), zeros=st.integers(0, 1000))
def test_the_number_of_all_items_of_a_closed_domain_is_whole(slots, size, seed, zeros):
    """Whatever a law of counts adds up to in floating point, which depends on the processor."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(size + 2)) * (1.0 + rng.integers(-4, 5) * 2.0**-52)
    band = Band(np.zeros(size + 1), np.zeros(size + 1), np.zeros(size + 1))
    tails = MonotoneTails(
        Band(np.full(size + 2, float(slots)), np.full(size + 2, float(slots)), np.zeros(size + 2)), {}
    )
    known = Uncertainty(band, band, tails, band, {}, "nothing")
    facts = Facts("likelihood", "item", "bins", slots, (), "1", "1", open_domain=False)
    p = ReconstructedProfile(Fit(shares[:-1], np.array([size + 1.0]), shares[-1:]), slots, known, facts)
    assert p.at_least(0) == Estimate(slots, slots, slots)
    assert p.with_zeros(zeros).at_least(0) == Estimate(slots + zeros, slots + zeros, slots + zeros)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
def test_all_numbers_of_a_closed_profile_come_from_one_law(form, method):
    p = reconstruct([closed(form)], method=method, max_count=60)
    assert p.fractions.shape == p.counts.shape == (61,)
    assert p.fractions.sum() + p.above.value == pytest.approx(1.0, abs=1e-9)
    assert p.counts == pytest.approx(p.fractions * H.size)
    assert p.distinct.value == pytest.approx(H.size * (1 - p.fractions[0]), rel=1e-9, abs=1e-6)
    assert p.at_least(1).value == p.distinct.value
    for k in (2, 5, 60):
        wanted = max(p.counts[k:].sum() + p.above.value * H.size, 0.0)
        assert p.at_least(k).value == pytest.approx(wanted, rel=1e-9, abs=1e-6)
    assert p.at_least(61).value == pytest.approx(p.above.value * H.size, abs=1e-9)
    assert p.mean.value == pytest.approx(p.total.value / p.distinct.value)
    assert p.one_hit_ratio.value == pytest.approx(p.counts[1] / p.distinct.value)
    assert p.coverage.value == pytest.approx(1 - p.counts[1] / p.total.value)
    for name in ("distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage", "above", "at_least.3"):
        found = p.interval(name)
        wider, narrower = p.interval(name, level=0.99), p.interval(name, 0.5)
        assert wider.low <= found.low <= narrower.low <= found.value <= narrower.high <= found.high <= wider.high
        assert wider.high - wider.low > found.high - found.low > narrower.high - narrower.low, name
    for name in ("fractions", "counts"):
        ends = p.interval(name)
        value = getattr(p, name)
        assert ends.shape == (61, 2)
        assert (ends[:, 0] <= value + 1e-15).all()
        assert (ends[:, 1] >= value - 1e-15).all()


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize("domain", ["closed", "open"])
def test_the_inverse_is_signed_by_count_and_possible_in_all_other_numbers(domain, unit):
    items = np.random.default_rng(2).geometric(0.4, 30)
    signed = empty = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        more = {"modulus": 16, "form": "bins"} if unit == "item" else {"max_count": 12, "form": "cumulative"}
        slots = (
            hash_counts(items, 2048, 2, rng) if domain == "open" else [np.append(np.zeros(200, dtype=np.int64), items)]
        )
        seen = publish(slots, epsilon="1/4", rng=rng, unit=unit, open_domain=domain == "open", **more)
        p = reconstruct([seen], method="inverse", max_count=12)
        signed += p.fractions.min() < 0
        if domain == "closed" or p.distinct.value > 0:
            assert p.fractions.sum() + p.above.value == pytest.approx(1.0)
        else:
            assert not p.fractions.any()
            empty += 1
        most = 230 if domain == "closed" else math.inf
        limits = {"distinct": most, "at_least.2": most, "at_least.13": most, "one_hit_ratio": 1}
        for name in (*limits, "total", "mean", "entropy", "quantile.0.5"):
            found = p.interval(name)
            assert 0.0 <= found.low <= found.value <= found.high <= limits.get(name, math.inf), name
        table = p.to_pandas()
        assert table["value"].between(0, most).all()
        assert json.loads(p.to_json())["distinct"]["value"] >= 0
    assert signed > 3
    assert (empty > 0) == (domain == "open")


@pytest.mark.parametrize("method", ["likelihood", "monotone"])
def test_an_open_profile_is_over_the_items_that_occurred(method):
    p = reconstruct([opened("cumulative")], method=method, max_count=30)
    assert p.fractions[0] == 0.0
    assert p.counts[0] == 0.0
    assert p.fractions.sum() + p.above.value == pytest.approx(1.0, abs=1e-9)
    assert p.fractions.min() >= 0.0
    assert p.counts == pytest.approx(p.fractions * p.distinct.value)
    assert p.distinct.value == pytest.approx(ITEMS.size, rel=0.06)
    assert close_to(p.distinct, ITEMS.size)
    assert p.total.value == pytest.approx(ITEMS.sum(), rel=0.03)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["state", "cumulative"])
def test_no_method_moves_a_histogram_without_noise(form, method):
    h = H[H <= 250]
    p = reconstruct([closed(form, epsilon=30, h=h)], method=method, max_count=300)
    assert p.fractions == pytest.approx(np.bincount(h, minlength=301) / h.size, abs=1e-6)
    assert p.total.value == pytest.approx(h.sum(), rel=1e-6)


@pytest.mark.parametrize("method", ["likelihood", "monotone", "inverse"])
def test_no_method_moves_an_item_histogram_without_noise(method):
    h = np.minimum(H, 31)
    seen = closed("bins", epsilon=40, h=h, unit="item", modulus=32)
    p = reconstruct([seen], method=method, max_count=31)
    assert p.fractions == pytest.approx(np.bincount(h, minlength=32) / h.size, abs=1e-6)


def test_bins_without_noise_are_exact_in_their_unit_range():
    h = H[H <= 19]
    p = reconstruct([closed("bins", epsilon=50, h=h)], max_count=30)
    assert p.fractions == pytest.approx(np.bincount(h, minlength=31) / h.size, abs=1e-6)


def test_the_same_object_gives_the_same_profile():
    seen = closed("cumulative", 0.5)
    first, second = (reconstruct([seen], max_count=100) for _ in range(2))
    assert np.array_equal(first.fractions, second.fractions)
    assert first.to_dict() == second.to_dict()


def test_counts_far_above_max_count_are_pooled_not_wrapped():
    h = np.concatenate([np.zeros(500, dtype=np.int64), np.full(500, 10_000)])
    for method in METHODS:
        p = reconstruct([closed("state", 1, h)], method=method, max_count=10)
        assert p.above.value == pytest.approx(0.5, abs=0.12), method
        assert p.fractions[1:].sum() == pytest.approx(0.0, abs=0.15), method


def test_json_has_the_agreed_keys():
    p = reconstruct([closed("cumulative", "1/2")], max_count=1200, guarantee={"unit": "event"})
    data = json.loads(p.to_json())
    assert data["method"] == "likelihood"
    assert data["d"] == H.size
    assert data["layers"] == [{"law": "discrete-laplace", "epsilon": "1/2"}]
    assert data["epsilon"] == "1/2"
    assert data["unit"] == "event"
    assert len(data["fractions"]) == len(data["counts"]) == 1201
    for name in ("above", "distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage"):
        assert set(data[name]) == {"value", "low", "high"}
    assert list(data["at_least"])[:3] == ["1", "2", "3"]
    assert list(data["at_least"])[-1] == "1000"
    assert data["at_least"]["1"]["value"] == data["distinct"]["value"]
    assert list(data["exactly"]) == [str(k) for k in range(1, 31)]
    ends = p.interval("counts")
    for k, one in data["exactly"].items():
        assert one == {"value": data["counts"][int(k)], "low": ends[int(k), 0], "high": ends[int(k), 1]}
    assert data["guarantee"] == {"unit": "event"}
    assert "covers" in data


def test_reach_is_listed_one_by_one_and_then_in_1_2_5_steps():
    assert reach_steps(3) == [1, 2, 3]
    assert reach_steps(1_000_000)[1000:] == [2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]


def test_circulant_says_its_norm_and_beta():
    data = reconstruct([closed()], method="circulant", max_count=20, norm=math.inf, beta=0.1).to_dict()
    assert (data["norm"], data["beta"]) == ("inf", 0.1)


def test_numbers_are_asked_for_by_count_or_by_name():
    p = reconstruct([closed()], method="monotone", max_count=10)
    for k in range(12):
        assert p.at_least(k) == p.at_least(np.int64(k)) == p.interval(f"at_least.{k}")
    assert p.exactly(10) == p.interval("exactly.10")
    assert p.quantile(0.9) == p.quantile(np.float64(0.9)) == p.interval("quantile.0.9")
    for k in (12, -1, 1.0, True, "1"):
        with pytest.raises(EstimateError, match=r"k must be a whole number from 0 to max_count \+ 1 = 11"):
            p.at_least(k)
    with pytest.raises(EstimateError, match="max_count = 10, found 11"):
        p.exactly(11)
    for q in (1.5, float("nan"), "0.5"):
        with pytest.raises(EstimateError, match="a quantile lies between 0 and 1"):
            p.quantile(q)


def test_tables_agree_with_the_profile():
    p = reconstruct([closed("cumulative")], method="monotone", max_count=20)
    rows = list(csv.DictReader(io.StringIO(export.to_csv(p))))
    assert len(rows) == 21
    assert [int(row["count"]) for row in rows] == list(range(21))
    assert [float(row["items"]) for row in rows] == pytest.approx(p.counts)
    assert float(rows[2]["at_least_low"]) == pytest.approx(p.at_least(2).low)
    frame, table = p.to_pandas(), p.to_arrow()
    assert list(frame.columns) == table.column_names == p.to_csv().split("\n", 1)[0].split(",")
    assert frame["value"].to_numpy() == pytest.approx([float(row["at_least"]) for row in rows])
    for name in ("distinct", "total", "mean", "entropy"):
        one = p.interval(name)
        for row in rows:
            assert [float(row[name + end]) for end in ("", "_low", "_high")] == [one.value, one.low, one.high]
    assert frame["fraction"].to_numpy() == pytest.approx(p.fractions)
    assert table.column("items_high").to_numpy() == pytest.approx(p.interval("counts")[:, 1])


def test_text_names_numbers_and_what_intervals_cover():
    p = reconstruct([closed("cumulative")], max_count=50)
    text = str(p)
    for part in (
        "epsilon 1, epsilon_publish 1",
        "distinct items",
        "seen 10 times or more",
        "entropy",
        "estimate",
        "95% intervals; they cover",
    ):
        assert part in text
    from rich.console import Console

    console = Console(width=140, file=io.StringIO())
    console.print(p)
    assert "distinct items" in console.file.getvalue()
    assert f"{p.number('coverage').low:.1%}" in text, "shares are in per cent"
    assert repr(p) == f"Profile(method='likelihood', unit='event', d={H.size}, max_count=50)"
    assert str(Estimate(1234.5, 0.5, 2000.0)) == "1,234 [0.5, 2,000]"
    assert str(Estimate(8.0, 6.0, 9.0, "lower")) == "8 [6, 9] or more"
    for one in (Estimate(8.0, 6.0, 9.0, "lower"), Estimate(8.0, 6.0, np.inf, "lower"), Estimate(8.0, 6.0, 9.0)):
        assert show.cell("distinct", one, intervals=True) == str(one), "a table says the same, and nothing twice"
    assert show.cell("distinct", Estimate(0.167, 0.0, 68.2), intervals=True) == "0 [0, 68]", "people are whole"
    assert show.cell("coverage", Estimate(0.9999, 0.9956, 1.0), intervals=True) == "100.0% [99.6%, 100.0%]"
    assert show.cell("mean", Estimate(11.7312, 11.1, 12.4), intervals=False) == "11.7", "no digit that nobody knows"
    assert str(Estimate(8.0, 6.0, math.inf, "lower")) == "8 [6, inf]"
    assert Estimate(8.0, 6.0, 9.0, "upper")._repr_html_() == "<b>8</b> [6, 9] or less"


def test_plots_are_written_in_every_format(tmp_path):
    p = reconstruct([closed("cumulative")], method="monotone", max_count=300)
    for name in ("a.png", "a.svg", "a.pdf"):
        p.plot(tmp_path / name, truth=np.bincount(H))
        assert (tmp_path / name).stat().st_size > 5000


def test_a_plot_is_a_band_and_has_the_truth_where_it_belongs(tmp_path, monkeypatch):
    from sketchstream.kinds.profile.pictures import curves
    from sketchstream.pictures import charts

    p = reconstruct([closed("cumulative", epsilon="1/4")], method="inverse", max_count=300)
    reach, exact = curves(p.to_dict(), truth=np.bincount(H))
    assert (np.diff(reach.low) <= 0).all()
    assert (np.diff(reach.high) <= 0).all()
    assert reach.truth.tolist() == [(k <= H).sum() for k in reach.k]
    assert exact.truth.tolist() == [(k == H).sum() for k in exact.k]
    assert 200 <= reach.k[-1] <= 300
    drawn = []
    monkeypatch.setattr(
        charts, "_finish", lambda axes, *_: drawn.append([t.get_text() for t in axes.get_xticklabels()])
    )
    p.plot(tmp_path / "x.png")
    assert [text.isdecimal() for labels in drawn for text in labels] == [True] * sum(map(len, drawn))
    assert len(drawn) == 2


def test_a_missing_plot_library_is_a_clear_error(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"sketchstream\[plots\]"):
        reconstruct([closed()], method="monotone", max_count=5).plot(tmp_path / "x.png")


def test_quantiles_are_counts_of_items_that_occurred():
    h = np.concatenate([np.zeros(100, dtype=np.int64), np.repeat([1, 2, 10], 100)])
    p = reconstruct([closed("state", 30, h)], max_count=20)
    assert [p.quantile(q).value for q in (0.0, 0.3, 0.5, 0.66, 0.9, 1.0)] == [1, 1, 2, 2, 10, 10]
    assert p.entropy.value == pytest.approx(math.log(h.sum()) - xlogx(h.astype(float)).sum() / h.sum(), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "magic"}, "method must be one of"),
        ({"max_count": 0}, "max_count must be"),
        ({"max_count": 10**9}, "max_count must be"),
        ({"max_count": True}, "max_count must be"),
        ({"norm": 2}, "norm belongs to method circulant"),
        ({"method": "circulant", "norm": 3}, "norm must be 1, 2 or inf"),
        ({"method": "circulant", "beta": 0.0}, "beta must lie between"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(EstimateError, match=message):
        reconstruct([closed()], **{"max_count": 10, **change})


def test_methods_that_do_not_apply_are_refused():
    with pytest.raises(EstimateError, match="nothing to reconstruct"):
        reconstruct([], max_count=3)
    with pytest.raises(EstimateError, match="circulant is for unit event and one layer"):
        reconstruct([closed(layers=2)], method="circulant", max_count=3)
    with pytest.raises(EstimateError, match="circulant knows nothing of collisions"):
        reconstruct([opened()], method="circulant", max_count=3)
    with pytest.raises(EstimateError, match="below the modulus"):
        reconstruct([closed("bins", h=np.minimum(H, 7), unit="item", modulus=8)], max_count=8)
    with pytest.raises(EstimateError, match="parts of one profile"):
        reconstruct([closed(), opened()], max_count=3)
    with pytest.raises(EstimateError, match="too crowded"):
        reconstruct(
            [publish([np.full(500, 9)], epsilon=1, rng=np.random.default_rng(0), open_domain=True)], max_count=3
        )
    with pytest.raises(EstimateError, match="unit bins below zero"):
        reconstruct([closed("cumulative", layers=5)], method="inverse", max_count=3)


@pytest.mark.parametrize("name", [
    "reach", "at_least.x", "at_least.-1", "at_least.99", "exactly.x", "exactly.11",
    "quantile.2", "quantile.x", ""])  # fmt: skip
def test_unknown_numbers_are_refused(name):
    p = reconstruct([closed()], method="monotone", max_count=10)
    with pytest.raises(EstimateError):
        p.interval(name)
    with pytest.raises(EstimateError, match="level must be above"):
        p.interval("distinct", 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"slots": (5,)},
        {"edges": np.array([0, 0])},
        {"edges": np.array([0, 1, 2])},
        {"layers": ()},
        {"layers": (("randomized-response", Fraction(1)),)},
        {"layers": (("discrete-laplace", Fraction(0)),)},
        {"cost": Fraction(1)},
        {"form": "bins"},
        {"form": "list"},
        {"open_domain": True},
        {"unit": "item"},
        {"parts": 0},
        {"slots": (2, 2)},
    ],
)
def test_observed_refuses_what_does_not_fit_together(change):
    good = {
        "unit": "event", "form": "state", "open_domain": False, "layers": (("discrete-laplace", Fraction(1)),),
        "slots": (4,), "hashed_into": (), "shares": (), "edges": np.array([0, 1]), "values": np.array([[3, 1]]),
    }  # fmt: skip
    Observed(**good)
    with pytest.raises(EstimateError):
        Observed(**{**good, **change})


def test_tiny_and_odd_inputs_give_a_profile():
    for h in ([0], [3], [0, 1], [5] * 60, [0] * 200, list(range(9))):
        for form in ("state", "cumulative", "bins"):
            for method in ("likelihood", "monotone", "inverse"):
                p = reconstruct([closed(form, 1, np.array(h))], method=method, max_count=4)
                assert np.isfinite(p.fractions).all()
                assert p.fractions.sum() + p.above.value == pytest.approx(1.0, abs=1e-9)
                json.dumps(p.to_dict(), allow_nan=False)
