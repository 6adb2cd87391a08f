"""Broken builds of kind `workload` against the command: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one promise broken. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.verify import verify
from sketchstream import kinds
from sketchstream import sketch as sketches
from sketchstream.items.lattice import Lattice
from sketchstream.kinds.linear import events
from sketchstream.kinds.workload import kind, spec
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.strategy import Strategy
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics


# The mutants: each breaks one promise and nothing else.


def noise_of_half_the_variance(patch: Patch) -> None:
    honest = spec.layer_law

    def law(*given: Any) -> Any:
        found = honest(*given)
        return replace(found, parameter=found.parameter / (2 if found.name == "discrete-gaussian" else 1))

    patch.setattr(spec, "layer_law", law)


def laplace_noise_of_twice_the_epsilon(patch: Patch) -> None:
    honest = WorkloadSpec.law

    def law(self: WorkloadSpec, *given: Any) -> Any:
        found = honest(self, *given)
        return replace(found, parameter=found.parameter * (1 if found.name == "discrete-gaussian" else 4))

    patch.setattr(WorkloadSpec, "law", law)


def noise_that_forgets_the_largest_weight(patch: Patch) -> None:
    patch.setattr(WorkloadSpec, "weight", property(lambda self: 1))


def a_sensitivity_of_the_mean_column(patch: Patch) -> None:
    def mean(self: Strategy) -> int:
        return int(np.mean(np.sum(self.matrix.astype(np.float64) ** 2, axis=0)))

    patch.setattr(Strategy, "sensitivity2", property(mean))


def noise_that_is_not_added(patch: Patch) -> None:
    for module in (kinds, sketches):
        patch.setattr(module, "with_noise", lambda spec, state, cost: state.copy())


def an_update_that_takes_any_weight(patch: Patch) -> None:
    patch.setattr(events.ColumnIndex, "lattice", Lattice(0, Fraction(1 << 40)))


def a_release_that_charges_nothing(patch: Patch) -> None:
    patch.setattr(GaussianLedger, "charge_release", lambda self, cost: self)


def errors_of_one_layer(patch: Patch) -> None:
    honest = kind.estimate
    patch.setattr(kind, "estimate", lambda spec, laws, state, **more: honest(spec, laws[:1], state, **more))


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (noise_of_half_the_variance, "workload: create, event, prefixes"),
    (noise_of_half_the_variance, "workload: release, event, matrix"),
    (noise_of_half_the_variance, "workload: ledger, item, ranges"),
    (laplace_noise_of_twice_the_epsilon, "workload: create, event, laplace, ranges"),
    (laplace_noise_of_twice_the_epsilon, "workload: seal, event, ball"),
    (noise_that_forgets_the_largest_weight, "workload: create, event, weights to 5, tables"),
    (a_sensitivity_of_the_mean_column, "workload: create, event, matrix"),
    (noise_that_is_not_added, "workload: seal, event, prefixes"),
    (noise_that_is_not_added, "workload: release, event, smallest maximum"),
    (an_update_that_takes_any_weight, "workload: events, event, weights to 5, tables"),
    (a_release_that_charges_nothing, "workload: ledger, event, prefixes"),
    (errors_of_one_layer, "workload: answers, item, ranges"),
]


SLOW_MUTANTS = [
    pytest.param(
        noise_that_forgets_the_largest_weight,
        "workload: plainest event, event, weights to 5, tables",
        marks=pytest.mark.slow,
        id="noise_that_forgets_the_largest_weight: plainest event",
    )
]


@pytest.mark.parametrize(
    ("break_it", "check"),
    [*(pytest.param(one, what, id=f"{one.__name__}: {what}") for one, what in MUTANTS), *SLOW_MUTANTS],
)
def test_broken_builds_are_refused(
    break_it: Callable[[Patch], None], check: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        code, findings = verify(capsys, check)
        assert code == 1
        assert all(not finding["passed"] for finding in findings), findings
        run = [finding for finding in findings if finding["name"] != "preparation"]  # or a spec cannot even be made
        assert not any("Error" in finding["found"] for finding in run), findings


def test_the_same_checks_pass_without_the_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = verify(capsys, *(check for _, check in MUTANTS))
    assert code == 0, findings
    assert len(findings) == len({check for _, check in MUTANTS})


def test_every_mechanism_unit_and_form_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = verify(capsys, "workload: events", "workload: answers", "workload: ledger", "workload: merge")
    assert code == 0
    assert len(findings) == 13 * 3 + 11
    assert {finding["section"] for finding in findings} == {"workload"}
