"""The page's sentences: on sketches, completeness of windows, terms and intervals.

In: plans and windows as plain data. Out: text. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sketchstream import kinds
from sketchstream.kinds import groups_of, presentation
from sketchstream.quality import REPORTED
from sketchstream.query import words
from sketchstream.serve.page import calendar
from sketchstream.texts.naming import USUAL, Names

if TYPE_CHECKING:
    from sketchstream.stream.windows.plans import SketchPlan

HELP: Final = {
    "Sketches and windows": (
        "A sketch counts events without keeping any item's true count: noise is added to its counters before the "
        "first event. A window is a stretch of time; when it ends, its sketch is sealed and published once. All "
        "numbers of this page are computed from what was published.",
    ),
    "95% intervals": (
        f"{words.INTERVALS} A wide interval says that the noise hides more; it is the price of protection.",
        "Whether a number of one window is larger than that of another is shown by the interval of their "
        "difference: if it holds 0, the data do not show it. Intervals that overlap a little do not yet mean that.",
        "An estimate is the best single guess, and can have digits after the point although items are whole.",
    ),
    "Seen k times": (
        "“k times or more” (k+ reach) counts the items with at least k events in a window; “exactly k times” "
        "those with k events, no more and no less. Items seen only once are those with exactly one event.",
    ),
    "Complete and incomplete windows": (
        "A window is complete when all partitions of the input have passed it and no loss of records shows. Until "
        "then the page says how many partitions there are, and which are missing; its numbers may grow.",
        "Numbers of windows cannot be added up: an item that occurs in two windows would count twice. For longer "
        "stretches of time a sketch with longer windows is needed.",
    ),
    "The guarantee": (
        "Epsilon bounds what anybody can learn about one protected unit (an event or an item): leaving it out "
        "changes the probability of everything published by a factor of at most e to the power of epsilon. The "
        "ledger adds up what one unit can have lost to everything that was published.",
    ),
}
"""Explanations of terms, by their headings."""

UNCONFIGURED: Final = (
    "The configuration that this service read when it started does not name this sketch: it was removed or renamed, "
    "and what it published is still here; or it was added since, and a restart of the service shows all of it."
)


def sentences_of_sketch(plan: SketchPlan | None, say: Names) -> tuple[str, str]:
    """One sentence on what a sketch counts, and one on its guarantee."""
    if plan is None:
        return UNCONFIGURED, ""
    kind = kinds.kind_of(plan.spec)
    what = presentation.presentation_of_kind(kind.name).purpose
    what = what.replace(" (users, devices)", "") if say != USUAL else what
    counts = f"{say(what)}, in windows of {width(plan)} ({plan.calendar.timezone})."
    return counts, words.promise(kind.guarantee(plan.spec, plan.ledger).to_dict(), say)


def shares_items(plan: SketchPlan | None) -> bool:
    """Whether an item can be in several groups of a sketch."""
    groups = None if plan is None else getattr(plan.spec, "groups", None)
    return groups is not None and groups.of_one_item > 1


def on_groups(plan: SketchPlan | None, say: Names, most: int) -> str:
    """Sentences on the groups that stand side by side, at most some: whether they add up, whether all are there."""
    number = 0 if plan is None else len(groups_of(plan.spec))
    several = say("One item can be in several groups: groups do not add up.") if shares_items(plan) else ""
    return f"{several} The first {most} of {number:,} groups are shown.".strip() if number > most else several


def width(plan: SketchPlan) -> str:
    """The length of windows in words: "one month", "7 days, one beginning every day"."""
    step = plan.calendar.width
    text = duration(step.count * plan.steps, step.unit)
    if plan.steps == 1:
        return text
    every = plan.starts.width
    return f"{text}, one beginning every {duration(every.count, every.unit, one='')}"


def duration(count: int, unit: str, one: str = "one ") -> str:
    """A number of minutes, days or months in words, as hours or years if it is whole ones.

    Args:
        count: how many.
        unit: "minute", "day" or "month".
        one: what stands before the unit for the number 1.
    """
    for larger, of, number in (("hour", "minute", 60), ("year", "month", 12)):
        if unit == of and count % number == 0:
            count, unit = count // number, larger
    return f"{one}{unit}" if count == 1 else f"{count} {unit}s"


def status_in_words(described: Mapping[str, Any]) -> str:
    """Sentences on the completeness of a window and the share counted."""
    text, quality = str(described["status"]), described.get("quality") or {}
    alone = bool(described.get("complete")) and described["partitions"]["of"] == 1
    sentence = f"This window is {text}." if alone else f"{text[:1].upper()}{text[1:]}."
    unfinished = described.get("preliminary") or (described.get("partitions") or {}).get("missing")
    told = quality.get("verdict") in REPORTED and not unfinished  # see `SealedWindow.describe`
    return sentence if told or not quality else f"{sentence} Quality: {quality['reason']}."


def still_open(closed: int, positions: int) -> str:
    """Sentences on a window of which positions have closed."""
    if closed == positions:
        return f"All {positions:,} positions have closed; their answers are final. The window is about to be sealed."
    part = f"{closed:,} of {positions:,} positions {'has' if closed == 1 else 'have'} closed"
    return (
        f"This window is still open: {part}. What is published of them is final; the other positions follow as they "
        "close, and what was lost on the way shows when the window is sealed."
    )


def intervals(data: Mapping[str, Any]) -> str:
    """Sentence on the meaning of intervals."""
    covers = data.get("covers")
    return f"{words.INTERVALS} It covers {covers}." if covers else words.INTERVALS


def completeness(described: Sequence[Mapping[str, Any]]) -> str:
    """Sentence on the number of complete windows."""
    states = [calendar.state_of_window(window) for window in described]
    done = sum(state in ("complete", "pending") for state in states)
    text = f"{done:,} of {count_text(len(states), 'window', 'windows')} shown {'is' if done == 1 else 'are'} complete"
    for state, word, more in (
        ("incomplete", "is not complete", "are not complete"),
        ("unknown", "is not known to be complete", "are not known to be complete"),
        ("incident", "has no answer", "have no answer"),
    ):
        if state in states:
            text += f", {count_text(states.count(state), word, more)}"
    return f"{text}."


def count_text(count: int, singular: str, more: str) -> str:
    """A number with the words that go with it."""
    return f"{count:,} {singular if count == 1 else more}"
