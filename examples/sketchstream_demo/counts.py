"""The demo's chapter of counts: flights of each aircraft, month by month, and the busiest ones.

In: the demo's stream. Out: a list of aircraft, a configuration, sealed sketches, a plot and a CSV file in the demo's
folder; printed lines. Touches: that folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream_demo.chapter import SHOWN, Chapter, july, write_csv

if TYPE_CHECKING:
    from sketchstream_demo.flights import Flights

SKETCH: Final = "flights"
BUSIEST: Final = 5
CHAPTER: Final = Chapter(
    "counts",
    f"--sketch {SKETCH} --all --top 5 --format csv",
    """[[sketch]]
name = "{sketch}"           # one count for each aircraft of the list; protected: each single flight
kind = "gaussian"
window = "1mo"
timezone = "America/New_York"
epsilon = "1"
delta = "1e-6"
domain = {{ items_file = "aircraft.txt" }}
""",
    item="tailnum",
)


def run(folder: Path, flights: Flights) -> list[str]:
    """Count the flights of each aircraft, write a plot and a CSV file, and say what came out.

    Args:
        folder: folder of the demo, with its stream and its key.
        flights: flights of the stream.
    """
    (folder / "aircraft.txt").write_text("".join(f"{name}\n" for name in flights.tail_numbers))
    answers = _july(CHAPTER.count(folder, sketch=SKETCH))
    truth = _truth(flights)
    answers.plot(folder / "counts.png")
    write_csv(folder / "counts.csv", list(answers.rows()))
    intervals = answers.interval()
    inside = int(np.count_nonzero((intervals[:, 0] <= truth) & (truth <= intervals[:, 1])))
    shrunk, raw = (float(np.sqrt(np.mean((one - truth) ** 2))) for one in (answers.values, answers.raw))
    lines = [
        "Flights of each aircraft, July 2013; protected: each single flight, epsilon 1, delta 1e-6",
        "",
        f"{truth.size:,} counts, {inside:,} of their 95% intervals hold the truth",
        f"error of a count: {raw:.1f} as published, {shrunk:.1f} by method {answers.method!r}",
    ]
    places = {name: place for place, name in enumerate(flights.tail_numbers)}
    lines += [
        f"  {one.rank}. {one.item:8s} true {truth[places[one.item]]:4,d}   published {one.value:4,.0f}   95% interval "
        f"{one.low:,.0f} to {one.high:,.0f}, of all {BUSIEST} at once"
        for one in answers.top(BUSIEST)
    ]
    whole = answers.sum()
    lines.append(
        f"  all aircraft together: true {truth.sum():,d}, estimate {whole.value:,.0f}, 95% interval "
        f"{whole.low:,.0f} to {whole.high:,.0f}"
    )
    return [*lines, "", f"See {folder / 'counts.png'}; all counts are in {folder / 'counts.csv'}."]


def _july(configuration: Path) -> Any:
    """The answers for July, from publications."""
    from sketchstream.cli import clusters
    from sketchstream_connectors.readers import open_published

    with open_published(clusters.load(configuration)) as windows:
        return windows.estimates(list(windows.every(SKETCH, None, None))[SHOWN]).answers


def _truth(flights: Flights) -> Any:
    """The true counts of July by place in the list, for comparison only."""
    here = flights.aircraft[july(flights)]
    return np.bincount(here[here >= 0], minlength=len(flights.tail_numbers))
