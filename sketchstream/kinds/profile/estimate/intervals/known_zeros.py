"""Items of a closed domain that have no slot in what was published, but whose count is known: zero.

In: a profile of the published slots, a number of items. Out: the profile of all items of the domain. Touches: nothing.

Partitions without a record make no sketch, so their items are missing from the stack of a complete window; with an
unchecked partitioner every partition has all slots, and all but one slot of each item are zeros too many.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bands import Band
from sketchstream.kinds.profile.estimate.result import Profile


def with_zeros(profile: Profile, zeros: int) -> Profile:
    """The profile after items with count 0 have joined, or (a negative number) left.

    Numbers of items that occurred, totals, means and quantiles stay; shares are over all items of the domain.

    Args:
        profile: of a closed domain.
        zeros: how many items join.

    Raises:
        EstimateError: an open domain, or fewer items left than none.
    """
    if profile.facts.open_domain:
        msg = "items without a slot are known in closed domains only"
        raise EstimateError(msg)
    before = profile._population
    after = before + zeros
    if after <= 0:
        msg = f"{-zeros} items cannot leave a domain of {before:.0f}"
        raise EstimateError(msg)
    if zeros == 0:
        return profile
    fit, known, scale = profile._fit, profile._known, before / after
    fractions = fit.fractions * scale
    fractions[0] += zeros / after
    return Profile(
        Fit(fractions, fit.heavy, fit.heavy_shares * scale),
        after,
        replace(
            known,
            fractions=_moved(known.fractions.scaled(scale), zeros / after),
            counts=_moved(known.counts, zeros),
            tails=replace(known.tails, band=_moved(known.tails.band, zeros)),
            above=known.above.scaled(scale),
        ),
        replace(profile.facts, d=round(after)),
        profile.guarantee,
    )


def _moved(band: Band, by: float) -> Band:
    """The band whose first entry is moved: that of count 0, or of all items."""
    step = np.zeros(band.low.size)
    step[0] = by
    return Band(band.low + step, band.high + step, band.variance)
