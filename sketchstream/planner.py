"""What accuracy a sketch will have, before there is one; and which slots or epsilon an accuracy needs.

In: a `ProfileSpec` and what is publicly expected of the stream (how many items, how often they occur). Out: `Plan`:
the expected error of every number, the privacy loss, the price of merging, and what the same epsilon would give a
curator who keeps raw counts. Touches: nothing; never data, never an open sketch.
Source: profile specification 5.5 and 5.6 (variances), 2.2 (losses).

No error law is written down twice: the expected published histogram is computed from the law of counts (collisions as
a compound Poisson law, noise as a convolution), and the very code that gives a published histogram its intervals is
asked for them. Variance estimates there are unbiased, so at the expected histogram they are the variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sketchstream.errors import EstimateError, SpecError
from sketchstream.spec import OpenDomain, ProfileSpec, require_spec, whole

if TYPE_CHECKING:
    import numpy.typing as npt

    from sketchstream.estimate.observed import Observed
    from sketchstream.estimate.result import Profile

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

Vary = Literal["slots", "epsilon"]
REACH = (1, 2, 3, 5, 10, 20, 50, 100)
SCALARS = ("total", "mean", "entropy", "one_hit_ratio")
LONGEST_LAW = 1 << 16
NORMAL, QUARTILE = 1.959963984540054, 0.6744897501960817
"""Half widths of a normal law's 95% and 50% intervals."""


@dataclass(frozen=True)
class Expected:
    """One number of a plan.

    Args:
        value: what the assumed stream has.
        sd: standard deviation of the linear estimate, on which the published interval rests (half its width / 1.96).
        simulated: root mean squared error of the chosen method in simulated runs; None if none were asked for.
        central: standard deviation that a curator with raw counts would reach at the same epsilon; None where no
            such law is known.
    """

    value: float
    sd: float
    simulated: float | None = None
    central: float | None = None

    @property
    def relative(self) -> float:
        """`sd` as a share of the value; infinite for a value of 0."""
        return self.sd / self.value if self.value > 0 else math.inf

    def to_dict(self) -> dict[str, float | None]:
        """Plain data; an infinite relative error is null."""
        relative = self.relative
        return {
            "value": self.value,
            "sd": self.sd,
            "relative": relative if math.isfinite(relative) else None,
            "simulated": self.simulated,
            "central": self.central,
        }


