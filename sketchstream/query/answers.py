"""The answer for one window, or for one published file: what the command line, the results topic and services give out.

In: a result and what is known of where it comes from. Out: plain data for JSON, CSV. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sketchstream.published import Stack, partition_counts
from sketchstream.quality import judge
from sketchstream.stream.windows import iso

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Profile
    from sketchstream.published import Published

ESTIMATE = frozenset({"value", "low", "high"})
"""Keys of a number with its interval."""
ENDS = ("_low", "_high")
"""How columns of CSV with ends of intervals end."""


@dataclass(frozen=True)
class Answer:
    """A result with what is known of it.

    Args:
        profile: the numbers, with their guarantee.
        facts: of the window; empty where there is none.
        intervals: whether intervals hold. Where they do not, none is given out in any form.
    """

    profile: Profile
    facts: Mapping[str, Any] = field(default_factory=dict)
    intervals: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: the facts, then the numbers; ends of intervals are None where none holds."""
        numbers = self.profile.to_dict()
        return {**self.facts, **(numbers if self.intervals else _bare(numbers))}

    def to_json(self) -> str:
        """One line of JSON: what `profile --format json` prints and the results topic holds. Infinities are null."""
        import orjson

        return orjson.dumps(self.to_dict(), default=str, option=orjson.OPT_SERIALIZE_NUMPY).decode()

    def to_csv(self) -> str:
        """The numbers as CSV with a header line; ends of intervals are empty where none holds."""
        text = self.profile.to_csv()
        if self.intervals:
            return text
        names, *rows = (line.split(",") for line in text.splitlines())
        shown = [not name.endswith(ENDS) for name in names]
        bare = [[cell if show else "" for cell, show in zip(row, shown, strict=True)] for row in rows]
        return "\n".join(",".join(row) for row in [names, *bare]) + "\n"


def of_file(published: Published, profile: Profile) -> Answer:
    """The answer for one published object that stands alone, without frontiers or a configuration.

    Of a window that a worker sealed it says which one, and its quality under the default rule. Whether the window is
    complete cannot be known from one file.

    Args:
        published: what was read.
        profile: its numbers.
    """
    parts = published.parts if isinstance(published, Stack) else (published,)
    origins = {(part.origin.name, part.origin.window, part.origin.revision) for part in parts}
    name, window, revision = origins.pop()
    if origins or window is None:
        return Answer(profile)
    facts: dict[str, Any] = {"sketch": name, "window_start": iso(window[0]), "window_end": iso(window[1])}
    facts["revision"] = revision
    quality = judge(parts)
    if quality.said:
        facts["quality"] = quality.to_dict()
    repartitioned = len(parts) > 1 and partition_counts(part.origin for part in parts) > 1
    if repartitioned:
        facts["repartitioned"] = True
    return Answer(profile, facts, intervals=not repartitioned)


def _bare(value: Any) -> Any:
    """Plain data without the ends of its intervals."""
    if not isinstance(value, dict):
        return value
    if value.keys() == ESTIMATE:
        return {"value": value["value"], "low": None, "high": None}
    return {name: _bare(inner) for name, inner in value.items()}
