"""Broken builds of what all kinds have in common: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one promise broken. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.verify import verify
from sketchstream import kinds, noise
from sketchstream.components import Component, Counters, Noise
from sketchstream.kinds.profile import groups, mechanism, patterns
from sketchstream.kinds.profile.ranking import Ranking
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.projection import mechanism as projection
from sketchstream.kinds.projection.secret import SecretLedger
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.strategy import Strategy
from sketchstream.noise.entropy import Keystream
from sketchstream.privacy.deployments import deployment
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.losses import gaussian
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN
from sketchstream.stream.state.window_lifecycle import WindowLifecycle
from sketchstream.stream.state.window_sketch import WindowSketch

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics
CASES = (
    ("sketches", "event, weights to 5"),
    ("sketches", "item, bare state"),
    ("sketches", "item, joint presence"),
    ("gaussian", "event"),
    ("workload", "event, prefixes"),
    ("workload", "event, laplace, ranges"),
    ("convolution", "gaussian, time"),
    ("convolution", "laplace, fourier"),
    ("projection", "total, srht"),
)
"""Kinds and cases on which the mutants of all kinds are tried."""


# Noise that slots, sketches, groups and windows share, or lack.


def _changed(patch: Patch, change: Callable[[Any, Any], None], *kind_names: str) -> None:
    """Let `change(spec, layer)` alter what the kinds draw for a state."""
    for name in kind_names or kinds.names():
        kind: Any = type(kinds.by_name(name))
        honest = kind.draw

        def draw(self: Any, spec: Any, state: Any, cost: Any, progress: Any = None, honest: Any = honest) -> None:
            fresh = np.zeros_like(state)
            honest(self, spec, fresh, cost, progress)
            change(spec, fresh)
            if getattr(spec, "modulus", None) is None:
                state += fresh
            else:
                state[:] = (state.astype(np.int64) + fresh) % spec.modulus

        patch.setattr(kind, "draw", draw)


def a_few_slots_without_noise(patch: Patch) -> None:
    _changed(patch, lambda spec, fresh: fresh[-64:].fill(0) if fresh.size >= 50_000 else None)


def one_slot_without_noise(patch: Patch) -> None:
    _changed(patch, lambda spec, fresh: fresh[:1].fill(0))


def noise_that_pairs_of_slots_share(patch: Patch) -> None:
    def change(spec: Any, fresh: Any) -> None:
        fresh[1::2] = fresh[: fresh.size // 2 * 2 : 2]

    _changed(patch, change)


def noise_of_opposite_sign_in_two_slots(patch: Patch) -> None:
    def change(spec: Any, fresh: Any) -> None:
        modulus = getattr(spec, "modulus", None)
        fresh[-1] = -fresh[0] if modulus is None else -fresh[0] % modulus

    _changed(patch, change)


def creation_noise_that_sketches_share(patch: Patch) -> None:
    kept: dict[Any, Any] = {}

    def change(spec: Any, fresh: Any) -> None:
        fresh[:] = kept.setdefault((spec.fingerprint, fresh.size), fresh.copy())

    _changed(patch, change)


def a_half_of_the_noise_that_sketches_share(patch: Patch) -> None:
    kept: dict[Any, Any] = {}

    def change(spec: Any, fresh: Any) -> None:
        half = fresh.size // 2
        fresh[:half] = kept.setdefault((spec.fingerprint, fresh.size), fresh[:half].copy())

    _changed(patch, change)


def noise_that_all_groups_share(patch: Patch) -> None:
    def change(spec: Any, fresh: Any) -> None:
        if spec.groups is not None:
            blocks = fresh.reshape(len(spec.groups.names), -1)
            blocks[:] = blocks[0]

    _changed(patch, change, "profile")


def noise_that_windows_share(patch: Patch) -> None:
    honest: Any = WindowLifecycle.opening
    kept: dict[Any, Any] = {}

    def opened(self: Any, *rest: Any) -> Any:
        new = yield from honest(self, *rest)
        if new is not None:
            state = new.sketch._content.state
            state[:] = kept.setdefault((new.sketch.spec.fingerprint, state.size), state.copy())
        return new

    patch.setattr(WindowLifecycle, "opening", opened)


def one_constant_key(patch: Patch) -> None:
    patch.setattr("sketchstream.noise.entropy.fresh_key", lambda: bytearray(32))
    honest: Any = Keystream._rekey
    patch.setattr(Keystream, "_rekey", lambda self: honest(self))


# Sensitivities, groups.


def a_ranking_that_is_not_enforced(patch: Patch) -> None:
    patch.setattr(Ranking, "first", lambda self, kind, part, codes, hashes: codes)


def slots_whose_noise_forgets_the_groups(patch: Patch) -> None:
    def effective(spec: Any, epsilon: Fraction) -> Fraction:
        return epsilon * spec.slots_share / spec.max_weight

    patch.setattr(mechanism, "effective_epsilon", effective)


def histograms_whose_noise_forgets_the_groups(patch: Patch) -> None:
    honest = mechanism.add_view_noise

    def add(spec: Any, counts: Any, cost: Fraction) -> None:
        honest(spec, counts, cost * spec.group_losses)

    patch.setattr(mechanism, "add_view_noise", add)


def an_exact_histogram_of_groups(patch: Patch) -> None:
    honest = mechanism.add_view_noise
    patch.setattr(
        mechanism,
        "add_view_noise",
        lambda spec, counts, cost: None if spec.groups is not None else honest(spec, counts, cost),
    )


def _patterns(patch: Patch, noised: Callable[[Any, Any, Any], Any]) -> None:
    patch.setattr(mechanism, "noised_patterns", noised)


def patterns_with_half_the_noise(patch: Patch) -> None:
    honest = mechanism.noised_patterns
    _patterns(patch, lambda spec, state, cost: honest(spec, state, 2 * cost))


def patterns_without_noise_in_empty_cells(patch: Patch) -> None:
    honest = mechanism.noised_patterns

    def noised(spec: Any, state: Any, cost: Any) -> Any:
        exact = patterns.exact_patterns(spec, state)
        return np.where(exact == 0, 0, honest(spec, state, cost))

    _patterns(patch, noised)


def patterns_whose_cost_is_divided_by_the_groups(patch: Patch) -> None:
    honest: Any = ProfileSpec.pattern_cost

    def divided(spec: Any) -> Any:
        return honest.fget(spec) / spec.group_losses

    patch.setattr(ProfileSpec, "pattern_cost", property(divided))


def presence_with_twice_the_parameter(patch: Patch) -> None:
    """The noise of counts, for a promise of presence."""
    honest = mechanism.response_epsilon
    patch.setattr(mechanism, "response_epsilon", lambda *given: 2 * honest(*given))


def a_residue_that_is_always_one(patch: Patch) -> None:
    patch.setattr(groups, "residues", lambda events, modulus: np.ones(events, np.int64))


def residues_that_events_share(patch: Patch) -> None:
    honest = groups.residues
    kept: dict[Any, Any] = {}
    patch.setattr(
        groups, "residues", lambda events, modulus: kept.setdefault((events, modulus), honest(events, modulus)).copy()
    )


def joint_noise_that_each_group_has_by_itself(patch: Patch) -> None:
    """As if each group's counters paid epsilon, which an item pays once for all of them."""

    def drawn(out: Any, modulus: int, epsilon: Fraction, *rest: Any) -> None:
        for row in out:
            noise.randomized_response(row, modulus, epsilon, *rest)

    patch.setattr(noise, "joint_response", drawn)


