"""Estimates as a report: one answer, or many windows with their trend, each of the last ones in a fold of its own.

In: answers of any kind of sketch that gives estimates. Out: one HTML page. Touches: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from sketchstream.cli import show
from sketchstream.cli.windows_report import FOLDS, ManyWindows, fold
from sketchstream.kinds import presentation
from sketchstream.pictures import report
from sketchstream.query import words
from sketchstream.query.window_sequence import start_labels

if TYPE_CHECKING:
    from sketchstream.pictures.numbers import Panel
    from sketchstream.query.estimates import EstimateAnswer

SETTINGS = ("method", "epsilon", "delta", "mechanism", "unit", "length", "users", "features", "k")
"""Facts of an answer that say how it was made, as far as a kind has them."""


def page(answer: EstimateAnswer, source: str) -> str:
    """The report of one answer.

    Args:
        answer: answer of any kind.
        source: says in a word or two where it comes from.
    """
    data = _data(answer)
    settings = [(name, str(data[name])) for name in SETTINGS if data.get(name) is not None]
    facts = [("source", source), ("kind of sketch", str(data.get("kind", "-"))), *show.flatten(answer.facts), *settings]
    sections = [
        *(
            _make_section(picture)
            for picture in [*presentation.presentation_of(data).pictures(data), *_further(answer)]
        ),
        report.Section("What is guaranteed", lists=words.statement(answer.guarantee)),
        report.Section("Where it comes from", tables=[report.ReportTable("Facts", ("what", "value"), facts)]),
    ]
    alarms = [*words.warnings_of(answer.guarantee), *words.tell_unfinished(answer.facts)]
    lead = [presentation.presentation_of(data).headline(data), words.INTERVALS]
    return report.page(f"Estimates: {source}", lead, sections, words.ASKING_IS_FREE, " ".join(alarms))


def windows_page(answers: Sequence[EstimateAnswer], sketch: str, timezone: str) -> str:
    """The report of many windows.

    Args:
        answers: answers of one sketch, in ascending order of time.
        sketch: name of the sketch.
        timezone: time zone of its windows.
    """
    numbers = [_data(answer) for answer in answers]
    zone = ZoneInfo(timezone)
    starts = [datetime.fromisoformat(str(answer.facts["window_start"])).astimezone(zone) for answer in answers]
    labels, firm = start_labels(starts), [bool(answer.facts.get("complete", True)) for answer in answers]
    folds = []
    for start, data in list(zip(starts, numbers, strict=True))[: -FOLDS - 1 : -1]:
        title = f"{start:%Y-%m-%d %H:%M}: {presentation.presentation_of(data).headline(data)}"
        folds.append(fold(title, presentation.presentation_of(data).pictures(data)))
    trend = [*presentation.trend(numbers, labels, firm), *presentation.chain_pictures(numbers[-FOLDS:])]
    about = ManyWindows(sketch, timezone, labels, firm.count(False), answers[-1].guarantee if answers else None)
    return about.page([_make_section(panel) for panel in trend], folds, f"{words.INTERVALS} ")


def _make_section(panel: Panel) -> report.Section:
    """A picture under its heading."""
    notes, charts = (panel.note,) if panel.note else (), [] if panel.chart is None else [panel.chart]
    folded, shown_at_once = ([panel.table], []) if panel.folded and charts else ([], [panel.table])
    return report.Section(panel.title, notes, charts=charts, tables=shown_at_once, long=folded)


def _further(answer: EstimateAnswer) -> list[Panel]:
    """The pictures of what a kind shows in addition to its usual answer."""
    further = answer.answers.further()
    if further is None:
        return []
    numbers = further.numbers()
    return presentation.presentation_of(numbers).pictures(numbers)


def _data(answer: EstimateAnswer) -> dict[str, Any]:
    """An answer as the command line prints it, without a selection."""
    data: dict[str, Any] = json.loads(answer.to_json())
    return data
