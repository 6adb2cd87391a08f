"""A profile as a report: the numbers, two charts, and the guarantee.

In: an answer. Out: one HTML page. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sketchstream.cli import show
from sketchstream.kinds.profile import pictures as pages
from sketchstream.pictures import report
from sketchstream.query import words

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.query.answers import Answer


def page(answer: Answer, source: str) -> str:
    """The report.

    Args:
        answer: reconstructed answer.
        source: where it comes from, in a word or two.
    """
    profile, known, data = answer.profile, answer.facts, answer.to_dict()
    (reach, exact), say = pages.curves(data), profile.names
    sections = [
        report.Section(
            "The numbers",
            (
                say("Shares are shares of the distinct items. ")
                + (f"{words.INTERVALS} It covers {profile.covers}." if answer.intervals else words.NO_INTERVALS),
            ),
            tables=[pages.reach_table(data), pages.other_table(data)],
        ),
        report.Section(
            say("How often items were counted"),
            charts=[pages.reach_chart(reach, say), pages.exact_chart(exact, say)],
        ),
        report.Section("What is guaranteed", lists=words.statement(profile.guarantee)),
        report.Section("Where it comes from", tables=[_origin_table(profile, source, known)]),
    ]
    alarms = [*words.warned(profile.guarantee), *words.unfinished(known)]
    return report.page(
        f"{say('How often items occurred')}: {source}",
        (pages.headline(data),),
        sections,
        words.ASKING_IS_FREE,
        " ".join(alarms),
    )


def _origin_table(profile: Profile, source: str, known: Mapping[str, Any]) -> report.ReportTable:
    """Table of the published object and the method."""
    facts = profile.facts
    rows = [
        ("source", source),
        *show.about(known),
        ("domain", f"{'open' if facts.open_domain else 'closed'}, {facts.d:,} slots"),
        ("protected unit", f"one {facts.unit}"),
        ("epsilon of the counters", facts.epsilon),
        ("epsilon of the publication", facts.cost or "none of its own"),
        ("published", f"{facts.form}, {len(facts.layers)} noise layer{'s' if len(facts.layers) > 1 else ''}"),
        ("estimator", facts.method),
        ("largest count that is resolved", f"{profile.max_count:,}"),
    ]
    return report.ReportTable("Facts", ("what", "value"), rows)