def joint_noise_without_the_last_group(patch: Patch) -> None:
    honest = noise.joint_response
    patch.setattr(noise, "joint_response", lambda out, *given: honest(out[:-1], *given))


def a_strategy_of_smaller_norm(patch: Patch) -> None:
    honest: Any = Strategy.sensitivity2
    patch.setattr(Strategy, "sensitivity2", property(lambda self: honest.fget(self) * 81 // 100))


def specs_that_cannot_be_made(patch: Patch) -> None:
    def calibrated(*_: Any, **__: Any) -> Any:
        msg = "broken"
        raise ValueError(msg)

    patch.setattr(WorkloadSpec, "__init__", calibrated)


def a_matrix_of_smaller_norm(patch: Patch) -> None:
    honest: Any = projection.sigma2
    patch.setattr(projection, "sigma2", lambda *given: honest(*given) * Fraction(81, 100))
    honest_created: Any = projection.creation_sigma2
    patch.setattr(projection, "creation_sigma2", lambda spec: honest_created(spec) * Fraction(81, 100))


def a_row_of_the_matrix_that_is_doubled(patch: Patch) -> None:
    honest = projection.apply

    def apply(spec: Any, matrix: Any, cells: Any, users: Any, features: Any, amounts: Any, counters: Any) -> None:
        honest(spec, matrix, cells, users, features, np.where(features == 1, 2 * amounts, amounts), counters)

    patch.setattr(projection, "apply", apply)


def gaussian_noise_that_is_smaller(patch: Patch) -> None:
    honest = noise.discrete_gaussian

    def smaller(out: Any, sigma2: Fraction, *rest: Any) -> None:
        honest(out, sigma2 * Fraction(81, 100), *rest)

    patch.setattr(noise, "discrete_gaussian", smaller)


def gaussian_noise_that_is_slightly_smaller(patch: Patch) -> None:
    """A sigma that is 1% too small."""
    honest = noise.discrete_gaussian

    def smaller(out: Any, sigma2: Fraction, *rest: Any) -> None:
        honest(out, sigma2 * Fraction(99**2, 100**2), *rest)

    patch.setattr(noise, "discrete_gaussian", smaller)


# Ledgers.


def _charges(patch: Patch, ledger: Any, factor: Fraction) -> None:
    honest = ledger.charge_release
    patch.setattr(
        ledger, "charge_release", lambda self, cost: honest(self, cost * factor) if factor else self, raising=True
    )


def releases_that_charge_nothing(patch: Patch) -> None:
    _charges(patch, Ledger, Fraction(0))
    _charges(patch, GaussianLedger, Fraction(0))


def releases_that_charge_a_tenth(patch: Patch) -> None:
    _charges(patch, Ledger, Fraction(1, 10))
    _charges(patch, GaussianLedger, Fraction(1, 10))


def layers_that_charge_a_half(patch: Patch) -> None:
    honest = kinds.layer_entry
    patch.setattr(kinds, "layer_entry", lambda spec, lineage, cost: honest(spec, lineage, cost / 2))


def refreshes_that_forget_the_look(patch: Patch) -> None:
    patch.setattr(GaussianLedger, "record_look", lambda self: self)
    patch.setattr(Ledger, "record_look", lambda self: self)


def instalments_that_charge_nothing(patch: Patch) -> None:
    honest: Any = WindowSketch.close_positions

    def close(self: Any, first: int, stop: int) -> Any:
        return replace(honest(self, first, stop), ledger=self.ledger.published())

    patch.setattr(WindowSketch, "close_positions", close)


def copies_that_cost_nothing(patch: Patch) -> None:
    patch.setattr(deployment, "families", lambda published, positions=(): [
        [one] for family in _families(published, positions) for one in family[:1]
    ])  # fmt: skip


_families = deployment.families


def copies_without_a_loss(patch: Patch) -> None:
    patch.setattr(deployment, "copied_loss", lambda histories: Fraction(0))


def copies_of_a_series_whose_positions_are_not_compared(patch: Patch) -> None:
    honest: Any = deployment.families
    patch.setattr(deployment, "families", lambda named, positions=(): honest(named))


def a_series_of_which_only_the_seal_is_compared(patch: Patch) -> None:
    honest: Any = deployment.families

    def families(named: Any, positions: Any) -> Any:
        last = [None if one is None or one.stop < 60 else one for one in positions]
        return honest(named, last)

    patch.setattr(deployment, "families", families)


def copies_of_a_secret_matrix_that_cost_their_mean(patch: Patch) -> None:
    patch.delattr(SecretLedger, "of_copies")


def copies_that_cost_twice(patch: Patch) -> None:
    honest = deployment.copied_loss
    patch.setattr(deployment, "copied_loss", lambda histories: 2 * honest(histories))


def a_look_that_costs_nothing_in_mu2(patch: Patch) -> None:
    honest: Any = gaussian.worst_loss_with_look

    def quiet(history: Any, *, unit: str, measure: Any, since: int = 0) -> Any:
        del since
        return gaussian.worst_loss(history, unit=unit, measure=measure)

    assert honest
    patch.setattr(gaussian, "worst_loss_with_look", quiet)


def a_lattice_that_is_ignored(patch: Patch) -> None:
    patch.setattr(gaussian, "_kappa", lambda *_, **__: 0.0)


def windows_of_a_series_that_do_not_add(patch: Patch) -> None:
    patch.setattr(deployment, "sweep", lambda steps: max((loss for _, _, loss in steps), default=Fraction(0)))


def windows_that_an_item_pays_once(patch: Patch) -> None:
    def item_total(self: Any, records: Any, loss: Any) -> Any:
        return max((lost for _, lost in self._item_windows(records, loss)), default=Fraction(0))

    patch.setattr(Deployment, "_item_total", item_total)


# Counters.


def _drawn(patch: Patch, change: Callable[[Component, Fraction, int], int]) -> None:
    honest: Any = Counters._drawn

    def drawn(component: Component, parameter: Fraction) -> tuple[Noise, int]:
        law, number = honest(component, parameter)
        return law, change(component, parameter, number)

    patch.setattr(Counters, "_drawn", staticmethod(drawn))


def counters_with_half_the_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, parameter, number: number // 2)


def counters_with_half_the_variance(patch: Patch) -> None:
    honest: Any = Component.parameter

    def parameter(self: Any, cost: Fraction) -> Fraction:
        right: Fraction = honest(self, cost)
        return right / 2 if self.law == DISCRETE_GAUSSIAN else right

    patch.setattr(Component, "parameter", parameter)


def counters_with_twice_the_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, parameter, number: number * 2)


def gaussian_counters_without_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, _, number: 0 if component.law == DISCRETE_GAUSSIAN else number)


