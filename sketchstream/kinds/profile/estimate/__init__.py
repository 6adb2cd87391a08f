"""Reconstruction: from published histograms of counters to a profile with intervals.

In: `Observed` objects, and nothing else. Out: a `ReconstructedProfile`. Touches: nothing.
Source: docs/theory/profile.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.kinds.options import METHODS, NORMS, require_method
from sketchstream.kinds.profile.estimate.observed import Observed

if TYPE_CHECKING:
    from sketchstream.kinds.groups.group_list import GroupSample
    from sketchstream.kinds.profile.estimate.fit import Fit
    from sketchstream.kinds.profile.estimate.intervals.bands import Ends
    from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty
    from sketchstream.kinds.profile.estimate.profile_numbers import Facts
    from sketchstream.kinds.profile.estimate.result import ReconstructedProfile

BASELINES = {"circulant": "baselines.circulant", "inverse": "linear.inverse", "monotone": "baselines.monotone"}
"""Module of each method that takes the parts of a closed domain one by one; its `reconstruct` fits one."""
MAX_RESOLVED = 10_000_000
"""Largest max_count that a profile resolves cell by cell."""
FAR = 6.0
"""Standard deviations from which a number of slots is not that of a sample of the whole domain."""

__all__ = ["About", "Observed", "reconstruct"]


def reconstruct(
    observed: Sequence[Observed],
    *,
    method: str = "likelihood",
    max_count: int,
    norm: float | None = None,
    beta: float = 0.05,
    guarantee: Mapping[str, Any] | None = None,
    about: About | None = None,
) -> ReconstructedProfile:
    """Estimate a profile from published histograms.

    Args:
        observed: the published histograms: one, or several parts of one population that could not be added
            (different layers or costs). No setting and no stopping rule reads anything else.
        method: "likelihood" (default), "monotone", "inverse" or "circulant".
        max_count: largest count to resolve.
        norm: circulant only: 1, 2 (default) or inf.
        beta: circulant only: probability that the noise exceeds its truncation.
        guarantee: description of the privacy guarantee, included in exports.
        about: facts about the whole sketch if it has counters beside its slots: its epsilons and its noisy total.

    Raises:
        EstimateError: the method does not apply, or the parts do not belong together.

    Source: Wu & Pagh, ICML 2024; docs/theory/profile.md.
    """
    parts = list(observed)
    _check(parts, method, max_count, norm)
    from sketchstream.kinds.profile.estimate.fit import mixed
    from sketchstream.kinds.profile.estimate.intervals import bounds
    from sketchstream.kinds.profile.estimate.result import ReconstructedProfile

    settings: dict[str, object] = {}
    chosen = 2.0
    if method == "circulant":
        chosen = 2.0 if norm is None else float(norm)
        settings = {"norm": "inf" if chosen == math.inf else int(chosen), "beta": beta}
    about = about or About()
    facts = _facts(parts, method, settings, about)
    if parts[0].open_domain:
        from sketchstream.kinds.profile.estimate.open_domain import reconstruction

        def measured(n: int) -> Uncertainty:
            return reconstruction.reconstruct(parts, "inverse", n)[2]

        fit, population, known = reconstruction.reconstruct(parts, method, max_count)
        whole = _inside(*_whole(fit, population, _with_total(known, about), about, facts), facts)
        return ReconstructedProfile(*whole, _wrapped(facts, parts[0].modulus, known, measured), guarantee)
    # import only the chosen method: importing the likelihood takes a tenth of a second
    if method == "likelihood":
        from sketchstream.kinds.profile.estimate.likelihood import estimator

        fit = estimator.reconstruct(parts, max_count)
    else:
        reconstruct_one = import_module(f"{__name__}.{BASELINES[method]}").reconstruct
        options = (chosen, beta) if method == "circulant" else ()
        fit = mixed([reconstruct_one(part, max_count, *options) for part in parts], [part.slots[0] for part in parts])
    known = bounds.closed(parts, max_count)
    slots = float(sum(part.slots[0] for part in parts))
    facts = _wrapped(facts, parts[0].modulus, known, lambda n: bounds.closed(parts, n))
    return ReconstructedProfile(*_whole(fit, slots, _with_total(known, about), about, facts), facts, guarantee)


def _wrapped(facts: Facts, modulus: int | None, known: Uncertainty, measured: Callable[[int], Uncertainty]) -> Facts:
    """The facts with the evidence for counts beyond the modulus.

    Args:
        facts: of the profile.
        modulus: of the counters; None: they do not wrap.
        known: the uncertainty of the profile.
        measured: the uncertainty of a profile that resolves counts to this one.
    """
    if modulus is None:
        return facts
    from sketchstream.kinds.profile.estimate.intervals.wrapping import Wrapping, top_of

    top, resolved = top_of(modulus), known.counts.ends(1.0)[0].size
    band = (known if top <= resolved else measured(modulus - 1)).tails.at(top)
    share = 1.0 if facts.sample is None else float(Fraction(facts.sample["share"]))
    return replace(facts, wrapping=Wrapping(modulus, band.scaled(1.0 / share)))


@dataclass(frozen=True)
class About:
    """Facts about the whole sketch, for its profile.

    Args:
        epsilon: epsilon of the largest layer; None: that of the slots.
        cost: cost of the publication; None: that of the slots.
        total: noisy sum of the weights, and parameters of the discrete Laplace draws in it; None: not counted.
        signed: whether events may be deletions, so that a total may be negative.
        sample: which items counted, if not all did; answers are those of all of them.
        kept: items of a closed domain of which a sample has slots, and the probability of each; None: all have one.
        max_total: bound on the total of one item; None: unknown.
    """

    epsilon: Fraction | None = None
    cost: Fraction | None = None
    total: tuple[int, tuple[Fraction, ...]] | None = None
    signed: bool = False
    sample: GroupSample | None = None
    kept: tuple[int, Fraction] | None = None
    max_total: int | None = None

    def kept_share(self, slots: int) -> Fraction:
        """Share of a closed domain that has slots: so many of its items, which are known; the rate if some are missing.

        Args:
            slots: that were published.
        """
        if self.kept is None:
            return Fraction(1)
        size, rate = self.kept
        far = FAR * math.sqrt(float(rate * (1 - rate)) * size) + 1.0
        return Fraction(slots, size) if 0 < slots <= size and abs(slots - rate * size) <= far else rate

    def share(self, slots: int) -> Fraction:
        """Share of the items that counted: those with slots, and of these those that count in a group."""
        return self.kept_share(slots) * (1 if self.sample is None else self.sample.share)


def _whole(
    fit: Fit, population: float, known: Uncertainty, about: About, facts: Facts
) -> tuple[Fit, float, Uncertainty]:
    """Fit, number of items and intervals of all items, where only a sample of them counted."""
    if about.sample is None and about.kept is None:
        return fit, population, known
    from sketchstream.kinds.profile.estimate.intervals.sampled import ItemSample, scaled_up

    largest = None if about.total is None else about.max_total
    counted = 0.0 if about.total is None else float(about.total[0])

    def scaled(share: Fraction, said: str, *, kept: bool) -> tuple[Fit, float, Uncertainty]:
        sample = ItemSample(float(share), said, kept, largest, counted)
        return scaled_up(fit, population, known, sample, closed=not facts.open_domain, signed=facts.method == "inverse")

    if (one := about.sample) is not None:
        said = (
            f"which items count in the group: an item counts in {one.most:,} of {one.groups:,} groups, chosen by the "
            "key, and answers are scaled up from those that do"
        )
        fit, population, known = scaled(one.share, said, kept=False)
        counted /= float(one.share)
    if about.kept is not None:
        said = "which items have a slot: the key keeps a sample of the domain, from which answers are scaled up"
        fit, population, known = scaled(about.kept_share(facts.d), said, kept=True)
    return fit, population, known


def _inside(fit: Fit, population: float, known: Uncertainty, facts: Facts) -> tuple[Fit, float, Uncertainty]:
    """The law of the likelihood of an open domain's noisy bins of events, every k+ number inside its 95% interval.

    These intervals then need not be widened, which would hide a bias. Elsewhere every count has a cell of its own, and
    what is said of small counts must not hang on how many are asked for; without collisions the likelihood is right
    where the intervals, which know less of wide bins, are not: it finds a single count inside of one.
    """
    if (facts.method, facts.form, facts.unit) != ("likelihood", "bins", "event") or population <= 0.0:
        return fit, population, known
    from sketchstream.kinds.profile.estimate import fit as fits
    from sketchstream.kinds.profile.estimate.intervals.falling import between

    value = fits.tails(fit, population)
    low, high, way = known.tails.ends_and_ways(normal_quantile(LEVEL))
    moved = value.copy()
    moved[1:] = between(value[1:], low[1:], high[1:], way[1:], math.inf)
    if not (moved != value).any() or moved[1] <= 0.0:
        return fit, population, known
    items = float(moved[1])
    return fits.with_tails(fit, moved, items), items, known


def _with_total(known: Uncertainty, about: About) -> Uncertainty:
    """Replace the intervals of total and mean by those that a noisy total gives."""
    if about.total is None:
        return known
    from sketchstream.kinds.profile.estimate.intervals.totals import RatioEnds, TotalEnds

    value, noise = float(about.total[0]), NoiseSum(about.total[1])
    ends: dict[str, Ends] = {"total": TotalEnds(value, noise), "mean": RatioEnds(value, noise, known.tails.at(1))}
    return replace(known, scalars={**known.scalars, **ends})


def _check(parts: list[Observed], method: str, max_count: int, norm: float | None) -> None:
    """Raise EstimateError if the parts cannot be reconstructed by this method."""
    require_method(method, METHODS)
    if not parts:
        msg = "nothing to reconstruct: no published object was given"
        raise EstimateError(msg)
    if isinstance(max_count, bool) or not isinstance(max_count, int) or not 1 <= max_count <= MAX_RESOLVED:
        msg = f"max_count must be a whole number from 1 to {MAX_RESOLVED:,}, found {max_count!r:.40}"
        raise EstimateError(msg)
    if norm is not None and method != "circulant":
        msg = f"norm belongs to method circulant, found method {method}"
        raise EstimateError(msg)
    if norm is not None and norm not in NORMS.values():
        msg = f"norm must be 1, 2 or inf, found {norm!r:.40}"
        raise EstimateError(msg)
    first = parts[0]
    for part in parts:
        if part.unit != first.unit or part.open_domain != first.open_domain or part.modulus != first.modulus:
            msg = "parts of one profile must share unit, modulus and kind of domain"
            raise EstimateError(msg)
    if first.modulus is not None and max_count >= first.modulus:
        msg = f"max_count must be below the modulus {first.modulus}, found {max_count}"
        raise EstimateError(msg)
    if method == "circulant" and first.open_domain:
        msg = "circulant knows nothing of collisions: open domains take likelihood, inverse or monotone"
        raise EstimateError(msg)


def _facts(parts: list[Observed], method: str, settings: Mapping[str, object], about: About) -> Facts:
    """Facts about the origin of the profile."""
    from sketchstream.kinds.profile.estimate.profile_numbers import Facts

    layers = max((part.layers for part in parts), key=len)
    epsilon = about.epsilon or max(epsilon * part.max_weight for part in parts for _, epsilon in part.layers)
    cost = about.cost or max((part.cost for part in parts if part.cost is not None), default=None)
    d = sum(sum(part.slots) for part in parts)
    share = about.share(d)
    sample: dict[str, Any] = {} if share == 1 else {"share": str(share)}
    if about.sample is not None:
        sample["groups"] = about.sample.groups
    return Facts(
        method=method,
        unit=parts[0].unit,
        form=parts[0].form,
        d=d,
        layers=tuple((law, str(epsilon)) for law, epsilon in layers),
        epsilon=str(epsilon),
        cost=None if cost is None else str(cost),
        total=None if about.total is None else float(about.total[0] / share),
        signed=about.signed,
        sample=sample or None,
        open_domain=parts[0].open_domain,
        settings=dict(settings),
    )
