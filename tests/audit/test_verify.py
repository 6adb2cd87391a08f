"""Broken builds against the command: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one promise of docs/guarantee.md broken in a method that users call. Out: verdicts. Touches:
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.verify import verify
from sketchstream import kinds, noise
from sketchstream import sketch as sketches
from sketchstream.audit import observed
from sketchstream.cli.app import run
from sketchstream.components import Counters
from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.kind import ProfileKind
from sketchstream.noise import laws
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.sketch import Sketch
from sketchstream.spec import OpenDomain
from sketchstream.stream.state.window_lifecycle import WindowLifecycle
from sketchstream.stream.state.window_sketch import WindowSketch

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics


# The mutants: each breaks one promise and nothing else.


def no_noise_at_creation_in_open_domains(patch: Patch) -> None:
    honest = WindowSketch.create

    def create(spec: Any, *rest: Any, **more: Any) -> Any:
        made = honest(spec, *rest, **more)
        if isinstance(spec.domain, OpenDomain):
            made._content.state.fill(0)  # type: ignore[union-attr]
        return made

    patch.setattr(Sketch, "create", create)


def a_seal_that_publishes_the_exact_histogram(patch: Patch) -> None:
    honest: Any = Sketch.seal

    def seal(self: Any) -> Any:
        exact = mechanism.exact_counts(self.spec, self._state)
        return replace(honest(self), noised=exact)

    patch.setattr(Sketch, "seal", seal)


def noise_that_forgets_the_largest_weight(patch: Patch) -> None:
    patch.setattr(mechanism, "effective_epsilon", lambda spec, epsilon: epsilon * spec.slots_share)


def a_release_that_charges_nothing(patch: Patch) -> None:
    patch.setattr(Ledger, "charge_release", lambda self, cost: self)


def a_refresh_that_adds_nothing(patch: Patch) -> None:
    for module in (kinds, sketches):
        patch.setattr(module, "with_noise", lambda spec, state, cost: state.copy())


def a_refresh_that_forgets_the_look(patch: Patch) -> None:
    patch.setattr(Ledger, "record_look", lambda self: self)


def a_release_with_noise_of_twice_its_cost(patch: Patch) -> None:
    honest = mechanism.noised_counts
    patch.setattr(mechanism, "noised_counts", lambda spec, state, cost: honest(spec, state, 2 * cost))


def a_release_that_repeats_its_noise(patch: Patch) -> None:
    honest = mechanism.noised_counts
    kept: dict[Any, Any] = {}

    def noised(spec: Any, state: Any, cost: Fraction) -> Any:
        exact = mechanism.exact_counts(spec, state)
        return exact + kept.setdefault((spec.fingerprint, cost), honest(spec, state, cost) - exact)

    patch.setattr(mechanism, "noised_counts", noised)


def a_seal_that_is_not_charged(patch: Patch) -> None:
    def charge(self: Ledger, *_: object) -> Ledger:
        return replace(self, history=self.history.sealed_by())

    patch.setattr(Ledger, "charge_publication", charge)


def a_merge_that_forgets_a_layer(patch: Patch) -> None:
    honest = sketches._merge_open

    def merge(given: Any) -> Any:
        made = honest(given)
        made._content = made._content._replace(layers=made.layers[:-1])
        return made

    patch.setattr(sketches, "_merge_open", merge)


def a_merge_that_takes_the_larger(patch: Patch) -> None:
    patch.setattr(ProfileKind, "add", lambda self, spec, states: np.maximum(states[0], states[1]))


def a_total_without_noise(patch: Patch) -> None:
    honest: Any = Counters._drawn
    patch.setattr(Counters, "_drawn", staticmethod(lambda one, epsilon: (honest(one, epsilon)[0], 0)))


def a_worker_whose_windows_begin_without_noise(patch: Patch) -> None:
    honest: Any = WindowLifecycle.opening

    def opened(self: Any, *rest: Any) -> Any:
        new = yield from honest(self, *rest)
        if new is not None:
            new.sketch._content.state.fill(0)
        return new

    patch.setattr(WindowLifecycle, "opening", opened)


def a_worker_that_publishes_exact_histograms(patch: Patch) -> None:
    honest: Any = WindowLifecycle.seal

    def seal(self: Any, *rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            a_seal_that_publishes_the_exact_histogram(inner)
            return honest(self, *rest)

    patch.setattr(WindowLifecycle, "seal", seal)


def a_seal_that_leaves_the_sketch_open(patch: Patch) -> None:
    honest: Any = Sketch.seal

    def seal(self: Any) -> Any:
        held = self._content._replace(state=self._state.copy())
        sealed = honest(self)
        self._content = held
        return sealed

    patch.setattr(Sketch, "seal", seal)


MUTANTS: dict[Callable[[Patch], None], str] = {
    no_noise_at_creation_in_open_domains: "sketches: create, event, open",
    a_seal_that_publishes_the_exact_histogram: "sketches: seal, event, open",
    noise_that_forgets_the_largest_weight: "sketches: create, event, weights to 5",
    a_release_that_charges_nothing: "sketches: ledger, event, closed",
    a_refresh_that_adds_nothing: "sketches: refresh, item, open",
    a_refresh_that_forgets_the_look: "sketches: ledger, item, closed",
    a_release_with_noise_of_twice_its_cost: "sketches: release, event, open",
    a_release_that_repeats_its_noise: "sketches: release, event, closed",
    a_seal_that_is_not_charged: "sketches: ledger, event, fresh state",
    a_merge_that_forgets_a_layer: "sketches: merge, item, bare state",
    a_merge_that_takes_the_larger: "sketches: merge, event, bare state",
    a_total_without_noise: "sketches: counters, event, closed",
    a_worker_whose_windows_begin_without_noise: "sketches: worker, event, state",
    a_worker_that_publishes_exact_histograms: "sketches: worker, event, histogram",
    a_seal_that_leaves_the_sketch_open: "seals: event, cumulative, closed",
}
"""Each broken build and the check that must refuse it."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_command_refuses_a_broken_build(
    mutant: Callable[[Patch], None], monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant(monkeypatch)
    code, found = verify(capsys, MUTANTS[mutant])
    assert code == 1
    assert any(not finding["passed"] for finding in found)