def records_admitted_without_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, _, number: 0 if component.own_cost is not None else number)


def totals_of_groups_without_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, _, number: 0 if "." in component.name else number)


def totals_of_large_bounds_without_noise(patch: Patch) -> None:
    _drawn(patch, lambda component, _, number: 0 if component.sensitivity > 10 else number)


def counters_that_share_their_noise(patch: Patch) -> None:
    kept: list[int] = []

    def change(component: Component, _: Fraction, number: int) -> int:
        if component.name == "counted" and kept:
            return kept[-1]
        kept.append(number)
        return number

    _drawn(patch, change)


def a_merge_that_forgets_the_counters_of_a_part(patch: Patch) -> None:
    patch.setattr(Counters, "merge", classmethod(lambda cls, parts: parts[0]))


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (a_few_slots_without_noise, "sketches: slots, event, closed"),
    (a_few_slots_without_noise, "sketches: slots, item, bare state"),
    *((one_slot_without_noise, f"{kind}: slots, {case}") for kind, case in CASES),
    *((noise_that_pairs_of_slots_share, f"{kind}: slots, {case}") for kind, case in CASES),
    *((noise_of_opposite_sign_in_two_slots, f"{kind}: slots, {case}") for kind, case in CASES),
    *((creation_noise_that_sketches_share, f"{kind}: slots, {case}") for kind, case in CASES),
    *((a_half_of_the_noise_that_sketches_share, f"{kind}: slots, {case}") for kind, case in CASES),
    (noise_that_all_groups_share, "sketches: slots, item, groups to 2"),
    (noise_that_windows_share, "sketches: worker, event, state"),
    (noise_that_windows_share, "gaussian: worker, event"),
    (noise_that_windows_share, "convolution: worker, counts"),
    (noise_that_windows_share, "projection: worker"),
    (noise_that_windows_share, "workload: worker"),
    (one_constant_key, "sketches: slots, event, open"),
    (a_ranking_that_is_not_enforced, "sketches: groups, item, ranked groups"),
    (slots_whose_noise_forgets_the_groups, "sketches: create, item, groups to 2"),
    (histograms_whose_noise_forgets_the_groups, "sketches: release, item, groups to 2"),
    (histograms_whose_noise_forgets_the_groups, "sketches: seal, item, ranked groups"),
    (an_exact_histogram_of_groups, "sketches: seal, event, groups"),
    (patterns_with_half_the_noise, "sketches: seal, item, overlap"),
    (patterns_without_noise_in_empty_cells, "sketches: seal, item, overlap"),
    (patterns_whose_cost_is_divided_by_the_groups, "sketches: ledger, item, overlap"),
    (presence_with_twice_the_parameter, "sketches: create, item, presence"),
    (presence_with_twice_the_parameter, "sketches: create, item, joint presence"),
    (a_residue_that_is_always_one, "sketches: residues, item, presence"),
    (residues_that_events_share, "sketches: residues, item, joint presence"),
    (joint_noise_that_each_group_has_by_itself, "sketches: create, item, joint"),
    (joint_noise_without_the_last_group, "sketches: slots, item, joint presence"),
    (a_strategy_of_smaller_norm, "workload: create, event, prefixes"),
    (specs_that_cannot_be_made, "workload: create, event, prefixes"),
    (a_matrix_of_smaller_norm, "projection: ledger, norm, gaussian"),
    (a_row_of_the_matrix_that_is_doubled, "projection: matrix, event, gaussian"),
    (gaussian_noise_that_is_smaller, "gaussian: create, event"),
    (gaussian_noise_that_is_slightly_smaller, "gaussian: create, event"),
    *((releases_that_charge_nothing, f"{kind}: ledger, {case}") for kind, case in CASES),
    *((releases_that_charge_a_tenth, f"{kind}: ledger, {case}") for kind, case in CASES),
    *((layers_that_charge_a_half, f"{kind}: ledger, {case}") for kind, case in CASES),
    *((refreshes_that_forget_the_look, f"{kind}: ledger, {case}") for kind, case in CASES),
    (instalments_that_charge_nothing, "convolution: closed, gaussian, closed"),
    (instalments_that_charge_nothing, "convolution: closed, counts, closed"),
    *((copies_that_cost_nothing, f"{kind}: copies, {case}") for kind, case in CASES),
    *((copies_without_a_loss, f"{kind}: copies, {case}") for kind, case in CASES),
    (copies_of_a_series_whose_positions_are_not_compared, "convolution: copied series, gaussian, closed"),
    (copies_of_a_series_whose_positions_are_not_compared, "convolution: copied series, counts, closed"),
    (a_series_of_which_only_the_seal_is_compared, "convolution: copied series, counts, closed"),
    (copies_of_a_secret_matrix_that_cost_their_mean, "projection: copies, secret, gaussian"),
    (copies_that_cost_twice, "gaussian: copies, event"),
    (copies_that_cost_twice, "sketches: copies, item, open"),
    (a_look_that_costs_nothing_in_mu2, "gaussian: ledger, event"),
    (a_look_that_costs_nothing_in_mu2, "workload: ledger, event, prefixes"),
    (a_look_that_costs_nothing_in_mu2, "projection: ledger, event, gaussian"),
    (a_lattice_that_is_ignored, "ledger: Gaussian noise on the integers"),
    *((windows_of_a_series_that_do_not_add, f"{kind}: deployment, {case}") for kind, case in CASES),
    (windows_that_an_item_pays_once, "sketches: deployment, item, closed"),
    (windows_that_an_item_pays_once, "gaussian: deployment, item, one slot"),
    (windows_of_a_series_that_do_not_add, "sketches: deployment, event, closed"),
    *((counters_with_half_the_noise, f"{check}") for check in (
        "sketches: counters, event, closed", "gaussian: counters, event, counted", "workload: counters, event, counted",
        "projection: counters, event, counted", "convolution: counters, gaussian, counted",
    )),
    (counters_with_half_the_variance, "gaussian: counters, item, total"),
    (counters_with_half_the_variance, "convolution: counters, gaussian, counted"),
    (counters_with_twice_the_noise, "sketches: counters, event, counted"),
    (gaussian_counters_without_noise, "gaussian: counters, event, counted"),
    (gaussian_counters_without_noise, "workload: counters, event, counted"),
    (gaussian_counters_without_noise, "projection: counters, event, counted"),
    (records_admitted_without_noise, "sketches: counters, event, counted"),
    (records_admitted_without_noise, "sketches: worker, event, state"),
    (records_admitted_without_noise, "gaussian: counters, event, counted"),
    (totals_of_groups_without_noise, "sketches: counters, event, groups"),
    (totals_of_large_bounds_without_noise, "sketches: counters, event, large weights"),
    (totals_of_large_bounds_without_noise, "sketches: counters, item, total"),
    (counters_that_share_their_noise, "sketches: counters, event, weights to 5"),
    (a_merge_that_forgets_the_counters_of_a_part, "sketches: merge, event, bare state"),
    (a_merge_that_forgets_the_counters_of_a_part, "gaussian: merge, event, counted"),
]  # fmt: skip
"""Each broken build and a check that must refuse it."""


def _params() -> Iterator[Any]:
    """Each mutant once in the suite, and on its other checks among the slow tests."""
    tried: set[Any] = set()
    for break_it, check in MUTANTS:
        slow = [pytest.mark.slow] if break_it in tried else []
        tried.add(break_it)
        yield pytest.param(break_it, check, id=f"{break_it.__name__}: {check}", marks=slow)


@pytest.mark.parametrize(("break_it", "check"), list(_params()))
def test_the_command_refuses_a_broken_build(
    break_it: Callable[[Patch], None], check: str, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(monkeypatch)
    code, findings = verify(capsys, check)
    assert code == 1
    assert [one for one in findings if not one["passed"]]
