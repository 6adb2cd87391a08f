"""Audit of kind `gaussian`: noise, weights, answers, ledgers, and the unit with the largest privacy loss.

In: specs of both units. Out: findings for `sketchstream.audit.report`. Touches: entropy, by creating sketches.
Source: Balle & Wang 2018 (the divergence of two normal laws); docs/theory/gaussian.md, sections 3 to 6.

Nothing here calls internals of sketches. Sensitivities are sums of Python integers, sigma comes from the
divergence of two normal laws, weights are fractions. The noise is much wider than the lattice step, so that the
small correction for integers is below the resolution of these tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from sketchstream.audit.cases import Case, Check, Number
from sketchstream.audit.kinds.linear import LinearAudit, case, mu_seen
from sketchstream.audit.observed import Outcome, state_of, variance_of_unit
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.noise import laws
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain

SLOTS: Final = 6_000
OUTSIDE: Final = 1 << 40
"""An item outside of the domain."""


@lru_cache(maxsize=2)
def specs(slots: int = SLOTS) -> dict[str, GaussianSpec]:
    """Specs with both units, with and without a total, fresh and bare publications, one slot and several."""
    more: dict[str, dict[str, Any]] = {
        "event": {"max_weight": 5, "fraction_bits": 3},
        "event, bare state": {"max_weight": 40, "intrusion": False, "epsilon_publish": None},
        "event, no total": {"max_weight": "2.5", "fraction_bits": 4, "total_share": "0"},
        "item, one slot": {"unit": "item", "max_total": 30},
        "item, several slots": {"unit": "item", "max_total": 20, "max_per_slot": 5, "fraction_bits": 3},
        "event, counted": {
            "max_weight": 5, "fraction_bits": 3, "total_share": "1/4", "counted": True, "epsilon_records": "1/5"
        },
        "item, total": {"unit": "item", "max_total": 30, "total_share": "1/8"},
    }  # fmt: skip
    return {
        name: GaussianSpec("1", "1e-6", domain=ClosedDomain(size=slots), **{"epsilon_publish": "3/4", **given})
        for name, given in more.items()
    }


WORKERS: Final = {
    unit: f"""
kind = "gaussian"
epsilon = 1
delta = "1e-6"
unit = "{unit}"
intrusion = false
{"max_weight = 5" if unit == "event" else "max_total = 9"}
{'epsilon_records = "1/5"' if unit == "event" else ""}
domain = {{ size = 2000 }}
"""
    for unit in ("event", "item")
}


class GaussianAudit(LinearAudit):
    """See `LinearAudit`."""

    def cases(self, slots: int = SLOTS) -> tuple[Case, ...]:
        """See `LinearAudit`; each sketch has at most `slots` slots."""
        small = specs(64)
        return tuple(self.promises(name, spec, small[name]) for name, spec in specs(min(slots, SLOTS)).items())

    def promises(self, name: str, spec: GaussianSpec, small: GaussianSpec | None = None) -> Case:
        step = 1 << spec.fraction_bits
        most = math.floor(Fraction(spec.max_weight or spec.max_total or 1) * step)
        event = spec.unit == "event"

        def counters(cost: Number) -> dict[str, laws.Law]:
            share = float(spec.total_share) / (2 if spec.counted else 1) * float(cost)
            noises: dict[str, laws.Law] = {"total": laws.DiscreteGaussian(Fraction(most**2 / share))} if share else {}
            return noises | ({"counted": laws.DiscreteGaussian(Fraction(1 / share))} if spec.counted else {})

        moves: list[tuple[list[int], list[Any], dict[str, int]]] = [
            ([3, 5], [1, -1], {"total": 0, "counted": 2}),
            ([3, 5, 5], [Fraction(most, step), 1, 1], {"total": most + 2 * step, "counted": 3}),
            ([3, OUTSIDE], [2, 1], {"total": 2 * step, "counted": 1}),
            ([3], [Fraction(most + 1, step) if event else 1], {"total": 0 if event else step, "counted": 0}),
        ]
        slack = 1e-2 if spec.total_share else 1e-3  # integers of the counters need more noise than real numbers
        return case(
            name, spec, lambda *look: 1 / variance_of_unit(*look), moves, counters=counters, slack=slack, small=small
        )

    def law(self, spec: GaussianSpec, epsilon: Fraction, delta: Fraction) -> laws.DiscreteGaussian:
        return laws.DiscreteGaussian(Fraction(_sigma2(spec, epsilon, delta)))

    def windows(self, case: Case, parts: Sequence[Any]) -> Outcome:
        """See `LinearAudit`; the slots of a closed domain are divided among the parts."""
        spec = case.spec
        return self.judge(spec, spec.epsilon, spec.delta, np.concatenate([part.state for part in parts])[None])

    def checks(self, quick: bool) -> Iterator[Check]:
        """The noise, weights, answers, and the plainest unit of every spec."""
        rounds = 1 if quick else 30
        for name, spec in self.specs().items():
            yield from self.layers(name, spec, rounds, creations=130 if quick else 300)
            yield f"weights, {name}", partial(_weights, spec)
            yield f"answers, {name}", partial(_answers, spec)
            yield f"plainest unit, {name}", partial(_plainest, spec, 4 * rounds)


# Expected values, from the fields of a spec.


def _shift(spec: GaussianSpec) -> list[int]:
    """Longest shift by one unit, in lattice units."""
    step = 1 << spec.fraction_bits
    if spec.unit == "event":
        assert spec.max_weight is not None
        return [math.floor(spec.max_weight * step)]
    assert spec.max_total is not None
    total = math.floor(spec.max_total * step)
    most = total if spec.max_per_slot is None else min(total, math.floor(spec.max_per_slot * step))
    return [most] * (total // most) + ([total % most] if total % most else [])


def _squared_sensitivity(spec: GaussianSpec) -> int:
    return sum(step * step for step in _shift(spec))


def _sigma2(spec: GaussianSpec, epsilon: Fraction, delta: Fraction) -> float:
    """Variance of a slot's noise: the total besides the slots has its share of mu^2."""
    return variance_of_unit(epsilon, delta) * _squared_sensitivity(spec) / float(1 - spec.total_share)


