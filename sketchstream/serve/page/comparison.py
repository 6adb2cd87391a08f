"""Two windows of a sketch, or two of its groups, side by side, with what differs between them.

In: the windows in an address, differences in the form of the API. Out: sentences, a picture, a table.
Touches: the service's store, reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup

from sketchstream.errors import ConfigError
from sketchstream.pictures.numbers import Panel, Spell, draw_numbers, ends, interval, spelling, value
from sketchstream.pictures.report import ReportTable
from sketchstream.query.differences import SHARED, lacking
from sketchstream.query.times import read_time
from sketchstream.serve.catalog import NotFoundError
from sketchstream.serve.page import links, wording
from sketchstream.serve.service import Service
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.naming import Names
from sketchstream.texts.number_texts import number_text

if TYPE_CHECKING:
    from sketchstream.query.sealed import Span
    from sketchstream.serve.store.stored_windows import StoredWindow
    from sketchstream.stream.windows.plans import SketchPlan

Changes = Sequence[Mapping[str, Any]]
COUNTS: Final = ("distinct", "exactly", "at_least")
"""Numbers of profiles that are drawn together: all of them count items."""


class Side(NamedTuple):
    """One side of a comparison: a window, and one of its groups if the sketch has groups."""

    stored: StoredWindow
    group: str | None

    @property
    def where(self) -> dict[str, str]:
        """The side as parameters of the API."""
        return links.ends(self.stored.window) | ({"group": self.group} if self.group is not None else {})


class Chosen(NamedTuple):
    """What is compared, and with what."""

    first: Side
    second: Side

    @property
    def parameters(self) -> dict[str, str]:
        """Both sides as parameters of the page."""
        windows = {"window": text(self.first.stored.window), "against": text(self.second.stored.window)}
        named = (("group", self.first.group), ("against_group", self.second.group))
        return windows | {name: group for name, group in named if group is not None}


def text(window: Span) -> str:
    """A window in an address: its ends as an interval of ISO 8601."""
    return f"{iso(window[0])}/{iso(window[1])}"


def choose(service: Service, name: str, stored: Sequence[StoredWindow], query: Mapping[str, str]) -> Chosen | None:
    """The windows of an address: by default the newest one and the one before; None: too few windows.

    Args:
        service: service that has the windows.
        name: name of the sketch.
        stored: windows to choose from if the address names none, the newest first.
        query: parameters of the address.

    Raises:
        ConfigError, NotFoundError: a window or a group does not exist, or is compared with itself.
    """
    groups = service.catalog.groups(name)
    group = query.get("group") or (groups[0] if groups else None)
    other = query.get("against_group") or group
    for of_window in (group, other):
        service.catalog.require_group(name, of_window)
    first = _window(service, name, query["window"], "window") if query.get("window") else next(iter(stored), None)
    if first is None:
        return None
    if query.get("against"):
        second: StoredWindow | None = _window(service, name, query["against"], "against")
    else:
        others = [window for window in stored if window.window < first.window] or [
            window for window in stored if window.window != first.window
        ]
        second = next(iter(others), first if group != other else None)
    if second is None:
        return None
    if second.window == first.window and group == other:
        raise ConfigError("the two windows are one and the same: choose another window, or another group")
    return Chosen(Side(first, group), Side(second, other))


def _window(service: Service, name: str, written: str, parameter: str) -> StoredWindow:
    """The window of a sketch that an address names."""
    start, slash, stop = written.partition("/")
    since, until = read_time(start, parameter), read_time(stop, parameter) if slash else None
    if since is None or until is None:
        raise ConfigError(
            f"{parameter} must be a window such as 2013-07-01T04:00:00Z/2013-08-01T04:00:00Z, found {written!r:.60}"
        )
    stored = service.store.window(name, (since, until))
    if stored is None:
        raise NotFoundError(
            f"sketch {name} has no window from {iso(since)} to {iso(until)}; /sketches/{name} lists those it has"
        )
    return stored


def verdict(change: Mapping[str, Any]) -> str:
    """Sentence on the sign of a difference, from its interval."""
    low, high = change["difference"]["low"], change["difference"]["high"]
    if not change["independent"] or (low is None and high is None):
        return "no interval"
    if low is not None and low > 0:
        return "more"
    return "fewer" if high is not None and high < 0 else "unclear"


def interval_cell(change: Mapping[str, Any], spell: Spell) -> str:
    """The cell of a difference's interval, or the reason for a missing one."""
    return interval(change["difference"], spell) if change["independent"] else "none: not independent"


