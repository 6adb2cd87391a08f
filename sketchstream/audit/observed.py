"""Observations of sketches of any kind from outside: states in their bytes, noise by difference, ledger entries.

In: sketches, and functions that create one. Out: arrays, entries, outcomes of the checks that all kinds share. Touches:
entropy, through the sketches it makes. Nothing here calls internals of sketches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
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


def state_of(part: Any) -> Ints:
    """(slots,) the counters in an open sketch's bytes, or those of a sealed state."""
    return np.array(part.state if hasattr(part, "state") else wire.unpack(part.to_bytes())[1], dtype=np.int64)


def counters_of(part: Any) -> dict[str, int]:
    """The counters in addition to the slots, by name: in an open sketch's bytes, noise included, or as published."""
    if hasattr(part, "counters"):
        return {counter.name: counter.value for counter in part.counters}
    counters = wire.unpack(part.to_bytes())[0].get("counters", ())
    return {counter["name"]: int.from_bytes(counter["value"], "little", signed=True) for counter in counters}


def check_untouched(change: Ints) -> Outcome:
    """Check that a seal publishes the state unchanged, from the difference that it made."""
    same = not change.any()
    return same, "the state as it was", "the same" if same else "CHANGED", "one counter"


def noise_added(after: Ints, before: Ints, modulus: int | None) -> Ints:
    """The difference of two states, in the group of their slots: integers, or integers of a modulus."""
    return after - before if modulus is None else (after - before) % modulus


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


def shift_seen(quiet: Floats, active: Floats) -> tuple[float, float]:
    """How far a unit moves what an observer sees, in standard deviations of the noise, and the standard error of that.

    Args:
        quiet: (n,) what is seen in trials without the unit.
        active: (m,) what is seen in trials with it; about as many.
    """
    mu = float(active.mean() - quiet.mean()) / math.sqrt((quiet.var() + active.var()) / 2)
    return mu, math.sqrt((4 + mu**2 / 2) / (quiet.size + active.size))


def log_divergence(epsilon: float, mu: Any) -> Any:
    """Log of Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu): the delta of normal noise."""
    from scipy.special import log_ndtr

    high, low = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return high + np.log1p(-np.exp(np.minimum(low - high, -1e-16)))


@lru_cache(maxsize=64)
def variance_of_unit(epsilon: Fraction, delta: Fraction) -> float:
    """Variance of Gaussian noise for sensitivity 1, from the divergence of two normal laws."""
    low, high = 1e-3, 1e3
    for _ in range(80):
        middle = math.sqrt(low * high)
        above = log_divergence(float(epsilon), 1 / middle) > math.log(delta)
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
    epsilon, step = float(law.epsilon), Fraction(law.epsilon) / 1000
    here = np.arange(-2000, 2001) if isinstance(law, laws.DiscreteLaplace) else np.arange(law.modulus)
    masses = [replace(law, epsilon=law.epsilon + change).pmf(here) for change in (-step, 0, step)]
    positive = masses[1] > 1e-300
    slope = (masses[2][positive] - masses[0][positive]) / (2 * float(step))
    information = float((slope**2 / masses[1][positive]).sum())
    return REFUSED_FROM / math.sqrt(n * information) / epsilon
