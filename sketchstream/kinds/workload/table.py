"""`[[sketch]]` of kind `workload`: the columns of a record, and their queries.

In: plain data of a block. Out: a `WorkloadSpec`. Touches: files of matrices and strategies that the block names.
Imported only when a configuration is read.

The queries are texts over the columns, as `queries.read_queries` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from sketchstream.errors import ConfigError, FormatError, SpecError
from sketchstream.kinds.config_tables import ConfigTable, LinearTable, Number, TableContext
from sketchstream.kinds.workload.queries.queries import Workload, read_queries
from sketchstream.kinds.workload.queries.universe import Column, Universe
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.implicit import read_strategy as stored_strategy
from sketchstream.kinds.workload.strategies.mechanism import Mechanism
from sketchstream.kinds.workload.strategies.optimise import Objective
from sketchstream.kinds.workload.strategies.strategy import Strategy
from sketchstream.spec import ClosedDomain, OpenDomain


class ColumnTable(ConfigTable):
    """One of `columns`: the cells of one field of a record."""

    name: str
    field: str = ""
    values: list[str | int] | None = None
    edges: list[Number] | None = None
    start: Number | None = None
    width: Number | None = None
    count: int | None = None
    other: bool = False

    def to_column(self) -> Column:
        """The column."""
        fields = {name: value for name, value in self.model_dump(exclude={"field"}).items() if value is not None}
        return Column.from_dict(fields)


class WorkloadTable(LinearTable):
    """One `[[sketch]]` of kind "workload"."""

    kind: Literal["workload"] = "workload"
    workload: str | list[str]
    columns: tuple[ColumnTable, ...] = ()
    delta: Number = "0"
    mechanism: Mechanism = "auto"
    objective: Objective = "total"
    strategy: Path | None = None
    max_weight: int = 1
    max_total: int | None = None
    n_bound: int | None = None
    counted_share: Number | None = None

    def fields(self) -> Mapping[str, str]:
        return {column.name: column.field or column.name for column in self.columns}

    def listed(self) -> Mapping[str, tuple[str, ...]]:
        return {column.name: tuple(map(str, column.values)) for column in self.columns if column.values}

    @property
    def needs_item(self) -> bool:
        """Whether cells are items, or persons are protected."""
        return not self.columns or self.unit == "item"

    def check(self, context: TableContext) -> Iterator[str]:
        """Mistakes that show against the input. An item may be in several partitions: `max_total` is over all."""
        if self.domain is not None:
            yield "domain does not belong to kind 'workload': its cells are those of columns, or of the workload"
        if self.columns and context.packed:
            yield "columns name fields of records, and packed records have none"
        if self.strategy is None and context.partitioned_by is not None and self.mechanism != "laplace":
            yield (
                "strategy is missing: workers on several machines must count the same combinations to the last bit. "
                'Name a file, strategy = "NAME.strategy", make it once with `sketchstream plan --kind workload -c '
                "FILE --write`, and give it to every worker"
            )

    def asked(self, folder: Path) -> tuple[Workload, Universe | None]:
        """The queries and their columns.

        Args:
            folder: folder of the configuration file, from which paths of matrices begin.
        """
        texts = [self.workload] if isinstance(self.workload, str) else self.workload
        if not self.columns:
            if len(texts) != 1:
                raise SpecError(
                    "a list of queries needs columns; without them workload is one text, such as 'ranges:64'"
                )
            return Workload.named(_path(texts[0], folder)), None
        universe = Universe([column.to_column() for column in self.columns])
        ordered = {column.name for column in universe.columns if not column.other}
        columns = {column.name: column.size for column in universe.columns}
        return read_queries([_path(text, folder) for text in texts], columns, ordered), universe

    def to_spec(self, domain: ClosedDomain | OpenDomain | None, context: TableContext) -> WorkloadSpec:
        workload, universe = self.asked(context.folder)
        strategy = None
        if self.strategy is not None:
            if self.mechanism == "auto":
                raise ConfigError(
                    "strategy needs mechanism beside it, as `sketchstream plan --kind workload` prints it"
                )
            strategy = read_strategy(context.folder / self.strategy.expanduser(), workload)
        return self.spec_with(workload, universe, self.mechanism, strategy, context)

    def spec_with(
        self,
        workload: Workload,
        universe: Universe | None,
        mechanism: Mechanism,
        strategy: Strategy | None,
        context: TableContext,
    ) -> WorkloadSpec:
        """The spec with a mechanism in place of the block's, and a strategy for it; None: it is computed."""
        computed = {"workload": workload, "universe": universe, "mechanism": mechanism, "strategy": strategy}
        return WorkloadSpec(**self.arguments(WorkloadSpec, context) | computed)


def read_strategy(path: Path, workload: Workload) -> Strategy:
    """The strategy of a file."""
    try:
        return stored_strategy(path.read_bytes(), workload)
    except OSError as error:
        raise ConfigError(
            f"cannot read strategy {path}: {error.strerror}; `sketchstream plan --kind workload -c FILE --write` makes "
            "it"
        ) from None
    except FormatError as error:
        raise ConfigError(
            f"strategy {path}: {error}; make it again with `sketchstream plan --kind workload -c FILE --write`"
        ) from None


def _path(text: str, folder: Path) -> str:
    """Resolve a matrix file relative to the configuration's folder; other texts are unchanged."""
    return str(folder / Path(text).expanduser()) if text.endswith((".npy", ".npz")) else text


TABLE = WorkloadTable