def test_the_command_passes_the_product_on_the_same_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verify(capsys, *MUTANTS.values())
    assert code == 0, [finding for finding in found if not finding["passed"]]
    assert {f"{one['section']}: {one['name']}" for one in found} >= set(MUTANTS.values())
    assert all(finding["power"] for finding in found)


def test_unknown_checks_are_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--only", "nonsense"]) == 2
    assert "no check is called nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    "law",
    [laws.DiscreteLaplace(Fraction(1)), laws.DiscreteLaplace(Fraction(1, 7)), laws.RandomizedResponse(16, Fraction(1))],
)
def test_what_a_line_says_it_would_find_is_found(law: Any) -> None:
    n = 100_000
    wrong = law.epsilon * (1 + Fraction(observed.resolution(law, n)).limit_denominator(10**6))
    for _ in range(5):
        out = np.zeros(n, np.int16 if isinstance(law, laws.RandomizedResponse) else np.int64)
        if isinstance(law, laws.RandomizedResponse):
            noise.randomized_response(out, law.modulus, wrong)
        else:
            noise.discrete_laplace(out, wrong)
        assert not observed.judge(out.astype(np.int64), law)[0]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_check_of_sketches_against_every_broken_build(
    mutant: Callable[[Patch], None], monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which checks refuse it, for `make mutants`; the one that is named for it must be among them."""
    mutant(monkeypatch)
    code, found = verify(capsys, "sketches", "seals")
    refused = [f"{one['section']}: {one['name']}" for one in found if not one["passed"]]
    with capsys.disabled():
        print(f"\n{mutant.__name__}: {len(refused)} of {len(found)} checks")
    assert code == 1
    assert MUTANTS[mutant] in refused
