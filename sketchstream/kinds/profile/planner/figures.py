"""The numbers of a plan: their names, their values in the assumed stream, and their expected errors.

In: a spec, the law of counts, a reconstruction of the expected object. Out: names, values, errors, losses. Touches:
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.components import TOTAL
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.kinds.profile import reconstruction
from sketchstream.kinds.profile.estimate.sketch_facts import SketchFacts
from sketchstream.kinds.profile.mechanism import components, slots_kept
from sketchstream.kinds.profile.spec import ProfileSpec

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.observed import Observed
    from sketchstream.kinds.profile.reconstructed import ReconstructedProfile


REACH_COUNTS = (1, 2, 3, 5, 10, 20, 50, 100)


SCALARS = ("total", "mean", "entropy", "one_hit_ratio")


NORMAL, QUARTILE = 1.959963984540054, 0.6744897501960817
"""Half widths of a normal law's 95% and 50% intervals."""


def read(observed: Observed, max_count: int, method: str, about: SketchFacts | None = None) -> ReconstructedProfile:
    """Read the numbers of a published object by a method, with intervals that rest on its noise alone."""
    profile = reconstruction.reconstruct([observed], method=method, max_count=max_count, about=about)
    profile.facts = replace(profile.facts, wrapping=None)
    return profile


def total_noise(spec: ProfileSpec, parts: int, merges: int) -> tuple[Fraction, ...]:
    """Parameters of the draws in the noisy total of stacked sketches, each of `merges` states; () without a total."""
    total = next((part for part in components(spec) if part.name == TOTAL), None)
    if total is None:
        return ()
    fresh = () if spec.publish == "state" and not spec.intrusion else (spec.epsilon_publish,)
    return tuple(total.parameter(epsilon) for epsilon in (spec.epsilon, *fresh)) * (parts * merges)


def counted_deviation(
    name: str, draws: Sequence[Fraction], truths: Mapping[str, float], distinct: float, spec: ProfileSpec
) -> float | None:
    """Standard deviation of the total and of the mean if there is a noisy total; None for other numbers.

    Args:
        name: name of the number.
        draws: parameters of the draws in the total.
        truths: numbers of the assumed stream.
        distinct: standard deviation of the number of distinct items.
        spec: spec of the sketch; if only a sample of its items counts, the sample's error is added, as in intervals.
    """
    if not draws or name not in ("total", "mean"):
        return None
    p, items, total = share(spec), truths["distinct"], truths["total"]
    spread = (1.0 - p) / p
    squares = spread * (spec.max_total or 0) * total  # at most; 0 without a sample
    deviation = math.sqrt(NoiseSum(tuple(draws)).variance) / p
    if name == "total":
        return math.sqrt(deviation**2 + squares)
    noise = math.sqrt(max(distinct**2 - spread * items, 0.0))
    sampling = math.sqrt(max(squares - spread * total**2 / items, 0.0)) / total
    return truths["mean"] * math.hypot(deviation / total, noise / items, sampling)


def share(spec: ProfileSpec) -> float:
    """Share of the items that count: below 1 for a group of a sketch whose groups are ranked, and sampled domains."""
    return float(facts_of_spec(spec).share(spec.domain.expected_slots))


def facts_of_spec(spec: ProfileSpec) -> SketchFacts:
    """Facts for answers that say which items count."""
    return SketchFacts(sample=spec.sample, kept=slots_kept(spec.domain))


def names(spec: ProfileSpec, shares: Floats) -> list[str]:
    """Names of the planned numbers: k+ numbers until a thousandth of the items is left, and the scalars."""
    left = 1 - np.concatenate([[0.0], np.cumsum(shares)])
    reach = [k for k in REACH_COUNTS if k <= spec.max_count and k <= shares.size and left[k - 1] > 1e-3]
    return ["distinct", *(f"at_least.{k}" for k in reach if k > 1), *SCALARS]


def truths(names: Sequence[str], items: float, shares: Floats) -> dict[str, float]:
    """The numbers of the assumed stream."""
    t = np.arange(1, shares.size + 1, dtype=np.float64)
    mean = float(shares @ t)
    total = items * mean
    out = {
        "distinct": items,
        "total": total,
        "mean": mean,
        "one_hit_ratio": float(shares[0]),
        "entropy": math.log(total) - items * float(shares @ (t * np.log(t))) / total,
    }
    for name in names:
        if name.startswith("at_least."):
            out[name] = items * float(shares[int(name[9:]) - 1 :].sum())
    return out


def wrapping_shifts(names: Sequence[str], items: float, shares: Floats, spec: ProfileSpec) -> dict[str, float]:
    """How much each number of the counts modulo p exceeds that of the true counts; empty if no count wraps.

    Args:
        names: names of the numbers.
        items: items of the assumed stream.
        shares: shares of counts 1, 2, 3, ...
        spec: spec of the sketch; a noisy total, if it keeps one, does not wrap.
    """
    if spec.modulus is None or shares.size < spec.modulus:
        return {}
    residues = np.bincount(np.arange(1, shares.size + 1) % spec.modulus, shares)[1:]
    left = float(residues.sum())
    true = truths(names, items, shares)
    seen = truths(names, items * left, residues / left) if left > 0.0 else dict.fromkeys(true, 0.0)
    if total_noise(spec, 1, 1) and left > 0.0:
        seen |= {"total": true["total"], "mean": true["mean"] / left}
    return {name: seen[name] - true[name] for name in true}


def deviation(profile: ReconstructedProfile, name: str) -> float:
    """Standard deviation of a number: of closed domains' k+ numbers from the estimate, of others from the interval.

    For the others, two levels are compared, so that brackets of wide bins, which do not depend on the level, cancel;
    the longer half is used. Where the lower end of the wider one is 0, the two do not tell how far noise reaches: then
    it is at least what an interval from 0 to the value says. Infinite for the entropy of an open domain whose interval
    begins at 0: one item with nearly all events is not ruled out, but errors are much smaller unless there is one.
    Infinite if both ends are at the limits of possible values at both levels: then the interval does not depend on the
    noise. Infinite, too, where noise may hide all items of an open domain: estimates of numbers of items are then far
    from normal, with errors much above local widths.
    """
    if profile.facts.open_domain and name != "total" and profile.number("distinct", 0.95).low <= 0.0:
        return math.inf
    if not profile.facts.open_domain and (name == "distinct" or name.startswith("at_least.")):
        k = 1 if name == "distinct" else int(name.removeprefix("at_least."))
        return math.sqrt(max(float(profile.known_tail(k).variance[0]), 0.0))
    wide, narrow = profile.number(name, 0.95), profile.number(name, 0.5)
    if math.isinf(wide.high):
        return math.inf
    spread = float(max(wide.high - narrow.high, narrow.low - wide.low)) / (NORMAL - QUARTILE)
    if spread == 0.0 and narrow.high > narrow.low:
        return math.inf
    if wide.low > 0.0:
        return spread
    hidden = profile.facts.open_domain and name == "entropy"
    return math.inf if hidden else max(spread, float(wide.value) / NORMAL)


def central(spec: ProfileSpec, name: str) -> float | None:
    """Error of a curator who keeps raw counts and adds discrete Laplace noise of epsilon_publish to the answer."""
    if name == "distinct":
        epsilon = float(spec.epsilon_publish)  # one item appears or not
    elif name.startswith("at_least.") and spec.unit == "event" and spec.max_weight == 1:
        epsilon = float(spec.epsilon_publish)  # one event crosses one threshold
    else:
        return None
    a = math.exp(-epsilon)
    return math.sqrt(2 * a) / (1 - a)
