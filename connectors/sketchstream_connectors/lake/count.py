"""Exact counts of the equal rows of a window, by an engine, and the events that each of them stands for.

In: Parquet files or another table, a layout, a window [start, end) in ms. Out: batches of items, sums and numbers of
events for `Sketch.update_sums`. Touches: the files, for reading; temporary files of the engine, when its memory is
full.

The engine groups rows that are equal in all fields that a sketch needs, and counts them. Each distinct row then goes
through the code by which a worker judges a record, here, and counts as many times. So the rules for types, missing and
invalid values, filters and groups are those of the worker. Weights are one of the fields, and are judged here too, with
one exception: of a column of integers, with a bound for one event, the engine is asked to add up what lies within the
bound, so that there is one row for each item however its weights differ. It is exact, independent of the order, and
refused where 64 bits could have been too few. Windows are ranges of integer milliseconds; time zones are not the
engine's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Ints
from sketchstream.errors import ConfigError, FormatError, WeightError, optional_import
from sketchstream.items.arrays import as_weights
from sketchstream.kinds import closing_kind
from sketchstream.kinds.linear.events import in_units
from sketchstream.sketch import Sketch, require_sums_mean_events
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream_connectors.decode.times import TO_MS
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.rows import arrow_chunk, no_instant
from sketchstream_connectors.lake.engines import EPOCH, EVENTS, POSITION, SUM, WEIGHED, EngineQuestion, engine

SUMMABLE: Final = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} - {"uint64"}
"""Arrow types of weights that every engine adds up alike."""
Group = tuple[int, int, int, int]
"""A row group, as `row_groups` yields it."""
MAX_SUM: Final = (1 << 63) - 1
UNKNOWN: Final = (-math.inf, math.inf)
"""Smallest and largest weight where a footer lacks them."""
_BEYOND: Final = "equal rows have weights whose sum is beyond 64 bits; use a shorter window, or smaller weights"


class CountedRows(NamedTuple):
    """Distinct rows of a window as a worker judges them.

    Args:
        records: how many records they stand for, those included that do not count.
        items: n items.
        sums: (n,) sums of the weights of each item's events, in the units of `Sketch.update_sums`.
        events: (n,) numbers of these events.
    """

    records: int
    items: Any
    sums: Ints
    events: Ints


class Rows:
    """The rows of a table.

    Args:
        source: Parquet files of one schema; or a table, see `lake.engines.EngineQuestion`.
        layout: columns that are read.
        spill: folder for temporary files of the engine, which hold raw data; nobody else may read it.
        with_: the engine.

    Attributes:
        number: number of rows of all files; -1: of a table, which were not counted.

    Raises:
        MissingExtraError: the engine or pyarrow is not installed.
        FormatError: files without these columns, or with types that could not be counted as a worker would.
    """

    def __init__(self, source: Sequence[Path] | Any, layout: Layout, spill: Path, with_: str = "duckdb") -> None:
        with optional_import("backfill needs pyarrow: pip install 'sketchstream[backfill]'"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        if layout.time is None:
            raise FormatError("input.time must name the column of the event time: a history has no time of its own")
        if layout.time in (layout.item, layout.weight, *layout.columns):
            raise FormatError(
                f"column {layout.time!r:.60} cannot be the event time and something else too: rows are counted by it"
            )
        self._layout = layout
        self._time = layout.time
        self._types: dict[str, str] = {}
        self._summable = layout.weight is not None
        self._engine = engine(with_, spill)
        self._groups: list[Group] | None = None
        self._weights = UNKNOWN
        if isinstance(source, Sequence):
            self._source: Any = [str(path) for path in source]
            self.number, self._groups, ranges = 0, [], list[tuple[float, float]]()
            for path in source:
                try:
                    about = pq.read_metadata(path)
                except (pa.ArrowException, OSError) as error:
                    raise FormatError(f"{path} cannot be read as parquet ({type(error).__name__})") from None
                self.number += about.num_rows
                self._note(about.schema.to_arrow_schema(), f"{path}")
                self._groups += row_groups(about, self._time, TO_MS[layout.time_unit])
                ranges += extents(about, layout.weight) if layout.weight and self._summable else [UNKNOWN]
            if ranges:
                self._weights = min(low for low, _ in ranges), max(high for _, high in ranges)
        else:
            self._source, self.number = source, -1
            self._note(self._engine.schema(source), "the table")

    def _note(self, schema: Any, where: str) -> None:
        """Note the types of the wanted columns; those of all files must be one family."""
        layout = self._layout
        for name in sorted({field for field in (layout.item, layout.weight, self._time, *layout.columns) if field}):
            places = schema.get_all_field_indices(name)
            if len(places) != 1:
                raise FormatError(f"{where} has {'more than one' if places else 'no'} column {name!r:.60}")
            kind = str(schema.field(name).type) if name == layout.time else family(schema.field(name).type)
            if self._types.setdefault(name, kind) != kind:
                raise FormatError(
                    f"{where} has another type in column {name!r:.60} than files before: {kind}, {self._types[name]}"
                )
        self._require_instant(schema.field(self._time).type)
        if self._summable:
            self._summable = str(schema.field(layout.weight).type) in SUMMABLE

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _require_instant(self, arrow_type: Any) -> None:
        """Refuse event times that are not instants."""
        import pyarrow as pa

        if pa.types.is_timestamp(arrow_type) and arrow_type.tz is None:
            raise FormatError(no_instant(str(self._time)))
        if not pa.types.is_timestamp(arrow_type) and not pa.types.is_integer(arrow_type):
            name = f"column {self._time!r:.60}"
            raise FormatError(f"{name} has type {arrow_type}; timestamps with a time zone, or integers, were expected")

    def counts(self, plan: SketchPlan, window: tuple[int, int]) -> Iterator[CountedRows]:
        """Batches of the rows of a window; events that a worker would not count are in none.

        Args:
            plan: plan of the sketch.
            window: [start, end), ms.

        Raises:
            FormatError: the engine reads a column as something else than a worker would.
            WeightError: equal rows have a sum beyond 64 bits.
        """
        layout = replace(self._layout, columns=tuple(sorted(set(plan.fields.values()))))
        max_weight = _most_whole(plan.spec) if self._summable else None
        low, high = self._weights
        weight = (
            None
            if max_weight is None
            else (str(layout.weight), None if -max_weight <= low <= high <= max_weight else max_weight)
        )
        if weight is not None:
            layout = replace(layout, weight=None)
        try:
            for batch in self._grouped(plan, layout, window, weight):
                yield _judge_rows(plan, layout, window, batch)
        except self._engine.errors as error:  # its message may show a value of the files
            raise FormatError(
                f"{self._engine.name} cannot count these rows ({type(error).__name__}): text that is not UTF-8, a "
                "damaged file, a type that it does not read, or no room for temporary files"
            ) from None

    def _grouped(
        self, plan: SketchPlan, layout: Layout, window: tuple[int, int], weight: tuple[str, int | None] | None
    ) -> Iterator[Any]:
        """Batches of distinct rows, with `EVENTS` and `POSITION`, and sums of the weights if they are asked for."""
        names = list(dict.fromkeys(name for name in (layout.item, layout.weight, *layout.columns) if name is not None))
        instants = self._types[self._time].startswith("timestamp")
        step = kinds.kind_of(plan.spec).intake.stretch_ms(plan.spec)
        row_bounds = None if self._groups is None else bounds(self._groups, *window)
        unit = (1, 1) if instants else TO_MS[layout.time_unit]
        question = EngineQuestion(self._source, names, self._time, instants, window, step, weight, row_bounds, unit)
        for batch in self._engine.count(question):
            for name in names:
                kind = family(batch.schema.field(name).type)
                if kind != self._types[name]:
                    raise FormatError(
                        f"column {name!r:.60} is {self._types[name]} in its table and {kind} in {self._engine.name}, "
                        "so a worker would count other items: write it as text or integers"
                    )
            yield batch


def row_groups(about: Any, time: str, unit: tuple[int, int] = (1, 1)) -> Iterator[Group]:
    """Yield for each row group a time (ms) not after its first, one not before its last, its times, and its rows.

    Args:
        about: metadata of a Parquet file.
        time: column of times, which it has. Row groups without known ends may have any time.
        unit: unit of times that are integers, see `EngineQuestion`.
    """
    for ends, rows in _statistics(about, time):
        try:
            yield _ms(ends.min, unit) - 1, _ms(ends.max, unit) + 1, ends.num_values, rows
        except (AttributeError, TypeError, ValueError, OverflowError):  # none, or beyond the years of Python
            yield -MAX_SUM, MAX_SUM, 0, rows


def extents(about: Any, weight: str) -> Iterator[tuple[float, float]]:
    """Yield the smallest and the largest weight of each row group; `UNKNOWN` too where some rows have none.

    Args:
        about: metadata of a Parquet file.
        weight: column of integers, which it has.
    """
    for ends, rows in _statistics(about, weight):
        whole = ends is not None and ends.has_min_max and ends.has_null_count and ends.num_values == rows
        yield (ends.min, ends.max) if whole and ends.null_count == 0 else UNKNOWN


def _statistics(about: Any, name: str) -> Iterator[tuple[Any, int]]:
    """Statistics of a column in each row group of a file, None where its footer lacks them; and the rows of that."""
    place = [about.schema.column(at).path for at in range(about.num_columns)].index(name)
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        yield group.column(place).statistics, group.num_rows


def bounds(groups: Iterable[Group], start: int, end: int) -> tuple[int, int]:
    """The least and the largest number of times that can lie in [start, end).

    Args:
        groups: what `row_groups` gives.
        start: begin of the range, ms.
        end: end of the range, ms.
    """
    fewest = most = 0
    for first, last, times, rows in groups:
        fewest += times if start <= first and last < end else 0
        most += rows if first < end and last >= start else 0
    return fewest, most


def _ms(time: Any, unit: tuple[int, int]) -> int:
    """Milliseconds since 1970 of what a footer gives, exact to one of them."""
    return time * unit[0] // unit[1] if isinstance(time, int) else (time - EPOCH) // timedelta(milliseconds=1)


def fill(sketch: Sketch, batches: Iterable[CountedRows]) -> int:
    """Count all batches of a window in its sketch; returns the number of records.

    Args:
        sketch: sketch of the window.
        batches: what `Rows.counts` gives.
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
    if closing_kind(plan.spec) is not None:
        raise ConfigError(
            f'sketch "{plan.name}" publishes positions when they close, and a history has no open windows: leave '
            'publish = "closed" out'
        )
    if plan.early is not None:
        raise ConfigError(f'sketch "{plan.name}" has early answers, and a history has no open windows: leave them out')


