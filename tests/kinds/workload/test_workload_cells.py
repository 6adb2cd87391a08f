"""Cells of records as decoders find them, against `Universe.locate` on what the JSON texts say."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream.items.arrays import Items
from sketchstream.items.columns import RecordColumn
from sketchstream.items.events import Events
from sketchstream.kinds.workload.kind import KIND
from sketchstream.kinds.workload.queries.universe import CellLocator, Column
from sketchstream_connectors.decode.json_values import find_fields

EDGES = ("-1/3", "-0.125", 0, "0.1", "2.5", 3, 100, "1e9", "1e30")
TABLE = ss.Universe(
    [
        Column("place", ["EWR", "Zürich", 7, "1.0"]),
        Column("delay", edges=EDGES, other=True),
        Column("wide", edges=(-10, 10)),
    ]
)
LOCATOR = CellLocator(TABLE)
WRITTEN = """0 -0 0.1 0.10000000000000000000001 0.09999999999999999999999 2.5 25e-1 -0.125 -0.1250001 3 100 1e9 1e30
-0.3333333333333333333333 -0.33333333333333333333334 2.9999999999999999 1e400 9223372036854775807 9223372036854775808
-9223372036854775809 99.999 -1e-30 1E-400"""
NUMBERS = st.sampled_from(WRITTEN.split()) | st.decimals(-200, 200, places=4).map(lambda one: f"{one:f}")
VALUES = (
    NUMBERS
    | st.sampled_from(["null", "true", "[]", "{}", '"EWR"', '"Z\\u00fcrich"', '"7"', "7", "7.0", '"1.0"', '"x"', '""'])
    | NUMBERS.map(lambda number: f'"{number}"')
    | st.sampled_from(['" 2.5 "', '"1/10"', '"-1/3"', '"NaN"', '"inf"'])
)


def found(texts: list[str], fields: list[str]) -> dict[str, RecordColumn]:
    data = [text.encode() for text in texts]
    ends = np.cumsum([len(one) for one in data], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    scanned = find_fields(np.frombuffer(b"".join(data), np.uint8), starts, ends, fields)
    return {name: scanned.column(place) for place, name in enumerate(fields)}


@settings(max_examples=150, deadline=None)
@example([("7", "0.1", "9.99999"), ('"7"', '"0.1"', "-10"), (None, None, "10")])
@given(st.lists(st.tuples(*[st.none() | VALUES] * 3), min_size=1, max_size=12))
def test_cells_are_those_of_the_reference(rows: list[tuple[str | None, ...]]) -> None:
    names = [column.name for column in TABLE.columns]
    texts = [
        "{" + ", ".join(f'"{name}": {value}' for name, value in zip(names, row, strict=True) if value is not None) + "}"
        for row in rows
    ]
    records = [json.loads(text, parse_float=Decimal) for text in texts]
    wanted = [TABLE.locate(record) for record in records]
    assert LOCATOR.locate(found(texts, names)).tolist() == wanted


def test_floats_of_a_file_count_as_they_are_printed() -> None:
    values = [0.1, 0.09999999999999999, 2.5, -0.0, float("nan"), float("inf"), 1e300, 99.0]
    column = RecordColumn(
        np.full(8, 5, np.uint8), np.zeros(0, np.uint8), np.zeros(8, np.int64), np.zeros(8, np.int64),
        floats=np.array(values),
    )  # fmt: skip
    table = ss.Universe([Column("delay", edges=EDGES)])
    wanted = [table.locate({"delay": value}) for value in values]
    assert CellLocator(table).locate({"delay": column}).tolist() == wanted
    assert wanted[:3] == [3, 2, 4]


def test_records_without_a_cell_are_no_events() -> None:
    spec = ss.WorkloadSpec(TABLE.marginals((1,)), "1", "1e-6", "gaussian", universe=TABLE)
    assert KIND.intake.roles(spec) == ("place", "delay", "wide")
    columns = found(
        ['{"place": "EWR", "delay": 0, "wide": 3}', '{"place": "JFK", "delay": 0, "wide": 3}'],
        list(KIND.intake.roles(spec)),
    )
    zeros = np.zeros(2, np.int64)
    given_ = Events(None, Items.of(zeros), None, zeros == 0, zeros, zeros != 0, None, columns, (0, 1))
    events = KIND.intake.events(spec, given_)
    assert events.good is not None
    assert events.good.tolist() == [True, False]
    sketch = ss.Sketch.create(spec)
    assert sketch.outside(events.items) == 1


def test_edges_may_be_any_rational_numbers() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        edges = sorted({Fraction(int(a), int(b)) for a, b in random.integers(1, 60, (6, 2))})
        column = Column("x", edges=edges)
        texts = [f"{float(edge):.17g}" for edge in edges] + [str(one) for one in random.normal(5, 10, 40).round(3)]
        texts = [text if "." in text else f"{text}.0" for text in texts]
        table = ss.Universe([column])
        cells = CellLocator(table).locate(found([f'{{"x": {text}}}' for text in texts], ["x"]))
        assert cells.tolist() == [column.locate(Decimal(text)) for text in texts]