def lead(changes: Changes, labels: tuple[str, str], group: str) -> str:
    """The first number's difference in a sentence.

    Args:
        changes: differences in the form of the API, the most important first.
        labels: labels of the two windows.
        group: group of both, or empty.
    """
    first = next((change for change in changes if change["difference"]["value"] is not None), None)
    if first is None:
        return "The two windows have no number in common."
    change, title = first["difference"], first["title"]
    sign = verdict(first)
    spell = spelling(first.get("spelled", ""))
    size = spell(abs(change["value"]))
    way = "more" if change["value"] >= 0 else "less"
    title = f"{group}, {title}" if group else f"{title[:1].upper()}{title[1:]}"
    start = f"{title}: {labels[0]} has {size} {way} than {labels[1]}"
    if sign == "no interval":
        return f"{start}; there is no interval of that."
    sentence = f"{start} (95% interval: {_difference_text(change, way, spell)})"
    if sign == "unclear":
        return f"{sentence}. The interval holds 0: the data do not show which of the two has more."
    return f"{sentence}. The interval does not hold 0."


def _difference_text(change: Mapping[str, Any], way: str, spell: Spell = number_text) -> str:
    """The interval of a difference in words: "3 to 9 more", "2 less to 9 more", "4 more or above that"."""
    other = "less" if way == "more" else "more"
    ends = [change["low"], change["high"]]
    if change["value"] < 0:
        ends = [None if end is None else -end for end in reversed(ends)]
    low, high = ends
    if low is None or high is None:
        return f"up to {spell(high)} {way}" if high is not None else f"{spell(low or 0)} {way} or above that"
    if low < 0 <= high:
        return f"{spell(-low)} {other} to {spell(high)} {way}"
    return f"{spell(low)} to {spell(high)} {way}"


def note(changes: Changes, first: Side, second: Side, plan: SketchPlan | None, say: Names) -> str:
    """Sentence on the assumption of the intervals of differences.

    Args:
        changes: differences in the form of the API.
        first: one window.
        second: the other one.
        plan: plan of the sketch.
        say: names of items.
    """
    remark = (
        "Each interval holds the true difference in 19 of 20 cases, by itself: of 20 numbers, one may miss. It is made "
        "from the intervals of both numbers, because the noises of two windows are independent."
    )
    lacks = lacking(first.stored.fields, second.stored.fields)
    remark += f" {lacks[:1].upper()}{lacks[1:]}." if lacks else ""
    shared = [change["title"] for change in changes if not change["independent"]]
    if shared:
        remark += f" Not independent here, and without an interval, is {', '.join(shared)}: {SHARED}."
    (a, b), (c, d) = first.stored.window, second.stored.window
    if a < d and c < b and first.stored.window != second.stored.window:
        remark += (
            " The two windows overlap, so the same events count in both; their noises are independent all the same."
        )
    if first.group != second.group and wording.shares_items(plan):
        remark += say(" One item can be in both groups.")
    return remark


def picture(changes: Changes, labels: tuple[str, str]) -> Panel | None:
    """The differences as bars; None if there is nothing to draw.

    Args:
        changes: differences in the form of the API.
        labels: labels of the two windows.
    """
    counts = [change for change in changes if change["metric"].partition(".")[0] in COUNTS]
    drawn = [change for change in counts or changes if change["difference"]["value"] is not None]
    if len(drawn) < 2:
        return None
    numbers = ends([change["difference"] for change in drawn])
    caption = f"{labels[0]} minus {labels[1]}, with 95% intervals: a bar whose interval does not hold 0 shows a change."
    spell = spelling("distinct" if all(change.get("spelled") for change in drawn) and counts else "")
    titles = [change["title"] for change in drawn]
    columns = ("number", "difference")
    return draw_numbers("differences", "What has changed", titles, numbers, columns, caption, spell=spell)


def table(
    changes: Changes, labels: tuple[str, str], name: str, first: Mapping[str, str], second: Mapping[str, str]
) -> ReportTable:
    """All numbers of both windows and their differences, each with a link to the API's answer.

    Args:
        changes: differences in the form of the API.
        labels: labels of the two windows.
        name: name of the sketch.
        first: `from`, `to` and `group` of one window.
        second: `from`, `to` and `group` of the other window.
    """
    rows = []
    for row in changes:
        href = links.difference_address(name, row["metric"], first, second)
        title = Markup('<a href="{}">{}</a>').format(href, row["title"])
        spell = spelling(row.get("spelled", ""))
        sides = [cell(row[side], spell) for side in ("window", "against") for cell in (value, interval)]
        rows.append((title, *sides, value(row["difference"], spell), interval_cell(row, spell), verdict(row)))
    columns = ("number", "this", "95% interval", "other", "95% interval", "difference", "95% interval", "this has")
    return ReportTable(f"This: {labels[0]}. Other: {labels[1]}. Each name leads to the API's answer.", columns, rows)
