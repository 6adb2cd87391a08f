"""Observations of sketches of any kind from outside: states in their bytes, noise by difference, ledger entries.

In: sketches, and functions that create one. Out: arrays, entries, outcomes of the checks that all kinds share. Touches:
entropy, through the sketches it makes. Nothing here calls internals of sketches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from sketchstream import wire
from sketchstream.array_types import Floats, Ints
from sketchstream.noise import laws
from sketchstream.privacy.losses.history import LayerEntry, View

Outcome = tuple[bool, str, str, str]
"""Whether the claim holds; the claim; the finding; the smallest error that the check would have detected."""
Make = Callable[[], Any]
"""Makes a new sketch."""
UNLIKELY = 1e-10
"""p-value below which a law is refused: of the few thousand tests of a run, a right build fails one in 10^6 runs."""
REFUSED_FROM = 13.0
"""Standard errors of epsilon at which a law is surely refused: some six for the p-value, the rest for its spread."""


def state_of(sketch: Any) -> Ints:
    """(slots,) the counters in an open sketch's bytes."""
    return np.array(wire.unpack(sketch.to_bytes())[1], dtype=np.int64)


def counters_of(sketch: Any) -> dict[str, int]:
    """The counters besides the slots in an open sketch's bytes, noise included, by name."""
    counters = wire.unpack(sketch.to_bytes())[0].get("counters", ())
    return {counter["name"]: int.from_bytes(counter["value"], "little", signed=True) for counter in counters}


def counters_of_new_sketches(make: Make, rounds: int) -> Ints:
    """(rounds, slots) the counters of new sketches."""
    return np.stack([state_of(make()) for _ in range(rounds)])


def noise_of_seals(make: Make, rounds: int) -> Ints:
    """(rounds, slots) the noise that seals add to the states they publish."""
    noise = []
    for _ in range(rounds):
        sketch = make()
        before = state_of(sketch)
        noise.append(sketch.seal().state - before)
    return np.stack(noise)


def check_untouched(change: Ints) -> Outcome:
    """Check that a seal publishes the state unchanged, from the difference that it made."""
    same = not change.any()
    return same, "the state as it was", "the same" if same else "CHANGED", "one counter"


def find_repeated_noise(drawn: Ints) -> Outcome | None:
    """Failed outcome if two consecutive rows of the (n, slots) noise of n layers are equal; None otherwise."""
    if len(drawn) > 1 and bool((drawn[1:] == drawn[:-1]).all(axis=1).any()):
        return False, "drawn afresh each time", "two layers of one noise", "one repetition"
    return None


def costs(ledger: Any) -> list[tuple[str, Fraction | None]]:
    """Kinds and costs of a ledger's entries, without copies, as the audit itself reads bytes."""
    return [
        ("layer" if isinstance(entry, LayerEntry) else entry.kind, entry.cost)
        for entry in ledger.history.entries
        if not (isinstance(entry, View) and entry.kind == "copy")
    ]


def entries(ledger: Any) -> list[str]:
    """Kinds of a ledger's entries, without copies."""
    return [kind for kind, _ in costs(ledger)]


def shift_seen(quiet: Floats, active: Floats) -> tuple[float, float]:
    """How far a unit moves what an observer sees, in standard deviations of the noise, and the standard error of that.

    Args:
        quiet: (n,) what is seen in trials without the unit.
        active: (m,) what is seen in trials with it; about as many.
    """
    mu = float(active.mean() - quiet.mean()) / math.sqrt((quiet.var() + active.var()) / 2)
    return mu, math.sqrt((4 + mu**2 / 2) / (quiet.size + active.size))


@lru_cache(maxsize=64)
def variance_of_unit(epsilon: Fraction, delta: Fraction) -> float:
    """Variance of Gaussian noise for sensitivity 1, from the divergence of two normal laws."""
    from scipy.special import log_ndtr

    eps, target = float(epsilon), math.log(delta)
    low, high = 1e-3, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        upper, lower = log_ndtr(0.5 / middle - eps * middle), eps + log_ndtr(-0.5 / middle - eps * middle)
        above = upper + math.log1p(-math.exp(min(lower - upper, -1e-16))) > target
        low, high = (middle, high) if above else (low, middle)
    return high**2


def judge(values: Ints, law: laws.Law) -> Outcome:
    """Test samples against a law: smallest p-value, and the error of epsilon that the tests would detect."""
    checked = laws.battery(values, law)
    worst = min(checked, key=lambda check: check.p_value)
    passed = worst.p_value > UNLIKELY
    found = f"p = {worst.p_value:.2g} ({worst.name}), n = {values.size}"
    parameter = "sigma" if isinstance(law, laws.DiscreteGaussian) else "epsilon"
    power = f"{parameter} wrong by {resolution(law, values.size):.1%}"
    return passed, f"p above {UNLIKELY:g}", found, power


def resolution(law: Any, n: int) -> float:
    """Relative error of a law's epsilon that n samples reveal: REFUSED_FROM standard errors, by Fisher information.

    For a Gaussian, that of its sigma.
    """
    if isinstance(law, laws.DiscreteGaussian):
        return REFUSED_FROM / math.sqrt(2 * n)
    epsilon = float(law.epsilon)
    step = Fraction(law.epsilon) / 1000
    here = np.arange(-2000, 2001) if isinstance(law, laws.DiscreteLaplace) else np.arange(law.modulus)
    if isinstance(law, laws.DiscreteLaplace):
        low, high = laws.DiscreteLaplace(law.epsilon - step), laws.DiscreteLaplace(law.epsilon + step)
        masses = [nearby.pmf(here) for nearby in (low, law, high)]
    else:
        around = (law.epsilon - step, law.epsilon, law.epsilon + step)
        masses = [laws.RandomizedResponse(law.modulus, e).pmf(here) for e in around]
    positive = masses[1] > 1e-300
    slope = (masses[2][positive] - masses[0][positive]) / (2 * float(step))
    information = float((slope**2 / masses[1][positive]).sum())
    return REFUSED_FROM / math.sqrt(n * information) / epsilon
