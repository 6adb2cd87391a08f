"""The answer for one window or one published file, for the command line, the results topic and services.

In: a result and facts about its origin. Out: plain data for JSON, CSV. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sketchstream.kinds.estimates import without_intervals
from sketchstream.kinds.exports import as_json
from sketchstream.quality import judge
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published, Release, SealedState

ENDS = ("_low", "_high")
"""How columns of CSV with ends of intervals end."""


@dataclass(frozen=True)
class ProfileAnswer:
    """A profile with facts about its origin.

    Args:
        profile: the numbers, with their guarantee.
        facts: facts about the window; empty without a window.
        intervals: whether intervals are valid; otherwise no output contains any.
    """

    profile: Profile
    facts: Mapping[str, Any] = field(default_factory=dict)
    intervals: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: the facts, then the numbers; invalid intervals, and errors, are None."""
        numbers = self.profile.to_dict()
        return {**self.facts, **(numbers if self.intervals else without_intervals(numbers))}

    def to_json(self) -> str:
        """One line of JSON, as in `profile --format json` and the results topic. Infinities are null."""
        return as_json(self.to_dict())

    def to_csv(self) -> str:
        """The numbers as CSV with a header line; ends of invalid intervals are empty."""
        text = self.profile.counts_csv()
        if self.intervals:
            return text
        names, *rows = (line.split(",") for line in text.splitlines())
        valid = [not name.endswith(ENDS) for name in names]
        cut = [[cell if keep else "" for cell, keep in zip(row, valid, strict=True)] for row in rows]
        return "\n".join(",".join(row) for row in [names, *cut]) + "\n"


def of_file(published: Published, profile: Profile) -> ProfileAnswer:
    """Build the answer for a single published object, without frontiers or a configuration.

    For an object that a worker sealed it contains the window, and its quality under the default rule. Whether the
    window is complete cannot be known from one file.

    Args:
        published: the object that was read.
        profile: numbers of this object.
    """
    parts = published.parts
    facts = facts_of(parts)
    if not facts:
        return ProfileAnswer(profile)
    quality = judge(parts)
    if quality.is_mentioned:
        facts["quality"] = quality.to_dict()
    repartitioned = len(parts) > 1 and published.repartitioned
    if repartitioned:
        facts["repartitioned"] = True
    return ProfileAnswer(profile, facts, intervals=not repartitioned)


def facts_of(parts: Sequence[Release | SealedState]) -> dict[str, Any]:
    """Facts about the window that all parts are of; empty if there is no such window."""
    origins = {(part.origin.name, part.origin.window, part.origin.revision) for part in parts}
    name, window, revision = origins.pop()
    if origins or window is None:
        return {}
    start, end = map(iso, window)
    return {"sketch": name, "window_start": start, "window_end": end, "revision": revision}
