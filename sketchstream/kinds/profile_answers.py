"""What readers ask of a profile, from whatever kind of sketch it was reconstructed.

In: what a kind computes. Out: `Profile`. Touches: nothing.
Source: docs/theory/profile.md 8.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, overload

from sketchstream.array_types import Floats
from sketchstream.kinds.answers import LEVEL, Answers
from sketchstream.kinds.estimates import Estimate
from sketchstream.texts.naming import USUAL, Names

TREND: Final = {"distinct": "distinct", "at_least.2": "2 times\nor more", "at_least.10": "10 times\nor more"}
"""Numbers that are drawn together over windows, and their labels."""


class Profile(Answers):
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
    counts near p show, ends of intervals allow for wrapped ones (docs/theory/profile.md 7).

    As answers of any kind, its `values` are the numbers of items with a count of at least 0, 1, .. `max_count`.
    """

    question = "at_least"
    names: Names = USUAL
    """What items and events are called in the profile's tables and charts; a configuration has the names."""
    facts: Any
    """Facts about the profile's origin."""
    covers: str
    """What the intervals cover."""
    fractions: Floats
    """(n+1,) shares of the items that occurred exactly t times."""
    _guarantee: dict[str, Any] | None = None

    @property
    def guarantee(self) -> dict[str, Any] | None:
        """The guarantee of the publication, as plain data; None if it is not known."""
        return self._guarantee

    @guarantee.setter
    def guarantee(self, statement: Mapping[str, Any]) -> None:
        """Set the guarantee of a deployment, which its configuration knows more of."""
        self._guarantee = dict(statement)

    @property
    def max_count(self) -> int:
        """Largest count that the profile resolves, n."""
        return self.fractions.size - 1

    @property
    @abstractmethod
    def counts(self) -> Floats:
        """(n+1,) numbers of items that occurred exactly t times, not rounded."""

    @property
    def above(self) -> Estimate:
        """Share of the items whose count is beyond `max_count`."""
        return self.number("above")

    @property
    def distinct(self) -> Estimate:
        """Number of items that occurred."""
        return self.number("distinct")

    @property
    def total(self) -> Estimate:
        """Total weight of the events."""
        return self.number("total")

    @property
    def mean(self) -> Estimate:
        """Mean count of the items that occurred."""
        return self.number("mean")

    @property
    def entropy(self) -> Estimate:
        """Shannon entropy, in nats, of the distribution of the events over the items."""
        return self.number("entropy")

    @property
    def one_hit_ratio(self) -> Estimate:
        """Share of the items that occurred exactly once, among those that occurred."""
        return self.number("one_hit_ratio")

    @property
    def coverage(self) -> Estimate:
        """Good-Turing coverage 1 - f1/N: probability that one more event is of an item already seen."""
        return self.number("coverage")

    @abstractmethod
    def at_least(self, k: int) -> Estimate:
        """Number of items that occurred k times or more (k+ reach), 0 <= k <= max_count + 1."""

    @abstractmethod
    def exactly(self, k: int) -> Estimate:
        """Number of items that occurred exactly k times, 0 <= k <= max_count."""

    @abstractmethod
    def quantile(self, q: float) -> Estimate:
        """Smallest count such that a share q of the items that occurred have at most this count."""

    @overload
    def number(  # type: ignore[overload-overlap]
        self, name: Literal["fractions", "counts"], level: float = LEVEL
    ) -> Floats: ...

    @overload
    def number(self, name: str, level: float = LEVEL) -> Estimate: ...

    def number(self, name: str, level: float = LEVEL) -> Estimate | Floats:
        """Estimate with an interval of another level.

        Args:
            name: distinct, total, mean, entropy, one_hit_ratio, coverage, above, "at_least.3", "exactly.1",
                "quantile.0.9", or fractions, counts (an (n+1, 2) array of low and high is returned).
            level: coverage probability, between 0 and 1.

        Raises:
            EstimateError: an unknown name, or a level, k or q outside its range.
        """
        return self._number(name, level)

    @abstractmethod
    def _number(self, name: str, level: float) -> Estimate | Floats:
        """See `number`."""

    def chosen(self, names: Sequence[str]) -> dict[str, Estimate | None]:
        """Numbers by name; None for counts that the profile does not resolve."""
        return {name: self.number(name) if has_number(name, self.max_count) else None for name in names}

    @abstractmethod
    def with_zeros(self, zeros: int) -> Self:
        """The profile with further items of count 0: those of the domain that have no published slot.

        Partitions without a record have no sketch, so their items are missing from the stack of a complete window. With
        an unchecked partitioner every partition has all slots, and all but one slot of each item are zeros too many.
        Numbers of items that occurred, totals, means and quantiles do not change; shares are over all items.

        Args:
            zeros: number of items to add, or, if negative, to remove.

        Raises:
            EstimateError: an open domain, or fewer than zero items would remain.
        """

    @abstractmethod
    def heading(self) -> str:
        """What the profile was reconstructed from, in one line."""

    @abstractmethod
    def summary_rows(self) -> list[tuple[str, str, str, str]]:
        """The most important numbers as texts: name, estimate, low, high."""

    @abstractmethod
    def counts_csv(self) -> str:
        """CSV of the command line and the service: a line for each count 0, 1, .. `max_count`, with a header line."""


def has_number(name: str, max_count: float) -> bool:
    """Whether profiles up to a largest count can have a number of that name."""
    kind, _, k = name.partition(".")
    largest = {"at_least": max_count + 1, "exactly": max_count}
    return kind not in largest or not k.isdecimal() or int(k) <= largest[kind]
