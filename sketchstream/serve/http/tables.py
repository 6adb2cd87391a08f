"""Flat tables of a sketch for other programs: its windows, the numbers of its answers, the answers' rows.

In: what is stored and computed. Out: Arrow tables whose columns are the same whatever is in them. Touches: the store,
reading; nothing waits, and answers that are not computed yet are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from sketchstream.errors import ConfigError
from sketchstream.kinds.exports import WINDOW, Types, table_of, table_of_csv, with_columns
from sketchstream.serve.http.formats import flat
from sketchstream.serve.over_time import have_computed
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import Service
from sketchstream.serve.store.stored_windows import StoredWindow

if TYPE_CHECKING:
    import pyarrow as pa

TableName = Literal["windows", "numbers", "answers"]

TOGETHER_BYTES: Final = 64 << 20
"""Most bytes of CSV of the windows of one response."""
_QUALITY: Final = tuple(
    f"quality_{what}_{end}"
    for what in ("share_counted", "records_admitted", "records_refused", "misplaced")
    for end in ("value", "low", "high")
)
WINDOWS: Final = (
    "sketch", "window_start", "window_end", "complete", "partitions_published", "partitions_of", "partitions_missing",
    "revision", "partial", "diverged", "repartitioned", "deleted", "quality_verdict", "quality_reason", *_QUALITY,
    "status", "answer", "failure", "preliminary", "as_of", "history_table", "history_snapshot",
)  # fmt: skip
"""Columns of a list of windows."""
WINDOWS_TYPES: Final[Types] = {
    **WINDOW,
    **dict.fromkeys(("partitions_published", "partitions_of", "revision"), "int64"),
    **dict.fromkeys(("partial", "diverged", "repartitioned", "deleted", "preliminary"), "bool"),
    **dict.fromkeys(_QUALITY, "float64"),
}
SKETCHES: Final = (
    "name", "configured", "kind", "answer", "unit", "window", "timezone", "summary", "groups", "counts_windows",
    "counts_settled", "counts_pending", "counts_incidents", "first", "last", "published_through",
)  # fmt: skip
"""Columns of the list of sketches."""
SKETCHES_TYPES: Final[Types] = {
    "configured": "bool",
    **dict.fromkeys(SKETCHES[9:13], "int64"),
    **dict.fromkeys(SKETCHES[13:], "time"),
}
FRONT: Final = ("window_start", "window_end", "complete", "group")
"""What says which answer a row belongs to; `group` is missing without groups."""
NUMBER_COLUMNS: Final = (*FRONT, "metric", "title", "value", "low", "high")
NUMBERS_TYPES: Final[Types] = {**WINDOW, **dict.fromkeys(("value", "low", "high"), "float64")}


def columns(service: Service, sketch: str, table: TableName) -> dict[str, str]:
    """Names and types of the columns of a table."""
    if table == "answers":
        names, types = (*FRONT, *map(_own_column, service.catalog.rows(sketch).header)), _answer_types(service, sketch)
    else:
        names, types = (WINDOWS, WINDOWS_TYPES) if table == "windows" else (NUMBER_COLUMNS, NUMBERS_TYPES)
    return {name: types.get(name) or "text" for name in names}


def list_tables(service: Service, names: list[str]) -> dict[str, Any]:
    """All tables of some sketches, with their paths and columns."""
    listed = []
    for name, table in product(names, MADE):
        typed = [{"name": column, "type": kind} for column, kind in columns(service, name, table).items()]
        path = f"/v1/tables/{name}/{table}.parquet"
        listed.append({"sketch": name, "table": table, "path": path, "columns": typed})
    return {"tables": listed}


def make(service: Service, sketch: str, table: TableName, since: int | None, until: int | None) -> pa.Table:
    """A table.

    Args:
        service: has the answers.
        sketch: name of the sketch.
        table: name of the table.
        since: windows that start at or after this time, ms.
        until: windows that end at or before this time, ms.

    Raises:
        ConfigError: more windows, or bytes, than one request may ask for.
        MissingExtraError: pyarrow is not installed.
    """
    windows = service.require_windows(sketch, since, until, max(1, len(service.catalog.groups(sketch))))
    return MADE[table](service, sketch, windows)


def _windows(service: Service, sketch: str, windows: list[StoredWindow]) -> pa.Table:
    """A row for each window."""
    rows = [flat(service.describe(window)) for window in windows]
    return with_columns(table_of(rows, WINDOWS_TYPES, WINDOWS), WINDOWS, WINDOWS_TYPES)


def _numbers(service: Service, sketch: str, windows: list[StoredWindow]) -> pa.Table:
    """A row for each number of each answer."""
    rows = []
    for stored, question, front in _wanted_answers(service, sketch, windows):
        for metric, title, (value, low, high) in service.named_numbers(stored, question):
            rows.append({**front, "metric": metric, "title": title, "value": value, "low": low, "high": high})
    return table_of(rows, NUMBERS_TYPES, NUMBER_COLUMNS)


def _answers(service: Service, sketch: str, windows: list[StoredWindow]) -> pa.Table:
    """The rows of all answers, one after the other."""
    import pyarrow as pa

    names, types = tuple(columns(service, sketch, "answers")), _answer_types(service, sketch)
    own_types = service.catalog.rows(sketch).types
    tables, size = [table_of([], types, names)], 0
    for stored, question, front in _wanted_answers(service, sketch, windows):
        text = service.store.answer_csv(stored, question.text)
        if text is None or service.answer_state(stored) in ("incident", "none"):
            continue
        size += len(text)
        require_size(size)
        table = table_of_csv(text, own_types)
        table = table.rename_columns([_own_column(name) for name in table.column_names])
        tables.append(with_columns(after(table_of([front], types, FRONT), table), names, types))
    return pa.concat_tables(tables)


def require_size(size: int) -> None:
    """Refuse answers that are too large together.

    Raises:
        ConfigError: says what to do.
    """
    if size > TOGETHER_BYTES:
        raise ConfigError(
            f"the answers of that range are more than {TOGETHER_BYTES >> 20} MiB: narrow it with from and to"
        )


def after(front: pa.Table, table: pa.Table) -> pa.Table:
    """A table with the one row of another in front of each of its own."""
    import pyarrow as pa

    for place, name in enumerate(front.column_names):
        column = pa.repeat(front.column(name)[0], table.num_rows)
        table = table.add_column(place, front.schema.field(name), column)
    return table


MADE: Final[dict[TableName, Callable[[Service, str, list[StoredWindow]], Any]]] = {
    "windows": _windows,
    "numbers": _numbers,
    "answers": _answers,
}


def _own_column(name: str) -> str:
    """A column of an answer in a table that begins with `FRONT`: a cell of a workload may be named so too."""
    return f"{name}_" if name in FRONT else name


def _answer_types(service: Service, sketch: str) -> Types:
    return {**{_own_column(name): kind for name, kind in service.catalog.rows(sketch).types.items()}, **WINDOW}


def _wanted_answers(
    service: Service, sketch: str, windows: list[StoredWindow]
) -> Iterator[tuple[StoredWindow, Question, dict[str, Any]]]:
    """Every window with every question whose answers are wanted, and the first columns of their rows.

    Answers of groups are computed when they are asked for: the newest ones that are not there are asked for here.
    """
    groups = service.catalog.groups(sketch)
    questions = [Question(group=group) for group in groups] or [Question()]
    for question in questions if groups else ():
        have_computed(service, windows, question)
    for stored, question in product(windows, questions):
        yield stored, question, {**stored.front, "group": question.group}