def _judge_rows(plan: SketchPlan, layout: Layout, window: tuple[int, int], batch: Any) -> CountedRows:
    """Distinct rows as a worker judges records: how many records they were, and the events that count."""
    import pyarrow as pa

    spec, kind = plan.spec, kinds.kind_of(plan.spec)
    events: Ints = batch.column(EVENTS).to_numpy(zero_copy_only=False).astype(np.int64)
    position: Ints = batch.column(POSITION).to_numpy(zero_copy_only=False).astype(np.int64)
    times = window[0] + position * (kind.intake.stretch_ms(spec) or 0)
    names = [name for name in batch.schema.names if name not in (EVENTS, POSITION, SUM, WEIGHED)]
    table = pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in names), pa.array(times)], [*names, str(layout.time)]
    )
    decoded = arrow_chunk(replace(layout, time_unit="ms"), table, len(events)).events
    columns = {role: decoded.columns[field] for role, field in plan.fields.items()}
    counted = kind.intake.events(spec, replace(decoded, columns=columns, window=window))
    good = decoded.valid if counted.good is None else decoded.valid & counted.good
    if SUM in batch.schema.names:
        return CountedRows(int(events.sum()), *_sum_rows(spec, batch, counted.items, good))
    units, valid = _units(spec, counted.weights, len(events))
    good = good & valid
    items, numbers = counted.items, events
    if not good.all():
        items, units, numbers = items.take(good), units[good], events[good]
    room = MAX_SUM // int(numbers.max(initial=1))  # for the row with most events: enough for nearly all batches
    if len(units) and not -room <= units.min() <= units.max() <= room:
        rooms = MAX_SUM // np.maximum(numbers, 1)
        if ((units > rooms) | (units < -rooms)).any():
            raise WeightError(_BEYOND)
    return CountedRows(int(events.sum()), items, units * numbers, numbers)


