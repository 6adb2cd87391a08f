"""Lower bounds on epsilon, from attacks on the product's outputs about one event or one item.

In: the product's mechanisms, run on two neighbouring streams. Out: for each mechanism a lower confidence bound
next to the ledger's claim. Touches: entropy, through the sketches it creates.
Source: Clopper & Pearson 1934 (intervals); Jagielski, Ullman & Oprea, NeurIPS 2020 (audits by likelihood-ratio
events on held-out runs); which mechanisms can be tight: docs/theory/privacy.md section 6.

Every slot, or every level of a release, is one trial: neighbours differ in all of them at once, which gives many
independent pairs of neighbouring sketches in one. Half of the trials select the output events, the other half estimate
their probabilities, so the bound is valid for any selection. A bound above its claim refutes the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.audit.observed import Outcome, state_of
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.profile import mechanism as profile
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.privacy.losses.history import Loss
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, OpenDomain

Codes = npt.NDArray[np.int64]
ERROR = 1e-6
"""Probability that a bound lies above the truth by bad luck."""
TIGHT = Fraction(4, 5)
"""A tight mechanism's bound must reach this share of its claim at `FULL` trials, and `TIGHT_QUICK` with fewer."""
TIGHT_QUICK = Fraction(3, 5)
FULL = 1_000_000
LEVELS = 32
TRIALS_AT_ONCE = 1 << 15
"""Trials whose histograms are held at a time."""
OUTCOME_SETS = 24
"""Number of sets of outcomes that are tried: the n most telling ones, for each n up to it; they share `ERROR`."""
EPSILON = Fraction(1)
RELEASE = Fraction(1, 2)
FRESH = Fraction(7, 10)
MODULUS = 4
"""Modulus of the sketches of items: small, so that all residues fit one histogram."""


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """Two-sided interval for a probability; each side misses with probability at most `error`."""
    from scipy.special import betaincinv

    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, error))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - error))
    return low, high


def lower_bound(quiet: Codes, active: Codes, *, error: float = ERROR) -> float:
    """Compute a lower confidence bound on epsilon from outcomes on two neighbouring streams.

    Args:
        quiet: (n,) outcomes without the event, small non-negative integers, independent, one per trial.
        active: (n,) outcomes with the event.
        error: probability that the bound is above the truth.

    Returns:
        The bound; 0 if no difference was found. It is finite, but grows with n if one stream excludes an outcome.
    """
    size = int(max(quiet.max(), active.max())) + 1
    half = len(quiet) // 2
    learn = [np.bincount(world[:half], minlength=size).astype(np.float64) for world in (quiet, active)]
    test = [np.bincount(world[half:], minlength=size) for world in (quiet, active)]
    trials = [len(world) - half for world in (quiet, active)]
    best = 0.0
    for one, two in ((0, 1), (1, 0)):
        ratio = (learn[one] + 0.5) / (learn[two] + 0.5)
        trust = ratio * np.exp(-2 * np.sqrt(1 / (learn[one] + 0.5) + 1 / (learn[two] + 0.5)))
        order = np.argsort(-trust)
        outcome_sets = min(OUTCOME_SETS, size)
        each = error / (4 * outcome_sets)
        for count in range(1, outcome_sets + 1):
            event = order[:count]
            low, _ = clopper_pearson(int(test[one][event].sum()), trials[one], each)
            _, high = clopper_pearson(int(test[two][event].sum()), trials[two], each)
            if low > 0:
                best = max(best, math.log(low / high))
    return best


@dataclass(frozen=True)
class Bound:
    """The claim and the bound of one mechanism.

    Args:
        tight: whether the bound must come near the claim.
        trials: number of trials on each stream.
    """

    claim: Loss
    bound: float
    tight: bool
    trials: int

    @property
    def passed(self) -> bool:
        """Whether the bound is not above the claim, and is near it if the mechanism is tight."""
        share = TIGHT if self.trials >= FULL else TIGHT_QUICK
        return self.bound <= float(self.claim) and (not self.tight or self.bound >= float(share) * float(self.claim))


