"""The demo's chapter of series: departures per hour of 2013, their sum over 24 hours, and the year's running total.

In: the demo's stream. Out: a configuration, a sealed sketch, a plot and a CSV file in the demo's folder; lines for
people. Touches: that folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream_demo.chapter import Chapter, write_csv

if TYPE_CHECKING:
    from sketchstream.kinds.convolution.reading.series import Series
    from sketchstream_demo.flights import Flights

HOUR: Final = 3_600_000
SHOWN: Final = (1000, 4000, 8000)
"""Hours of the year that are shown."""
CHAPTER: Final = Chapter(
    "series",
    "--format csv",
    """[[sketch]]
name = "departures"
kind = "convolution"
window = "1y"
timezone = "America/New_York"
step = "1h"                # 8,760 hours, 8,784 in leap years
kernel = ["identity", "window:24", "sum"]
epsilon = "1"
delta = "1e-6"
""",
)


def run(folder: Path, flights: Flights) -> list[str]:
    """Count the series, write a plot and a CSV file, and say what came out.

    Args:
        folder: folder of the demo, with its stream.
        flights: flights of the stream.
    """
    from sketchstream.cli import clusters
    from sketchstream_connectors.readers import open_published

    with open_published(clusters.load(CHAPTER.count(folder))) as windows:
        published: Any = windows.result(next(iter(windows.every("departures", None, None))))
    series: Series = published.estimate()
    series.plot(folder / "series.png")
    write_csv(folder / "series.csv", list(series.rows()))
    start = series.answers[0].start_ms or 0
    length = len(series.answers[0].values)
    counts = np.bincount((flights.time_ms - start) // HOUR, minlength=length)[:length]
    kernels = {"identity": np.ones(1), "window:24": np.ones(24), "sum": np.ones(length)}
    lines = ["Departures per hour of 2013, over 24 hours, and in the year so far; protected: each single flight"]
    for name, kernel in kernels.items():
        one, truth = series[name], np.convolve(counts, kernel)[:length]
        low, high = one.interval().T
        inside = float(np.mean((low <= truth) & (truth <= high)))
        lines += ["", f"{name}: {length:,} answers, {inside:.1%} of their 95% intervals hold the truth"]
        lines += [
            f"  {(one.times or [])[at]}   true {truth[at]:9,.0f}   estimate {one.values[at]:9,.0f}   95% interval "
            f"{low[at]:,.0f} to {high[at]:,.0f}"
            for at in SHOWN
        ]
    return [*lines, "", f"See {folder / 'series.png'}; all answers are in {folder / 'series.csv'}."]
