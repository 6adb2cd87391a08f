"""The first page: each sketch's newest numbers, large; how one of them went lately; its groups side by side.

In: stored windows and their answers, by the service. Out: values of the template. Touches: the store, reading; the
pool, which computes the answers of groups that nobody has asked for yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from markupsafe import Markup

from sketchstream.errors import EstimateError
from sketchstream.kinds.estimates import bound_text
from sketchstream.kinds.groups.expression import quote_name
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import COUNTS, Panel, Spell, draw_chart, draw_numbers, ends, spelling
from sketchstream.query import words
from sketchstream.query.differences import BOUNDS, mean, subtract
from sketchstream.serve import over_time
from sketchstream.serve.newest import answer_groups, firm_window
from sketchstream.serve.page import wording
from sketchstream.serve.page.pictures import number
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.spec import ClosedDomain
from sketchstream.texts.number_texts import interval_text, speller

if TYPE_CHECKING:
    from sketchstream.query.differences import Point
    from sketchstream.serve.service import Service
    from sketchstream.serve.store.stored_windows import StoredWindow

CHOICES: Final = ("distinct", "at_least.2", "at_least.3", "at_least.5", "at_least.10", "exactly.1", "total", "mean")
"""Numbers of profiles that can be chosen for all sketches of the page."""
BESIDE: Final = ("distinct", "at_least.2", "at_least.10")
"""Numbers of profiles that are shown next to the chosen one."""
LARGE: Final = 4
"""Most numbers of a sketch that are shown large."""
WINDOWS: Final = 30
"""Number of newest windows in the small chart."""
RANGES: Final = {"": "newest window", "1": "last day", "7": "last 7 days", "28": "last 28 days"}
"""Ranges of time that can be chosen, by their days."""
NOT_ADDED_UP: Final = (
    "Items that come in several windows count in each, so windows do not add up to a range: for distinct items of a "
    "range, a sketch needs windows of that length."
)
GROUPS: Final = 24
"""Most groups that are shown, the first of the list."""


class Tile(NamedTuple):
    """A number that is shown large.

    Args:
        title: what it is.
        value: the number.
        interval: interval of the number in words; empty without one.
        change: what differs from the window before, in words; empty if nothing is known.
    """

    title: str
    value: Markup
    interval: str
    change: str = ""


class Card(NamedTuple):
    """A sketch's newest numbers, as values of the template.

    Args:
        stored: the window; None: no window can be shown.
        tiles: large numbers.
        chart: how the first number went over the newest windows.
        groups: the chosen number by group.
        changes: what differs from what was before, by group: a sentence for each that the data show, one for the rest.
        note: a sentence below; empty for none.
        waiting: answers that are being computed.
    """

    stored: StoredWindow | None
    tiles: Sequence[Tile] = ()
    chart: charts.Chart | None = None
    groups: Panel | None = None
    changes: Sequence[str] = ()
    note: str = ""
    waiting: int = 0


@dataclass(frozen=True)
class CardMaker:
    """Makes the cards of the first page.

    Args:
        service: answers.
        draw_once: gets a picture by its key, or draws it.
        metric: number of profiles that is shown first.
        days: length of the range that is shown; 0: the newest window.
    """

    service: Service
    draw_once: Callable[[Any, Callable[[], Any]], Any]
    metric: str
    days: int = 0

    def card(self, name: str) -> Card:
        """The newest numbers of a sketch."""
        service = self.service
        stored = firm_window(service, name)
        if stored is None:
            return Card(None)
        if service.catalog.patterns_alone(name):
            return self._sets(stored)
        start, end = stored.window
        longer = self.days and start > earlier(end, self.days, service.catalog.timezone(name))
        if longer and service.catalog.answers(name) == "profile":
            return self._ranged(stored)
        before = next(iter(service.store.windows(name, None, end - 1, limit=1, newest=True)), None)
        if service.catalog.groups(name):
            return self._by_group(stored, before)
        etags = [None if window is None else service.etag(window, Question(), "tiles") for window in (stored, before)]
        key = None if etags[0] is None else ("tiles", *etags, self.metric)
        first, tiles = self.draw_once(key, lambda: self._tiles(stored, before))
        return Card(stored, tiles, self._trend(name, first, tiles[0].title)) if tiles else Card(stored)

    def _tiles(self, stored: StoredWindow, before: StoredWindow | None) -> tuple[str, list[Tile]]:
        """The name of the first number of a window without groups, and its large numbers."""
        profile = self.service.catalog.answers(stored.sketch) == "profile"
        numbers = () if profile else self.service.named_numbers(stored, Question())
        names = self._beside() if profile else [name for name, _, _ in numbers]
        tiles: list[Tile] = []
        for name in names[:LARGE]:
            title, point, _, bound = self.service.number(stored, Question(), name)
            if point is not None and point[0] is not None:
                change = "" if tiles else self._change(stored, before, name)
                tiles.append(tile(title, point, name if profile else "", change, bound))
        return next(iter(names), ""), tiles

    def _beside(self) -> list[str]:
        """The chosen number of profiles, and those that are shown next to it."""
        return list(dict.fromkeys([self.metric, *BESIDE]))[:LARGE]

    def _change(self, stored: StoredWindow, before: StoredWindow | None, metric: str) -> str:
        """What differs from the window before; empty if that lacks records or an answer, or its noise has a part."""
        if before is None or before.complete is False or self.service.answer_state(before) != "ready":
            return ""
        first, second = (self.service.ready(window, Question()) for window in (stored, before))
        if first is None or second is None:
            return ""
        difference = over_time.difference(self.service, first, second)(metric)
        change = difference["difference"]
        point = change["value"], change["low"], change["high"]
        return _in_words(point, spelling(metric), "the window before") if difference["independent"] else ""

    def _ranged(self, stored: StoredWindow) -> Card:
        """Means over the windows of a range that are not known to lack anything, and the differences from before.

        Distinct items of windows do not add up to those of a range, so no number but that of events is summed.
        """
        service, name, days, metric = self.service, stored.sketch, self.days, self.metric
        zone, end = service.catalog.timezone(name), stored.window[1]
        start, former = earlier(end, days, zone), earlier(end, 2 * days, zone)
        ranges = now, before = [
            [window for window in service.store.windows(name, since, until) if window.complete is not False]
            for since, until in ((start, end), (former, start))
        ]
        last = "the day before" if days == 1 else f"the {days} days before"
        note = f"From {words.window_label(start, end, zone)}. {service.config.names(NOT_ADDED_UP)}"
        groups = service.catalog.groups(name)[:GROUPS]
        if groups:
            looked = [*before, *now] if len(before) >= len(now) else now
            waiting = sum(answer_groups(service, window, groups) for window in reversed(looked))
            means = {group: self._mean(name, ranges, metric, group, last) for group in groups}
            with_mean = {group: mean for group, mean in means.items() if mean is not None}
            title = f"{self._title(stored, metric, groups[0])}, mean {_tell_windows_counted(len(now), now)}"
            points = {
                f"{group} ({count:,} windows)" if count < len(now) else group: point
                for group, (count, point, _) in with_mean.items()
            }
            picture = self._bars(name, title, points, spelling(metric)) if with_mean else None
            changes = _sentences({group: change for group, (_, _, change) in with_mean.items()}, last)
            changes += self._exceeded(now, list(with_mean))
            return Card(stored, groups=picture, changes=changes, note=note, waiting=waiting)
        tiles = []
        for other in self._beside():
            if (of_range := self._mean(name, ranges, other, None, last)) is not None:
                count, point, change = of_range
                title = f"{self._title(stored, other)}, mean {_tell_windows_counted(count, now)}"
                tiles.append(tile(title, point, other, change, self._bound(now, other, None)))
        chart = self._trend(name, metric, self._title(stored, metric), now)
        return Card(stored, tiles, chart, note=note, waiting=sum(service.lacks(window, Question()) for window in now))

    def _mean(
        self, name: str, ranges: Sequence[Sequence[StoredWindow]], metric: str, group: str | None, last: str
    ) -> tuple[int, Point, str] | None:
        """Number of windows of a range with a number, its mean in them, and the difference from before, in words.

        None while an answer may still come. A range that begins before the first window is not compared. Intervals of
        ratios do not lie around unbiased estimates, so that their ends are averaged.
        """
        plan = self.service.catalog.plan(name)
        domain = None if plan is None else plan.spec.domain
        bounds = (*BOUNDS, float(domain.size)) if isinstance(domain, ClosedDomain) else BOUNDS
        together = _is_hashed(domain) or metric.partition(".")[0] not in COUNTS
        points, past = (self._settled(windows, metric, group) for windows in ranges)
        if not points:
            return None
        average = mean(points, together=together)
        if len(past) < len(points):
            return len(points), average, ""
        difference = subtract(average, mean(past, together=together), bounds)
        return len(points), average, _in_words(difference, spelling(metric), last)

    def _bound(self, windows: Sequence[StoredWindow], metric: str, group: str | None) -> str | None:
        """What a number of any of these windows is a bound of; None: they are not bounds."""
        bounds = (self.service.number(window, Question(group=group), metric).bound for window in windows)
        return next(filter(None, bounds), None)

    def _exceeded(self, windows: Sequence[StoredWindow], groups: Sequence[str]) -> list[str]:
        """The groups whose numbers may lie beyond their intervals, in a sentence; empty if there are none."""
        bounds = {group: self._bound(windows, self.metric, group) for group in groups}
        return [
            f"{', '.join(exceeded)}: may be {way} than the interval says, as large counts wrap"
            for bound, way in (("lower", "more"), ("upper", "less"))
            if (exceeded := [group for group in groups if bounds[group] == bound])
        ]

    def _title(self, stored: StoredWindow, metric: str, group: str | None = None) -> str:
        """A number of profiles in words, as the answer of a window has it."""
        title = self.service.number(stored, Question(group=group), metric).title
        return title or self.service.catalog.titles([metric])[metric]

    def _settled(self, windows: Sequence[StoredWindow], metric: str, group: str | None) -> list[Point]:
        """The numbers of the windows that have one; empty while another may still come."""
        points = over_time.computed(self.service, windows, metric, group)
        absent = (window for window, point in zip(windows, points, strict=True) if point is None)
        if any(self.service.lacks(window, Question(group=group)) for window in absent):
            return []
        return [point for point in points if point is not None and point[0] is not None]

    def _trend(self, name: str, metric: str, title: str, windows: Sequence[StoredWindow] = ()) -> charts.Chart | None:
        """The small chart of a number over some windows, or the newest ones."""
        service, zone = self.service, self.service.catalog.timezone(name)
        windows = windows or service.store.windows(name, limit=WINDOWS, newest=True)[::-1]
        stored_points = service.store.points(name, metric, windows[0].window[0], windows[-1].window[1])
        spans = [window.window for window in windows if stored_points.get(window.window, (None,))[0] is not None]
        if len(spans) < 2:
            return None
        points = [stored_points[span][:3] for span in spans]

        def draw() -> charts.Chart | None:
            value, low, high = ends(list(map(number, points)))
            labels = [words.window_label(*span, zone) for span in spans]
            spell = spelling(metric if service.catalog.answers(name) == "profile" else "")
            return draw_chart(lambda: charts.trend_chart(charts.Bars(labels, value, low, high, spell=spell), title))

        chart: charts.Chart | None = self.draw_once(("lately", name, metric, zone, tuple(spans), tuple(points)), draw)
        return chart

    def _by_group(self, stored: StoredWindow, before: StoredWindow | None) -> Card:
        """The chosen number of each group of a window, and of the one before; missing answers are asked for."""
        service, name = self.service, stored.sketch
        groups = service.catalog.groups(name)[:GROUPS]
        profile = service.catalog.answers(name) == "profile"
        past: dict[str, Point] = {}
        missing, title, points = self._of_groups(stored, groups)
        if before is not None and before.complete is not False and profile:
            later, _, past = self._of_groups(before, groups)
            missing += later
        if not points:
            return Card(stored, waiting=missing)
        spell = spelling(self.metric if profile else "")
        note = wording.on_groups(service.catalog.plan(name), service.config.names, GROUPS)
        last = "the window before"
        differences = {group: subtract(point, past[group]) for group, point in points.items() if group in past}
        texts = {group: _in_words(difference, spell, last) for group, difference in differences.items()}
        changes = _sentences(texts, last) + (self._exceeded([stored], list(points)) if profile else [])
        picture = self._bars(name, title, points, spell)
        return Card(stored, groups=picture, changes=changes, note=note, waiting=missing)

    def _of_groups(self, stored: StoredWindow, groups: Sequence[str]) -> tuple[int, str, dict[str, Point]]:
        """How many answers of groups of a window are missing; the chosen number's title; the number by group."""
        service, title, points = self.service, "", {}
        missing = answer_groups(service, stored, groups)
        profile = service.catalog.answers(stored.sketch) == "profile"
        for group in groups:
            question = Question(group=group)
            numbers = () if profile else service.named_numbers(stored, question)
            metric = next((name for name, _, _ in numbers), self.metric)
            title_of_group, point, *_ = service.number(stored, question, metric)
            if point is not None and point[0] is not None:
                title, points[group] = title or title_of_group, point
        return missing, title, points

    def _bars(self, name: str, title: str, points: Mapping[str, Point], spell: Spell) -> Panel:
        """A number of each group of a sketch as bars."""

        def draw() -> Panel:
            numbers = ends([number(point) for point in points.values()])
            heading = f"{title[:1].upper()}{title[1:]} by group"
            return draw_numbers(f"groups-{name}", heading, list(points), numbers, ("group", "number"), spell=spell)

        picture: Panel = self.draw_once(("home groups", name, title, tuple(points.items())), draw)
        return picture

    def _sets(self, stored: StoredWindow) -> Card:
        """For a sketch that publishes patterns of groups alone, show how many items are in any group."""
        service, metric, question = self.service, self.metric, Question(overlap=True)
        try:
            answer = service.ready(stored, question)
        except EstimateError as error:
            return Card(stored, note=f"{str(error)[:1].upper()}{str(error)[1:]}.")
        if answer is None:
            service.ask_soon(stored, question)
            return Card(stored, waiting=1)
        data: Mapping[str, Any] = answer.to_dict()
        alone = {quote_name(group) for group in service.catalog.combined(stored.sketch)}
        rows = [row for row in data["answers"] if row["query"] in alone]
        numbers = [("In at least one group", data["people"]), *((f"In {row['query']}", row) for row in rows)][:LARGE]
        tiles = [tile(title, (row["value"], row["low"], row["high"]), "distinct") for title, row in numbers]
        note = (
            "" if metric == CHOICES[0] else f"{service.catalog.titles([metric])[metric]}: not published of this sketch."
        )
        return Card(stored, tiles, note=f"{note[:1].upper()}{note[1:]}")


