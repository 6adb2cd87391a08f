"""The demo's chapter of overlap: which aircraft fly from one, from two, from all three of New York's airports.

In: the demo's stream. Out: a configuration, sealed sketches, an UpSet plot in the demo's folder; printed lines.
Touches: that folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from sketchstream_demo.chapter import SHOWN, Chapter, july
from sketchstream_demo.rows import AIRPORTS

if TYPE_CHECKING:
    from sketchstream_demo.flights import Flights

SKETCH: Final = "reach"
CHAPTER: Final = Chapter(
    "overlap",
    f'--sketch {SKETCH} --all --query "EWR & JFK"',
    """[[sketch]]
name = "{sketch}"
window = "1mo"
timezone = "America/New_York"
unit = "item"              # protected: everything that one aircraft did in a month
epsilon = "4"              # against somebody who seizes the machine that counts
domain = {{ slots = 16384, levels = 1 }}
group_by = "origin"
groups = ["EWR", "JFK", "LGA"]
overlap = true
epsilon_overlap = "1"      # against everybody who reads what is published
counts = "presence"        # whether an aircraft came, not how often
noise = "joint"            # what is lost does not grow with the number of airports
""",
    item="tailnum",
    command="overlap",
)


def run(folder: Path, flights: Flights) -> list[str]:
    """Count the aircraft of each set of airports, draw them, and say what came out.

    Args:
        folder: folder of the demo, with its stream and its key.
        flights: flights of the stream.
    """
    from sketchstream import windows

    found = windows(CHAPTER.count(folder, sketch=SKETCH), SKETCH)[SHOWN].published.overlap()
    found.plot(folder / "overlap.png")
    lines = ["Aircraft by the airports that they left from, July 2013; protected: each aircraft, epsilon 1", ""]
    for query, aircraft in aircraft_by_question(flights).items():
        answer = found.query(query)
        lines.append(
            f"  {query:18s} true {len(aircraft):5,d}   estimate {answer.value:6,.0f}   95% interval "
            f"{answer.low:,.0f} to {answer.high:,.0f}"
        )
    return [*lines, "", f"All from one publication. See {folder / 'overlap.png'}."]


def aircraft_by_question(flights: Flights) -> dict[str, set[int]]:
    """The aircraft of July (their numbers) that each question asks for, for comparison only.

    Args:
        flights: flights of the stream.
    """
    here = july(flights)
    origins = np.array([one.strip('"') for one in flights.fields["origin"][here]])
    ewr, jfk, lga = (set(flights.aircraft[here][origins == name].tolist()) - {-1} for name in AIRPORTS)
    return {
        "EWR": ewr,
        "JFK": jfk,
        "LGA": lga,
        "EWR & JFK": ewr & jfk,
        "EWR & LGA": ewr & lga,
        "JFK & LGA": jfk & lga,
        "EWR & JFK & LGA": ewr & jfk & lga,
        "EWR | JFK | LGA": ewr | jfk | lga,
        "LGA - (EWR | JFK)": lga - (ewr | jfk),
    }
