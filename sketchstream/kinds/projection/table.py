"""`[[sketch]]` of kind `projection`.

In: plain data of a block, the list of rows that it names. Out: a `ProjectionSpec`. Touches: that list. Imported only
when a configuration is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from sketchstream.errors import ConfigError, SpecError
from sketchstream.items.item_lists import read_items
from sketchstream.kinds.config_tables import ConfigTable, DomainTable, LinearTable, Number, TableContext
from sketchstream.kinds.projection.matrices.matrix import Family
from sketchstream.kinds.projection.spec import CAPACITY, MatrixSeed, ProjectionSpec
from sketchstream.spec import ClosedDomain, OpenDomain

SIZE_OR_LIST: Final = "takes exactly one of size (ids 0..size-1) or items_file (a list)"


class RowsTable(ConfigTable):
    """`rows`: their number, or their list."""

    size: int | None = None
    items_file: Path | None = None
    item_type: Literal["text", "int", "bytes"] = "text"

    def to_domain(self, folder: Path) -> ClosedDomain:
        """The rows."""
        if (self.size is None) == (self.items_file is None):
            raise ConfigError(f"rows {SIZE_OR_LIST}")
        if self.items_file is None:
            return ClosedDomain(size=self.size)
        path = folder / self.items_file.expanduser()
        return ClosedDomain(items=read_items(path, self.item_type, "rows.items_file"))


class ProjectionTable(LinearTable):
    """One `[[sketch]]` of kind "projection"; items are the features."""

    kind: Literal["projection"] = "projection"
    row: str
    rows: RowsTable
    domain: DomainTable
    k: int | None = None
    max_weight: Number | None = None
    max_total: Number | None = None
    max_norm: Number | None = None
    max_features: int | None = None
    matrix: Family = "gaussian"
    matrix_seed: MatrixSeed = "public"
    seed: str | None = None
    fraction_bits: int = 0
    capacity: int = CAPACITY
    counted_share: Number | None = None

    def fields(self) -> Mapping[str, str]:
        """The field that holds the row."""
        return {"row": self.row}

    def check(self, context: TableContext) -> Iterator[str]:
        """Mistakes that show against the input.

        A row may be in several partitions, whatever the unit: a promise bounds its absolute weights over all of them,
        and the squares of what it adds to each are at most the square of their sum.
        """
        if not self.row:
            yield 'row must name the field of a record that holds the row, for example row = "user_id"'
        if context.packed:
            yield "kind 'projection' needs records of one event each, with a field for the row"

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> ProjectionSpec:
        if isinstance(domain, OpenDomain):
            raise SpecError(f"kind 'projection' needs a closed domain of features: domain {SIZE_OR_LIST}")
        arguments = self.arguments(ProjectionSpec, context)
        rows = self.rows.to_domain(context.folder)
        return ProjectionSpec(**arguments, users=rows, features=domain or ClosedDomain(size=1))


TABLE = ProjectionTable
