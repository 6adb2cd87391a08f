"""`ss.backfill`: sealed sketches of a history, from rows that an engine added up, or from a table, counted here.

In: an Arrow stream of rows; or Parquet files, a relation of DuckDB, a frame of Polars or Spark, a table of pyarrow.
Out: what `seal` publishes of each window. Touches: the files, for reading; temporary files of the engine; entropy.
"""

from __future__ import annotations

import contextlib
import glob
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from sketchstream import kinds
from sketchstream.errors import ConfigError, FormatError
from sketchstream.items.batch import Outside, require_outside
from sketchstream.items.columns import ItemType
from sketchstream.provenance import Origin
from sketchstream.query.times import to_ms
from sketchstream.sketch import Sketch
from sketchstream.spec import require_choice
from sketchstream.stream.windows.calendar import Calendar, hopping
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.rows import files_of
from sketchstream_connectors.lake.aggregated_rows import require_countable, seal_rows
from sketchstream_connectors.lake.count import Rows, fill, require_history
from sketchstream_connectors.lake.engines import EngineName

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.kinds.interface import Spec
    from sketchstream.published import Release, SealedState
    from sketchstream.query.window_sequence import Time

UNPINNED: Final = "not pinned"
"""The snapshot of a table for which the caller names none."""


def backfill(
    rows: object = None,
    spec: Spec | SketchPlan | None = None,
    key: Key | None = None,
    *,
    table: object = None,
    item: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    item_type: ItemType = "text",
    fields: Mapping[str, str] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    engine: EngineName | None = None,
    snapshot: str = UNPINNED,
    window: str = "1d",
    every: str | None = None,
    timezone: str = "UTC",
    name: str = "",
    revision: int = 0,
    invalid: Outside = "noop",
    records: Mapping[int, int] | None = None,
) -> Iterator[Release | SealedState]:
    """Count a history, and seal one sketch for each window of it.

    Give `rows`, an Arrow stream of what an engine has added up (`lake.aggregated_rows` describes its
    columns); or `table`, events that are counted here as a worker would have counted them: the same rules for types,
    missing and invalid values, filters, groups and weights. Each call draws noise of its own: two calls over one
    history are two views of it, and both losses add up; `sketchstream backfill` books a loss before, and publishes one
    body.

    Args:
        rows: an Arrow stream with the columns window, item, sum and events.
        spec: spec of the sketches; or a plan of a configuration, which has its own windows, fields and name.
        key: the hash key, where the spec needs one.
        table: a Parquet file, a folder or a pattern of them; a relation of DuckDB, or a table, dataset or reader of
            pyarrow, which DuckDB counts; a frame of Polars, or of Spark.
        item: column of the item.
        time: column of the event time: a timestamp with a time zone, or integer milliseconds since 1970.
        weight: column of an integer weight; None: every row weighs 1.
        item_type: "text", "int" or "bytes".
        fields: column of each role that the kind needs in addition to these, such as "group" or "row".
        since: windows that start at or after this time: RFC 3339 text, or a datetime with a timezone.
        until: windows that end at or before this time.
        engine: "duckdb", "polars" or "spark", for files. Default: by the table, and DuckDB for files.
        snapshot: what pins the table, for the guarantee: the id of a snapshot, or a version.
        window: length of the windows, as in a configuration.
        every: time from the beginning of one window to that of the next, if they overlap.
        timezone: where days begin.
        name: name of the sketch, for the origin of what is published.
        revision: revision of that name.
        invalid: what a row outside the domain does: "noop" or "error".
        records: number of records of each window, by its start, ms; for rows, and specs with `epsilon_records`.

    Returns:
        What the seals of the windows publish, each with its window as origin: a window is counted, and sealed, when it
        is asked for. Windows without records are left out.

    Raises:
        ConfigError: both of rows and table, or neither; no range of time; a range or an engine that cannot be used.
        SpecError: sums do not say what this spec counts.
        FormatError: a table or rows without these columns, or of other types; the message gives the reason.
        ItemError, WeightError, DomainError: a row is invalid; the message gives its position, never the item.
    """
    if (rows is None) == (table is None) or spec is None:
        raise ConfigError(
            "backfill takes a spec, and rows of an engine or a table: backfill(rows, spec), backfill(table=..., ...)"
        )
    require_choice(item_type, "item_type", get_args(ItemType))
    require_outside(invalid)
    for_tables = {"item": item, "time": time, "weight": weight, "fields": fields, "since": since, "until": until}
    for_tables |= {"engine": engine}
    misplaced = [name for name, value in for_tables.items() if value is not None] if table is None else []
    if misplaced or (table is not None and records is not None):
        raise ConfigError(
            f"{', '.join(misplaced) or 'records'} cannot be given with {'rows' if misplaced else 'a table'}"
        )
    plan = spec if isinstance(spec, SketchPlan) else _plan(spec, name, hopping(window, every, timezone), fields or {})
    if table is None:
        return seal_rows(rows, plan, key, revision=revision, invalid=invalid, records=records)
    require_countable(plan, key)
    require_history(plan)
    start, end = to_ms(_text(since), "since"), to_ms(_text(until), "until")
    if start is None or end is None:
        raise ConfigError(
            "backfill of a table needs since= and until=: windows that lie between them as a whole are published"
        )
    columns = tuple(sorted({*plan.fields.values()}))
    decimals = kinds.kind_of(plan.spec).intake.decimal_weights(plan.spec)
    layout = Layout("parquet", item, item_type, weight, time, columns, decimals)
    source, used, source_text = _source(table, engine)
    origin = Origin(name=plan.name, revision=revision, table=(source_text, snapshot))
    return _seal_windows(lambda spill: Rows(source, layout, spill, used), plan, plan.within(start, end), key, origin)


