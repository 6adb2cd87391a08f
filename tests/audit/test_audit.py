"""The audit passes on the product and fails on every broken build it is shown.

In: the product, and the product with one part replaced. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sketchstream import kernels, kinds, noise
from sketchstream import sketch as sketches
from sketchstream.audit import bounds
from sketchstream.audit import report as audit
from sketchstream.audit.bounds import clopper_pearson, lower_bound
from sketchstream.items.domains import Index
from sketchstream.kinds.profile import mechanism as profile
from sketchstream.privacy.ledgers import ledger

Patch = pytest.MonkeyPatch
F = Fraction


def failures(*only: str) -> set[str]:
    report = audit.run(quick=True, only=only)
    return {f"{finding.section}: {finding.name}" for finding in report.findings if not finding.passed}


# The product.


FINDINGS = {
    "sketches": 279, "gaussian": 93, "workload": 157, "convolution": 193, "projection": 112,
    "ledger": 5, "neighbours": 11, "seals": 9, "releases": 15, "laws": 12, "bounds": 9,
}  # fmt: skip
"""Findings of each section; kinds that are not named here have more than 50."""
SECTIONS = sorted({*FINDINGS, *kinds.names()} - {"profile"})


@pytest.mark.statistics
@pytest.mark.parametrize("section", SECTIONS)
def test_the_audit_passes_on_the_product_and_reports_each_thing_it_tried(section: str) -> None:
    told: list[tuple[str, int, int]] = []
    report = audit.run(quick=True, progress=lambda *step: told.append(step), only=(f"{section}: ",))
    assert report.passed, str(report)
    assert [done for _, done, _ in told] == list(range(len(told)))
    assert told[-1] == ("done", len(told) - 1, len(told) - 1)
    assert {finding.section for finding in report.findings} == {section}
    assert len(report.findings) == FINDINGS.get(section, max(len(report.findings), 51))
    assert all(finding.power for finding in report.findings)
    assert not any("at least 0.000" in finding.found for finding in report.findings)
    assert json.loads(json.dumps(report.to_dict()))["passed"] is True
    assert "passed" in str(report)


def test_every_section_of_the_audit_is_tried() -> None:
    assert {name.partition(": ")[0] for name, _ in audit._steps(quick=True)} == set(SECTIONS)


@pytest.mark.statistics
def test_bounds_at_a_million_trials_lie_below_their_claims_and_near_the_tight_ones() -> None:
    mechanisms = bounds.mechanisms()
    assert [m.name.split(",")[0] for m in mechanisms if not m.tight] == ["histogram alone"] * 2
    for mechanism in mechanisms:
        bound = mechanism.bound(bounds.FULL)
        assert bound.bound <= float(bound.claim)
        assert not bound.tight or bound.bound >= 0.8 * float(bound.claim)


def test_claims_come_from_the_ledger() -> None:
    claims = {mechanism.name: mechanism.claim for mechanism in bounds.mechanisms()}
    assert claims["look, then fresh layer, item"] == F(17, 10)
    assert claims["look, then fresh layer, event after the look"] == F(7, 10)
    assert claims["early release, then bare state, event"] == F(3, 2)


# The statistics.


@pytest.mark.parametrize(("successes", "trials"), [(0, 50), (1, 50), (25, 50), (50, 50)])
def test_intervals_cover_what_they_say(successes: int, trials: int) -> None:
    from scipy.stats import binom

    low, high = clopper_pearson(successes, trials, 0.01)
    if successes:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(0.01)
    else:
        assert low == 0
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(0.01)
    else:
        assert high == 1


def test_lower_bounds_stay_below_the_truth_and_come_near_it() -> None:
    rng = np.random.default_rng(1)
    law = np.array([0.4, 0.3, 0.2, 0.1])
    truth = float(np.log(4))
    found = []
    for _ in range(100):
        worlds = [rng.choice(4, 20_000, p=law), rng.choice(4, 20_000, p=law[::-1])]
        found.append(lower_bound(*worlds, error=0.05))
    assert np.mean(np.array(found) > truth) <= 0.05
    assert np.median(found) > 0.9 * truth
    assert lower_bound(np.zeros(1000, np.int64), np.zeros(1000, np.int64)) == 0


def test_worlds_that_exclude_each_other_have_bounds_that_grow() -> None:
    bounds_found = [lower_bound(np.zeros(n, np.int64), np.ones(n, np.int64)) for n in (100, 10_000)]
    assert 0.5 < bounds_found[0] < bounds_found[1]


# Broken builds.


@pytest.mark.statistics
def test_a_sampler_with_half_the_noise_is_refused(monkeypatch: Patch) -> None:
    draw = noise.discrete_laplace
    monkeypatch.setattr(noise, "discrete_laplace", lambda out, epsilon: draw(out, 2 * epsilon), raising=False)
    found = failures("laws", "releases", "bounds: bare", "bounds: release")
    assert {"laws: discrete Laplace, epsilon 1", "bounds: bare state, event"} <= found
    assert "bounds: release given the state, bins" in found
    assert "bounds: bare state, item" not in found


def test_a_gaussian_that_is_a_tenth_too_narrow_is_refused(monkeypatch: Patch) -> None:
    draw = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda out, sigma2: draw(out, sigma2 * 81 / 100), raising=False)
    assert "laws: discrete Gaussian, sigma^2 22/7" in failures("laws: discrete Gaussian")


def test_a_randomized_response_that_never_returns_zero_shift_is_refused(monkeypatch: Patch) -> None:
    rng = np.random.default_rng(2)

    def wrong(out: Any, modulus: int, epsilon: Fraction) -> None:
        out += rng.integers(0, modulus, out.size).astype(out.dtype).reshape(out.shape)
        out %= modulus

    monkeypatch.setattr(noise, "randomized_response", wrong, raising=False)
    assert "laws: randomized response, epsilon 1, modulus 2" in failures("laws: randomized")


@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_sketch_without_noise_at_creation_is_refused(unit: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(profile, "add_noise", lambda spec, state, epsilon, progress=None: None)
    assert f"bounds: bare state, {unit}" in failures(f"bounds: bare state, {unit}")


@pytest.mark.statistics
def test_a_release_that_noises_only_entries_that_are_not_empty_is_refused(monkeypatch: Patch) -> None:
    honest = profile.noised_counts

    def wrong(spec: Any, state: Any, cost: Fraction) -> Any:
        exact = profile.exact_counts(spec, state)
        return np.where(exact == 0, 0, honest(spec, state, cost))

    monkeypatch.setattr(profile, "noised_counts", wrong)
    found = failures("releases: event, bins", "releases: item, bins, closed", "bounds: release given the state, bins")
    assert "releases: empty entries, event, bins, closed" in found
    assert "releases: empty entries, item, bins, closed" in found
    assert "bounds: release given the state, bins" in found


def test_a_release_that_repeats_its_noise_is_refused(monkeypatch: Patch) -> None:
    honest, kept = profile.noised_counts, {}

    def wrong(spec: Any, state: Any, cost: Fraction) -> Any:
        exact = profile.exact_counts(spec, state)
        drawn = kept.setdefault(spec.fingerprint, honest(spec, state, cost) - exact)
        return exact + drawn

    monkeypatch.setattr(profile, "noised_counts", wrong)
    assert "releases: drawn afresh, event, cumulative, closed" in failures("releases: event, cumulative")


@pytest.mark.statistics
def test_a_release_of_bins_at_the_cost_of_thresholds_is_refused(monkeypatch: Patch) -> None:
    def wrong(spec: Any, state: Any, cost: Fraction) -> Any:
        counts = profile.exact_counts(spec, state)
        noise.discrete_laplace(counts, cost)
        return counts

    monkeypatch.setattr(profile, "noised_counts", wrong)
    found = failures("releases: item, bins", "bounds: release given the state, bins")
    assert "releases: every entry, item, bins, open" in found
    assert "bounds: release given the state, bins" in found


def test_linear_thresholds_are_refused(monkeypatch: Patch) -> None:
    def wrong(state: Any, edges: Any, form: str, modulus: int, bits: int) -> Any:
        if form != "cumulative":
            return honest(state, edges, form, modulus, bits)
        return (state[:, None].astype(np.int64) >= edges).sum(axis=0)

    honest = kernels.release_counts
    monkeypatch.setattr(kernels, "release_counts", wrong)
    found = failures("neighbours: histogram")
    assert found == {
        "neighbours: histogram, event, cumulative, closed",
        "neighbours: histogram, event, cumulative, open",
    }


def test_a_seal_without_the_promised_layer_is_refused(monkeypatch: Patch) -> None:
    honest, calls = profile.add_noise, []

    def wrong(spec: Any, state: Any, epsilon: Fraction, progress: Any = None) -> None:
        calls.append(1)
        if len(calls) % 2:  # the second layer of each sketch is left out
            honest(spec, state, epsilon)

    monkeypatch.setattr(profile, "add_noise", wrong)
    found = failures("bounds: look, then fresh layer, item", "bounds: look, then fresh layer, event after")
    assert len(found) == 2


def test_a_seal_that_leaves_the_sketch_open_is_refused(monkeypatch: Patch) -> None:
    honest = sketches.Sketch.seal

    def wrong(self: Any) -> Any:
        held = self._content._replace(state=self._state.copy())
        sealed = honest(self)
        self._content = held
        return sealed

    monkeypatch.setattr(sketches.Sketch, "seal", wrong)
    assert "seals: event, cumulative, closed" in failures("seals: event, cumulative, closed")


def with_apply(change: Callable[..., Any]) -> Callable[..., Any]:
    """`Index.batch` with something around the `apply` of its batches."""
    honest = Index.batch

    def batch(self: Any, state: Any, items: Any, weights: Any = None, **rest: Any) -> Any:
        def within(*args: Any, **more: Any) -> None:
            honest(self, *args, **{**rest, **more}).apply()

        return SimpleNamespace(apply=lambda: change(within, state, items, weights))

    return batch


def test_counters_that_saturate_are_refused(monkeypatch: Patch) -> None:
    def saturate(apply: Callable[..., None], state: Any, items: Any, weights: Any) -> None:
        wide = state.astype(np.int64)
        apply(wide, items, weights)
        state[:] = np.clip(wide, -(1 << 31), (1 << 31) - 1)

    monkeypatch.setattr(Index, "batch", with_apply(saturate))
    assert failures("neighbours: wrapped") == {"neighbours: wrapped counters"}


def test_updates_that_refuse_whole_batches_are_refused(monkeypatch: Patch) -> None:
    from sketchstream.errors import ItemError

    def whole(apply: Callable[..., None], state: Any, items: Any, weights: Any) -> None:
        try:
            apply(state, items, weights, invalid="error")
        except ItemError:
            return

    monkeypatch.setattr(Index, "batch", with_apply(whole))
    assert "neighbours: event, cumulative, closed" in failures("neighbours: event, cumulative, closed")


def test_updates_that_touch_two_slots_are_refused(monkeypatch: Patch) -> None:
    def twice(apply: Callable[..., None], state: Any, items: Any, weights: Any) -> None:
        mirrored = state[::-1].copy()
        apply(mirrored, items, weights)
        apply(state, items, weights)
        state += mirrored[::-1]
        state %= 16

    monkeypatch.setattr(Index, "batch", with_apply(twice))
    assert "neighbours: item, bins, closed" in failures("neighbours: item, bins, closed")


def test_a_ledger_that_takes_the_maximum_for_items_is_refused(monkeypatch: Patch) -> None:
    def largest(history: Any, **rest: Any) -> Any:
        return max(gap.loss for gap in ledger.event_losses(history, **rest))

    from sketchstream.privacy.losses import looks

    monkeypatch.setattr(looks, "item_loss", largest)
    monkeypatch.setattr(audit, "item_loss", largest)
    assert failures("ledger: items", "bounds: look, then fresh layer, item") == {
        "ledger: claim against exact loss",
        "bounds: look, then fresh layer, item",
    }


@pytest.mark.statistics
def test_a_ledger_that_forgets_releases_is_refused(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ledger.Ledger, "charge_release", lambda self, cost: self)
    assert len(failures("bounds: early release, then bare state, item")) == 1


def test_a_check_that_breaks_has_failed(monkeypatch: Patch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        msg = "no"
        raise RuntimeError(msg)

    monkeypatch.setattr(profile, "exact_counts", broken)
    report = audit.run(quick=True, only=("releases: item, bins, closed",))
    assert not report.passed
    assert report.findings[0].found == "RuntimeError: no"
    assert "1 FAILED" in str(report)


def test_unknown_checks_are_refused() -> None:
    with pytest.raises(ValueError, match="no check is called nonsense"):
        audit.run(only=("nonsense",))
