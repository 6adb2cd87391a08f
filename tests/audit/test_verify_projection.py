"""Broken builds of kind `projection` against the command: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one step of docs/theory/projection.md broken. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.verify import verify
from sketchstream import kinds, sketch
from sketchstream.audit.kinds import projection
from sketchstream.kinds.projection import calibration, kind, mechanism
from sketchstream.kinds.projection.kind import ProjectionAccounting
from sketchstream.kinds.projection.matrices.sensitivity import longest_row
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """Noise that was calibrated by a broken build is forgotten, and the other way round."""
    for remembered in (mechanism.sigma2, mechanism.unit_shift):
        remembered.cache_clear()
    yield
    for remembered in (mechanism.sigma2, mechanism.unit_shift):
        remembered.cache_clear()


def the_longest_row_for_the_largest_singular_value(patch: Patch) -> None:
    patch.setattr(mechanism, "spectral", longest_row)


def the_theorem_of_the_paper_for_a_public_matrix(patch: Patch) -> None:
    def sigma2(spec: Any, epsilon: Fraction, delta: Fraction) -> Fraction:
        scale = 10_000**2 * spec.k * spec.entry_variance
        return calibration.on_grid(Fraction(calibration.paper_theorem_1(epsilon, delta, spec.k)) ** 2 * scale)

    patch.setattr(mechanism, "sigma2", sigma2)


def bounds_that_forget_the_lattice(patch: Patch) -> None:
    patch.setattr(mechanism, "_units", lambda bound, spec: int(bound))


def a_secret_matrix_calibrated_as_if_it_kept_norms(patch: Patch) -> None:
    def sigma2(epsilon: Any, delta: Any, norm2: Fraction, k: int, entry_variance: int) -> Fraction:
        return calibration.public_sigma2(epsilon, delta, norm2 * k * entry_variance, k)

    patch.setattr(mechanism, "secret_sigma2", sigma2)


def one_secret_matrix_for_all_windows(patch: Patch) -> None:
    patch.setattr(kind, "secret_scope", lambda origin: mechanism.NOWHERE)


def noise_of_three_quarters_of_its_variance(patch: Patch) -> None:
    honest = ProjectionAccounting.parameter
    patch.setattr(ProjectionAccounting, "parameter", lambda self, spec, cost: honest(self, spec, cost) * 3 / 4)


def a_release_that_repeats_its_noise(patch: Patch) -> None:
    honest, kept = kinds.view_of_state, {}

    def view(spec: Any, state: Any, cost: Fraction, *, final: bool) -> Any:
        if spec not in kept:
            kept[spec] = honest(spec, state, cost, final=final) - state
        return state + kept[spec]

    patch.setattr(sketch, "view_of_state", view)


def a_release_that_charges_nothing(patch: Patch) -> None:
    patch.setattr(GaussianLedger, "charge_release", lambda self, cost: self)


def events_that_move_a_neighbour(patch: Patch) -> None:
    honest: Any = mechanism.apply

    def apply(spec: Any, matrix: Any, state: Any, rows: Any, *rest: Any) -> None:
        honest(spec, matrix, state, np.where(rows >= 0, np.minimum(rows + 1, len(state) - 1), rows), *rest)

    patch.setattr(kind.mechanism, "apply", apply)


def weights_that_are_not_bounded(patch: Patch) -> None:
    """Neither where they are read nor where they are added."""
    honest = mechanism.apply
    patch.setattr(kind.mechanism, "apply", lambda *given: honest(*given, most=1 << 62))

    def given(lattice: Any, weights: Any, n: int) -> Any:
        return np.array(weights, np.int64) << lattice.bits, np.ones(n, np.bool_)

    patch.setattr(mechanism, "in_units", given)


def a_merge_that_takes_the_larger(patch: Patch) -> None:
    patch.setattr(kinds, "add_states", lambda spec, states: np.maximum(states[0], states[1]))


MUTANTS: dict[Callable[[Patch], None], str] = {
    the_longest_row_for_the_largest_singular_value: "projection: hardest row, norm, gaussian",
    the_theorem_of_the_paper_for_a_public_matrix: "projection: create, norm, gaussian",
    bounds_that_forget_the_lattice: "projection: create, event, rademacher",
    a_secret_matrix_calibrated_as_if_it_kept_norms: "projection: create, secret, rademacher",
    one_secret_matrix_for_all_windows: "projection: matrix, secret, gaussian",
    noise_of_three_quarters_of_its_variance: "projection: seal, total, srht",
    a_release_that_repeats_its_noise: "projection: release, event, gaussian",
    a_release_that_charges_nothing: "projection: ledger, event, gaussian",
    events_that_move_a_neighbour: "projection: matrix, event, rademacher",
    weights_that_are_not_bounded: "projection: matrix, norm of few features, gaussian",
    a_merge_that_takes_the_larger: "projection: merge, event, gaussian",
}
"""Each broken build and the check that must refuse it."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_command_refuses_a_broken_build(
    mutant: Callable[[Patch], None], monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant(monkeypatch)
    code, found = verify(capsys, MUTANTS[mutant])
    assert code == 1
    assert not any("Error" in finding["found"] for finding in found), found
    assert any(not finding["passed"] for finding in found)


def test_the_command_passes_the_product_on_the_same_checks(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verify(capsys, *MUTANTS.values())
    assert code == 0, [finding for finding in found if not finding["passed"]]
    assert {f"{one['section']}: {one['name']}" for one in found} == set(MUTANTS.values())
    assert all(finding["power"] for finding in found)


@pytest.mark.parametrize("name", projection.specs())
def test_what_is_written_down_once_more_is_what_the_engine_takes(name: str) -> None:
    spec = projection.specs()[name]
    own = projection.AUDIT.law(spec, spec.epsilon, spec.delta)
    assert float(own.sigma2) == pytest.approx(float(mechanism.creation_sigma2(spec)), rel=2e-3)
    if spec.seed is not None:
        made = projection.rows_of_the_matrix(spec, spec.seed)
        assert np.array_equal(made, spec.projection_matrix().all_rows)
