"""The expected published object: the law of counts after hashing and noise, binned at the published edges.

In: a spec, public expectations of the stream. Out: an `Observed`, for the estimators. Touches: nothing.
Source: docs/theory/profile.md 5 and 6: collisions are a compound Poisson law, noise is a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.mechanism import LAWS, effective_epsilon
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import OpenDomain

MAX_COUNTS = 1 << 16


def count_law(law: str | Sequence[float], mean: float, exponent: float) -> Floats:
    """Shares of counts 1, 2, 3, ... among the items that occur."""
    if isinstance(law, str):
        if law == "geometric":
            if not 1 <= mean <= 10_000:
                raise SpecError(f"mean must be from 1 to 10000, found {mean!r:.20}")
            longest = min(MAX_COUNTS, math.ceil(30 * mean))
            shares = (1 - 1 / mean) ** np.arange(longest) / mean
        elif law == "zipf":
            if not exponent > 1:
                raise SpecError(f"exponent must be above 1, found {exponent!r:.20}")
            shares = np.arange(1.0, 10_001.0) ** -exponent
        else:
            raise SpecError(f"law must be 'geometric', 'zipf' or the shares of counts 1, 2, 3, ..., found {law!r:.40}")
    else:
        try:
            shares = np.asarray(law, dtype=np.float64)
        except (TypeError, ValueError):
            shares = np.zeros(0)
        if shares.ndim != 1 or not 1 <= shares.size <= MAX_COUNTS or not (shares >= 0).all() or not shares.sum() > 0:
            raise SpecError(
                f"the shares of counts 1, 2, 3, ... must be at most {MAX_COUNTS} non-negative numbers, not all 0"
            )
    out: Floats = shares / shares.sum()
    return out


def layers(spec: ProfileSpec, merges: int) -> tuple[Fraction, ...]:
    """Effective epsilons of the layers in a publication."""
    own = [effective_epsilon(spec, spec.epsilon)]
    if spec.publish == "state" and spec.intrusion:
        own.append(effective_epsilon(spec, spec.epsilon_publish))
    return tuple(own * merges)


def expected_publication(spec: ProfileSpec, items: float, shares: Floats, parts: int, merges: int) -> Observed:
    """The expected published object of `parts` stacked parts, for the estimators."""
    effective = layers(spec, merges)
    domain = spec.domain
    if isinstance(domain, OpenDomain):
        per_level = [domain.slots_per_level] * domain.levels
        level_shares = tuple(float(share) for share in domain.level_shares())
        rates = [items / parts * share / domain.slots_per_level for share in level_shares]
        laws = [crowded_law(rate, shares, spec.modulus) for rate in rates]
    else:
        per_level = [max(1, round(domain.expected_slots / parts))]
        level_shares = (1.0,)
        rate = min(1.0, items / domain.expected_slots)
        laws = [np.concatenate([[1 - rate], rate * shares])]
    low, noisy = _noisy(laws, effective, spec.modulus)
    if spec.publish == "state":
        edges, values = low + np.arange(noisy.shape[1]), _round_to_slots(noisy, per_level)
        form: Any = "state"
    else:
        form, edges = spec.form, spec.edges
        values = _bin_at_edges(noisy, low, edges, spec.form, per_level)
    name = LAWS[spec.unit]
    return Observed(
        unit=spec.unit,
        form=form,
        open_domain=isinstance(domain, OpenDomain),
        layers=tuple((name, epsilon) for epsilon in effective),
        slots=tuple(parts * m for m in per_level),
        hashed_into=tuple(per_level),
        shares=level_shares,
        edges=edges.astype(np.int64),
        values=parts * values,
        cost=None if spec.publish == "state" else spec.epsilon_publish * spec.slots_share,
        parts=parts,
        modulus=spec.modulus,
        max_weight=spec.max_weight,
        digest=b"plan",
    )


def crowded_law(rate: float, shares: Floats, modulus: int | None) -> Floats:
    """Law of a slot's count with this mean number of items per slot: compound Poisson, by FFT."""
    mean = rate * float(shares @ np.arange(1, shares.size + 1))
    square = rate * float(shares @ np.arange(1, shares.size + 1) ** 2)
    longest = shares.size + 1 + math.ceil(mean + 12 * math.sqrt(square + 1))
    size = modulus if modulus is not None else 1 << (longest - 1).bit_length()
    law = np.bincount(np.arange(1, shares.size + 1) % size, shares, size)
    slot = np.fft.irfft(np.exp(rate * (np.fft.rfft(law) - 1)), size)
    positive: Floats = np.clip(slot, 0, None)
    out: Floats = positive / positive.sum()
    return out


def _noisy(laws: Sequence[Floats], layers: Sequence[Fraction], modulus: int | None) -> tuple[int, Floats]:
    """Smallest counter, and (levels, N) law of a counter: the slot's law convolved with every layer's noise."""
    if modulus is not None:
        size, low = modulus, 0
        rows = np.stack([np.bincount(np.arange(law.size) % size, law, size) for law in laws])
        spectrum = np.fft.rfft(rows, axis=1)
        for epsilon in layers:
            grown = math.exp(min(float(epsilon), 700.0))
            noise = np.full(size, 1 / (grown + size - 1))
            noise[0] = grown / (grown + size - 1)
            spectrum = spectrum * np.fft.rfft(noise)
    else:
        reach = sum(math.ceil(36 / float(epsilon)) + 2 for epsilon in layers)
        low = -reach
        wide = max(law.size for law in laws) + 2 * reach + 1
        size = 1 << (wide - 1).bit_length()
        spectrum = np.stack([np.fft.rfft(np.concatenate([np.zeros(reach), law]), size) for law in laws])
        for epsilon in layers:
            spectrum = spectrum * np.fft.rfft(_laplace(float(epsilon), size))
    rows = np.clip(np.fft.irfft(spectrum, size, axis=1), 0, None)
    return low, rows / rows.sum(axis=1, keepdims=True)


def _laplace(epsilon: float, size: int) -> Floats:
    """Discrete Laplace law on a circle of this size, centred at 0."""
    t = np.minimum(np.arange(size), size - np.arange(size)).astype(np.float64)
    a = math.exp(-epsilon)
    out: Floats = (1 - a) / (1 + a) * np.exp(-epsilon * t)
    return out


def _round_to_slots(noisy: Floats, slots: Sequence[int]) -> Ints:
    """(levels, N) integers near slots * law that add up to the slots."""
    ends = np.rint(np.cumsum(noisy, axis=1) * np.asarray(slots)[:, None])
    out: Ints = np.diff(ends, axis=1, prepend=0.0).astype(np.int64)
    return out


def _bin_at_edges(noisy: Floats, low: int, edges: Ints, form: str, slots: Sequence[int]) -> Ints:
    """Expected published values at the edges."""
    d = np.asarray(slots, dtype=np.float64)[:, None]
    at_least = np.concatenate([np.cumsum(noisy[:, ::-1], axis=1)[:, ::-1], np.zeros((noisy.shape[0], 1))], axis=1)
    tails = at_least[:, np.clip(edges - low, 0, noisy.shape[1])]
    if form == "cumulative":
        shares = tails
    else:
        shares = tails - np.concatenate([tails[:, 1:], np.zeros((tails.shape[0], 1))], axis=1)
    out: Ints = np.rint(shares * d).astype(np.int64)
    return out
