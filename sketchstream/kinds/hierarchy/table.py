"""`[[sketch]]` of kind `hierarchy`: the levels, their fields, and the paths of the leaves.

In: plain data of a block. Out: a `HierarchySpec`. Touches: the list of paths that the block names. Imported only when a
configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from sketchstream.errors import ConfigError
from sketchstream.items.item_lists import read_items
from sketchstream.kinds.config_tables import LinearTable, Number, TableContext, Value
from sketchstream.kinds.hierarchy.spec import HierarchySpec
from sketchstream.kinds.linear.spec import CAPACITY
from sketchstream.spec import ClosedDomain, OpenDomain


class HierarchyTable(LinearTable):
    """One `[[sketch]]` of kind "hierarchy"."""

    kind: Literal["hierarchy"] = "hierarchy"
    levels: tuple[str, ...]
    level_fields: dict[str, str] | None = None
    paths: tuple[tuple[Value, ...] | str, ...] = ()
    paths_file: Path | None = None
    max_weight: int = 1
    max_total: int | None = None
    signed: bool = False
    multipliers: tuple[int, ...] | None = None
    capacity: int = CAPACITY
    counted_share: Number | None = None

    def fields(self) -> Mapping[str, str]:
        """The field of each level: that of its name, unless `level_fields` names another."""
        return {level: (self.level_fields or {}).get(level, level) for level in self.levels}

    @property
    def needs_item(self) -> bool:
        """Whether persons are protected; leaves follow from the fields of the levels."""
        return self.unit == "item"

    def check(self, context: TableContext) -> Iterator[str]:
        """Mistakes that show against the input. An item may be in several partitions: `max_total` is over all."""
        if self.domain is not None:
            yield "domain does not belong to kind 'hierarchy': its leaves are those of paths"
        if context.packed:
            yield "levels name fields of records, and packed records have none"
        unknown = sorted(set(self.level_fields or {}) - set(self.levels))
        if unknown:
            yield f"level_fields names {unknown[0]!r:.40}, which is not a level"

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> HierarchySpec:
        """See `HierarchySpec`."""
        if bool(self.paths) == (self.paths_file is not None):
            raise ConfigError(
                "paths takes the leaves, or paths_file a list of them, one a line with tabs between the names"
            )
        paths: tuple[tuple[str, ...] | str, ...] = self.paths
        if self.paths_file is not None:
            listed = read_items(context.folder / self.paths_file.expanduser(), "text", "paths_file")
            paths = tuple(map(str, listed))
        return HierarchySpec(**self.arguments(HierarchySpec, context) | {"paths": paths})


TABLE = HierarchyTable
