"""From published histograms of counters to a profile with intervals: fits a law of counts, takes intervals, joins them.

In: `Observed` objects, and facts about the whole sketch. Out: a `ReconstructedProfile`. Touches: nothing.
Source: docs/theory/profile.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.kinds.options import METHODS, NORMS, require_method
from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.baselines import circulant, monotone
from sketchstream.kinds.profile.estimate.intervals import bounds
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty
from sketchstream.kinds.profile.estimate.intervals.sampled import ItemSample, scaled_up
from sketchstream.kinds.profile.estimate.intervals.totals import RatioEnds, TotalEnds
from sketchstream.kinds.profile.estimate.intervals.wrapping import Wrapping, top_of
from sketchstream.kinds.profile.estimate.linear import inverse
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.profile_numbers import Facts
from sketchstream.kinds.profile.estimate.sketch_facts import SketchFacts
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import clip_inside
from sketchstream.kinds.profile.reconstructed import ReconstructedProfile

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.fit import Fit
    from sketchstream.kinds.profile.estimate.uncertainty.bands import Ends

BASELINES: Final[Mapping[str, Callable[[Observed, int], Fit]]] = {
    "inverse": inverse.reconstruct,
    "monotone": monotone.reconstruct,
}
"""Methods without options that fit the parts of a closed domain one by one."""
MAX_RESOLVED: Final = 10_000_000
"""Largest max_count that a profile resolves cell by cell: an array of that length takes 80 MB."""


def reconstruct(
    observed: Sequence[Observed],
    *,
    method: str = "likelihood",
    max_count: int,
    norm: float | None = None,
    beta: float = 0.05,
    guarantee: Mapping[str, Any] | None = None,
    about: SketchFacts | None = None,
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
    chosen_norm = 2.0 if norm is None else float(norm)
    settings = {"norm": "inf" if chosen_norm == math.inf else int(chosen_norm), "beta": beta}
    about = about or SketchFacts()
    facts = _facts(parts, method, settings if method == "circulant" else {}, about)
    if facts.open_domain:
        from sketchstream.kinds.profile.estimate.open_domain import reconstruction

        fit, population, uncertainty = reconstruction.reconstruct(parts, method, max_count)
    else:
        fit = _closed_fit(parts, method, max_count, chosen_norm, beta)
        population, uncertainty = (
            float(sum(part.slots[0] for part in parts)),
            bounds.closed_domain_bands(parts, max_count),
        )
    facts = _with_evidence_of_wraps(facts, parts, uncertainty)
    whole = _extend_to_population(fit, population, _with_total(uncertainty, about), about, facts)
    return ReconstructedProfile(*_inside(*whole, facts), facts, guarantee)


def _closed_fit(parts: Sequence[Observed], method: str, max_count: int, norm: float, beta: float) -> Fit:
    """The law of counts of a closed domain by a method; see `reconstruct`."""
    if method == "likelihood":
        from sketchstream.kinds.profile.estimate.likelihood import estimator

        return estimator.reconstruct(parts, max_count)
    if method == "circulant":
        laws = [circulant.reconstruct(part, max_count, norm, beta) for part in parts]
    else:
        laws = [BASELINES[method](part, max_count) for part in parts]
    return fits.mix_fits(laws, [part.slots[0] for part in parts])


def _with_evidence_of_wraps(facts: Facts, parts: Sequence[Observed], uncertainty: Uncertainty) -> Facts:
    """The facts with the evidence for counts beyond the modulus, if counters wrap."""
    modulus = parts[0].modulus
    if modulus is None:
        return facts
    top, resolved = top_of(modulus), uncertainty.counts.ends(1.0)[0].size
    if top > resolved and facts.open_domain:
        from sketchstream.kinds.profile.estimate.open_domain import reconstruction

        uncertainty = reconstruction.reconstruct(parts, "inverse", modulus - 1)[2]
    elif top > resolved:
        uncertainty = bounds.closed_domain_bands(parts, modulus - 1)
    share = 1.0 if facts.sample is None else float(Fraction(facts.sample["share"]))
    return replace(facts, wrapping=Wrapping(modulus, uncertainty.tails.at(top).scaled(1.0 / share)))


def _extend_to_population(
    fit: Fit, population: float, uncertainty: Uncertainty, about: SketchFacts, facts: Facts
) -> tuple[Fit, float, Uncertainty]:
    """Fit, number of items and intervals of all items, where only a sample of them counted."""
    samples: list[tuple[Fraction, str, bool]] = []
    if (group := about.sample) is not None:
        covers = (
            f"which items count in the group: an item counts in {group.most:,} of {group.groups:,} groups, chosen by "
            "the key, and answers are scaled up from those that do"
        )
        samples.append((group.share, covers, False))
    if about.kept is not None:
        covers = "which items have a slot: the key keeps a sample of the domain, from which answers are scaled up"
        samples.append((about.kept_share(facts.d), covers, True))
    largest = None if about.total is None else about.max_total
    counted = 0.0 if about.total is None else float(about.total[0])
    closed, signed = not facts.open_domain, facts.method == "inverse"
    for share, covers, kept in samples:
        sample = ItemSample(float(share), covers, kept, largest, counted)
        fit, population, uncertainty = scaled_up(fit, population, uncertainty, sample, closed=closed, signed=signed)
        counted /= float(share)
    return fit, population, uncertainty


def _inside(fit: Fit, population: float, uncertainty: Uncertainty, facts: Facts) -> tuple[Fit, float, Uncertainty]:
    """The law of the likelihood of an open domain's noisy bins of events, every k+ number inside its 95% interval.

    These intervals then need not be widened, which would hide a bias. Elsewhere every count has a cell of its own, and
    estimates of small counts must not depend on how many are asked for; without collisions the likelihood is right
    where the intervals, which know less of wide bins, are not: it finds a single count inside of one.
    """
    noisy_bins = facts.open_domain and (facts.method, facts.form, facts.unit) == ("likelihood", "bins", "event")
    if not noisy_bins or population <= 0.0:
        return fit, population, uncertainty
    value = fits.tails(fit, population)
    low, high, way = uncertainty.tails.ends_and_ways(normal_quantile(LEVEL))
    moved = value.copy()
    moved[1:] = clip_inside(value[1:], low[1:], high[1:], way[1:], math.inf)
    if not (moved != value).any() or moved[1] <= 0.0:
        return fit, population, uncertainty
    items = float(moved[1])
    return fits.with_tails(fit, moved, items), items, uncertainty


def _with_total(uncertainty: Uncertainty, about: SketchFacts) -> Uncertainty:
    """Replace the intervals of total and mean by those that a noisy total gives."""
    if about.total is None:
        return uncertainty
    value, noise = float(about.total[0]), NoiseSum(about.total[1])
    ends: dict[str, Ends] = {"total": TotalEnds(value, noise), "mean": RatioEnds(value, noise, uncertainty.tails.at(1))}
    return replace(uncertainty, scalars={**uncertainty.scalars, **ends})


def _check(parts: list[Observed], method: str, max_count: int, norm: float | None) -> None:
    """Raise EstimateError if the parts cannot be reconstructed by this method."""
    require_method(method, METHODS)
    if not parts:
        raise EstimateError("nothing to reconstruct: no published object was given")
    if isinstance(max_count, bool) or not isinstance(max_count, int) or not 1 <= max_count <= MAX_RESOLVED:
        raise EstimateError(f"max_count must be a whole number from 1 to {MAX_RESOLVED:,}, found {max_count!r:.40}")
    if norm is not None and method != "circulant":
        raise EstimateError(f"norm belongs to method circulant, found method {method}")
    if norm is not None and norm not in NORMS.values():
        raise EstimateError(f"norm must be 1, 2 or inf, found {norm!r:.40}")
    first = parts[0]
    for part in parts:
        if part.unit != first.unit or part.open_domain != first.open_domain or part.modulus != first.modulus:
            raise EstimateError("parts of one profile must share unit, modulus and kind of domain")
    if first.modulus is not None and max_count >= first.modulus:
        raise EstimateError(f"max_count must be below the modulus {first.modulus}, found {max_count}")
    if method == "circulant" and first.open_domain:
        raise EstimateError("circulant knows nothing of collisions: open domains take likelihood, inverse or monotone")


def _facts(parts: list[Observed], method: str, settings: Mapping[str, object], about: SketchFacts) -> Facts:
    """Facts about the origin of the profile."""
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