@dataclass(frozen=True)
class Plan:
    """What to expect of a sketch.

    Args:
        spec: of the sketch.
        items: expected distinct items. parts: stacked partitions. merges: states merged.
        numbers: by name: distinct, at_least.K, total, mean, entropy, one_hit_ratio.
        loss: most that an event (or item) loses by one window's publication.
        loss_with_intrusion: with one unannounced look at the open state.
        windows: windows over which an item's losses add.
        merge_gain: factor by which the noise's worst frequency grows in each merged state (1 without merging).
        method, runs: of the simulation.
    """

    spec: ProfileSpec
    items: float
    parts: int
    merges: int
    windows: int
    numbers: Mapping[str, Expected]
    loss: Fraction | float
    loss_with_intrusion: Fraction | float
    merge_gain: float
    method: str
    runs: int = 0
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> Expected:
        """One number by name."""
        return self.numbers[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; exact rationals as strings, "inf" for an unlimited loss."""
        domain = self.spec.domain
        return {
            "epsilon": str(self.spec.epsilon),
            "epsilon_publish": str(self.spec.epsilon_publish),
            "unit": self.spec.unit,
            "slots": domain.size,
            "levels": domain.levels,
            "items": self.items,
            "parts": self.parts,
            "merges": self.merges,
            "windows": self.windows,
            "numbers": {name: number.to_dict() for name, number in self.numbers.items()},
            "loss": str(self.loss),
            "loss_with_intrusion": str(self.loss_with_intrusion),
            "loss_over_windows": str(self.loss * self.windows),
            "merge_gain": self.merge_gain,
            "simulated": {"method": self.method, "runs": self.runs} if self.runs else None,
            "notes": list(self.notes),
        }

    def rows(self) -> list[list[str]]:
        """Number, value, error, relative error, simulated error, central error; as text."""
        from sketchstream.estimate.result import shown

        def cell(value: float | None) -> str:
            return "-" if value is None else shown(value)

        return [
            [name, shown(one.value), shown(one.sd), f"{one.relative:.2%}", cell(one.simulated), cell(one.central)]
            for name, one in self.numbers.items()
        ]

    def __str__(self) -> str:
        header = ["number", "value", "sd", "relative", "simulated", "central"]
        table = [header, *self.rows()]
        widths = [max(len(row[column]) for row in table) for column in range(len(header))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]
        return "\n".join([*lines, *self.notes])


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
    """Expected errors of everything that a sketch will say.

    Args:
        spec: of the sketch.
        items: distinct items expected in one window (over all parts).
        mean: of an item's count under the geometric law.
        law: of the counts of items that occur: "geometric", "zipf" (exponent `exponent`, up to 10^4), or shares of
            counts 1, 2, 3, ...
        exponent: of the Zipf law, above 1.
        parts: partitions whose sketches are stacked.
        merges: states merged into one (needs publish = "state").
        windows: windows in which the same item may occur: its losses add.
        runs: simulated runs of `method` beside the closed forms; 0: none. A run costs as much as one window.
        method: what is simulated.
        seed: of the simulation.

    Raises:
        SpecError: an expectation that cannot be.
        EstimateError: the items would crowd every level.

    Examples:
        >>> spec = ProfileSpec(epsilon="1", domain=OpenDomain(slots=2**20, levels=8))
        >>> 0.003 < plan(spec, items=1_000_000)["distinct"].relative < 0.008
        True
    """
    shares = _law(law, mean, exponent)
    _check(spec, items, parts, merges, windows, runs)
    published = _expected(spec, items, shares, parts, merges)
    profile = _read(published, spec.max_count, "inverse")
    names = _names(spec, shares)
    truths = _truths(names, items, shares)
    simulated = _simulated(spec, items, shares, merges, runs, method, seed, truths) if runs else {}
    numbers = {
        name: Expected(truths[name], _sd(profile, name), simulated.get(name), _central(spec, name)) for name in names
    }
    loss, looked = _losses(spec)
    gain = math.prod(_gain(float(epsilon)) for _, epsilon in published.layers[1:]) if merges > 1 else 1.0
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
        notes=tuple(_notes(spec, numbers, loss, windows, merges, gain)),
    )


def required(
    spec: ProfileSpec,
    *,
    target: float,
    number: str = "distinct",
    vary: Vary = "slots",
    items: float,
    **expectation: Any,
) -> Plan:
    """The smallest sketch, or the smallest epsilon, that gives a relative error.

    Args:
        spec: where to start; its slots, or its epsilon and epsilon_publish, are varied.
        target: relative standard deviation wanted, for example 0.02.
        number: "distinct", "at_least.3", ...
        vary: "slots" (open domains; powers of two) or "epsilon" (to two digits).
        items: distinct items expected.
        expectation: as of `plan`.

    Raises:
        SpecError: nothing within the limits reaches the target; says the best there is.
    """
    if not 0 < target < 1:
        msg = f"target must be a relative error between 0 and 1, for example 0.02, found {target!r:.20}"
        raise SpecError(msg)
    if vary == "slots" and not isinstance(spec.domain, OpenDomain):
        msg = "only an open domain has slots to choose; a closed one has as many as items (vary = 'epsilon')"
        raise SpecError(msg)
    if vary not in ("slots", "epsilon"):
        msg = f"vary must be 'slots' or 'epsilon', found {vary!r:.20}"
        raise SpecError(msg)
    best: Plan | None = None
    for candidate in _candidates(spec, vary, items):
        try:
            found = plan(candidate, items=items, **expectation)
        except EstimateError:  # every level is too crowded
            continue
        if number not in found.numbers:
            msg = f"number must be one of {', '.join(found.numbers)}, found {number!r:.40}"
            raise SpecError(msg)
        if best is None or found[number].relative < best[number].relative:
            best = found
        if found[number].relative <= target:
            return found
    if best is None:
        msg = f"{items:g} items crowd every level of every size within the limits; more levels are needed"
        raise SpecError(msg)
    at = f"{best.spec.domain.size} slots" if vary == "slots" else f"epsilon {best.spec.epsilon}"
    msg = f"no {vary} within the limits bring {number} to {target:.2%}; the best is {best[number].relative:.2%} at {at}"
    raise SpecError(msg)


def _candidates(spec: ProfileSpec, vary: Vary, items: float) -> list[ProfileSpec]:
    """Specs from cheap to dear."""
    if vary == "slots":
        first = max(8, int(math.log2(max(items, 2))) - 6)
        sizes = [1 << power for power in range(first, min(first + 16, 31)) if 1 << power >= 2 * spec.levels]
        return [_with(spec, domain=OpenDomain(slots=size, levels=spec.levels)) for size in sizes]
    steps = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
    grid = [Fraction(step * 10**power, 1000) for power in (0, 1, 2) for step in steps] + [Fraction(10)]
    return [_with(spec, epsilon=epsilon, epsilon_publish=epsilon) for epsilon in grid if epsilon <= 10]


def _with(spec: ProfileSpec, **changes: Any) -> ProfileSpec:
    """`spec` with some fields changed."""
    names = ("epsilon", "unit", "domain", "max_count", "max_weight", "publish", "epsilon_publish", "intrusion", "bits")
    fields: dict[str, Any] = {name: getattr(spec, name) for name in names} | changes
    return ProfileSpec(modulus=spec.modulus, **fields)


def _check(spec: ProfileSpec, items: float, parts: int, merges: int, windows: int, runs: int) -> None:
    """Refuse expectations that cannot be."""
    require_spec(spec)
    if not isinstance(items, (int, float)) or isinstance(items, bool) or not 1 <= items <= 1e12:
        msg = f"items must be the number of distinct items expected, from 1 to 10^12, found {items!r:.40}"
        raise SpecError(msg)
    if not isinstance(spec.domain, OpenDomain) and items > spec.domain.size:
        msg = f"{items:g} items do not fit a closed domain of {spec.domain.size}"
        raise SpecError(msg)
    whole(parts, "parts", 1, 1 << 20)
    whole(merges, "merges", 1, 64)
    whole(windows, "windows", 1, 1 << 20)
    whole(runs, "runs", 0, 10_000)
    if merges > 1 and spec.publish != "state":
        msg = "only states can be merged: merges above 1 need publish = 'state'"
        raise SpecError(msg)
    if runs and (spec.domain.size > 1 << 24 or items > 1 << 24):
        msg = "simulated runs are for at most 2^24 slots and items; the closed forms have no such limit"
        raise SpecError(msg)


def _law(law: str | Sequence[float], mean: float, exponent: float) -> Floats:
    """Shares of counts 1, 2, 3, ... among the items that occur."""
    if isinstance(law, str):
        if law == "geometric":
            if not 1 <= mean <= 10_000:
                msg = f"mean must be from 1 to 10000, found {mean!r:.20}"
                raise SpecError(msg)
            longest = min(LONGEST_LAW, math.ceil(30 * mean))
            shares = (1 - 1 / mean) ** np.arange(longest) / mean
        elif law == "zipf":
            if not exponent > 1:
                msg = f"exponent must be above 1, found {exponent!r:.20}"
                raise SpecError(msg)
            shares = np.arange(1.0, 10_001.0) ** -exponent
        else:
            msg = f"law must be 'geometric', 'zipf' or the shares of counts 1, 2, 3, ..., found {law!r:.40}"
            raise SpecError(msg)
    else:
        shares = np.asarray(law, dtype=np.float64)
        if shares.ndim != 1 or not 1 <= shares.size <= LONGEST_LAW or not (shares >= 0).all() or not shares.sum() > 0:
            msg = f"the shares of counts 1, 2, 3, ... must be at most {LONGEST_LAW} non-negative numbers, not all 0"
            raise SpecError(msg)
    out: Floats = shares / shares.sum()
    return out


def _layers(spec: ProfileSpec, merges: int) -> tuple[Fraction, ...]:
    """Effective epsilons of the layers in what is published."""
    own = [spec.epsilon / spec.max_weight]
    if spec.publish == "state" and spec.intrusion:
        own.append(spec.epsilon_publish / spec.max_weight)
    return tuple(own * merges)


def _expected(spec: ProfileSpec, items: float, shares: Floats, parts: int, merges: int) -> Observed:
    """The expected published object of `parts` stacked parts, as the estimators see it."""
    from sketchstream.estimate.observed import DISCRETE_LAPLACE, RANDOMIZED_RESPONSE, Observed

    layers = _layers(spec, merges)
    domain = spec.domain
    if isinstance(domain, OpenDomain):
        per_level = [domain.slots_per_level] * domain.levels
        level_shares = tuple(float(share) for share in domain.level_shares())
        rates = [items / parts * share / domain.slots_per_level for share in level_shares]
        laws = [_crowded(rate, shares, spec.modulus) for rate in rates]
    else:
        per_level = [max(1, round(domain.size / parts))]
        level_shares = (1.0,)
        rate = min(1.0, items / domain.size)
        laws = [np.concatenate([[1 - rate], rate * shares])]
    low, noisy = _noisy(laws, layers, spec.modulus)
    if spec.publish == "state":
        edges, values = low + np.arange(noisy.shape[1]), _rounded(noisy, per_level)
        form: Any = "state"
    else:
        form, edges = spec.form, spec.edges
        values = _binned(noisy, low, edges, spec.form, per_level)
    name = DISCRETE_LAPLACE if spec.unit == "event" else RANDOMIZED_RESPONSE
    return Observed(
        unit=spec.unit,
        form=form,
        open_domain=isinstance(domain, OpenDomain),
        layers=tuple((name, epsilon) for epsilon in layers),
        slots=tuple(parts * m for m in per_level),
        hashed_into=tuple(per_level),
        shares=level_shares,
        edges=edges.astype(np.int64),
        values=parts * values,
        cost=None if spec.publish == "state" else spec.epsilon_publish,
        parts=parts,
        modulus=spec.modulus,
        max_weight=spec.max_weight,
        digest=b"plan",
    )


def _crowded(rate: float, shares: Floats, modulus: int | None) -> Floats:
    """Law of a slot's count when items are thrown in at this rate: compound Poisson, by FFT."""
    mean = rate * float(shares @ np.arange(1, shares.size + 1))
    square = rate * float(shares @ np.arange(1, shares.size + 1) ** 2)
    longest = shares.size + 1 + math.ceil(mean + 12 * math.sqrt(square + 1))
    size = modulus if modulus is not None else 1 << (longest - 1).bit_length()
    law = np.bincount(np.arange(1, shares.size + 1) % size, shares, size)
    slot = np.fft.irfft(np.exp(rate * (np.fft.rfft(law) - 1)), size)
    kept: Floats = np.clip(slot, 0, None)
    out: Floats = kept / kept.sum()
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


def _rounded(noisy: Floats, slots: Sequence[int]) -> Ints:
    """(levels, N) whole numbers near slots * law that add up to the slots."""
    ends = np.rint(np.cumsum(noisy, axis=1) * np.asarray(slots)[:, None])
    out: Ints = np.diff(ends, axis=1, prepend=0.0).astype(np.int64)
    return out


def _binned(noisy: Floats, low: int, edges: Ints, form: str, slots: Sequence[int]) -> Ints:
    """Expected published values at the edges."""
    d = np.asarray(slots, dtype=np.float64)[:, None]
    at_least = np.concatenate([np.cumsum(noisy[:, ::-1], axis=1)[:, ::-1], np.zeros((noisy.shape[0], 1))], axis=1)
    tails = at_least[:, np.clip(edges - low, 0, noisy.shape[1])]
    if form == "cumulative":
        found = tails
    else:
        found = tails - np.concatenate([tails[:, 1:], np.zeros((tails.shape[0], 1))], axis=1)
    out: Ints = np.rint(found * d).astype(np.int64)
    return out


def _read(observed: Observed, max_count: int, method: str) -> Profile:
    from sketchstream import estimate

    return estimate.reconstruct([observed], method=method, max_count=max_count)


def _names(spec: ProfileSpec, shares: Floats) -> list[str]:
    """Numbers worth planning for: reach up to where a thousandth of the items is left, and the scalars."""
    left = 1 - np.concatenate([[0.0], np.cumsum(shares)])
    reach = [k for k in REACH if k <= spec.max_count and k <= shares.size and left[k - 1] > 1e-3]
    return ["distinct", *(f"at_least.{k}" for k in reach if k > 1), *SCALARS]


def _truths(names: Sequence[str], items: float, shares: Floats) -> dict[str, float]:
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


def _sd(profile: Profile, name: str) -> float:
    """Standard deviation behind an interval.

    Two levels are compared, so that brackets of wide bins, which do not depend on the level, fall out; the upper half
    is taken, for the lower end may stand at 0.
    """
    wide, narrow = profile.interval(name, 0.95), profile.interval(name, 0.5)
    return float(max(wide.high - narrow.high, narrow.low - wide.low)) / (NORMAL - QUARTILE)


def _central(spec: ProfileSpec, name: str) -> float | None:
    """Error of a curator who keeps raw counts and adds discrete Laplace noise of epsilon_publish to the answer."""
    if name == "distinct":
        epsilon = float(spec.epsilon_publish)  # one item appears or not
    elif name.startswith("at_least.") and spec.unit == "event" and spec.max_weight == 1:
        epsilon = float(spec.epsilon_publish)  # one event crosses one threshold
    else:
        return None
    a = math.exp(-epsilon)
    return math.sqrt(2 * a) / (1 - a)


def _gain(epsilon: float) -> float:
    """How much one more layer amplifies the worst frequency: coth(epsilon / 2)^2."""
    return 1 / math.tanh(epsilon / 2) ** 2


def _losses(spec: ProfileSpec) -> tuple[Fraction | float, Fraction | float]:
    """Loss of one window's publication, and with one unannounced look."""
    from sketchstream.privacy.deployment import planned

    ledger = planned(spec)
    return ledger.loss(), ledger.loss(intrusion=True)


def _notes(
    spec: ProfileSpec,
    numbers: Mapping[str, Expected],
    loss: Fraction | float,
    windows: int,
    merges: int,
    gain: float,
) -> list[str]:
    """What a reader should know beside the table."""
    out = []
    unit = spec.unit
    if windows > 1:
        whose = "one that occurs in all of them" if unit == "item" else "a person with one event in each"
        out.append(f"{windows} windows: {whose} loses up to {loss * windows} in all")
    else:
        out.append(f"an {unit} loses at most {loss}")
    if merges > 1:
        out.append(
            f"merging {merges} states multiplies the noise's worst frequency by {gain:.3g}; stack partitions instead"
        )
    distinct = numbers["distinct"]
    if distinct.central is not None and distinct.central > 0:
        factor = distinct.sd / distinct.central
        out.append(
            f"pan-privacy costs a factor of {factor:,.0f} in the error of distinct: a curator who keeps raw counts "
            f"would have a standard deviation of {distinct.central:.2g}"
        )
    if distinct.relative > 0.1 and isinstance(spec.domain, OpenDomain):
        out.append("noise dominates: fewer slots, or a larger epsilon, would do better (`required` finds them)")
    return out


def _simulated(
    spec: ProfileSpec,
    items: float,
    shares: Floats,
    merges: int,
    runs: int,
    method: str,
    seed: int,
    truths: Mapping[str, float],
) -> dict[str, float]:
    """Root mean squared errors over simulated sketches of one part."""
    from sketchstream.estimate import simulate

    rng = np.random.default_rng(seed)
    count = round(items)
    errors: dict[str, list[float]] = {name: [] for name in truths}
    layers = _layers(spec, merges)
    for _ in range(runs):
        held = rng.choice(np.arange(1, shares.size + 1), size=count, p=shares)
        true = _truths(list(truths), count, np.bincount(held, minlength=2)[1:] / count)
        if isinstance(spec.domain, OpenDomain):
            counters = simulate.hashed(held, spec.domain.slots, spec.domain.levels, rng)
        else:
            counters = [np.concatenate([held, np.zeros(spec.domain.size - count, np.int64)])]
        observed = simulate.publish(
            counters,
            epsilon=layers[0] * spec.max_weight,
            rng=rng,
            unit=spec.unit,
            form="state" if spec.publish == "state" else spec.form,
            cost=None if spec.publish == "state" else spec.epsilon_publish,
            layers=len(layers),
            max_count=spec.max_count,
            modulus=spec.modulus,
            max_weight=spec.max_weight,
            open_domain=isinstance(spec.domain, OpenDomain),
        )
        profile = _read(observed, spec.max_count, method)
        for name in truths:
            errors[name].append(profile.interval(name).value - true.get(name, 0.0))
    return {name: math.sqrt(float(np.mean(np.square(values)))) for name, values in errors.items()}
