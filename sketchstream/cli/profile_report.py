"""A profile as a report: the numbers, two charts, and the guarantee.

In: an answer. Out: one HTML page. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sketchstream.cli import show
from sketchstream.kinds import presentation
from sketchstream.pictures import report
from sketchstream.query import words

if TYPE_CHECKING:
    from sketchstream.query.answers import ProfileAnswer


def page(answer: ProfileAnswer, source: str) -> str:
    """The report.

    Args:
        answer: reconstructed answer.
        source: says in a word or two where it comes from.
    """
    profile, facts, data = answer.profile, answer.facts, answer.to_dict()
    kind, say = presentation.presentation_of(data), profile.names
    pictures = kind.pictures(data)
    note = say("Shares are shares of the distinct items. ")
    note += f"{words.INTERVALS} It covers {profile.covers}." if answer.intervals else words.NO_INTERVALS
    drawn = [picture.chart for picture in pictures if picture.chart is not None]
    sections = [
        report.Section("The numbers", (note,), tables=[pictures[0].table, *kind.tables(data)]),
        report.Section(say("How often items were counted"), charts=drawn),
        report.Section("What is guaranteed", lists=words.statement(profile.guarantee)),
        report.Section("Where it comes from", tables=[_origin_table(data, source, facts)]),
    ]
    title = f"{say('How often items occurred')}: {source}"
    alarms = [*words.warnings_of(profile.guarantee), *words.tell_unfinished(facts)]
    return report.page(title, (kind.headline(data),), sections, words.ASKING_IS_FREE, " ".join(alarms))


def _origin_table(data: Mapping[str, Any], source: str, facts: Mapping[str, Any]) -> report.ReportTable:
    """Table of the published object and the method."""
    layers, cost = len(data["layers"]), data["epsilon_publish"]
    rows = [
        ("source", source),
        *show.facts_of_window(facts),
        ("domain", f"{data['domain']}, {data['d']:,} slots"),
        ("protected unit", f"one {data['unit']}"),
        ("epsilon of the counters", data["epsilon"]),
        ("epsilon of the publication", cost or "none of its own"),
        ("published", f"{data['form']}, {layers} noise layer{'s' if layers > 1 else ''}"),
        ("estimator", data["method"]),
        ("largest count that is resolved", f"{data['max_count']:,}"),
    ]
    return report.ReportTable("Facts", ("what", "value"), rows)
