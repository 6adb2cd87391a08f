"""Planning: the errors that a spec will give, and the spec that an error needs.

In: a spec and expectations. Out: a `Plan`. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from sketchstream.errors import EstimateError, SpecError
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.options import METHODS
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.groups import spec_of_group
from sketchstream.kinds.profile.planner import figures
from sketchstream.kinds.profile.planner.expectation import count_law, expected_publication
from sketchstream.kinds.profile.planner.forecast import Expected, Plan
from sketchstream.kinds.profile.planner.heavy import expected_mean, tail_note
from sketchstream.kinds.profile.planner.simulation import simulate_errors as simulated_errors
from sketchstream.kinds.profile.spec import ProfileSpec, require_spec
from sketchstream.spec import OpenDomain, Unit, checked_int, require_choice

if TYPE_CHECKING:
    from sketchstream.kinds.profile.reconstructed import ReconstructedProfile

Vary = Literal["slots", "epsilon"]
BIAS_DEVIATIONS, BIAS_SHARE = 3.0, 0.02
"""A number of items is not found at all if it is off by more than both: standard deviations, share of the items."""
SHIFTED = 0.5
"""Share of a number's error above which the shift by counts that wrap is named."""
PAST = 1.3
"""More slots are not tried once slots outnumber items and an error is 1.3 times the least: empty slots' noise rules."""


class Expectation(TypedDict, total=False):
    """What is expected of a stream and its windows besides the number of items: arguments of `plan`."""

    mean: float
    law: str | Sequence[float]
    exponent: float
    parts: int
    merges: int
    windows: int


def plan(
    spec: ProfileSpec,
    *,
    items: float,
    mean: float = 3.0,
    law: str | Sequence[float] = "geometric",
    exponent: float = 2.0,
    parts: int = 1,
    merges: int = 1,
    windows: int = 1,
    runs: int = 0,
    method: str = "likelihood",
    seed: int = 0,
) -> Plan:
    """Compute the expected errors of all numbers of a sketch, or of one of its groups.

    Args:
        spec: spec of the sketch.
        items: distinct items expected in one window (over all parts); for a spec with groups: in one group.
        mean: mean of an item's count under the geometric law.
        law: law of the counts of items that occur: "geometric", "zipf" (exponent `exponent`, up to 10^4), or shares of
            counts 1, 2, 3, ...
        exponent: exponent of the Zipf law, above 1.
        parts: number of partitions whose sketches are stacked.
        merges: number of states merged into one (needs publish = "state").
        windows: number of windows in which the same item may occur: its losses add.
        runs: number of simulated runs of `method`, for comparison; 0: none. A run costs as much as one window.
        method: simulated method.
        seed: seed of the simulation.

    Raises:
        SpecError: an expectation is impossible.
        EstimateError: the items would crowd every level.

    Examples:
        >>> spec = ProfileSpec(epsilon="1", domain=OpenDomain(slots=2**20, levels=8))
        >>> 0.003 < plan(spec, items=1_000_000)["distinct"].relative < 0.008
        True
    """
    shares = count_law(law, mean, exponent)
    require_choice(method, "method", METHODS)
    _check(spec, items, parts, merges, windows, runs)
    single = spec if spec.groups is None else spec_of_group(spec)  # the spec of one group
    published = expected_publication(single, items * figures.share(single), shares, parts, merges)
    profile = figures.read(published, single.max_count, "inverse", figures.facts_of_spec(single))
    _refuse_crowded(profile, items)
    names = figures.names(single, shares)
    truths = figures.truths(names, items, shares)
    simulated = simulated_errors(single, items, shares, merges, runs, method, seed, truths) if runs else {}
    draws, distinct = figures.total_noise(single, parts, merges), figures.deviation(profile, "distinct")
    shifts = figures.wrapping_shifts(names, items, shares, single)
    numbers = {}
    for name in names:
        counted = figures.counted_deviation(name, draws, truths, distinct, single)
        deviation = figures.deviation(profile, name) if counted is None else counted
        error = math.hypot(deviation, shifts.get(name, 0.0))
        numbers[name] = Expected(truths[name], error, simulated.get(name), figures.central(single, name))
    ledger = initial_ledger(spec)
    loss, looked = ledger.loss(), ledger.loss(intrusion=True)
    above = items * float(shares[spec.max_count :].sum())
    gain = laws.gain(published.epsilons[1:]) if merges > 1 else 1.0
    return Plan(
        spec=spec,
        items=items,
        parts=parts,
        merges=merges,
        windows=windows,
        numbers=numbers,
        loss=loss,
        loss_with_intrusion=looked,
        merge_gain=gain,
        method=method,
        runs=runs,
        loss_notes=tuple(_loss_notes(spec.unit, loss, looked, windows)),
        other_notes=tuple(_other_notes(spec, numbers, above, gain, shifts)),
    )