def tile(title: str, point: Point, metric: str, change: str = "", bound: str | None = None) -> Tile:
    """A large number.

    Args:
        title: what it is.
        point: value and ends of its interval.
        metric: name of the number in a profile; empty for numbers of other kinds.
        change: see `Tile`.
        bound: what the number is a bound of; None: of nothing.
    """
    value, low, high = point
    assert value is not None
    spell = speller(low, high, spelling(metric))
    around = "" if low is None and high is None else f"95% interval {interval_text(low, high, spell)}"
    around += "" if high is None else bound_text(bound, ", ")  # an interval without an upper end says so itself
    possible = float(np.clip(value, -np.inf if low is None else low, np.inf if high is None else high))
    if possible != value:  # noise may make the estimate negative where no number can be
        around += f"; the estimate itself, {spell(value)}, is not possible"
    exact = Markup('<data value="{}">{}</data>').format(repr(float(value)), spell(possible))
    return Tile(f"{title[:1].upper()}{title[1:]}", exact, around, change)


def _sentences(changes: Mapping[str, str], other: str) -> list[str]:
    """What differs by group: a sentence for each group whose difference the data show, one for the others."""
    none = [group for group, sentence in changes.items() if sentence == _nothing(other)]
    sentences = [f"{group}: {sentence}" for group, sentence in changes.items() if sentence and group not in none]
    return [*sentences, f"{', '.join(none)}: {_nothing(other)}"] if none else sentences


