"""The demo's chapter of tables: carrier x origin x hour, and all ranges of arrival delays, month by month.

In: the demo's stream. Out: a configuration, sealed sketches, two plots and a CSV file in the demo's folder; lines for
people. Touches: that folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream_demo.chapter import SHOWN, Chapter, july, write_csv

if TYPE_CHECKING:
    from sketchstream.array_types import Floats
    from sketchstream.kinds.workload.answers import WorkloadAnswers
    from sketchstream.kinds.workload.spec import WorkloadSpec
    from sketchstream_demo.flights import Flights

ORIGINS: Final = ("origin EWR", "origin JFK", "origin LGA", "carrier UA origin EWR", "origin EWR hour 6")
DELAYS: Final = ("delay -60..-50 to -10..0", "delay 0..10", "delay 10..20 to 50..60", "delay 60..70 to 170..180")
SHOWN_OF: Final = {"tables": ORIGINS, "delays": DELAYS}
"""Answers of each sketch that are shown; every other table, and range of whole buckets, has its answer too."""
CHAPTER: Final = Chapter(
    "tables",
    "--sketch tables --from 2013-07-01T04:00Z --to 2013-08-01T04:00Z --format csv",
    """[[sketch]]
name = "tables"            # all tables over one and over two of three columns
kind = "workload"
window = "1mo"
timezone = "America/New_York"
epsilon = "1"
delta = "1e-6"
mechanism = "gaussian"
workload = "marginals:1,2"

[[sketch.columns]]
name = "carrier"
values = {carriers}

[[sketch.columns]]
name = "origin"
values = ["EWR", "JFK", "LGA"]

[[sketch.columns]]
name = "hour"
values = {hours}

[[sketch]]
name = "delays"            # all ranges of buckets of ten minutes
kind = "workload"
window = "1mo"
timezone = "America/New_York"
epsilon = "1"
delta = "1e-6"
mechanism = "gaussian"
workload = "ranges:delay"

[[sketch.columns]]
name = "delay"
field = "arr_delay"
start = -60
width = 10
count = 32
""",
)


def run(folder: Path, flights: Flights) -> list[str]:
    """Count the tables, write plots and a CSV file, and say what came out.

    Args:
        folder: folder of the demo, with its stream.
        flights: flights of the stream.
    """
    carriers = sorted({value.strip('"') for value in flights.fields["carrier"]})
    configuration = CHAPTER.count(folder, carriers=json.dumps(carriers), hours=list(range(24)))
    lines = ["Tables over carrier, origin and hour, and all ranges of delays, July 2013; protected: each single flight"]
    for (sketch, wanted), (spec, answers) in zip(SHOWN_OF.items(), _july(configuration), strict=True):
        answers.plot(folder / f"{sketch}.png")
        rows = list(answers.rows())
        write_csv(folder / f"{sketch}.csv", rows)
        truth = _truth(spec, flights)
        inside = sum(row["low"] <= true <= row["high"] for row, true in zip(rows, truth, strict=True))
        lines += ["", f"{len(rows):,} answers of sketch {sketch!r}, {inside:,} of their 95% intervals hold the truth"]
        picked = [(row, true) for row, true in zip(rows, truth, strict=True) if _label(row) in wanted]
        lines += [
            f"  {_label(row):28s} true {true:8,.0f}   estimate {row['value']:8,.0f}   95% interval "
            f"{row['low']:,.0f} to {row['high']:,.0f}"
            for row, true in picked
        ]
    return [*lines, "", f"See {folder / 'tables.png'} and {folder / 'delays.png'}; all answers are in the CSV files."]


def _july(configuration: Path) -> Iterator[tuple[WorkloadSpec, WorkloadAnswers]]:
    """The publications of each sketch for July, and their answers."""
    from sketchstream.cli import clusters
    from sketchstream_connectors.readers import open_published

    with open_published(clusters.load(configuration)) as windows:
        for sketch in SHOWN_OF:
            published: Any = windows.result(list(windows.every(sketch, None, None))[SHOWN])
            yield published.spec, published.estimate()


def _truth(spec: WorkloadSpec, flights: Flights) -> Floats:
    """The true answers for July, for comparison only."""
    universe = spec.universe
    assert universe is not None
    here = july(flights)
    fields = {"delay": "arr_delay"}
    columns = {
        column.field: [json.loads(one) for one in flights.fields[fields.get(column.name, column.name)][here]]
        for column in universe.columns
    }
    cells = universe.locate_fields(columns)
    return spec.workload.apply(np.bincount(cells[cells >= 0], minlength=universe.size).astype(np.float64))


def _label(row: dict[str, Any]) -> str:
    """The cells of an answer, without those that are summed over."""
    named = {name: value for name, value in row.items() if name not in ("table", "value", "stderr", "low", "high")}
    return " ".join(f"{name} {value}" for name, value in named.items() if value is not None)
