"""How the answers of a kind are shown: its numbers by name, its pictures, a headline.

In: an answer as plain data, with the keys of the command line's JSON. Out: the kind's `Presentation`. Touches: nothing.

It is `PRESENTATION` of the module `pictures` of the kind's package. What pages, reports, notebooks and series over time
show of a kind is written there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream import kinds
from sketchstream.kinds.estimates import is_estimate
from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import MAX_UNFOLDED_ROWS, Number, Panel, Spell, draw_chart, ends, interval, value
from sketchstream.texts.naming import USUAL, Names
from sketchstream.texts.number_texts import number_text

if TYPE_CHECKING:
    from sketchstream.kinds.estimates import Bound, Estimate
    from sketchstream.pictures.report import ReportTable

CARD_PICTURES: Final = 2
"""Pictures of an answer in a notebook."""
CARD_ROWS: Final = 12
"""Rows of a table in a notebook."""
AnswerData = Mapping[str, Any]


def _numbers(answer: AnswerData) -> dict[str, str]:
    return {name: name for name, entry in answer.items() if is_estimate(entry)}


def _number(answer: AnswerData, name: str) -> tuple[str, Number] | None:
    entry = answer.get(name)
    return (name, entry) if is_estimate(entry) else None


def _so_far(answer: AnswerData) -> tuple[str, list[Panel]]:
    raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """How a kind presents its answers. Without a module of pictures: the defaults, numbers without pictures.

    Args:
        purpose: what sketches of the kind are for, in some words.
        unlisted: numbers that are not offered one by one: how they are named, for errors.
        headline: the most important numbers in a sentence; empty if there is none.
        numbers: names and titles of the numbers to follow over time; the default one first.
        number: title of a number, and its value with the ends of its interval; None if the answer does not have it.
        pictures: charts with their tables.
        main_pictures: the picture that stands for an answer among many; None: the first of its pictures.
        tables: tables without a chart.
        title_of: a number in words, for kinds whose answers all call it the same; empty for others. Takes the spec
            (None: it is not known), the name of the number, and names of items.
        bound_of: what a number is in every answer of a sketch of this spec, if it is not an estimate.
        chain_windows: answers of consecutive windows (ascending, one at least) as one series, for kinds whose answers
            run on from window to window.
        so_far: a sentence and pictures of a window that is still open, for kinds that publish positions when they
            close.
        further: options of `estimate` for the question whose answer is shown beside the usual one; empty without one.
    """

    purpose: str = "Counts events"
    unlisted: Sequence[str] = ()
    headline: Callable[[AnswerData], str] = lambda answer: ""
    numbers: Callable[[AnswerData], dict[str, str]] = _numbers
    number: Callable[[AnswerData, str], tuple[str, Number] | None] = _number
    pictures: Callable[[AnswerData], list[Panel]] = lambda answer: []
    main_pictures: Callable[[AnswerData], list[Panel]] | None = None
    tables: Callable[[AnswerData], list[ReportTable]] = lambda answer: []
    title_of: Callable[[Any, str, Names], str] = lambda spec, name, say: ""
    bound_of: Callable[[Any, str], Bound | None] = lambda spec, name: None
    chain_windows: Callable[[Sequence[AnswerData]], list[Panel]] = lambda answers: []
    so_far: Callable[[AnswerData], tuple[str, list[Panel]]] = _so_far
    further: Callable[[AnswerData], dict[str, Any]] = lambda answer: {}

    def main(self, answer: AnswerData) -> list[Panel]:
        """The picture that stands for an answer among many, if there is one."""
        return self.pictures(answer)[:1] if self.main_pictures is None else self.main_pictures(answer)


def presentation_of(answer: AnswerData) -> Presentation:
    """How an answer is shown.

    Args:
        answer: an answer of any kind; without `kind`, it is a profile.
    """
    return presentation_of_kind(str(answer.get("kind", "profile")))


@cache
def presentation_of_kind(kind: str) -> Presentation:
    """How the answers of a named kind are shown.

    Raises:
        SpecError: there is no kind of that name.
    """
    module = kinds.module_of_kind(kind, "pictures")
    presentation: Presentation = Presentation() if module is None else import_module(module).PRESENTATION
    return presentation


def known_names(answer: AnswerData) -> list[str]:
    """Names of numbers for errors: how those are named that are not offered one by one, then those that are.

    Args:
        answer: an answer of any kind.
    """
    return [*presentation_of(answer).unlisted, *presentation_of(answer).numbers(answer)]


def chain_pictures(answers: Sequence[AnswerData]) -> list[Panel]:
    """See `Presentation.chain_windows`; nothing without answers."""
    return presentation_of(answers[-1]).chain_windows(answers) if answers else []


def card(answer: AnswerData, note: str = "", beside: AnswerData | None = None) -> str:
    """An answer in the output of a notebook's cell: its headline, its first tables, beside their charts.

    Args:
        answer: answer of any kind.
        note: text below everything else.
        beside: answer to the question of `further`; None: it is not shown.
    """
    panels = [
        *presentation_of(answer).pictures(answer),
        *([] if beside is None else presentation_of(beside).pictures(beside)),
    ][:CARD_PICTURES]
    return report.card(
        presentation_of(answer).headline(answer) or "Estimate",
        tables=[shorten_table(panel.table) for panel in panels],
        charts=[panel.chart for panel in panels],
        note=note,
    )


def trend(
    answers: Sequence[AnswerData | None], labels: Sequence[str], firm: Sequence[bool], most: int = 3
) -> list[Panel]:
    """The first numbers of a kind over several windows, a picture each; the newest answer says which they are.

    Args:
        answers: ascending, of one sketch; None: a window without an answer.
        labels: labels of the windows.
        firm: whether each window is complete.
        most: numbers.
    """
    newest = next((answer for answer in reversed(answers) if answer is not None), None)
    if newest is None:
        return []
    out = []
    for place, name in enumerate(list(presentation_of(newest).numbers(newest))[:most]):
        called = presentation_of(newest).number(newest, name)
        title = name if called is None else called[0]
        titled = [None if answer is None else presentation_of(answer).number(answer, name) for answer in answers]
        # another title: the place of another item since the domain was changed
        points = [None if one is None or one[0] != title else one[1] for one in titled]
        out.append(over_time(f"trend-{place}", title, points, labels, firm))
    return out


def trend_together(
    lines: Mapping[str, str],
    rows: Sequence[Mapping[str, Estimate | None]],
    labels: Sequence[str],
    intervals: bool = True,
    say: Names = USUAL,
) -> list[charts.Chart]:
    """A few numbers of items over all windows, in one chart; none without windows or without matplotlib.

    Args:
        lines: names of the numbers, and their labels; those that every window has are drawn.
        rows: numbers of each window, by name.
        labels: labels of the windows.
        intervals: whether to draw intervals; otherwise the ends are the values.
        say: names of items.
    """
    if not rows:
        return []
    series = []
    for name, label in lines.items():
        known = [one for row in rows if (one := row.get(name)) is not None]
        if len(known) == len(rows):
            estimates, low, high = np.array([(one.value, one.low, one.high) for one in known], np.float64).T
            series.append(charts.ChartSeries(label, estimates, *((low, high) if intervals else (estimates, estimates))))
    caption = "Estimates of each window with their 95% intervals."
    chart = draw_chart(lambda: charts.series_chart(series, labels, "Window by window", say("items"), caption))
    return [] if chart is None else [chart]


def over_time(
    name: str,
    title: str,
    points: Sequence[Number | None],
    labels: Sequence[str],
    firm: Sequence[bool],
    spell: Spell = number_text,
) -> Panel:
    """One number over several windows.

    Args:
        name: name of the picture.
        title: title of the number.
        points: ascending; None: a window without it.
        labels: labels of the windows.
        firm: whether each window is complete.
        spell: writes a number.
    """
    series = charts.ChartSeries("", *ends(points), firm=np.array(firm, bool), spell=spell)
    caption = "One dot for each window, its 95% interval as a bar; hollow dots are windows that are not complete."
    if len(points) > charts.MAX_DOTTED_WINDOWS:
        caption = "A line of estimates with the band of their 95% intervals; gaps are windows without a number."
    chart = wide = None
    if np.isfinite(series.value).any():
        chart = draw_chart(lambda: charts.series_chart([series], labels, title, "", caption))
        wide = draw_chart(lambda: charts.series_chart([series], labels, title, "", caption, wide=True))
    nothing: Number = {"value": None, "low": None, "high": None}
    rows = [
        (
            label,
            value(point or nothing, spell),
            interval(point or nothing, spell),
            "complete" if whole else "not complete",
        )
        for label, point, whole in zip(labels, points, firm, strict=True)
    ]
    table = report.ReportTable(f"{title}, by window", ("window", title, "95% interval", "window is"), rows)
    return Panel(name, f"{title[:1].upper()}{title[1:]}", chart, table, wide, folded=len(rows) > MAX_UNFOLDED_ROWS)


def rows_of(answer: AnswerData) -> list[dict[str, Any]]:
    """The rows of an answer: its labels, value, stderr, low and high; None where there is no interval.

    Args:
        answer: answer of any kind.
    """
    ends = answer["intervals"] or [(None, None)] * len(answer["values"])
    numbers = {"value": answer["values"], "stderr": answer["stderr"], "low": [], "high": []}
    numbers["low"], numbers["high"] = ([pair[at] for pair in ends] for at in (0, 1))
    columns = {**answer["labels"], **numbers}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def shorten_table(table: ReportTable) -> ReportTable:
    """The first rows of a table, and how many there are."""
    if len(table.rows) <= CARD_ROWS:
        return table
    caption = f"{table.caption}, the first {CARD_ROWS} of {len(table.rows):,}"
    return replace(table, caption=caption, rows=table.rows[:CARD_ROWS])