def _nothing(other: str) -> str:
    """Say that the data show no difference."""
    return f"no difference from {other} can be shown"


def _in_words(difference: Point, spell: Spell, other: str) -> str:
    """A difference in words; empty without an interval."""
    value, low, high = difference
    if value is None or low is None or high is None:
        return ""
    if low <= 0 <= high:
        return _nothing(other)
    low, high = sorted((abs(low), abs(high)))
    way = "more" if value > 0 else "less"
    return f"{spell(abs(value))} {way} than {other} ({spell(low)} to {spell(high)})"


def earlier(time: int, days: int, zone: str) -> int:
    """Go back `days` days to this time of day, in ms since 1970; days with a change of the clock are shorter."""
    return round((datetime.fromtimestamp(time / 1000, ZoneInfo(zone)) - timedelta(days=days)).timestamp() * 1000)


def _is_hashed(domain: object) -> bool:
    """Whether the same items share slots in every window, so that errors of windows are correlated."""
    return not isinstance(domain, ClosedDomain) or domain.sample_rate is not None


def _tell_windows_counted(count: int, windows: Sequence[Any]) -> str:
    """Say of how many windows a mean is."""
    part = f"{count:,} of " if count < len(windows) else ""
    return "of one window" if len(windows) == 1 else f"of {part}{len(windows):,} windows"
