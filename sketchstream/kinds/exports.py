"""Answers as JSON and as tables: CSV, and Arrow and Parquet with declared types.

In: rows of answers, types of their columns. Out: CSV text, rows again, Arrow tables and their bytes. Touches: nothing.

Types are declared and never guessed from what is in a window, so that all windows of a sketch have one schema and
items are what they were: "02139", "NA" and "true" are texts. A kind declares them in `Kind.rows`. A text that is empty
is quoted in CSV, a value that is missing is not: so both can be told apart by whoever reads the text.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from sketchstream.errors import optional_import
from sketchstream.texts.csv_cells import original_text, safe_cell

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

ColumnType = Literal["float64", "int64", "bool", "time"]
"""Type of a column of answers; a time is a text of RFC 3339 in rows. Any other column is text."""
Types = Mapping[str, ColumnType]
"""Types of columns by name; all others are text."""
Row = Mapping[str, Any]

USUAL: Final[Types] = {"value": "float64", "stderr": "float64", "low": "float64", "high": "float64"}
"""Columns of answers of any kind, in their order; items, groups and labels stand before them."""
WINDOW: Final[Types] = {"window_start": "time", "window_end": "time", "complete": "bool"}
"""Columns of windows, besides those of answers."""
QUOTED: Final = re.compile(r'[",\r\n]')
CELL: Final = re.compile(r'("[^"]*(?:""[^"]*)*"|[^",\r\n]*)(,|\n)')


@dataclass(frozen=True)
class AnswerRows:
    """How the answers of a spec lie in rows: the same in every window.

    Attributes:
        header: names of the columns of all rows of the usual answer, in their order.
        usual_number: the number that series show unless another one is named; the first of `Presentation.numbers`.
        types: types of the columns of answers to any question; columns that are not here hold text.
    """

    header: tuple[str, ...] = tuple(USUAL)
    usual_number: str = "sum"
    types: Types = field(default_factory=lambda: USUAL)


def names_of(rows: Iterable[Row]) -> list[str]:
    """Names of all columns, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_json(value: object) -> str:
    """JSON text on one line; numpy arrays and numbers as plain values, NaN as null, bytes as hexadecimal digits."""
    import orjson

    return orjson.dumps(value, default=_text, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def as_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
    """RFC 4180 text with a header line.

    Args:
        rows: may lack columns.
        columns: names of columns that are there even without rows.
    """
    names = list(dict.fromkeys([*columns, *names_of(rows)]))
    lines = [",".join(map(_quote_cell, names))]
    lines += [",".join([_cell(row.get(name)) for name in names]) for row in rows]
    return "\n".join(lines) + "\n"


def read_csv(text: str) -> list[dict[str, str | None]]:
    """The rows of a text that `as_csv` wrote, all values as texts; None: missing."""
    lines: list[list[str | None]] = [[]]
    for cell, end in CELL.findall(text):
        lines[-1].append(original_text(_unquote_cell(cell)) if cell else None)
        if end == "\n":
            lines.append([])
    header, *rows = lines[:-1]
    return [dict(zip(map(str, header), row, strict=True)) for row in rows]


def frame_of(rows: Sequence[Row] | Mapping[str, Any]) -> pd.DataFrame:
    """Rows, or columns by their names, as a pandas DataFrame.

    Args:
        rows: all with the same columns.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    with optional_import("to_pandas needs pandas: pip install pandas"):
        import pandas as pd
    return pd.DataFrame(rows)


def table_of(rows: Sequence[Row], types: Types, columns: Sequence[str] = ()) -> pa.Table:
    """Rows as an Arrow table.

    Args:
        rows: may lack columns.
        types: types of the columns.
        columns: names of columns that are there even without rows.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    pa = _pyarrow()
    arrays = {}
    for name in dict.fromkeys([*columns, *names_of(rows)]):
        kind = types.get(name)
        values: list[Any] = [None if _missing(value) else value for value in (row.get(name) for row in rows)]
        if kind in (None, "time"):
            values = [None if value is None else _text(value) for value in values]
        column = pa.array(values, pa.string() if kind == "time" else _type(pa, kind))
        arrays[name] = column.cast(_type(pa, kind)) if kind == "time" else column
    return pa.table(arrays)


def table_of_csv(text: bytes, types: Types) -> pa.Table:
    """A text that `as_csv` wrote as an Arrow table.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    pa = _pyarrow()
    import pyarrow.compute as pc
    from pyarrow import csv

    header = CELL.findall(text[: text.index(b"\n") + 1].decode())
    kinds = {name: types.get(name) for name in (_unquote_cell(cell) for cell, _ in header)}
    read = csv.read_csv(
        io.BytesIO(text),
        read_options=csv.ReadOptions(block_size=len(text) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() if kind == "time" else _type(pa, kind) for name, kind in kinds.items()},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = {}
    for name, kind in kinds.items():
        column = read.column(name)
        if kind is None:  # the marks of formulas are for spreadsheets
            column = pc.replace_substring_regex(column, pattern=r"\A'", replacement="")
        arrays[name] = column.cast(_type(pa, kind)) if kind == "time" else column
    return pa.table(arrays)


def as_stream(table: pa.Table) -> bytes:
    """An Arrow table as a stream."""
    pa = _pyarrow()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def as_parquet(table: pa.Table) -> bytes:
    """An Arrow table as a Parquet file. Its bytes are the same for the same table."""
    pa = _pyarrow()
    from pyarrow import parquet

    out = pa.BufferOutputStream()
    parquet.write_table(table, out, compression="zstd")
    return bytes(out.getvalue())


def with_columns(table: pa.Table, columns: Sequence[str], types: Types) -> pa.Table:
    """A table with these columns and no others; values of those that it lacks are missing.

    Args:
        table: any table.
        columns: names of the columns, in their order.
        types: types of the columns.
    """
    pa = _pyarrow()
    have = set(table.column_names)
    return pa.table(
        {
            name: table.column(name) if name in have else pa.nulls(table.num_rows, _type(pa, types.get(name)))
            for name in columns
        }
    )


def _pyarrow() -> Any:
    with optional_import("Arrow and Parquet need pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow as pa
    return pa


def _type(pa: Any, kind: ColumnType | None) -> Any:
    """The Arrow type of a column."""
    if kind is None:
        return pa.string()
    return {"float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_(), "time": pa.timestamp("ms", "UTC")}[kind]


def _missing(value: object) -> bool:
    """Whether a value is missing: also an end that is infinite, or no number, as in JSON."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _text(value: object) -> str:
    """A value as text: bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _cell(value: object) -> str:
    """A cell: a missing value is empty, an empty text is quoted, formulas are marked."""
    return "" if _missing(value) else _quote_cell(str(safe_cell(_text(value) if isinstance(value, bytes) else value)))


def _quote_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or QUOTED.search(text) else text


def _unquote_cell(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if cell.startswith('"') else cell