@dataclass(frozen=True)
class Mechanism:
    """One output of a sketch, run on two neighbouring streams.

    Args:
        name: what the output is, for the report.
        claim: the ledger's epsilon.
        run: (active, trials) -> (n,) outcome codes of at least that many trials, on one of the two streams.
        tight: whether an event that is not rare attains the claim.
    """

    name: str
    claim: Loss
    run: Callable[[bool, int], Codes]
    tight: bool = True

    def bound(self, trials: int) -> Bound:
        """Run both streams and bound epsilon."""
        worlds = (self.run(active, trials)[:trials] for active in (False, True))
        return Bound(self.claim, lower_bound(*worlds), self.tight, trials)

    def outcome(self, trials: int) -> Outcome:
        """The bound next to the claim."""
        bound = self.bound(trials)
        share = bound.bound / float(self.claim)
        power = f"a loss {1 / share:.3g} times the claim" if self.tight and share > 0 else "a loss far above the claim"
        claimed = f"epsilon {self.claim}" + (", tight" if self.tight else "")
        return bound.passed, claimed, f"at least {bound.bound:.3f} ({share:.0%}), {trials} trials", power


def mechanisms() -> list[Mechanism]:
    """All mechanisms of the product, with the ledger's claims for their histories."""
    fresh_event, fresh_item = _sealed_spec("event", intrusion=True), _sealed_spec("item", intrusion=True)
    looked_event, looked_item = (initial_ledger(spec_of(1)).record_look() for spec_of in (fresh_event, fresh_item))
    before, after = "look, then fresh layer, event before the look", "look, then fresh layer, event after the look"
    made = [
        Mechanism("release given the state, cumulative", RELEASE, _release_given_state(_event_spec(1024))),
        Mechanism("release given the state, bins", RELEASE, _release_given_state(_item_spec(1024))),
        Mechanism(before, looked_event.loss(), _look_then_state(fresh_event, before=1, after=0)),
        Mechanism(after, looked_event.loss_by_gap()[-1].loss, _look_then_state(fresh_event, before=0, after=1)),
        Mechanism("look, then fresh layer, item", looked_item.loss(), _look_then_state(fresh_item, before=1, after=1)),
    ]
    for unit, spec in (("event", _event_spec()), ("item", _item_spec())):
        bare, alone = _sealed_spec(unit, intrusion=False), initial_ledger(spec)
        ledger = initial_ledger(bare(1))
        released = ledger.charge_release(RELEASE).loss()
        made += [
            Mechanism(f"bare state, {unit}", ledger.loss(), _bare(bare)),
            Mechanism(f"early release, then bare state, {unit}", released, _release_then_state(spec)),
            Mechanism(f"histogram alone, {unit}", alone.loss(), _histogram(spec), tight=False),
        ]
    return made


# Specs of the trials.


def _event_spec(max_count: int = 1) -> ProfileSpec:
    """Spec for unit event, cumulative form."""
    return ProfileSpec(epsilon=EPSILON, max_count=max_count, domain=OpenDomain(slots=2 * LEVELS, levels=LEVELS))


def _item_spec(modulus: int = MODULUS) -> ProfileSpec:
    """Spec for unit item, form bins."""
    domain = OpenDomain(slots=2 * LEVELS, levels=LEVELS)
    return ProfileSpec(epsilon=EPSILON, unit="item", modulus=modulus, domain=domain)


def _sealed_spec(unit: str, *, intrusion: bool) -> Callable[[int], ProfileSpec]:
    """Specs whose state is published; each slot is one trial."""
    fields: dict[str, Any] = {"unit": unit, "publish": "state", "intrusion": intrusion}
    if unit == "item":
        fields["modulus"] = MODULUS
    return lambda size: ProfileSpec(EPSILON, epsilon_publish=FRESH, domain=ClosedDomain(size=size), **fields)


# Outputs on both streams. Codes map what an attacker reads to one small integer.


def _clip(values: npt.NDArray[Any], reach: int = 6) -> Codes:
    """Clip integers to -reach..reach and shift them to 0..2 reach."""
    return np.clip(values.astype(np.int64), -reach, reach) + reach


def _bare(spec_of: Callable[[int], ProfileSpec]) -> Callable[[bool, int], Codes]:
    """The published bare state; the active stream has one event in every slot."""

    def run(active: bool, trials: int) -> Codes:
        sketch = Sketch.create(spec_of(trials))
        if active:
            sketch.update(np.arange(trials))
        sealed: Any = sketch.seal()
        return _clip(sealed.state)

    return run