# Checks.


def _weights(spec: GaussianSpec) -> Outcome:
    """Check that an event within bounds adds its weight, cut to the lattice if there is one, to its item's slot."""
    rng = np.random.default_rng(7)
    sketch = Sketch.create(spec)
    most, step = Fraction(spec.max_weight or spec.max_total or 1), 1 << spec.fraction_bits
    wrong = 0
    for _ in range(3):
        items = rng.integers(-1, SLOTS + 1, 400)
        weights = [Fraction(int(integer), 7 * step) * most for integer in rng.integers(-9 * step, 9 * step, 400)]
        expected = np.zeros(SLOTS, np.int64)
        for item, weight in zip(items.tolist(), weights, strict=True):
            whole = spec.fraction_bits > 0 or weight.denominator == 1  # without a lattice fractions are refused
            if 0 <= item < SLOTS and abs(weight) <= most and whole:
                expected[item] += math.trunc(weight * step)
        before = state_of(sketch)
        sketch.update(items, weights, invalid="noop")
        wrong += not np.array_equal(state_of(sketch) - before, expected)
    result = "so it was" if not wrong else f"WRONG in {wrong} of 3 batches"
    return not wrong, "the weight on the lattice; no-ops outside", result, "one counter, in any of 3 batches"


def _answers(spec: GaussianSpec) -> Outcome:
    """Check the published counts in user units, and their standard errors with all layers."""
    sketch = Sketch.create(spec)
    sketch.update(np.arange(SLOTS))
    published: Any = sketch.seal()
    estimate = published.estimate(method="raw")
    step = 1 << spec.fraction_bits
    layers = [(spec.epsilon, spec.delta), *([(spec.epsilon_publish, spec.delta_publish)] if spec.intrusion else [])]
    noise = sum(_sigma2(spec, *layer) for layer in layers)
    off = float(np.abs(estimate.values - published.state / step).max())
    wide = float(np.abs(estimate.stderr / (math.sqrt(noise) / step) - 1).max())
    passed = off < 1e-9 and wide < 0.01
    return passed, "the counts, and their errors", f"off by {off:.1g}, errors by {wide:.2%}", "errors wrong by 1%"


def _plainest(spec: GaussianSpec, rounds: int) -> Outcome:
    """Check mu for the unit that moves the state farthest, as an observer of the open state measures it.

    The noise of slots is independent, so a sketch has as many trials as disjoint shifts fit into its slots. In
    half of the sketches every trial has its unit, and the observer projects the state onto its shift.
    """
    shift = np.array(_shift(spec))
    trials = SLOTS // len(shift)
    items = np.arange(trials * len(shift))
    weights = [Fraction(int(step), 1 << spec.fraction_bits) for step in np.tile(shift, trials)]
    direction = shift / np.linalg.norm(shift)
    seen: list[list[Any]] = [[], []]
    for number in range(2 * rounds):
        sketch = Sketch.create(spec)
        if number % 2:
            sketch.update(items, weights)
        seen[number % 2].append(state_of(sketch)[: items.size].reshape(trials, len(shift)) @ direction)
    quiet, active = map(np.concatenate, seen)
    return mu_seen(quiet, active, math.sqrt(_squared_sensitivity(spec) / _sigma2(spec, spec.epsilon, spec.delta)))


AUDIT: Final = GaussianAudit(specs, WORKERS)