def _sum_rows(spec: Any, batch: Any, items: Any, good: npt.NDArray[np.bool_]) -> tuple[Any, Ints, Ints]:
    """Distinct rows whose weights the engine judged and added up.

    Args:
        spec: spec of the sketch.
        batch: n rows of the engine.
        items: n of them.
        good: (n,) which of them count.
    """
    weighed = WEIGHED if WEIGHED in batch.schema.names else EVENTS
    sums, numbers = (batch.column(name).to_numpy(zero_copy_only=False).astype(np.int64) for name in (SUM, weighed))
    lattice = kinds.kind_of(spec).intake.lattice(spec)
    bits = 0 if lattice is None else lattice.bits
    max_weight = _most_whole(spec) or 1
    if numbers.max(initial=0) > MAX_SUM // (max_weight << bits):  # then the sum may have wrapped
        raise WeightError(_BEYOND)
    good = good & (numbers > 0)
    if not good.all():
        items, sums, numbers = items.take(good), sums[good], numbers[good]
    return items, sums << bits, numbers


def _most_whole(spec: Any) -> int | None:
    """Largest absolute whole weight of an event; None: any will do."""
    lattice = kinds.kind_of(spec).intake.lattice(spec)
    return kinds.kind_of(spec).intake.most_weight(spec) if lattice is None else lattice.largest_integer


def _units(spec: Any, weights: Any, n: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(n,) weights in units of sums; (n,) which of them are weights of events."""
    if (lattice := kinds.kind_of(spec).intake.lattice(spec)) is not None:
        return in_units(lattice, weights, n)
    max_weight = kinds.kind_of(spec).intake.most_weight(spec)
    units = np.ones(n, np.int64) if weights is None else as_weights(weights, n, alone=True).astype(np.int64)
    return units, np.ones(n, np.bool_) if max_weight is None else (units <= max_weight) & (units >= -max_weight)


def family(arrow_type: Any) -> str:
    """What a column's type means to a worker: types of one family give equal items, weights and texts.

    Args:
        arrow_type: an Arrow type.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if pa.types.is_integer(arrow_type):
        return "integers"
    if pa.types.is_floating(arrow_type):
        return "floats"
    name = str(arrow_type)
    if name in ("string", "large_string", "string_view"):
        return "text"
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type) or name == "binary_view":
        return "bytes"
    return "bytes" if pa.types.is_fixed_size_binary(arrow_type) and not pa.types.is_decimal(arrow_type) else name
