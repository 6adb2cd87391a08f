"""Exact counts of the equal rows of a window, by an engine, and the events that each of them stands for.

In: Parquet files or another table, a layout, a window [start, end) in ms. Out: batches of items, sums and numbers of
events for `Sketch.update_sums`. Touches: the files, for reading; temporary files of the engine, when its memory is
full.

The engine judges nothing: it groups rows that are equal in all fields that a sketch needs, the weight among them, and
counts them. Each distinct row then goes through the code by which a worker judges a record, here, and counts as many
times. So the rules for types, missing and invalid values, filters, groups and weights are those of the worker, and no
sum of the engine can overflow or depend on its order. Windows are ranges of integer milliseconds; time zones are not
the engine's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.errors import ConfigError, FormatError, MissingExtraError, WeightError
from sketchstream.items import as_weights
from sketchstream.kinds import closing
from sketchstream.kinds.interface import Given
from sketchstream.kinds.linear.events import in_units
from sketchstream.sketch import Sketch, require_sums_mean_events
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.rows import arrow_piece
from sketchstream_connectors.lake.engines import EVENTS, POSITION, Question, engine

Ints = npt.NDArray[np.int64]


class Rows:
    """The rows of a table.

    Args:
        source: Parquet files of one schema; or a table, see `lake.engines.Question`.
        layout: which of their columns are read.
        spill: folder for temporary files of the engine, which hold raw data; nobody else may read it.
        with_: name of the engine.

    Attributes:
        number: of the rows of all files; -1: of a table, which were not counted.

    Raises:
        MissingExtraError: the engine or pyarrow is not installed.
        FormatError: files without these columns, or with types that could not be counted as a worker would.
    """

    def __init__(self, source: Sequence[Path] | Any, layout: Layout, spill: Path, with_: str = "duckdb") -> None:
        try:
            import pyarrow.parquet as pq
        except ImportError:
            msg = "backfill needs pyarrow: pip install 'sketchstream[backfill]'"
            raise MissingExtraError(msg) from None
        if layout.time is None:
            msg = "input.time must name the column of the event time: a history has no time of its own"
            raise FormatError(msg)
        if layout.time in (layout.item, layout.weight, *layout.columns):
            msg = f"column {layout.time!r:.60} cannot be the event time and something else too: rows are counted by it"
            raise FormatError(msg)
        self._layout = layout
        self._time = layout.time
        self._types: dict[str, str] = {}
        self._engine = engine(with_, spill)
        if isinstance(source, Sequence):
            self._source: Any = [str(path) for path in source]
            self.number = 0
            for path in source:
                with _readable(path):
                    about = pq.read_metadata(path)
                self.number += about.num_rows
                self._note(about.schema.to_arrow_schema(), f"{path}")
        else:
            self._source, self.number = source, -1
            self._note(self._engine.schema(source), "the table")

    def _note(self, schema: Any, where: str) -> None:
        """Note the types of the wanted columns; those of all files must be one family."""
        layout = self._layout
        for name in sorted({one for one in (layout.item, layout.weight, self._time, *layout.columns) if one}):
            found = schema.get_all_field_indices(name)
            if len(found) != 1:
                msg = f"{where} has {'more than one' if found else 'no'} column {name!r:.60}"
                raise FormatError(msg)
            kind = str(schema.field(name).type) if name == layout.time else family(schema.field(name).type)
            if self._types.setdefault(name, kind) != kind:
                msg = f"{where} has another type in column {name!r:.60} than files before: {kind}, {self._types[name]}"
                raise FormatError(msg)
        self._require_instant(schema.field(self._time).type)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _require_instant(self, found: Any) -> None:
        """Refuse event times that are not instants."""
        import pyarrow as pa

        if pa.types.is_timestamp(found) and found.tz is None:
            msg = (
                f"column {self._time!r:.60} has timestamps without a time zone, which say no instant: write it again "
                "with one (in DuckDB: timezone('UTC', column)), or as integer milliseconds since 1970"
            )
            raise FormatError(msg)
        if not pa.types.is_timestamp(found) and not pa.types.is_integer(found):
            msg = (
                f"column {self._time!r:.60} has type {found}; timestamps with a time zone, or integer milliseconds "
                "since 1970, were expected"
            )
            raise FormatError(msg)

    def counts(self, plan: SketchPlan, window: tuple[int, int]) -> Iterator[tuple[int, Any, Ints, Ints]]:
        """Batches of (records, items, sums, events) of a window; events that a worker would not count are in none.

        Args:
            plan: of the sketch.
            window: [start, end), ms.

        Raises:
            FormatError: the engine reads a column as something else than a worker would.
            WeightError: equal rows have a sum beyond 64 bits.
        """
        layout = replace(self._layout, columns=tuple(sorted(set(plan.fields.values()))))
        try:
            for batch in self._grouped(plan, layout, window):
                yield _judged(plan, layout, window, batch)
        except self._engine.errors as error:  # its message may show a value of the files
            msg = (
                f"{self._engine.name} cannot count these rows ({type(error).__name__}): text that is not UTF-8, a "
                "damaged file, a type that it does not read, or no room for temporary files"
            )
            raise FormatError(msg) from None

    def _grouped(self, plan: SketchPlan, layout: Layout, window: tuple[int, int]) -> Iterator[Any]:
        """Batches of distinct rows, with `EVENTS` and `POSITION`."""
        names = [name for name in (layout.item, layout.weight, *layout.columns) if name is not None]
        names = list(dict.fromkeys(names))
        instants = self._types[self._time].startswith("timestamp")
        step = kinds.of(plan.spec).stretch_ms(plan.spec)
        for batch in self._engine.count(Question(self._source, names, self._time, instants, window, step)):
            for name in names:
                kind = family(batch.schema.field(name).type)
                if kind != self._types[name]:
                    msg = (
                        f"column {name!r:.60} is {self._types[name]} in its table and {kind} in {self._engine.name}, "
                        "so a worker would count other items: write it as text or integers"
                    )
                    raise FormatError(msg)
            yield batch


def fill(sketch: Sketch, batches: Iterable[tuple[int, Any, Ints, Ints]]) -> int:
    """Count all batches of a window in its sketch; returns the number of records.

    Args:
        sketch: of the window.
        batches: of `Rows.counts`.
    """
    records = 0
    for number, items, sums, events in batches:
        records += number
        sketch.admit(number)
        if len(items):
            sketch.update_sums(items, sums, events, invalid="noop")
    return records


def require_history(plan: SketchPlan) -> None:
    """Refuse sketches whose publications need the time at which records come.

    Raises:
        ConfigError, SpecError: with the reason.
    """
    require_sums_mean_events(plan.spec)
    if closing(plan.spec) is not None:
        msg = (
            f'sketch "{plan.name}" publishes positions when they close, and a history has no open windows: leave '
            'publish = "closed" out'
        )
        raise ConfigError(msg)
    if plan.early is not None:
        msg = f'sketch "{plan.name}" has early answers, and a history has no open windows: leave them out'
        raise ConfigError(msg)


def _judged(plan: SketchPlan, layout: Layout, window: tuple[int, int], batch: Any) -> tuple[int, Any, Ints, Ints]:
    """Distinct rows as a worker judges records: how many records they were, and the events that count."""
    import pyarrow as pa

    spec, kind = plan.spec, kinds.of(plan.spec)
    events: Ints = batch.column(EVENTS).to_numpy(zero_copy_only=False).astype(np.int64)
    position: Ints = batch.column(POSITION).to_numpy(zero_copy_only=False).astype(np.int64)
    times = window[0] + position * (kind.stretch_ms(spec) or 0)
    names = [name for name in batch.schema.names if name not in (EVENTS, POSITION)]
    table = pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in names), pa.array(times)], [*names, str(layout.time)]
    )
    decoded = arrow_piece(layout, table, len(events)).decoded
    columns = {role: decoded.columns[field] for role, field in plan.fields.items()}
    found = kind.events(spec, Given(decoded.items, decoded.weights, decoded.weight, decoded.times, columns, window))
    good = decoded.valid if found.good is None else decoded.valid & found.good
    units, valid = _units(spec, found.weights, len(events))
    good = good & valid
    items, numbers = found.items, events
    if not good.all():
        items, units, numbers = items.take(good), units[good], events[good]
    room = ((1 << 63) - 1) // int(numbers.max(initial=1))  # of the row with most events: for nearly all batches enough
    if len(units) and not -room <= units.min() <= units.max() <= room:
        rooms = ((1 << 63) - 1) // np.maximum(numbers, 1)
        if ((units > rooms) | (units < -rooms)).any():
            msg = "equal rows have weights whose sum is beyond 64 bits; use a shorter window, or smaller weights"
            raise WeightError(msg)
    return int(events.sum()), items, units * numbers, numbers


def _units(spec: Any, weights: Any, n: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(n,) weights in units of sums; (n,) which of them are weights of events."""
    if hasattr(spec, "lattice"):
        return in_units(spec.lattice, weights, n)
    most = kinds.of(spec).most_weight(spec)
    given = np.ones(n, np.int64) if weights is None else as_weights(weights, n, alone=True).astype(np.int64)
    return given, np.ones(n, np.bool_) if most is None else (given <= most) & (given >= -most)


def family(found: Any) -> str:
    """What a column's type means to a worker: types of one family give equal items, weights and texts.

    Args:
        found: an Arrow type.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_integer(found):
        return "integers"
    if pa.types.is_floating(found):
        return "floats"
    name = str(found)
    if name in ("string", "large_string", "string_view"):
        return "text"
    if pa.types.is_binary(found) or pa.types.is_large_binary(found) or name == "binary_view":
        return "bytes"
    return "bytes" if pa.types.is_fixed_size_binary(found) and not pa.types.is_decimal(found) else name


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of a Parquet file with its name."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        msg = f"{path} cannot be read as parquet ({type(error).__name__})"
        raise FormatError(msg) from None
