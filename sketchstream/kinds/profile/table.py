"""`[[sketch]]` of kind `profile`.

In: plain data of a block. Out: a `ProfileSpec`. Touches: nothing. Imported only when a configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from sketchstream.kinds.config_tables import DomainTable, Number, SketchTable, TableContext, Value
from sketchstream.kinds.groups.group_list import GroupLimit, Groups, require_few
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import ClosedDomain, OpenDomain


class ProfileTable(SketchTable):
    """One `[[sketch]]` of kind "profile"."""

    kind: Literal["profile"] = "profile"
    unit: Literal["event", "item"]
    domain: DomainTable
    max_count: int | None = None
    epsilon_publish: Number | None = None
    publish: Literal["histogram", "state"] = "histogram"
    intrusion: bool | None = None
    modulus: int | None = None
    max_weight: int = 1
    bits: int = 32
    total_share: Number | None = None
    counted: bool | None = None
    max_total: int | None = None
    epsilon_records: Number | None = None
    periods: str | None = None
    group_by: str | None = None
    groups: tuple[Value, ...] | Path | None = None
    other_group: bool = False
    max_groups: int | None = None
    group_of_item: bool = False
    group_limit: GroupLimit = "promised"
    where: dict[str, Value | tuple[Value, ...]] | None = None
    overlap: bool | tuple[Value, ...] = False
    epsilon_overlap: Number | None = None
    histograms: bool | None = None
    counts: Literal["modulus", "presence"] = "modulus"
    noise: Literal["groups", "joint"] = "groups"

    def lists(self) -> Mapping[str, Path]:
        """The file of the groups, if they are listed in a file."""
        return {"groups": self.groups} if isinstance(self.groups, Path) else {}

    def fields(self) -> Mapping[str, str]:
        """The group's field, and those of the filter."""
        group = {} if self.group_by is None else {"group": self.group_by}
        return group | {f"where.{name}": name for name in sorted(self.where or {})}

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        """The groups, and the values of the filter."""
        values_by_role = {f"where.{name}": values for name, values in self._filters.items()}
        if self.group_by is not None and isinstance(self.groups, tuple):
            values_by_role["group"] = self.groups
        return {role: tuple(map(str, values)) for role, values in values_by_role.items()}

    @property
    def counts_some(self) -> bool:
        """Whether there are groups or filters."""
        return self.group_by is not None or self.periods is not None or self.where is not None

    def check(self, context: TableContext) -> Iterator[str]:
        """Check a sketch against the partitioning of the topic."""
        yield from super().check(context)
        if (self.group_by is None) != (self.groups is None):
            missing = "group_by" if self.group_by is None else "groups"
            present = "groups" if self.group_by is None else "group_by"
            yield f"{present} needs {missing}: the field of the group, and the declared list of groups (or its file)"
        if self.group_by is None and (
            self.other_group or self.max_groups is not None or self.group_of_item or self.group_limit != "promised"
        ):
            yield "other_group, max_groups, group_of_item and group_limit belong to group_by"
        if self.periods is not None and self.group_by is not None:
            yield "takes either group_by or periods, found both: an event has one group"
        if self.periods is not None and self.windows is not None:
            yield "periods need one window: give each length a [[sketch]] of its own"
        if self.overlap and self.group_by is None and self.periods is None:
            yield "overlap needs group_by and groups, or periods: it says what groups have in common"
        if self.overlap and context.partitioned_by == "none":
            yield (
                "overlap needs a topic that is keyed by the item (input.partitioned_by = 'item'): where the events of "
                "an item lie in several partitions, each of them knows only some of its groups"
            )
        plain = (self.counts, self.noise, self.histograms is not False) == ("modulus", "groups", True)
        if not self.overlap and (self.epsilon_overlap is not None or not plain):
            yield "epsilon_overlap, histograms, counts and noise belong to overlap"
        if self.counts == "presence" and context.weights:
            yield "counts = 'presence' tells whether an item was there: leave input.weight out"
        if self.where is not None and not self.where:
            yield "where must name at least one field, found an empty table"
        if context.partitioned_by == "none" and self.unit == "event" and self.publish != "state":
            yield (
                "input.partitioned_by = 'none' needs publish = 'state' (with intrusion = true or false): partitions "
                "that share items can only be merged"
            )

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> ProfileSpec:
        """See `ProfileSpec`."""
        arguments = self.arguments(ProfileSpec, context) | {
            "domain": domain or OpenDomain(1024),
            "counted": self._counted(context),
            "groups": self._groups(domain, context),
            "overlap": self.overlap if isinstance(self.overlap, bool) else list(self.overlap),
            "where": self._filters,
        }
        return ProfileSpec(**arguments)

    @property
    def _filters(self) -> dict[str, tuple[Value, ...]]:
        """The values of each field of `where`."""
        return {name: value if isinstance(value, tuple) else (value,) for name, value in (self.where or {}).items()}

    def _groups(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> Groups | None:
        """The groups, read from their file if they have one, or the periods of the window."""
        if self.periods is not None and self.window is not None and context.windows is not None:
            return Groups.periods(*context.windows.periods(self.window, self.periods))
        if self.group_by is None or self.groups is None or isinstance(self.groups, Path):
            return None
        if domain is not None:
            each = 2 if self.unit == "item" else self.bits // 8
            require_few(len(self.groups) + self.other_group, domain.size or 0, each)
        return Groups(self.groups, self.other_group, self.max_groups, self.group_of_item, self.group_limit)

    def _counted(self, context: TableContext) -> bool | None:
        """Whether events are counted apart from their weights: by default if records carry weights."""
        if self.counted is None and context.weights and self.unit == "event":
            return None if self.total_share in ("0", "0.0") else True
        return self.counted


TABLE = ProfileTable
