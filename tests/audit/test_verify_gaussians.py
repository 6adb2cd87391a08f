"""Broken builds of kind `gaussian` against the command: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one promise broken. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.verify import verify
from sketchstream import kinds
from sketchstream import sketch as sketches
from sketchstream.kinds.gaussian import kind
from sketchstream.kinds.gaussian.kind import GaussianAccounting
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics


# The mutants: each breaks one promise and nothing else.


def noise_of_half_the_variance(patch: Patch) -> None:
    honest = GaussianAccounting.parameter
    patch.setattr(GaussianAccounting, "parameter", lambda self, spec, cost: honest(self, spec, cost) / 2)


def noise_that_forgets_the_largest_weight(patch: Patch) -> None:
    patch.setattr(GaussianSpec, "largest_shape", property(lambda self: (1, 1, 0)))
    patch.setattr(GaussianSpec, "shapes", lambda self: [(1,)])


def a_sensitivity_of_one_slot(patch: Patch) -> None:
    patch.setattr(GaussianSpec, "sensitivity2", property(lambda self: self.largest_shape[0] ** 2))


def noise_that_is_not_added(patch: Patch) -> None:
    for module in (kinds, sketches):
        patch.setattr(module, "with_noise", lambda spec, state, cost: state.copy())


def a_seal_that_adds_noise_to_a_bare_state(patch: Patch) -> None:
    from sketchstream.sketch import Sketch

    honest: Any = Sketch.seal

    def seal(self: Any) -> Any:
        if not self.spec.intrusion:
            self._content.state[:] += 1
        return honest(self)

    patch.setattr(Sketch, "seal", seal)


def weights_that_are_cut_to_the_largest(patch: Patch) -> None:
    honest = kind.lattice_weights

    def cut(spec: Any, weights: Any, n: int, *, alone: bool) -> Any:
        return np.minimum(np.asarray(honest(spec, weights, n, alone=alone)), spec.lattice.most)

    patch.setattr(kind, "lattice_weights", cut)


def errors_of_one_layer(patch: Patch) -> None:
    honest = kind.parts_of

    def parts_of(of: Any, published: Any) -> list[Any]:
        return [dataclasses.replace(part, layers=part.layers[:1], fresh=()) for part in honest(of, published)]

    patch.setattr(kind, "parts_of", parts_of)


def a_release_that_charges_nothing(patch: Patch) -> None:
    patch.setattr(GaussianLedger, "charge_release", lambda self, cost: self)


def a_merge_that_takes_the_larger(patch: Patch) -> None:
    patch.setattr(kinds, "add_states", lambda spec, states: np.maximum(states[0], states[1]))


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (noise_of_half_the_variance, "gaussian: create, event"),
    (noise_of_half_the_variance, "gaussian: seal, item, one slot"),
    (noise_of_half_the_variance, "gaussian: release, event, bare state"),
    (noise_of_half_the_variance, "gaussian: plainest unit, event, no total"),
    (noise_that_forgets_the_largest_weight, "gaussian: create, event, bare state"),
    (a_sensitivity_of_one_slot, "gaussian: create, item, several slots"),
    (a_sensitivity_of_one_slot, "gaussian: plainest unit, item, several slots"),
    (noise_that_is_not_added, "gaussian: release, item, several slots"),
    (noise_that_is_not_added, "gaussian: seal, event, no total"),
    (a_seal_that_adds_noise_to_a_bare_state, "gaussian: seal, event, bare state"),
    (weights_that_are_cut_to_the_largest, "gaussian: weights, event, no total"),
    (errors_of_one_layer, "gaussian: answers, event, no total"),
    (a_release_that_charges_nothing, "gaussian: ledger, item, one slot"),
    (a_merge_that_takes_the_larger, "gaussian: merge, event"),
]


@pytest.mark.parametrize(
    ("break_it", "check"), [pytest.param(one, what, id=f"{one.__name__}: {what}") for one, what in MUTANTS]
)
def test_broken_builds_are_refused(
    break_it: Callable[[Patch], None], check: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        code, findings = verify(capsys, check)
        assert code == 1
        assert any(not finding["passed"] for finding in findings), findings
        assert not any("Error" in finding["found"] for finding in findings), findings


def test_the_command_passes_the_product_on_all_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = verify(capsys, "gaussian")
    assert code == 0, findings
    assert len(findings) >= 5 * 7 + 1
    assert {what for _, what in MUTANTS} <= {f"gaussian: {finding['name']}" for finding in findings}
