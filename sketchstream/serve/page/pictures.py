"""Pictures of groups, side by side and over time.

In: answers as plain data, as the HTTP API and the command line's JSON have them. Out: pictures. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from sketchstream.kinds import presentation
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import (
    Number,
    Panel,
    Spell,
    draw_chart,
    draw_numbers,
    ends,
    interval,
    spelling,
    value,
)
from sketchstream.pictures.report import ReportTable
from sketchstream.query.differences import Point
from sketchstream.query.window_sequence import start_labels
from sketchstream.query.words import window_label
from sketchstream.texts.number_texts import number_text


def pictures(answer: Mapping[str, Any], note: str = "") -> list[Panel]:
    """The pictures of one window's answer; with `groups`, the answers of all groups, those side by side first.

    Args:
        answer: answer of any kind of sketch.
        note: note about the groups; empty for none.
    """
    return [*_groups(answer.get("groups") or {}, note), *presentation.presentation_of(answer).pictures(answer)]


def by_group(
    title: str,
    groups: Sequence[str],
    spans: Sequence[tuple[int, int]],
    timezone: str,
    points: Sequence[Sequence[Point | None]],
    spell: Spell = number_text,
    note: str = "",
) -> Panel:
    """A number of several groups in several windows as a heat map.

    Args:
        title: title of the number.
        groups: groups of r rows.
        spans: spans of c columns, [start, end) in ms since 1970.
        timezone: time zone of the sketch.
        points: r rows of c numbers; None if not computed.
        spell: writes a number.
        note: note about the groups; empty for none.
    """
    zone = ZoneInfo(timezone)
    labels = start_labels([datetime.fromtimestamp(start / 1000, zone) for start, _ in spans])
    nothing = {"value": None, "low": None, "high": None}
    numbers = [[nothing if point is None else number(point) for point in row] for row in points]
    flat = ends([point for row in numbers for point in row])
    grid = charts.GridChart(list(groups), labels, *(end.reshape(len(groups), len(spans)) for end in flat), spell=spell)
    missing = sum(point is None for row in points for point in row)
    if missing:
        of = f"{missing:,} of {len(groups) * len(spans):,} numbers"
        note = f"{note} {of} are not computed yet: choose their group above.".strip()
    heading = f"{title[:1].upper()}{title[1:]} by group and window"
    least, most = (spell(float(end)) for end in (np.nanmin(grid.value), np.nanmax(grid.value)))
    caption = f"The stronger the color, the larger the number: {least} to {most}."
    chart, wide = (
        draw_chart(lambda wide=wide: charts.heat_chart(grid, heading, ("group", "window"), caption, wide=wide))  # type: ignore[misc]
        for wide in (False, True)
    )
    rows = [
        (group, window_label(*span, timezone), value(point, spell), interval(point, spell))
        for group, row in zip(groups, numbers, strict=True)
        for span, point in zip(spans, row, strict=True)
        if point["value"] is not None
    ]
    table = ReportTable(heading, ("group", "window", title, "95% interval"), rows)
    return Panel("by-group", heading, chart, table, wide, folded=True, note=note)


def number(point: Point) -> Number:
    """A value with the ends of its interval, by their names."""
    return dict(zip(("value", "low", "high"), point, strict=True))


def _groups(groups: Mapping[str, Mapping[str, Any]], note: str) -> list[Panel]:
    """The usual number of each group."""
    if not groups:
        return []
    first = next(iter(groups.values()))
    metric = next(iter(presentation.presentation_of(first).numbers(first)), None)
    if metric is None:
        return []
    numbers_by_group = {
        group: presentation.presentation_of(answer).number(answer, metric) for group, answer in groups.items()
    }
    title = next((number[0] for number in numbers_by_group.values() if number is not None), metric)
    numbers = ends([None if number is None else number[1] for number in numbers_by_group.values()])
    spell = spelling(
        metric if presentation.presentation_of(first) is presentation.presentation_of_kind("profile") else ""
    )
    picture = draw_numbers(
        "groups", f"{title[:1].upper()}{title[1:]} by group", list(groups), numbers, ("group", title), spell=spell
    )
    return [picture.noted(note)]
