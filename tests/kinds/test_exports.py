"""Tables of answers: CSV and Arrow hold the items themselves, in types that are declared and not guessed."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sketchstream.kinds.exports import WINDOW, as_csv, as_json, as_stream, read_csv, table_of, table_of_csv
from sketchstream.texts.csv_cells import original_text

TYPES = {**WINDOW, "slot": "int64", "value": "float64", "partial": "bool"}
NASTY = (
    "02139", "NA", "null", "NULL", "nan", "inf", "true", "False", "2013-01-01", "2013-01-01T00:00:00Z", "1" * 23, "",
    " ", "a,b", 'say "x"', '"', '""', "a\nb", "\r", "a\r\nb", "=1+1", "'=1", "'", "-5", "+4.5e-3", "@x",
    "1e400", "ß", "日本",
    "\u2028", "\x00", "#N/A", "0x10", "\ufeffa",
)  # fmt: skip
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"])), st.none())
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False))
INFINITE = (float("inf"), -float("inf"))
"""Ends that do not exist: missing values, as in JSON."""
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "window_start": st.sampled_from(["2013-01-01T05:00:00Z", "1969-12-31T23:59:59.999Z", None]),
            "slot": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "item": TEXTS,
            "group": TEXTS,
            "value": NUMBERS,
            "partial": st.one_of(st.none(), st.booleans()),
        }
    ),
    min_size=1,
    max_size=6,
)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, without times."""
    return [{name: value for name, value in row.items() if name != "window_start"} for row in table.to_pylist()]


@given(ROWS)
@example([{"window_start": None, "slot": n, "item": t, "group": t, "value": 0.1, "partial": True}
          for n, t in enumerate(NASTY)])  # fmt: skip
@example([{"window_start": None, "slot": 1, "item": "a", "group": None, "value": -float("inf"), "partial": None}])
def test_csv_arrow_and_json_give_the_same_items_back(rows: list[dict[str, Any]]) -> None:
    text = as_csv(rows)
    wanted = [
        {name: None if value in INFINITE else value for name, value in row.items() if name != "window_start"}
        for row in rows
    ]
    direct, read = table_of(rows, TYPES), table_of_csv(text.encode(), TYPES)
    assert plain(direct) == plain(read) == wanted
    assert direct.schema == read.schema
    assert direct.column("window_start").to_pylist() == read.column("window_start").to_pylist()
    again = json.loads(as_json(rows))
    items = [(row["item"], row["group"]) for row in rows]
    assert [(row["item"], row["group"]) for row in again] == items
    assert [(row["item"], row["group"]) for row in read_csv(text)] == items
    assert as_csv(read_csv(text)) == text
    others = list(csv.DictReader(io.StringIO(text, newline="")))  # which cannot tell a missing text from an empty one
    assert [original_text(row["item"]) for row in others] == [row["item"] or "" for row in rows]


def test_one_schema_with_and_without_values() -> None:
    whole = {"window_start": "2013-01-01T05:00:00Z", "slot": 1, "item": "x", "value": 1.0, "partial": False}
    none = dict.fromkeys(whole)
    schemas = [table_of(rows, TYPES, tuple(whole)).schema for rows in ([whole], [none], [whole, none], [])]
    schemas += [table_of_csv(as_csv(rows, tuple(whole)).encode(), TYPES).schema for rows in ([whole], [none], [])]
    assert all(one == schemas[0] for one in schemas)
    assert [str(one) for one in schemas[0].types] == ["timestamp[ms, tz=UTC]", "int64", "string", "double", "bool"]


def test_items_that_are_numbers_or_bytes_are_text() -> None:
    rows = [{"item": 2139, "value": 1}, {"item": b"\x00\xff", "value": 2}]
    for table in (table_of(rows, TYPES), table_of_csv(as_csv(rows).encode(), TYPES)):
        assert table.column("item").to_pylist() == ["2139", "00ff"]
        assert table.column("value").to_pylist() == [1.0, 2.0]


def test_a_stream_is_the_table_again() -> None:
    table = table_of([{"item": "02139", "value": 1.5}], TYPES)
    assert pa.ipc.open_stream(as_stream(table)).read_all() == table


def test_a_number_where_text_stands_is_refused_and_not_guessed() -> None:
    with pytest.raises(pa.ArrowInvalid):
        table_of_csv(b"value\nmany\n", TYPES)