def _plan(spec: Spec, name: str, hops: tuple[Calendar, int, int], fields: Mapping[str, str]) -> SketchPlan:
    """The plan of a spec over windows that `hopping` gave."""
    calendar, steps, stride = hops
    return SketchPlan(name, spec, calendar, steps, fields, stride)


def _text(time: Time | None) -> str | None:
    return time if time is None or isinstance(time, str) else time.isoformat()


def _source(table: object, engine: str | None) -> tuple[Any, str, str]:
    """What the engine gets, its name, and the name of the table."""
    if isinstance(table, (str, Path)):
        paths = [Path(path) for path in sorted(glob.glob(str(table), recursive=True))]  # noqa: PTH207 - absolute too
        files = list(chain.from_iterable(files_of(path, ".parquet") for path in paths or [Path(table)]))
        return files, engine or "duckdb", str(table)
    home = type(table).__module__.partition(".")[0].strip("_")
    native = {"polars": "polars", "pyspark": "spark", "duckdb": "duckdb", "pyarrow": "duckdb"}.get(home)
    if native is None or engine not in (None, native):
        raise FormatError(
            "table must be a path of Parquet, a relation of DuckDB, a table of pyarrow, or a frame of Polars or Spark, "
            f"and its engine counts it; found {type(table).__name__!r:.60}{'' if engine is None else f' for {engine}'}"
        )
    return table, native, f"a {type(table).__name__} of {home}"


def _seal_windows(
    open_rows: Callable[[Path], Rows],
    plan: SketchPlan,
    windows: Sequence[tuple[int, int]],
    key: Key | None,
    origin: Origin,
) -> Iterator[Release | SealedState]:
    """One sketch after the other, each with its window as origin."""
    with (
        tempfile.TemporaryDirectory(prefix="sketchstream-backfill-") as spill,
        contextlib.closing(open_rows(Path(spill))) as counted,
    ):
        for window in windows:
            counts = counted.counts(plan, window)
            first = next(counts, None)
            if first is None:
                continue
            sketch = Sketch.create(plan.spec, key, origin=replace(origin, window=window))
            fill(sketch, chain([first], counts))
            yield sketch.seal()
