"""The demo's chapter of rows: similarity of New York's airports by the destinations of their flights.

In: the demo's stream. Out: a configuration, lists, sealed sketches, a heat map in the demo's folder; printed lines.
Touches: that folder.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream_demo.chapter import SHOWN, Chapter, july

if TYPE_CHECKING:
    from sketchstream_demo.flights import Flights

AIRPORTS: Final = ("EWR", "JFK", "LGA")
PROMISE: Final = 6000
"""The L2 norm that no airport's row of one month exceeds."""
PARTS: Final = {
    "flights": "Each single flight is protected: the distances are told",
    "airports": "All flights of an airport are protected: the noise hides any airport, so no distance is told",
}
"""Sketches, and what they show."""
CHAPTER: Final = Chapter(
    "rows",
    "--sketch flights --from 2013-07-01T04:00Z --to 2013-08-01T04:00Z --nearest EWR",
    """[[sketch]]
name = "flights"
kind = "projection"
window = "1mo"
timezone = "America/New_York"
row = "origin"
rows = {{ items_file = "airports.txt" }}
domain = {{ items_file = "destinations.txt" }}
k = 512
matrix = "rademacher"
seed = "{seed}"
unit = "event"             # protected: each single flight
epsilon = "1"
delta = "1e-6"

[[sketch]]
name = "airports"
kind = "projection"
window = "1mo"
timezone = "America/New_York"
row = "origin"
rows = {{ items_file = "airports.txt" }}
domain = {{ items_file = "destinations.txt" }}
k = 64
unit = "item"              # protected: everything that left one airport in a month
max_norm = {promise}
matrix_seed = "secret"
epsilon = "1"
delta = "1e-6"
""",
    item="dest",
)


def run(folder: Path, flights: Flights) -> list[str]:
    """Project the airports' rows, draw their distances, and say what came out.

    Args:
        folder: folder of the demo, with its stream.
        flights: flights of the stream.
    """
    from sketchstream import windows

    destinations = sorted({value.strip('"') for value in flights.fields["dest"]})
    (folder / "airports.txt").write_text("\n".join(AIRPORTS) + "\n")
    (folder / "destinations.txt").write_text("\n".join(destinations) + "\n")
    # a public matrix, another one in each demo: the error of a distance is that of its draw
    configuration = CHAPTER.count(folder, promise=PROMISE, seed=token_hex(32))
    rows = _rows(flights, destinations)
    lines = ["Airports by where their flights go, July 2013: distances between rows of flights by destination"]
    for sketch, shown in PARTS.items():
        found: Any = windows(configuration, sketch)[SHOWN].estimate()
        lines += ["", f"{shown} (epsilon 1, delta 1e-6)"]
        for one, other in combinations(AIRPORTS, 2):
            gap = rows[AIRPORTS.index(one)] - rows[AIRPORTS.index(other)]
            distance = found.distance(one, other)
            value, low, high = (np.sqrt(max(0.0, float(end))) for end in (distance.value, distance.low, distance.high))
            lines.append(
                f"  {one} and {other}: true {np.linalg.norm(gap):8,.0f}   estimate {value:8,.0f}   95% interval "
                f"{low:,.0f} to {high:,.0f}"
            )
        if sketch == "flights":
            found.plot(folder / "airports.png")
    end = "Rows can be compared where they differ by far more than one protected unit."
    return [*lines, "", f"{end} See {folder / 'airports.png'}."]


def _rows(flights: Flights, destinations: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(3, destinations) the true flights of July, for comparison only."""
    here = july(flights)
    named = (flights.fields[name][here] for name in ("origin", "dest"))
    origins, ends = (np.array([one.strip('"') for one in some]) for some in named)
    out = np.zeros((len(AIRPORTS), len(destinations)), np.int64)
    np.add.at(out, (np.searchsorted(AIRPORTS, origins), np.searchsorted(destinations, ends)), 1)
    return out
