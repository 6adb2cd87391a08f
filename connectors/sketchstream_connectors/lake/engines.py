"""Engines that count the equal rows of a table: DuckDB, Polars, Spark.

In: files or a table, columns, a range of time. Out: Arrow batches of distinct rows with their numbers. Touches: the
files, for reading; temporary files of the engine, where its memory is full.

Each of them is asked through its own expressions, so that the query is one of integers: the three disagree about casts
of timestamps (Spark: seconds; Polars: the unit of the column; DuckDB: none) and about division below zero, so a layer
above them all has no exact time. They are asked for nothing else that could differ: equality of stored values, counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from sketchstream.errors import ConfigError, MissingExtraError

BATCH: Final = 1 << 16
"""Most distinct rows of a batch."""
MAX_ROWS: Final = 1 << 22
"""Most distinct rows that the driver fetches from Spark at once; one Spark partition's rows may come on top."""
EVENTS, POSITION = "sketchstream.events", "sketchstream.position"
"""Columns of the result that the files do not have: numbers of equal rows; steps since the start of the window."""
SUM, WEIGHED = "sketchstream.sum", "sketchstream.weighed"
"""Columns of a result with sums: of the weights within the bound, and, if there is one, how many rows have such."""
EngineName = Literal["duckdb", "polars", "spark"]
_BYTES: Final = "UTF8_BINARY"
"""Spark's collation by which texts are equal that have equal bytes."""
_PLACE: Final = "sketchstream_partition"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Time 0 of all event times."""


@dataclass(frozen=True)
class EngineQuestion:
    """Which rows are to be counted.

    Args:
        table: paths of Parquet files of one schema; or what the engine counts where it is: of DuckDB a relation, or a
            table, dataset or reader of pyarrow, of Polars a frame, of Spark a frame of its session.
        names: columns by which rows are equal.
        time: column of the event time.
        instants: whether that is a timestamp; else it holds integers.
        window: [start, end) in ms. Times are brought to milliseconds toward zero, as by a worker.
        step: ms; rows of different steps of the window are not equal. None: the whole window is one.
        weight: column of integers of at most 64 bits with a sign, and the largest absolute weight: `SUM` and `WEIGHED`
            are wanted. A missing weight is 1. The bound None: every row has a weight within it, so `SUM` is enough.
            The caller has to check that the sum of all rows, if each had the largest weight, fits into 64 bits. None:
            no sums.
        events: least and largest number of rows that the window can have; None: not known.
        unit: what integers are multiplied with, and then divided by, to be milliseconds.
    """

    table: Any
    names: Sequence[str]
    time: str
    instants: bool
    window: tuple[int, int]
    step: int | None
    weight: tuple[str, int | None] | None = None
    events: tuple[int, int] | None = None
    unit: tuple[int, int] = (1, 1)

    @property
    def numbers(self) -> tuple[int, int]:
        """[start, end) of the times as they are, whose milliseconds, rounded down, lie in the window."""
        (start, end), (factor, divisor) = self.window, self.unit
        return -(-start * divisor // factor), -(-end * divisor // factor)


class Engine(Protocol):
    """Counts equal rows.

    Attributes:
        name: name of the engine, for messages.
        errors: what it raises, with texts that may show values of the files.
    """

    name: str
    errors: tuple[type[Exception], ...]

    def schema(self, table: Any) -> Any:
        """The Arrow schema of a table that is no list of files."""

    def count(self, question: EngineQuestion) -> Iterator[Any]:
        """Arrow batches: the columns of the question, `POSITION`, `EVENTS`, sums if asked; each distinct row once."""

    def close(self) -> None:
        """End the engine."""


class DuckDB:
    """The embedded default; reads only row groups that can hold times of the window, and streams its result.

    Args:
        spill: folder for temporary files, which hold raw data; nobody else may read it.
    """

    name = "DuckDB"

    def __init__(self, spill: Path) -> None:
        import duckdb

        self.errors: tuple[type[Exception], ...] = (duckdb.Error,)
        self._connection = duckdb.connect(":memory:", config={"temp_directory": str(spill)})

    def schema(self, table: Any) -> Any:
        """See `Engine`."""
        return self._rows(table).limit(0).to_arrow_table().schema

    def _rows(self, table: Any) -> Any:
        """The relation of a table; one that is given belongs to its own connection."""
        import duckdb

        if isinstance(table, list):
            return self._connection.read_parquet(table)
        return table if isinstance(table, duckdb.DuckDBPyRelation) else self._connection.from_arrow(table)

    def count(self, question: EngineQuestion) -> Iterator[Any]:
        """See `Engine`."""
        from duckdb import (
            CaseExpression,
            CoalesceOperator,
            ColumnExpression,
            ConstantExpression,
            DuckDBPyRelation,
            FunctionExpression,
        )

        start, end = question.window
        first, stop = question.numbers
        rows = self._rows(question.table)
        ms = time = ColumnExpression(question.time)
        if question.instants:
            # the first condition lets the engine skip row groups, the second one decides, as a worker: toward zero
            low, high = (EPOCH + timedelta(milliseconds=time_ms) for time_ms in (start - 1, end + 1))
            rows = rows.filter((time >= ConstantExpression(low)) & (time < ConstantExpression(high)))
            us = FunctionExpression("epoch_us", time.cast("TIMESTAMP WITH TIME ZONE"))
            ms = FunctionExpression("//", us, ConstantExpression(1000))
        rows = rows.filter((ms >= ConstantExpression(first)) & (ms < ConstantExpression(stop)))
        position = ConstantExpression(0)
        if question.step is not None:
            factor, divisor = question.unit
            since = ms.cast("BIGINT") * ConstantExpression(factor) - ConstantExpression(start * divisor)
            position = FunctionExpression("//", since, ConstantExpression(question.step * divisor))
        counted, sums = [FunctionExpression("count_star").alias(EVENTS)], list[str]()
        if question.weight is not None:
            name, bound = question.weight
            weight, summed = ColumnExpression(name).cast("BIGINT"), dict[str, Any]()
            if bound is None:
                summed[SUM] = weight
            else:
                weight = CoalesceOperator(weight, ConstantExpression(1))
                within = weight.between(ConstantExpression(-bound), ConstantExpression(bound))
                for alias, addend in ((SUM, weight), (WEIGHED, ConstantExpression(1))):
                    summed[alias] = CaseExpression(within, addend).otherwise(ConstantExpression(0))
            sums = [*summed]
            counted += [FunctionExpression("sum", value).cast("BIGINT").alias(alias) for alias, value in summed.items()]
        texts = set[str]()
        if isinstance(question.table, DuckDBPyRelation):  # its texts may have a collation: they are grouped as bytes
            texts = {name for name, kind in zip(rows.columns, rows.types, strict=True) if str(kind) == "VARCHAR"}

        def through(function: str) -> list[Any]:
            named = [(name, ColumnExpression(name)) for name in question.names]
            return [(FunctionExpression(function, term) if name in texts else term).alias(name) for name, term in named]

        grouped = rows.aggregate([*through("encode"), position.alias(POSITION), *counted])
        if texts:
            grouped = grouped.project(*through("decode"), *map(ColumnExpression, (POSITION, EVENTS, *sums)))
        yield from grouped.to_arrow_reader(BATCH)

    def close(self) -> None:
        """See `Engine`."""
        self._connection.close()


class Polars:
    """The streaming engine of Polars, in this process."""

    name = "Polars"

    def __init__(self, spill: Path) -> None:
        import polars as pl

        del spill
        self.errors: tuple[type[Exception], ...] = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)

    def schema(self, table: Any) -> Any:
        """See `Engine`."""
        import polars as pl

        return table.lazy().limit(0).collect().to_arrow(compat_level=pl.CompatLevel.oldest()).schema

    def count(self, question: EngineQuestion) -> Iterator[Any]:
        """See `Engine`."""
        import polars as pl

        start, end = question.window
        first, stop = question.numbers
        table = question.table
        rows: Any = pl.scan_parquet(table, glob=False) if isinstance(table, list) else table.lazy()
        time, kind = pl.col(question.time), rows.collect_schema()[question.time]
        ms = time if kind == pl.Int64 else time.cast(pl.Int64, strict=False)  # beyond 64 bits: no time
        if question.instants:
            per_ms = {"ms": 1, "us": 1000, "ns": 1_000_000}[kind.time_unit]
            # the first condition lets the engine skip row groups, the second one decides, as a worker: toward zero
            low, high = (pl.lit(time_ms * per_ms, pl.Int64).cast(kind) for time_ms in (start - 1, end + 1))
            rows = rows.filter((time >= low) & (time < high))
            ms = time.to_physical()
            ms = pl.when(ms < 0).then(-((-ms) // per_ms)).otherwise(ms // per_ms)
        position = pl.lit(0, pl.Int64)
        if question.step is not None:
            factor, divisor = question.unit
            position = (ms * factor - start * divisor) // (question.step * divisor)
        counted = [pl.len().alias(EVENTS)]
        if question.weight is not None:
            name, bound = question.weight
            weight = pl.col(name).cast(pl.Int64)
            if bound is None:
                counted.append(weight.sum().alias(SUM))
            else:
                weight = weight.fill_null(1)
                within = weight.is_between(-bound, bound)
                summed = pl.when(within).then(weight).otherwise(0)
                counted += [summed.sum().alias(SUM), within.cast(pl.Int64).sum().alias(WEIGHED)]
        groups = rows.filter((ms >= first) & (ms < stop)).group_by([*question.names, position.alias(POSITION)])
        counts = groups.agg(counted)
        for frame in counts.collect_batches(chunk_size=BATCH, maintain_order=False, engine="streaming"):
            yield from frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches(max_chunksize=BATCH)

    def close(self) -> None:
        """See `Engine`."""


class Spark:
    """The session that is active, or that Spark's own configuration gives; its executors read the files by their paths.

    What the driver holds does not grow with the window: one of at most `MAX_ROWS` events of files comes at once; the
    rows of others stay with the executors, divided by Spark's hash of them, and come in parts, each of some partitions.
    """

    name = "Spark"

    def __init__(self, spill: Path) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        del spill
        self.errors: tuple[type[Exception], ...] = (PySparkException,)
        self._ours = SparkSession.getActiveSession() is None
        self._session = SparkSession.builder.getOrCreate()

    def schema(self, table: Any) -> Any:
        """See `Engine`."""
        return table.limit(0).toArrow().schema

    def count(self, question: EngineQuestion) -> Iterator[Any]:
        """See `Engine`."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType

        start, end = question.window
        first, stop = question.numbers
        rows = self._session.read.parquet(*question.table) if isinstance(question.table, list) else question.table

        def column(name: str) -> Any:
            of_rows, kind = rows[f"`{name.replace('`', '``')}`"], rows.schema[name].dataType
            return f.collate(of_rows, _BYTES) if isinstance(kind, StringType) and kind.collation != _BYTES else of_rows

        unit = 1000 if question.instants else 1
        time = column(question.time)
        at = f.unix_micros(time) if question.instants else time.cast("long")
        if question.instants:
            # the first condition lets the engine skip row groups, the second one decides, as a worker: toward zero
            low, high = (f.timestamp_micros(f.lit(time_ms * unit)) for time_ms in (start - 1, end + 1))
            rows, at = rows.filter((time >= low) & (time < high)), at - at % unit
        position = f.lit(0)
        if question.step is not None:
            factor, divisor = question.unit
            since, step = at * factor - start * divisor * unit, question.step * divisor * unit
            position = ((since - since % step) / step).cast("long")  # exact: multiples of a step below 2^53
        rows = rows.filter((at >= first * unit) & (at < stop * unit))
        counted = [f.count(f.lit(1)).alias(EVENTS)]
        if question.weight is not None:
            name, bound = question.weight
            weight = column(name).cast("long")
            if bound is None:
                counted.append(f.sum(weight).alias(SUM))
            else:
                weight = f.coalesce(weight, f.lit(1))
                within = weight.between(-bound, bound)
                counted += [f.sum(f.when(within, weight).otherwise(0)).alias(SUM), f.count_if(within).alias(WEIGHED)]
        grouped = rows.groupBy(*(column(name).alias(name) for name in question.names), position.alias(POSITION)).agg(
            *counted
        )
        # A window that the driver can hold is not written to Spark's cache. Events of files are counted first, from one
        # column, where their footers do not suffice; what a frame costs to count is not known, so it is computed once.
        fewest, most_rows = question.events or (0, MAX_ROWS + 1)
        small = most_rows <= MAX_ROWS or (
            fewest <= MAX_ROWS and isinstance(question.table, list) and rows.count() <= MAX_ROWS
        )
        for part in [grouped.toArrow()] if small else self._parts(grouped):
            for first in range(0, part.num_rows, BATCH):  # chunks of Spark are small
                yield from part.slice(first, BATCH).combine_chunks().to_batches()

    @staticmethod
    def _parts(frame: Any) -> Iterator[Any]:
        """Tables of about `MAX_ROWS` rows, each of whole partitions; rows are computed once and kept until the end."""
        from pyspark.sql import functions as f

        cached = frame.withColumn(_PLACE, f.spark_partition_id()).persist()
        try:
            sizes = sorted((row[0], row[1]) for row in cached.groupBy(_PLACE).count().collect())
            ends = accumulate(rows for _, rows in sizes)
            for _, places in groupby(zip(sizes, ends, strict=True), key=lambda entry: entry[1] // MAX_ROWS):
                chosen = [place for (place, _), _ in places]
                yield cached.filter(f.col(_PLACE).isin(chosen)).drop(_PLACE).toArrow()
        finally:
            cached.unpersist()

    def close(self) -> None:
        """End a session that was begun here."""
        if self._ours:
            self._session.stop()


_ENGINES: Final[dict[EngineName, Callable[[Path], Engine]]] = {"duckdb": DuckDB, "polars": Polars, "spark": Spark}


def engine(name: str, spill: Path) -> Engine:
    """An engine by its name.

    Args:
        name: "duckdb", "polars" or "spark".
        spill: folder for temporary files of engines in this process.

    Raises:
        ConfigError: there is none of this name.
        MissingExtraError: it is not installed.
    """
    if name not in get_args(EngineName):
        raise ConfigError(f"the engine must be {', '.join(get_args(EngineName))}; found {name!r:.40}")
    try:
        return _ENGINES[name](spill)  # type: ignore[index]
    except ImportError as error:
        package = {"duckdb": "'sketchstream[backfill]'", "polars": "polars", "spark": "'pyspark>=4'"}[name]
        raise MissingExtraError(f"backfill with {name} needs {error.name}: pip install {package}") from None