def smallest_plan(
    spec: ProfileSpec,
    *,
    target: float,
    number: str | Sequence[str] = "distinct",
    vary: Vary = "slots",
    items: float,
    **expectation: Unpack[Expectation],
) -> Plan:
    """Find the smallest sketch, or the smallest epsilon, that gives a relative error.

    Args:
        spec: start of the search; its slots, or its epsilon and epsilon_publish, are varied.
        target: largest relative standard deviation, for example 0.02.
        number: "distinct", "at_least.3", ...; if several, each must reach the target.
        vary: "slots" (open domains; powers of two) or "epsilon" (to two digits).
        items: distinct items expected.
        expectation: further arguments of `plan`.

    Raises:
        SpecError: nothing within the limits reaches the target; the message names the best spec.
    """
    if not 0 < target < 1:
        raise SpecError(f"target must be a relative error between 0 and 1, for example 0.02, found {target!r:.20}")
    require_choice(vary, "vary", get_args(Vary))
    if vary == "slots" and not isinstance(spec.domain, OpenDomain):
        raise SpecError("only an open domain has slots to choose; a closed one has as many as items (vary = 'epsilon')")
    names = (number,) if isinstance(number, str) else tuple(number) if isinstance(number, Sequence) else (str(number),)
    best: Plan | None = None
    for candidate in _candidates(spec, vary, items):
        try:
            tried = plan(candidate, items=items, **expectation)
        except EstimateError:  # every level is too crowded
            continue
        unknown = [str(name) for name in names if name not in tried.numbers]
        if unknown or not names:
            raise SpecError(
                f"number must be one of {', '.join(tried.numbers)}, found {', '.join(unknown) or 'none':.40}"
            )
        error = tried.worst(names).relative
        if error <= target:
            return tried
        if best is None or error < best.worst(names).relative:
            best = tried
        if vary == "slots" and candidate.domain.size > items and error > PAST * best.worst(names).relative:
            break
    if best is None:
        raise SpecError(f"{items:g} items crowd every level of every size within the limits; more levels are needed")
    at = f"{best.spec.domain.size} slots" if vary == "slots" else f"epsilon {best.spec.epsilon}"
    error = best.worst(names).relative
    least = f"the best is {error:.2%} at {at}" if math.isfinite(error) else "noise may hide all items in each case"
    raise SpecError(f"no {vary} within the limits bring {', '.join(names)} to {target:.2%}; {least}")


def _candidates(spec: ProfileSpec, vary: Vary, items: float) -> list[ProfileSpec]:
    """Specs in ascending order of cost."""
    if vary == "slots":
        first = max(8, int(math.log2(max(items, 2))) - 6)
        sizes = [1 << power for power in range(first, min(first + 16, 31)) if 1 << power >= 2 * spec.levels]
        return [spec.changed(domain=OpenDomain(slots=size, levels=spec.levels)) for size in sizes]
    steps = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
    grid = [Fraction(step * 10**power, 1000) for power in (0, 1, 2) for step in steps] + [Fraction(10)]
    return [spec.changed(epsilon=epsilon, epsilon_publish=epsilon) for epsilon in grid if epsilon <= 10]


def _check(spec: ProfileSpec, items: float, parts: int, merges: int, windows: int, runs: int) -> None:
    """Refuse impossible expectations."""
    require_spec(spec)
    if not isinstance(items, (int, float)) or isinstance(items, bool) or not 1 <= items <= 1e12:
        raise SpecError(f"items must be the number of distinct items expected, from 1 to 10^12, found {items!r:.40}")
    if not isinstance(spec.domain, OpenDomain) and items > spec.domain.size:
        raise SpecError(f"{items:g} items do not fit a closed domain of {spec.domain.size}")
    checked_int(parts, "parts", 1, 1 << 20)
    checked_int(merges, "merges", 1, 64)
    checked_int(windows, "windows", 1, 1 << 20)
    checked_int(runs, "runs", 0, 10_000)
    if merges > 1 and spec.publish != "state":
        raise SpecError("only states can be merged: merges above 1 need publish = 'state'")
    if runs and (spec.domain.size > 1 << 24 or items > 1 << 24):
        raise SpecError("simulated runs are for at most 2^24 slots and items; the closed forms have no such limit")


