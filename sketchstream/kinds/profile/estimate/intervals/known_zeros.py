"""Items of a closed domain that have no published slot but a known count: zero.

In: a profile of the published slots, a number of items. Out: the profile of all items of the domain. Touches: nothing.

Partitions without a record have no sketch, so their items are missing from the stack of a complete window. With an
unchecked partitioner every partition has all slots, and all but one slot of each item are zeros too many.
"""

from __future__ import annotations

from dataclasses import replace

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bands import Moved
from sketchstream.kinds.profile.estimate.result import Profile


def with_zeros(profile: Profile, zeros: int) -> Profile:
    """Add items with count 0 to a profile, or remove them (a negative number).

    Numbers of items that occurred, totals, means and quantiles do not change; shares are over all items of the domain.

    Args:
        profile: of a closed domain.
        zeros: number of items to add.

    Raises:
        EstimateError: an open domain, or fewer than zero items would remain.
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
            fractions=Moved(known.fractions, scale, zeros / after),
            counts=Moved(known.counts, 1.0, zeros),
            tails=known.tails.moved(zeros),
            above=Moved(known.above, scale, 0.0),
        ),
        replace(profile.facts, d=round(after)),
        profile.guarantee,
    )
