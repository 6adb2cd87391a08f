"""Broken builds of kind `convolution` against the command: `sketchstream verify --only CHECK` must end with code 1.

In: the product with one promise broken. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import json
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
from sketchstream.kinds.convolution import kind, update
from sketchstream.kinds.convolution.fourier.spectrum import NoiseShape
from sketchstream.kinds.convolution.kind import ConvolutionAccounting
from sketchstream.kinds.convolution.mechanisms.scheme import NoiseScheme
from sketchstream.kinds.convolution.mechanisms.spectral import Correlated, FourierGaussian

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.statistics


# The mutants: each breaks one promise and nothing else.


def noise_of_the_wrong_scale(patch: Patch) -> None:
    honest: Any = NoiseScheme.scale_budget
    patch.setattr(NoiseScheme, "scale_budget", lambda self, layer: honest(self, layer) * 1.4)


def noise_of_the_wrong_shape(patch: Patch) -> None:
    """Spread evenly over the coefficients."""
    honest: Any = NoiseShape.quantized

    def even(self: NoiseShape) -> NoiseShape:
        share = np.count_nonzero(self.kept) / self.kept.size
        return replace(honest(self), relative=np.where(self.kept, share, 0.0))

    patch.setattr(NoiseShape, "quantized", even)


def correlated_noise_that_is_weaker(patch: Patch) -> None:
    honest: Any = Correlated.add_noise

    def add(self: Any, state: Any, layer: Any, entropy: Any) -> None:
        fresh = np.zeros_like(state)
        honest(self, fresh, layer, entropy)
        state += fresh * 9 // 10

    patch.setattr(Correlated, "add_noise", add)


def columns_that_are_too_long(patch: Patch) -> None:
    honest: Any = FourierGaussian.columns
    patch.setattr(FourierGaussian, "columns", lambda *given: honest(*given) * 51 // 50)


def a_bound_that_is_not_checked(patch: Patch) -> None:
    patch.setattr(update.Updater, "lattice", Lattice(0, Fraction(1 << 40)))


def a_seal_without_fresh_noise(patch: Patch) -> None:
    for module in (kinds, sketches):
        patch.setattr(module, "with_noise", lambda spec, state, cost: state.copy())


def noise_on_counts_that_forgets_the_largest_weight(patch: Patch) -> None:
    honest: Any = kind.add_noise

    def add(spec: Any, state: Any, layer: Any = None, entropy: Any = None) -> None:
        if spec.noise == "counts":
            layer = spec.layer_of(layer.loss * spec.bound)
        honest(spec, state, layer, entropy)

    patch.setattr(kind, "add_noise", add)


def words_that_keep_the_share_of_their_counter(patch: Patch) -> None:
    patch.setattr(NoiseScheme, "words_loss", lambda self, layer: layer.loss)


def a_counter_that_counts_weights(patch: Patch) -> None:
    """An event then moves it by as much as its weight, which its noise does not cover."""
    honest: Any = update.Updater.apply

    def apply(self: Any, state: Any, positions: Any, weights: Any = None, *, counters: Any, **given: Any) -> None:
        before = state.copy()
        honest(self, state, positions, weights, counters=counters, **given)
        if self.spec.noise == "counts" and len(counters):
            counters += abs(int((state - before)[: self.spec.length].sum())) - 1

    patch.setattr(update.Updater, "apply", apply)


def counters_with_too_little_noise(name: str) -> Callable[[Patch], None]:
    def mutant(patch: Patch) -> None:
        honest: Any = ConvolutionAccounting.components

        def components(self: Any, spec: Any) -> Any:
            found = honest(self, spec)
            weak = {"counted": {"share": Fraction(1)}, "admitted": {"own": 3 * spec.epsilon_records}}[name]
            return tuple(replace(one, **weak) if one.name == name else one for one in found)

        patch.setattr(ConvolutionAccounting, "components", components)

    mutant.__name__ = f"a counter of the {name} with too little noise"
    return mutant


MUTANTS: dict[Callable[[Patch], None], str] = {
    noise_of_the_wrong_scale: "convolution: create, gaussian, fourier",
    noise_of_the_wrong_shape: "convolution: create, gaussian, fourier",
    correlated_noise_that_is_weaker: "convolution: create, gaussian, time",
    columns_that_are_too_long: "convolution: neighbours, gaussian, fourier",
    a_bound_that_is_not_checked: "convolution: neighbours, gaussian, time",
    a_seal_without_fresh_noise: "convolution: seal, gaussian, item",
    noise_on_counts_that_forgets_the_largest_weight: "convolution: create, counts",
    words_that_keep_the_share_of_their_counter: "convolution: create, gaussian, counted",
    a_counter_that_counts_weights: "convolution: neighbours, counts, counted",
    counters_with_too_little_noise("counted"): "convolution: counters, gaussian, counted",
    counters_with_too_little_noise("admitted"): "convolution: counters, laplace, counted",
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


def test_the_command_passes_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = verify(capsys, "convolution: ")
    assert code == 0, json.dumps([finding for finding in found if not finding["passed"]])
    assert {f"{one['section']}: {one['name']}" for one in found} >= set(MUTANTS.values())
    assert all(finding["power"] for finding in found)