def _look_then_state(spec_of: Callable[[int], ProfileSpec], *, before: int, after: int) -> Callable[[bool, int], Codes]:
    """An intruder's look and the publication under a fresh layer; events before, after, or on both sides."""

    def run(active: bool, trials: int) -> Codes:
        spec = spec_of(trials)
        sketch = Sketch.create(spec)
        for _ in range(before if active else 0):
            sketch.update(np.arange(trials))
        seen = state_of(sketch)  # as an intruder reads them in its file
        for _ in range(after if active else 0):
            sketch.update(np.arange(trials))
        sealed: Any = sketch.seal()
        change = sealed.state.astype(np.int64) - seen
        codes: Codes = seen * MODULUS + change % MODULUS if spec.modulus else _clip(seen) * 13 + _clip(change)
        return codes

    return run


def _rounds(each: int, trials: int, draw: Callable[[], Codes]) -> Codes:
    return np.concatenate([draw() for _ in range(-(-trials // each))])


def _seen_one(values: Ints) -> Codes:
    """Sufficient statistic of a noisy count of 0 or 1."""
    return (values >= 1).astype(np.int64)


def _noise(spec: ProfileSpec) -> npt.NDArray[Any]:
    """Creation noise of one slot per trial."""
    state = np.zeros(TRIALS_AT_ONCE, spec.dtype)
    profile.add_noise(spec, state, spec.epsilon)
    return state


def _add_noise_to_histogram(spec: ProfileSpec, state: npt.NDArray[Any], cost: Fraction) -> Ints:
    """(trials, B) `noised_counts` of levels with one slot each: exact counts computed once per value, noise in each."""
    values, which = np.unique(state, return_inverse=True)
    padded = np.resize(values, -(-values.size // LEVELS) * LEVELS).reshape(-1, LEVELS)
    seen: Ints = np.concatenate([profile.exact_counts(spec, levels) for levels in padded])[which]
    profile.add_view_noise(spec, seen, cost)
    return seen


def _step(spec: ProfileSpec, state: npt.NDArray[Any]) -> None:
    state += 1
    if spec.modulus is not None:
        state %= spec.modulus


def _release_given_state(spec: ProfileSpec) -> Callable[[bool, int], Codes]:
    """A release of a state that the attacker knows except for one event.

    There is one slot below every unit threshold (cumulative), or in every even bin (bins). Each moves by one, so each
    threshold, or pair of bins, is a separate trial.
    """
    cumulative = spec.form == "cumulative"
    places = spec.edges[spec.edges <= 1024] - 1 if cumulative else spec.edges[::2]

    def run(active: bool, trials: int) -> Codes:
        state = np.tile(places, LEVELS).astype(spec.dtype)
        exact = profile.exact_counts(spec, state)
        state += int(active)

        def once() -> Codes:
            noise = profile.noised_counts(spec, state, RELEASE) - exact
            if cumulative:
                return _clip(noise[:, : len(places)], 4).ravel()
            return (_clip(noise[:, ::2], 4) * 9 + _clip(noise[:, 1::2], 4)).ravel()

        return _rounds(LEVELS * len(places), trials, once)

    return run


def _release_then_state(spec: ProfileSpec) -> Callable[[bool, int], Codes]:
    """A release before the event, and the bare state after it."""

    def run(active: bool, trials: int) -> Codes:
        rows = np.arange(TRIALS_AT_ONCE)

        def once() -> Codes:
            state = _noise(spec)
            seen = _add_noise_to_histogram(spec, state, RELEASE)
            if active:
                _step(spec, state)
            code = _clip(state, 3)
            if spec.modulus is None:
                return code * 2 + _seen_one(seen[rows, np.searchsorted(spec.edges, np.clip(state, -3, 3))])
            back = (state.astype(np.int64) - 1) % spec.modulus
            return code * 4 + 2 * _seen_one(seen[rows, state]) + _seen_one(seen[rows, back])

        return _rounds(TRIALS_AT_ONCE, trials, once)

    return run


def _histogram(spec: ProfileSpec) -> Callable[[bool, int], Codes]:
    """The published histogram of a sketch without a look at its state."""

    def run(active: bool, trials: int) -> Codes:
        zero, one = np.searchsorted(spec.edges, (0, 1))

        def once() -> Codes:
            state = _noise(spec)
            if active:
                _step(spec, state)
            seen = _add_noise_to_histogram(spec, state, EPSILON)
            return 2 * _seen_one(seen[:, zero]) + _seen_one(seen[:, one])

        return _rounds(TRIALS_AT_ONCE, trials, once)

    return run
