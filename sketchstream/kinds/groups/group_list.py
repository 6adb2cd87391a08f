"""The declared list of groups of a sketch.

In: names of groups, a promise of the source, events with the name of their group. Out: a checked list, and the position
of each event's group. Touches: nothing.
Source: docs/theory/privacy.md, section 5 (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items
from sketchstream.spec import checked_int, exact_noise, flag, require_choice

if TYPE_CHECKING:
    from sketchstream.items.columns import Choices, RecordColumn

OTHER = "other"
"""Name of the group for values that are not in the list, if there is one."""
MAX_GROUPS = 10_000
Codes = npt.NDArray[np.int32]
GroupLimit = Literal["promised", "ranked"]
"""Who keeps an item within `max_groups` groups: its source, or the sketch, by a keyed ranking."""


def require_few(number: int, slots: int, itemsize: int) -> None:
    """Refuse more groups than a sketch may have, with the memory that they would need.

    Args:
        number: how many groups there are.
        slots: slots of each.
        itemsize: bytes of a counter.

    Raises:
        SpecError: there are more than `MAX_GROUPS`.
    """
    if number > MAX_GROUPS:
        raise SpecError(
            f"groups has {number:,} groups, at most {MAX_GROUPS:,} are possible: with {slots:,} slots each they "
            f"would need {number * slots * itemsize / 2**30:.1f} GiB in every open window of every partition"
        )


class GroupRule:
    """In how many groups an item can be: what `Groups` and `OneOfGroups` have in common."""

    max_groups: int | None
    of_item: bool
    limit: GroupLimit

    def __len__(self) -> int:
        """Number of groups."""
        raise NotImplementedError

    @property
    def of_one_item(self) -> int:
        """Largest number of groups that an item can be in."""
        return 1 if self.of_item else min(len(self), self.max_groups or len(self))

    @property
    def of_one_replaced(self) -> int:
        """Largest number of groups that an item can be in before and after its payloads are replaced, together."""
        if self.ranked:  # the groups follow from the item and the key, whatever its payloads are
            return self.of_one_item
        return 1 if self.of_item else min(len(self), 2 * self.of_one_item)

    @property
    def ranked(self) -> bool:
        """Whether a keyed ranking decides in which groups an item counts."""
        return self.limit == "ranked"

    def _rule(self) -> dict[str, Any]:
        """The object as plain data, canonical."""
        out: dict[str, Any] = {}
        if self.max_groups is not None:
            out["max_groups"] = self.max_groups
        if self.of_item:
            out["of_item"] = True
        if self.ranked:
            out["limit"] = self.limit
        return out


@dataclass(frozen=True)
class OneOfGroups(GroupRule):
    """The groups of a sketch, as the spec of one of them knows them: an item loses in each group that it was in.

    Args:
        number: how many groups there are.
        max_groups: see `Groups`.
        of_item: see `Groups`.
        limit: see `Groups`.
        patterns: cost of what was published of several groups together, in addition to what each costs.

    Raises:
        SpecError: a number is outside its range.
    """

    number: int
    max_groups: int | None = None
    of_item: bool = False
    limit: GroupLimit = "promised"
    patterns: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", exact_noise(self.patterns, "one_of.patterns"))
        checked_int(self.number, "one_of.number", 1, MAX_GROUPS + 1)
        if self.max_groups is not None:
            checked_int(self.max_groups, "one_of.max_groups", 1, self.number)

    def __len__(self) -> int:
        return self.number

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data, canonical."""
        out = {"number": self.number, **self._rule()}
        return {**out, "patterns": str(self.patterns)} if self.patterns else out


