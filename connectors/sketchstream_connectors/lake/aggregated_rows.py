"""History from rows that an engine aggregated: one sealed sketch for each window, whose noise is drawn once, here.

In: rows (window, [group or row,] item, sum, events) of an exact GROUP BY, as an Arrow stream; a spec. Out: what `seal`
publishes of each window. Touches: entropy; memory of one sketch and one batch, whatever the number of items.

The rows are exact, so whoever computes them holds no key and draws nothing, and may compute them again. A sketch is
created with its noise before the first of its rows, counts them by law 11 of `sketchstream.kinds.interface`, and is
sealed when the next window begins: its body is one that a worker could have published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.errors import FormatError, KeyMismatchError, SpecError, optional_import
from sketchstream.items.arrays import Pairs
from sketchstream.items.batch import Outside
from sketchstream.kinds import groups_of
from sketchstream.provenance import Origin
from sketchstream.sketch import Sketch, require_sums_mean_events
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, iso
from sketchstream.stream.windows.plans import SketchPlan

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.kinds.interface import Spec
    from sketchstream.published import Release, SealedState

COLUMNS: Final = ("window", "item", "sum", "events")
"""Columns of every stream of rows; a kind may also need one of `PAIRED`."""
PAIRED: Final = {"group": "a sketch with groups", "row": "a sketch of rows"}
"""Names of the columns that hold the first half of a pair, and the sketches that need them."""


def seal_rows(
    rows: object,
    plan: SketchPlan,
    key: Key | None,
    *,
    revision: int = 0,
    invalid: Outside = "noop",
    records: Mapping[int, int] | None = None,
) -> Iterator[Release | SealedState]:
    """Count the rows of a history, and seal one sketch for each window of it.

    Columns of the rows: `window`, start of the window, an instant (a timestamp with a time zone, or integer ms since
    1970); `item`, as `Sketch.update` takes it; `group`, for specs with groups, or `row`, for kinds whose events name a
    row; `sum`, integer sum of the weights, in lattice units for specs with `fraction_bits`; `events`, how many there
    were. All rows of a window come together; within it they come in any order, and an item may come more than once.

    Args:
        rows: an Arrow stream: an iterable of `pyarrow.RecordBatch`, a reader, a table, or whatever has
            `__arrow_c_stream__`. It is read once.
        plan: the sketches and their windows.
        key: the hash key, where the spec needs one.
        revision: revision of the sketches.
        invalid: what a row outside the domain does: "noop" leaves it out, as workers do; "error" refuses it.
        records: number of records of each window, by its start, ms; for specs with `epsilon_records`.

    Returns:
        What the seals of the windows publish, in the order of the rows, each with its window as origin: a window is
        counted, and sealed, when it is asked for.

    Raises:
        SpecError: sums do not say what this spec counts; the numbers of records are missing.
        FormatError: rows without these columns, or of other types; the message gives the reason.
        ItemError, WeightError, DomainError: a row is invalid; the message gives its position in its batch, never the
            item. Nothing of its window was published.
    """
    require_countable(plan, key)
    if plan.epsilon_records and records is None:
        raise SpecError(
            "epsilon_records publishes how many records each window had, and rows hold events only: give records="
            "{start of the window in ms: number of records}, or leave epsilon_records out"
        )
    return _seal_windows(_batches(rows), plan, key, revision, invalid, records or {})


def require_countable(plan: SketchPlan, key: Key | None) -> None:
    """Refuse what sums cannot count.

    Raises:
        SpecError: sums do not say what this spec counts.
        KeyMismatchError: it needs a hash key.
    """
    require_sums_mean_events(plan.spec)
    if plan.spec.needs_key and key is None:
        raise KeyMismatchError("this spec needs a hash key: Key.generate(), or `sketchstream keygen` and Key.load")


def _batches(rows: object) -> Iterator[Any]:
    """The record batches of an Arrow stream."""
    with optional_import("rows of a history need pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow as pa
    if isinstance(rows, (pa.RecordBatch, pa.Table)) or hasattr(rows, "__arrow_c_stream__"):
        rows = pa.RecordBatchReader.from_stream(pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows)
    if not isinstance(rows, Iterable):
        raise FormatError(f"rows must be an Arrow stream or an iterable of record batches, found {type(rows).__name__}")
    for batch in rows:
        if not isinstance(batch, pa.RecordBatch):
            raise FormatError(f"rows must be pyarrow record batches, found {type(batch).__name__}")
        yield batch


def _seal_windows(
    batches: Iterator[Any],
    plan: SketchPlan,
    key: Key | None,
    revision: int,
    invalid: Outside,
    records: Mapping[int, int],
) -> Iterator[Release | SealedState]:
    """One sketch after the other."""
    sketch: Sketch | None = None
    begun: int | None = None
    seen: set[int] = set()
    for batch in batches:
        starts, pairs, items, sums, events = _columns(plan.spec, batch)
        edges = np.flatnonzero(np.diff(starts)) + 1
        for first, last in pairwise([0, *edges.tolist(), len(starts)] if len(starts) else []):
            start = int(starts[first])
            if sketch is None or start != begun:
                if sketch is not None:
                    yield sketch.seal()
                if start in seen:
                    raise FormatError(
                        f"rows of the window that begins at {iso(start)} come again after those of another: order "
                        "the rows by window, as each is sealed when the next one begins"
                    )
                seen.add(start)
                sketch, begun = _open_sketch(plan, key, revision, start, records), start
            part = slice(first, last)
            keys = items[part] if pairs is None else Pairs(pairs[part], items[part])
            sketch.update_sums(keys, sums[part], events[part], invalid=invalid)
    if sketch is not None:
        yield sketch.seal()


def _open_sketch(plan: SketchPlan, key: Key | None, revision: int, start: int, records: Mapping[int, int]) -> Sketch:
    """A sketch for one window, with its noise."""
    begins = EARLIEST_MS <= start < LATEST_MS and plan.calendar.window(start)[0] == start
    holding = plan.holding(start) if begins else []
    if not holding or holding[-1][0] != start:
        raise FormatError(f"no window of {plan.window} in {plan.calendar.timezone} begins {start} ms after 1970")
    window = holding[-1]
    sketch = Sketch.create(plan.spec, key, origin=Origin(name=plan.name, revision=revision, window=window))
    if plan.epsilon_records:
        if start not in records:
            raise SpecError(f"records= has no number of records for the window that begins at {iso(start)}")
        sketch.admit(records[start])
    return sketch


def _columns(spec: Spec, batch: Any) -> tuple[npt.NDArray[np.int64], Any, Any, Any, Any]:
    """Starts of windows, first halves of pairs or None, items, sums and events of a batch.

    Raises:
        FormatError: columns are missing, or have types from which no exact number or item follows.
    """
    import pyarrow as pa

    kind = kinds.kind_of(spec)
    paired = "row" if "row" in kind.intake.carries else "group" if groups_of(spec) else None
    names = batch.schema.names
    for name in (*COLUMNS, *([paired] if paired else [])):
        if names.count(name) != 1:
            many = "more than one" if name in names else "no"
            raise FormatError(
                f"rows have {many} column {name!r}: they need {', '.join((*COLUMNS, *([paired] if paired else [])))}"
            )
    for name in set(PAIRED) - {paired}:
        if name in names:
            raise FormatError(
                f"rows have a column {name!r}, which only {PAIRED[name]} has: leave it out of the GROUP BY"
            )
    pairs = None if paired is None else _item_column(batch.column(paired), paired)
    if (
        pairs is not None
        and paired == "group"
        and (pa.types.is_integer(pairs.type) or pa.types.is_dictionary(pairs.type))
    ):
        pairs = pairs.cast("large_string")  # names of groups are text
    return (
        _starts(batch.column("window")),
        pairs,
        _item_column(batch.column("item"), "item"),
        _integer_column(batch.column("sum"), "sum"),
        _integer_column(batch.column("events"), "events"),
    )


def _item_column(column: Any, name: str) -> Any:
    """A column of items, without missing values."""
    import pyarrow as pa

    if column.null_count:
        raise FormatError(
            f"column {name!r} of the rows has missing values, which are no events: leave them out of the GROUP BY"
        )
    if pa.types.is_floating(column.type) or pa.types.is_boolean(column.type) or pa.types.is_nested(column.type):
        raise FormatError(
            f"column {name!r} of the rows has type {column.type}: make it text or integers, equal bit by bit"
        )
    return column


def _integer_column(column: Any, name: str) -> npt.NDArray[np.int64]:
    """A column of integers that fit into 64 bits."""
    import pyarrow as pa

    if column.null_count:
        raise FormatError(f"column {name!r} of the rows has missing values")
    if pa.types.is_floating(column.type):
        raise FormatError(
            f"column {name!r} of the rows has type {column.type}: sums of floats depend on the order of addition, so "
            "add up integers, for weights with fractions in lattice units to which each weight was truncated"
        )
    if not (pa.types.is_integer(column.type) or (pa.types.is_decimal(column.type) and column.type.scale == 0)):
        raise FormatError(f"column {name!r} of the rows has type {column.type}; integers were expected")
    try:
        numbers: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        raise FormatError(
            f"column {name!r} of the rows has a number beyond 64 bits: divide the rows, or the sums would wrap"
        ) from None
    return numbers


def _starts(column: Any) -> npt.NDArray[np.int64]:
    """Starts of windows, ms since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            raise FormatError(
                "column 'window' of the rows has timestamps without a time zone, which say no instant: give timestamps "
                "with a zone, or integer milliseconds since 1970 in UTC"
            )
        try:
            column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
        except pa.ArrowInvalid:
            raise FormatError(
                "column 'window' of the rows has a time that is no whole number of milliseconds"
            ) from None
    return _integer_column(column, "window")
