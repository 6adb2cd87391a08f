"""The profile: the numbers of items that occurred so often, as data, tables, text and pictures.

In: see `profile_numbers`. Out: `Profile`. Touches: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchstream.kinds.profile import pictures
from sketchstream.kinds.profile.estimate.profile_numbers import ProfileNumbers
from sketchstream.kinds.profile.show import export, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from sketchstream.kinds.profile.estimate.observed import Floats


class Profile(ProfileNumbers):
    """Numbers of items that occurred exactly t times, and quantities derived from them.

    In a closed domain the shares are over all items of the domain, index 0 the absent ones. In an open domain they
    are over the distinct items that occurred, and index 0 is 0. Every number comes from one law of counts
    (`fractions`, and the counts of the share `above`), so they agree with each other. Intervals come from unbiased
    linear estimates of the same object, whatever the method; `covers` says what they cover. In noisy bins of events
    of an open domain the law of the likelihood is held inside the 95% intervals of the k+ numbers; other intervals are
    widened to contain the value.

    Method `inverse` is exactly unbiased count by count, so its `fractions`, `counts` and `above` are signed (noise
    makes some negative), and k+ numbers need not fall. All other numbers are clipped to possible values: no number of
    items below 0 or beyond the domain, no ratio outside 0 to 1. If the items of an open domain add up to less than
    one, its profile is empty, as shares would have no denominator.

    With unit "item" counts are kept modulo p. An `Estimate` says in `bound` where that makes it a bound, and where
    counts near p show, ends of intervals allow for wrapped ones (`estimate.intervals.wrapping`).

    As answers of any kind, its `values` are the numbers of items with a count of at least 0, 1, .. `max_count`.
    """

    def sketch_facts(self) -> dict[str, Any]:
        """From the facts and the guarantee; losses are pure."""
        privacy = {"epsilon": self.facts.epsilon, "delta": "0"}
        warned = self._guarantee is not None and bool(self._guarantee.get("no_privacy"))
        return {"kind": "profile", "unit": self.facts.unit, **privacy, "no_privacy": warned}

    def more(self, level: float) -> dict[str, Any]:
        """See `export.more`."""
        return export.more(self, level)

    def _draw(self, truth: Floats | None = None) -> Figure:
        """The profile and the k+ curve with their bands; `truth` holds true numbers of items at counts 0, 1, .."""
        return plots.draw(self, truth)

    def _repr_html_(self) -> str:
        """For notebooks: the most important numbers, the k+ curve, one line of guarantee."""
        return pictures.card(self)

    def __rich__(self) -> Table:
        return export.table(self)

    def __str__(self) -> str:
        return export.text(self)

    def __repr__(self) -> str:
        facts = self.facts
        return f"Profile(method={facts.method!r}, unit={facts.unit!r}, d={facts.d}, max_count={self.max_count})"