@dataclass(frozen=True)
class Groups(GroupRule):
    """A declared list of groups. It is public, and must not be chosen from the data.

    Args:
        names: names of the groups, as text; an integer stands for its decimal digits.
        other: whether values outside the list form a group of their own, named "other"; otherwise they are no-ops.
        max_groups: unit "item": the most groups of one window in which one item counts. None: any number of groups.
        of_item: unit "item": a promise of the source that the group is a function of the item.
        limit: what keeps an item within `max_groups`: "promised", its source does; "ranked", the sketch does. Each item
            then counts only in the `max_groups` groups that the key ranks first for it, and what is counted in a group
            is a sample of its items, from which answers are scaled up.
        period_ms: the groups are the periods of a window, one after the other, each so long: an event's group follows
            from its time. None: it is a field of the record. See `Groups.periods`.

    Raises:
        SpecError: no groups, a group that is listed twice, too many groups, or promises that contradict each other.
    """

    names: tuple[str, ...]
    other: bool = False
    max_groups: int | None = None
    of_item: bool = False
    limit: GroupLimit = "promised"
    period_ms: int | None = None

    def __init__(
        self,
        names: Sequence[str | int],
        other: bool = False,
        max_groups: int | None = None,
        of_item: bool = False,
        limit: GroupLimit = "promised",
        period_ms: int | None = None,
    ) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) or type(name) is int for name in names):
            raise SpecError("groups must be a list of texts or whole numbers")
        listed = tuple(str(name) for name in names)
        if not listed:
            raise SpecError("groups must name at least one group, found an empty list")
        twice = sorted({one for one in listed if listed.count(one) > 1}) if len(set(listed)) < len(listed) else []
        if twice:
            raise SpecError(f"groups names {twice[0]!r:.60} twice")
        if len(listed) > MAX_GROUPS:
            raise SpecError(f"groups may name at most {MAX_GROUPS:,} groups, found {len(listed):,}")
        other, of_item = flag(other, "other"), flag(of_item, "of_item")
        if other and OTHER in listed:
            raise SpecError(f"groups names {OTHER!r}, which other_group = true makes of all values that are not listed")
        if of_item and max_groups is not None:
            raise SpecError(
                "max_groups and group_of_item exclude each other: a group that follows from the item is one group"
            )
        most = None if max_groups is None else checked_int(max_groups, "max_groups", 1, len(listed) + other)
        period = None if period_ms is None else checked_int(period_ms, "period_ms", 1, 1 << 40)
        vars(self).update(names=listed, other=other, max_groups=most, of_item=of_item, limit=limit, period_ms=period)
        self._check_limit()
        if period_ms is not None and (other or of_item or self.ranked):
            raise SpecError(
                "periods of a window are all there is, and follow from the event: leave other, of_item and limit out"
            )

    @classmethod
    def periods(cls, count: int, period_ms: int) -> Groups:
        """The periods of a window as groups, named p1 (the first), p2, ...

        An item counts in each period in which it has events; with `overlap`, retention and return are sets of them:
        "p1 & p2" are the items of the first period that came back in the second.

        Args:
            count: number of periods in a window.
            period_ms: length of each, ms.

        Raises:
            SpecError: the number of periods is not from 1 to `MAX_GROUPS`.
        """
        return cls(
            [f"p{place + 1}" for place in range(checked_int(count, "periods", 1, MAX_GROUPS))], period_ms=period_ms
        )

    def _check_limit(self) -> None:
        """Refuse a limit that has nothing to limit.

        Raises:
            SpecError: an unknown limit, or a ranking that selects no group, or all of them.
        """
        require_choice(self.limit, "group_limit", get_args(GroupLimit))
        if self.limit == "promised":
            return
        if self.max_groups is None:
            raise SpecError("group_limit = 'ranked' needs max_groups: the number of groups in which an item counts")
        if self.max_groups == len(self):
            raise SpecError(
                f"group_limit = 'ranked' with max_groups = {self.max_groups} limits nothing, as there are {len(self)} "
                "groups; lower max_groups, or leave both out"
            )

    @property
    def all(self) -> tuple[str, ...]:
        """Names of all groups, in the order of the state."""
        return (*self.names, OTHER) if self.other else self.names

    def __len__(self) -> int:
        return len(self.names) + self.other

    @property
    def one_of(self) -> OneOfGroups:
        """The groups as the spec of one of them describes them."""
        return OneOfGroups(len(self), self.max_groups, self.of_item, self.limit)

    def sample(self, position: int) -> GroupSample | None:
        """The items of one group that count in it; None: all of them.

        Args:
            position: position of the group.
        """
        return GroupSample(position, len(self), self.of_one_item) if self.ranked else None

    @cached_property
    def _choices(self) -> Choices:
        from sketchstream.items.columns import Choices

        return Choices(self.names)

    def codes(self, column: RecordColumn) -> Codes:
        """(n,) position of each record's group; -1: it has none."""
        places = column.codes(self._choices)
        if self.other:
            places[(places < 0) & column.texts] = len(self.names)
        return places

    def codes_in(self, times: Ints, window: tuple[int, int] | None) -> Codes:
        """(n,) period of a window in which each event lies; those outside of the window lie in its nearest period.

        Args:
            times: (n,) of the events, ms.
            window: [start, end), ms.

        Raises:
            SpecError: there is no window.
        """
        if window is None:
            raise SpecError(
                "periods need a window: events come from a stream, or as pairs of (period, item) such as ('p1', item)"
            )
        assert self.period_ms is not None
        periods = (times - window[0]) // self.period_ms
        return np.clip(periods, 0, len(self) - 1).astype(np.int32)

    def locate(self, names: Items) -> Codes:
        """(n,) position of each of these groups; -1: not declared."""
        places = self._choices.locate(names).astype(np.int32)
        if self.other:
            places[places < 0] = len(self.names)
        return places

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data, canonical."""
        out: dict[str, Any] = {"names": list(self.names)}
        if self.other:
            out["other"] = True
        if self.period_ms is not None:
            out["period_ms"] = self.period_ms
        return out | self._rule()


@dataclass(frozen=True)
class GroupSample:
    """Which items of one group count in it: those for which the key ranks it among their first groups.

    Two sketches have the same sample if they share the key and these three numbers.

    Args:
        position: position of the group, from 0.
        groups: how many groups are ranked.
        most: groups in which one item counts.

    Raises:
        SpecError: a number is outside its range.
    """

    position: int
    groups: int
    most: int

    def __post_init__(self) -> None:
        checked_int(self.groups, "sample.groups", 2, MAX_GROUPS + 1)
        checked_int(self.position, "sample.position", 0, self.groups - 1)
        checked_int(self.most, "sample.most", 1, self.groups - 1)

    @property
    def share(self) -> Fraction:
        """Probability that an item of the group counts: its inclusion probability."""
        return Fraction(self.most, self.groups)

    def to_dict(self) -> dict[str, int]:
        """The object as plain data, canonical."""
        return {"position": self.position, "groups": self.groups, "most": self.most}