def _refuse_crowded(profile: ReconstructedProfile, items: float) -> None:
    """Refuse a sketch whose slots are too crowded to estimate the number of items."""
    off, noise = abs(profile.distinct.value - items), figures.deviation(profile, "distinct")
    if math.isinf(profile.distinct.high):
        raise EstimateError(
            f"{items:,.0f} items crowd every level, or are hidden by its noise: what is published could not tell how "
            "many there are; take more slots, more levels or a larger epsilon"
        )
    if off > max(BIAS_DEVIATIONS * noise, BIAS_SHARE * items):
        raise EstimateError(
            f"{items:,.0f} items crowd every level: about {profile.distinct.value:,.0f} would be found; take more "
            "slots, or more levels"
        )


def _loss_notes(unit: Unit, loss: Fraction | float, looked: Fraction | float, windows: int) -> Iterator[str]:
    """Notes on what is lost to what is published, and with one copy of the open state (`looked`)."""
    seized = "without bound" if looked == math.inf else f"at most {looked}"
    yield (
        f"an {unit} loses at most {loss} to readers of what is published (epsilon_publish), and {seized} in all to "
        "somebody who also seizes the open state once (epsilon)"
    )
    if windows > 1:
        whose = "one that occurs in all of them" if unit == "item" else "a person with one event in each"
        yield f"{windows} windows: {whose} loses up to {loss * windows} in all to readers"


def _other_notes(
    spec: ProfileSpec,
    numbers: Mapping[str, Expected],
    above: float,
    gain: float,
    shifts: Mapping[str, float],
) -> list[str]:
    """Further notes for the reader of the table.

    Args:
        spec: spec of the sketch.
        numbers: each number with its error.
        above: items that are expected beyond the largest count.
        gain: factor by which merging multiplies the noise's worst frequency.
        shifts: how much wrapping shifts each number, as `figures.wrapping_shifts` gives it.
    """
    out = []
    if spec.groups is not None and spec.groups.ranked:
        out.append(
            f"an item counts in {spec.group_losses:,} of {spec.group_count:,} groups, chosen by the key: numbers are "
            "scaled up from those that count, and their errors have the sample's in them"
        )
    if spec.modulus is not None:
        out.append(
            f"counts are kept modulo {spec.modulus}: about {above:,.0f} items are expected above {spec.modulus - 1}, "
            "where counts wrap; the modulus must lie above the largest count that is wanted, and errors grow with it"
        )
        out.append(tail_note(spec, expected_mean(numbers)))
        if moved := [name for name, shift in shifts.items() if abs(shift) > SHIFTED * numbers[name].sd]:
            out.append(
                f"wrapping shifts {', '.join(moved)}: intervals are those of the counts modulo {spec.modulus}, and "
                "the errors here include the difference, which is the same in every window"
            )
    if gain > 1:
        out.append(f"merging multiplies the noise's worst frequency by {gain:.3g}; stack partitions instead")
    distinct = numbers["distinct"]
    if unknown := [name for name, number in numbers.items() if math.isinf(number.sd)]:
        out.append(
            f"the error of {', '.join(unknown)} is not known beforehand (inf): the interval reaches as far as possible "
            "values do, so that it does not tell how far noise moves the estimate"
        )
    if distinct.central is not None and distinct.central > 0 and math.isfinite(distinct.sd):
        factor = distinct.sd / distinct.central
        out.append(
            f"pan-privacy costs a factor of {factor:,.0f} in the error of distinct: a curator who keeps raw counts "
            f"would have a standard deviation of {distinct.central:.2g}"
        )
    if distinct.relative > 0.1 and isinstance(spec.domain, OpenDomain):
        out.append("noise dominates: fewer slots, or a larger epsilon, would do better (`smallest_plan` finds them)")
    return out
