"""What the page shows: one function an address.

In: requests. Out: HTML. Touches: the service.

Everything that a page shows is in its address. Numbers are those of the service: the same that the HTTP API gives out.
"""

from __future__ import annotations

import functools
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

import orjson
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sketchstream import charts, kinds, report
from sketchstream.errors import (
    BusyError,
    ConfigError,
    DataLossError,
    EstimateError,
    SketchstreamError,
)
from sketchstream.kinds.profile.show import pages
from sketchstream.privacy.sketch_history import show
from sketchstream.query import words
from sketchstream.serve.page import calendar, pictures, rendering, series
from sketchstream.serve.questions import Question
from sketchstream.serve.service import NotFoundError, Service, SeveralWindowsError, WindowAnswer, read_time
from sketchstream.stream.windows import iso

if TYPE_CHECKING:
    from starlette.requests import Request

    from sketchstream.query.sealed import Span
    from sketchstream.serve.store import StoredWindow
    from sketchstream.stream.plans import SketchPlan

SHOWN: Final = 400
"""Most windows of one page of a sketch; the newest ones, unless the address says otherwise."""
REFRESH_S: Final = 3
"""A page that waits for numbers looks again so often."""
SIDE_BY_SIDE: Final = 40
"""Most groups of a window that stand side by side."""
AT_ONCE: Final = 8
"""Answers of groups that one look at a window has computed."""
COMPARED: Final = ("distinct", "exactly.1", "at_least.2", "at_least.10", "total", "mean")
"""Numbers of a window that are compared with those of the window before."""
KINDS: Final = {
    "profile": "Counts how many items (users, devices) occurred how often",
    "gaussian": "Counts the events of each item of a list",
    "convolution": "Keeps a series of counts, read through filters",
    "workload": "Answers a fixed list of counting questions",
    "projection": "Keeps rows of users, for the distances between them",
}
View = Callable[..., Response]


def guarded(view: View) -> View:
    """A view whose refusals are pages that say what to do."""

    @functools.wraps(view)
    def shown(self: Views, request: Request) -> Response:
        try:
            return view(self, request)
        except NotFoundError as error:
            return _refusal(404, "Not found", error)
        except SeveralWindowsError as error:
            return _refusal(400, "Which window?", error)
        except (ConfigError, EstimateError) as error:
            return _refusal(400, "This cannot be shown", error)
        except SketchstreamError as error:
            return _refusal(503, "Not available at the moment", error)

    return shown


def _refusal(status: int, title: str, error: Exception) -> Response:
    """A page that says why there is no other."""
    text = " ".join(str(error).split())
    return rendering.html("text.html", status, title=title, lead=[f"{text[:1].upper()}{text[1:]}."], sections=[])


class Drawn:
    """The pictures drawn last: drawing takes a tenth of a second, and they change with their numbers only.

    Args:
        most: kept.
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable | None, draw: Callable[[], Any]) -> Any:
        """What has been drawn under a name, or is drawn now; without a name nothing is kept."""
        with self._lock:
            if name is not None and name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        found = draw()
        if name is not None:
            with self._lock:
                self._kept[name] = found
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        return found


class Views:
    """The pages.

    Args:
        service: answers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drawn = Drawn()

    # ------------------------------------------------------------------ pages

    @guarded
    def sketches(self, request: Request) -> Response:
        """The list of sketches."""
        found = []
        for one in self._service.sketches(request.state.allowed)["sketches"]:
            name, counts = one["name"], one["counts"]
            plan = self._plan(name)
            what, promise = _about(plan)
            parts = [_number(counts["windows"], "window is published", "windows are published")]
            parts += [_number(counts[key], one, more) for key, one, more in _COUNTED if counts.get(key)]
            found.append(
                {
                    "name": name,
                    "href": _sketch_address(name),
                    "what": what,
                    "guarantee": promise,
                    "windows": f"{', '.join(parts)}.",
                    "latest": self._latest(name, plan),
                }
            )
        return rendering.html(
            "sketches.html", title="Sketches", here="Sketches", sketches=found, notices=self._notices(request)
        )

    @guarded
    def sketch(self, request: Request) -> Response:
        """One sketch: a number over time, the calendar of its windows."""
        name = self._name(request)
        plan, given = self._plan(name), request.query_params
        zone = "UTC" if plan is None else plan.calendar.timezone
        since, until = _day(given.get("from"), zone, "from"), _day(given.get("to"), zone, "to", after=True)
        stored = self._service.store.windows(name, since, until, limit=SHOWN + 1, newest=since is None)
        more, stored = len(stored) > SHOWN, sorted(stored[:SHOWN], key=lambda one: one.window)
        what, promise = _about(plan)
        values: dict[str, Any] = {
            "title": name,
            "trail": [("Sketches", "/")],
            "what": what,
            "guarantee": promise,
            "action": _sketch_address(name),
            "count": len(stored),
            "ranged": since is not None or until is not None,
            "since": given.get("from", ""),
            "until": given.get("to", ""),
            "series": None,
            "metrics": (),
            "groups": (),
            "group": None,
            "notices": self._notices(request),
        }
        exact: dict[str, str] = {}
        if stored and (since is not None or until is not None or more):
            exact = {"from": iso(stored[0].window[0]), "to": iso(stored[-1].window[1])}
        if plan is not None and kinds.of(plan.spec).answer == "profile":
            values |= self._series(name, zone, stored, given)
            values["notices"] += values.pop("waiting")
            chosen = {"group": values["group"]} if values["group"] else {}
            links = _series_links(name, values["metric"], exact | chosen)
            lines = _series_lines(name, values["metric"], exact | chosen, request, self._service)
        else:
            links, lines = [("Windows as CSV", _api(name, "windows", exact | {"format": "csv"}))], []
        return rendering.html(
            "sketch.html",
            **values,
            signs=calendar.SIGNS,
            completeness=_completeness([self._service.describe(one) for one in stored]),
            calendars=calendar.calendars(
                [(self._service.describe(one), one.window) for one in stored], zone, self._href(name)
            ),
            pages=_around(name, stored, more, since, given, zone),
            links=links,
            lines=lines,
        )

    @guarded
    def window(self, request: Request) -> Response:
        """One window: its numbers, its pictures, its guarantee."""
        name, plan, stored = self._chosen(request)
        zone = "UTC" if plan is None else plan.calendar.timezone
        described = self._service.describe(stored)
        group = self._group(name, request.query_params)
        answer, failure = self._answer(stored, group)
        state = "ready" if answer is not None else "incident" if described["answer"] == "incident" else "pending"
        href = self._href(name, group)
        before, after = self._neighbours(stored)
        values: dict[str, Any] = {
            "title": f"{name}, {words.window_label(*stored.window, zone)}",
            "trail": [("Sketches", "/"), (name, _sketch_address(name))],
            "here_href": href(stored.window),
            "before": _link(before, zone, href),
            "after": _link(after, zone, href),
            "status": "" if state == "incident" else _status(described),
            "state": state if failure is None or state == "incident" else "failed",
            "failure": failure,
            "waiting": "",
            "headline": "",
            "intervals": "",
            "pictures": [],
            "tables": [],
            "groups": self._service.groups(name),
            "group": group,
            "action": f"{_sketch_address(name)}/window",
            "where": {"from": iso(stored.window[0]), "to": iso(stored.window[1])},
            "guarantee": [],
            "links": [],
            "lines": [],
            "notices": self._notices(request),
        }
        if values["state"] == "pending":
            values["refresh"] = REFRESH_S
            seconds = self._service.pending_seconds(self._service.store.pending())
            if seconds:
                values["waiting"] = f"All that waits takes about {seconds:,.0f} seconds more; the newest goes first."
        if answer is not None:
            data = answer.to_dict()
            profile = "fractions" in data
            if group is not None:
                data["groups"], missing = self._beside(stored)
                if missing:
                    wait = f"{_number(missing, 'group is', 'groups are')} being reconstructed."
                    values["notices"] += [f"{wait} They are not in the comparison of groups yet."]
            where = {"from": iso(stored.window[0]), "to": iso(stored.window[1])} | ({"group": group} if group else {})
            shown = [
                one.at(f"{_sketch_address(name)}/window/{one.name}.svg?{_query(where)}")
                for one in self._pictures(stored, data, group)
            ]
            known = not profile or data["distinct"]["low"] is not None
            values |= {
                "headline": pages.headline(data) if profile else "",
                "intervals": _intervals(data) if known else words.NO_INTERVALS,
                "pictures": shown,
                "tables": [*pictures.tables(data), *self._differences(answer, before, zone, group)],
                "guarantee": words.statement(data["guarantee"]),
                "links": _window_links(name, data, where),
                "lines": _window_lines(name, profile, where, request, self._service),
            }
        return rendering.html("window.html", **values)

    @guarded
    def window_picture(self, request: Request) -> Response:
        """A chart of a window, alone."""
        name, _, stored = self._chosen(request)
        group = self._group(name, request.query_params)
        answer, failure = self._answer(stored, group)
        if answer is None:
            raise NotFoundError(failure or "the numbers of this window are being reconstructed: ask again")
        data = answer.to_dict()
        if request.path_params["picture"] == "groups":
            data["groups"] = self._beside(stored)[0]
        for one in self._pictures(stored, data, group):
            if one.name == request.path_params["picture"] and one.chart is not None:
                return _svg(one.chart)
        msg = "this window has no such picture"
        raise NotFoundError(msg)

    @guarded
    def series_picture(self, request: Request) -> Response:
        """The chart of a series, alone."""
        name, given = self._name(request), request.query_params
        plan = self._plan(name)
        zone = "UTC" if plan is None else plan.calendar.timezone
        since, until = read_time(given.get("from"), "from"), read_time(given.get("to"), "to")
        stored = self._service.store.windows(name, since, until, limit=SHOWN, newest=since is None)
        shown = self._series(name, zone, sorted(stored, key=lambda one: one.window), given)["series"]
        if shown is None or shown.wide is None:
            msg = "there is no number in this range yet"
            raise NotFoundError(msg)
        return _svg(shown.wide)

    @guarded
    def ledger(self, request: Request) -> Response:
        """What a unit can have lost so far, of what budget."""
        deployment = self._service.deployment(request.state.allowed)
        rows = deployment.rows()
        columns = ("sketch", "revision", "unit", "windows", "partitions", "one window", "all windows")
        table = report.Table(
            "Most that one unit can have lost (epsilon)", columns, [[row[column] for column in columns] for row in rows]
        )
        days = sorted(deployment.by_day().items(), reverse=True)
        by_day = report.Table(
            f"By day on which windows begin (UTC), the last {min(len(days), 31)} of {len(days)}",
            ("day", "one event", "one item"),
            [(day, _loss(one.event), _loss(one.item)) for day, one in days[:31]],
        )
        text = str(deployment).splitlines()[1 + len(rows) :] if rows else ["Nothing is published yet."]
        return rendering.html(
            "ledger.html",
            title="Ledger",
            here="Ledger",
            sentences=[f"{line[:1].upper()}{line[1:]}." for line in text],
            tables=[table, by_day] if rows else [],
            lists=[("What the columns mean", [f"{name}: {meaning}" for name, meaning in _LEDGER])],
            line=f"sketchstream ledger -c {self._service.config.path.name} --format json",
        )

    @guarded
    def incidents(self, request: Request) -> Response:
        """What was published and cannot be trusted."""
        found = self._service.incidents(request.state.allowed)["incidents"]
        rows = [
            (
                one["sketch"],
                self._incident_cell(one),
                Markup('<span class="said">{}</span>').format(one["text"]),
            )
            for one in found
        ]
        lead = "No incident: everything that was published could be read, and no noise was published twice."
        if rows:
            lead = (
                f"{_number(len(rows), 'incident', 'incidents')}. Two publications of one noise, or a body that cannot "
                "be read, are shown as one incident and never averaged; the windows concerned show no numbers."
            )
        return rendering.html(
            "incidents.html",
            title="Incidents",
            here="Incidents",
            lead=lead,
            table=report.Table("Incidents, the newest window first", ("sketch", "window begins", "what"), rows)
            if rows
            else None,
        )

    @guarded
    def help(self, request: Request) -> Response:
        """What the words mean."""
        del request
        return rendering.html(
            "text.html", title="What the words and intervals mean", here="Help", lead=[], sections=HELP
        )

    def asset(self, request: Request) -> Response:
        """A static file."""
        found = rendering.asset(request.path_params["asset"])
        if found is None:
            raise HTTPException(404)
        return found

    # ------------------------------------------------------------------ parts of them

    def _name(self, request: Request) -> str:
        return self._service.require(request.path_params["name"], request.state.allowed)

    def _plan(self, name: str) -> SketchPlan | None:
        """The sketch in the configuration; None for one that has left it."""
        return next((plan for plan in self._service.config.sketches if plan.name == name), None)

    def _group(self, name: str, given: Mapping[str, str]) -> str | None:
        """The group that is asked for, the first one unless another is chosen; None where the sketch has none."""
        groups = self._service.groups(name)
        group = given.get("group") or (groups[0] if groups else None)
        self._service.require_group(name, group)
        return group

    def _beside(self, stored: StoredWindow) -> tuple[dict[str, Any], int]:
        """The numbers of all groups of a window as far as they are there, and how many are not; some are computed."""
        found, missing = {}, 0
        for group in self._service.groups(stored.sketch)[:SIDE_BY_SIDE]:
            answer, _ = self._answer(stored, group, ask=missing < AT_ONCE)
            if answer is None:
                missing += 1
            else:
                found[group] = answer.to_dict()
        return found, missing

    def _href(self, name: str, group: str | None = None) -> Callable[[Span], str]:
        """Addresses of windows, of one of their groups where one is chosen."""

        def address(window: Span) -> str:
            chosen = {"group": group} if group else {}
            where = _query({"from": iso(window[0]), "to": iso(window[1])} | chosen)
            return f"{_sketch_address(name)}/window?{where}"

        return address

    def _chosen(self, request: Request) -> tuple[str, SketchPlan | None, StoredWindow]:
        """The sketch and the window of an address."""
        name, given = self._name(request), request.query_params
        window = self._service.one(name, read_time(given.get("from"), "from"), read_time(given.get("to"), "to"))
        return name, self._plan(name), window

    def _answer(
        self, stored: StoredWindow, group: str | None = None, *, ask: bool = True
    ) -> tuple[WindowAnswer | None, str | None]:
        """The usual answer of a window, or of one of its groups, or why there is none; neither while it is computed."""
        question = Question(group=group)
        try:
            found = self._service.ready(stored, question)
            if found is None and ask and self._service.answer_state(stored) == "on_request":
                self._service.ask(stored, question)
        except BusyError:  # it is asked for again when the page is looked at again
            return None, None
        except (DataLossError, EstimateError) as error:
            return None, str(error)
        return found, None

    def _pictures(self, stored: StoredWindow, data: Mapping[str, Any], group: str | None) -> list[pictures.Picture]:
        """The pictures of a window's usual answer, or of one of its groups."""
        etag = self._service.etag(stored, Question(group=group), "page")
        name = None if etag is None else (etag, tuple(data.get("groups") or ()))
        found: list[pictures.Picture] = self._drawn.get(name, lambda: pictures.pictures(data))
        return found

    def _latest(self, name: str, plan: SketchPlan | None) -> dict[str, str] | None:
        """The newest window whose numbers are there, in a line."""
        zone = "UTC" if plan is None else plan.calendar.timezone
        for stored in self._service.store.windows(name, limit=5, newest=True):
            if self._service.answer_state(stored) == "ready":
                answer, _ = self._answer(stored)
                data = {} if answer is None else answer.to_dict()
                headline = pages.headline(data) if "fractions" in data else "its numbers are there."
                label = f"The newest window, {words.window_label(*stored.window, zone)}"
                return {"href": self._href(name)(stored.window), "label": label, "headline": headline}
        return None

    def _differences(
        self, answer: WindowAnswer, before: StoredWindow | None, zone: str, group: str | None
    ) -> list[report.Table]:
        """What has changed since the window before, each number with the interval of the difference."""
        earlier = None if before is None else self._answer(before, group)[0]
        if before is None or earlier is None:
            return []
        rows = []
        for metric in COMPARED:
            try:
                found = self._service.difference(answer, earlier, metric)
            except EstimateError:  # this number is not one of both windows
                continue
            change = found["difference"]
            rows.append(
                (series.metric_words(metric), *(pages.value(found[one]) for one in ("window", "against")),
                 pages.value(change), pages.interval(change))
            )  # fmt: skip
        label = words.window_label(*before.window, zone)
        columns = ("number", "this window", "the one before", "difference", "95% interval of it")
        return [report.Table(f"Compared with {label}", columns, rows)] if rows else []

    def _neighbours(self, stored: StoredWindow) -> tuple[StoredWindow | None, StoredWindow | None]:
        """The windows before and after one."""
        store, (start, end) = self._service.store, stored.window
        before = store.windows(stored.sketch, None, end - 1, limit=1, newest=True)
        after = store.windows(stored.sketch, start + 1, None, limit=1)
        return (before[0] if before else None), (after[0] if after else None)

    def _series(self, name: str, zone: str, stored: Sequence[StoredWindow], given: Mapping[str, str]) -> dict[str, Any]:
        """A number over time."""
        metric, order = given.get("metric", "distinct"), given.get("order", "time")
        if order not in series.ORDERS:
            msg = f"order must be one of {', '.join(series.ORDERS)}, found {order!r:.40}"
            raise ConfigError(msg)
        offered = dict(series.METRICS) | {metric: series.metric_words(metric)}
        out: dict[str, Any] = {
            "metric": metric,
            "order": order,
            "metrics": list(offered.items()),
            "orders": list(series.ORDERS.items()),
            "series": None,
            "largest": "",
            "waiting": [],
        }
        spans = [one.window for one in stored]
        group = self._group(name, given)
        out |= {"groups": self._service.groups(name), "group": group}
        found = self._service.series(
            name, metric, *((spans[0][0], max(end for _, end in spans)) if spans else (0, 0)), group
        )
        if not spans:
            return out
        points = found["points"]
        key = orjson.dumps([name, group, metric, order, zone, points])
        href = self._href(name, group)
        picture = self._drawn.get(key, lambda: series.picture(points, spans, metric, zone, order, href))
        where = {"metric": metric, "from": iso(spans[0][0]), "to": iso(spans[-1][1])}
        where |= {"group": group} if group else {}
        out |= {
            "series": picture.at(f"{_sketch_address(name)}/series.svg?{_query(where)}"),
            "largest": series.largest(points, spans, metric, zone),
        }
        if found["pending"]:
            seconds = found["pending_seconds"]
            left = "" if seconds is None else f", about {seconds:,.0f} seconds more"
            out["waiting"] = [
                f"{found['pending']:,} of these windows are being reconstructed{left}; their numbers are not here yet."
            ]
        return out

    def _notices(self, request: Request) -> list[str]:
        """What everybody should know before the numbers: how late they are."""
        status = self._service.status(request.state.allowed)
        if status["error"]:
            return [
                f"What is published cannot be read at the moment, so newer windows may be missing: {status['error']}"
            ]
        if not status["ready"]:
            return ["What is published is still being read: windows are missing."]
        return []

    def _incident_cell(self, one: Mapping[str, Any]) -> str:
        """The start of an incident's window, with a link where something of that window is stored."""
        start = read_time(one["window_start"], "window_start")
        found = self._service.store.windows(one["sketch"], start, limit=1)
        if not found or found[0].window[0] != start:
            return str(one["window_start"])
        href = self._href(one["sketch"])(found[0].window)
        return Markup('<a href="{}">{}</a>').format(href, one["window_start"])


_COUNTED: Final = (
    ("pending", "of them is being reconstructed", "of them are being reconstructed"),
    ("incidents", "has an incident", "have an incident"),
)
_LEDGER: Final = (
    ("unit", "what is protected, and what the losses are those of"),
    ("one window", "most that the unit loses to one window (epsilon)"),
    ("all windows", "most that it loses to all of them: an event lies in one window, an item may lie in each"),
)
HELP: Final = (
    (
        "Sketches and windows",
        (
            "A sketch counts events without keeping any item's true count: noise is laid into its counters before the "
            "first event. A window is a stretch of time; when it ends, its sketch is sealed and published once. All "
            "numbers of this page are computed from what was published.",
        ),
    ),
    (
        "95% intervals",
        (
            f"{words.INTERVALS} A wide interval says that the noise hides more; it is the price of protection. When "
            "the intervals of two windows overlap, the data do not tell which of the two is larger.",
            "An estimate is the best single guess, and can have digits after the point although items are whole.",
        ),
    ),
    (
        "Seen k times",
        (
            "“k times or more” (k+ reach) counts the items with at least k events in a window; “exactly k times” those "
            "with k events, no more and no less. Items seen only once are those with exactly one event.",
        ),
    ),
    (
        "Complete and incomplete windows",
        (
            "A window is complete when all partitions of the input have passed it and no loss of records shows. Until "
            "then the page says how many partitions there are, and which are missing; its numbers may grow.",
            "Numbers of windows cannot be added up: an item that occurs in two windows would count twice. For longer "
            "stretches of time a sketch with longer windows is needed.",
        ),
    ),
    (
        "The guarantee",
        (
            "Epsilon bounds what anybody can learn about one protected unit (an event or an item): leaving it out "
            "changes the probability of everything published by a factor of at most e to the power of epsilon. The "
            "ledger adds up what one unit can have lost to everything that was published.",
        ),
    ),
)


def _about(plan: SketchPlan | None) -> tuple[str, str]:
    """What a sketch counts, and what it guarantees, in a sentence each."""
    if plan is None:
        return "This sketch is no longer in the configuration; what it published is still here.", ""
    kind = kinds.of(plan.spec)
    what = KINDS.get(kind.name, f"A sketch of kind {kind.name}")
    said = f"{what}, in windows of {_width(plan)} ({plan.calendar.timezone})."
    return said, words.promise(kind.guarantee(plan.spec, kinds.planned(plan.spec)).to_dict())


def _width(plan: SketchPlan) -> str:
    """The length of windows in words: "one month", "7 days, one beginning every day"."""
    length, _, step = plan.window.partition(" every ")
    return (
        f"{_duration(length)}, one beginning every {_duration(step).removeprefix('one ')}"
        if step
        else _duration(length)
    )


def _duration(text: str) -> str:
    """A duration of a configuration in words."""
    number, unit = text.rstrip("abcdefghijklmnopqrstuvwxyz"), text.lstrip("0123456789.")
    names = {"s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month"}
    if unit not in names or not number:
        return text
    return f"one {names[unit]}" if number == "1" else f"{number} {names[unit]}s"


def _day(text: str | None, zone: str, name: str, *, after: bool = False) -> int | None:
    """The start of a day, or the end of it, in the sketch's timezone; a whole time is taken as it is; ms."""
    if not text:
        return None
    if len(text) > len("2013-07-01"):
        return read_time(text, name)
    try:
        when = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=ZoneInfo(zone))
        when += timedelta(days=1) if after else timedelta(0)
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        msg = f"{name} must be a day, such as 2013-07-01, found {text!r:.40}"
        raise ConfigError(msg) from None


def _query(given: Mapping[str, str]) -> str:
    """Parameters of an address; colons of times stay readable."""
    return urlencode(given, safe=":")


def _sketch_address(name: str) -> str:
    return f"/sketches/{quote(name, safe='')}"


def _api(name: str, what: str, given: Mapping[str, str]) -> str:
    query = f"?{_query(given)}" if given else ""
    return f"/v1/sketches/{quote(name, safe='')}/{what}{query}"


def _link(stored: StoredWindow | None, zone: str, href: Callable[[Span], str]) -> dict[str, str] | None:
    """A link to a window."""
    if stored is None:
        return None
    return {"href": href(stored.window), "label": words.window_label(*stored.window, zone)}


def _status(described: Mapping[str, Any]) -> str:
    """How complete a window is, and how much was counted, in sentences."""
    told = str(described["status"])
    out = f"This window is {told}." if told == "complete" else f"{told[:1].upper()}{told[1:]}."
    reason = (described.get("quality") or {}).get("reason")
    return f"{out} Quality: {reason}." if reason else out


def _intervals(data: Mapping[str, Any]) -> str:
    """What intervals mean here."""
    covers = data.get("covers")
    return f"{words.INTERVALS} It covers {covers}." if covers else words.INTERVALS


def _completeness(described: Sequence[Mapping[str, Any]]) -> str:
    """How many windows are complete, in a sentence."""
    found = [calendar.state(one) for one in described]
    done = sum(state in ("complete", "pending") for state in found)
    text = f"{done:,} of {_number(len(found), 'window', 'windows')} shown {'is' if done == 1 else 'are'} complete"
    for state, one, more in (
        ("incomplete", "is not complete", "are not complete"),
        ("incident", "has no answer", "have no answer"),
    ):
        if state in found:
            text += f", {_number(found.count(state), one, more)}"
    return f"{text}."


def _number(count: int, one: str, more: str) -> str:
    """A number with the words that go with it."""
    return f"{count:,} {one if count == 1 else more}"


def _around(
    name: str,
    stored: Sequence[StoredWindow],
    more: bool,
    since: int | None,
    given: Mapping[str, str],
    zone: str,
) -> list[tuple[str, str]]:
    """Links to the windows before and after those that are shown."""
    kept = {key: given[key] for key in ("metric", "order", "group") if given.get(key)}
    out = []

    def day(at: int) -> str:
        return f"{datetime.fromtimestamp(at / 1000, ZoneInfo(zone)):%Y-%m-%d}"

    if more and since is None:
        out.append(("Older windows", f"{_sketch_address(name)}?{_query(kept | {'to': day(stored[0].window[0] - 1)})}"))
    if more and since is not None:
        out.append(("Later windows", f"{_sketch_address(name)}?{_query(kept | {'from': day(stored[-1].window[1])})}"))
    if given.get("from") or given.get("to"):
        out.append(("The newest windows", f"{_sketch_address(name)}{'?' if kept else ''}{_query(kept)}"))
    return out


def _series_links(name: str, metric: str, exact: Mapping[str, str]) -> list[tuple[str, str]]:
    """Downloads of a series."""
    given = {"metric": metric, **exact}
    times = {key: exact[key] for key in ("from", "to") if key in exact}
    return [
        ("Series as CSV", _api(name, "series", given | {"format": "csv"})),
        ("Series as JSON", _api(name, "series", given)),
        ("Series as Arrow", _api(name, "series", given | {"format": "arrow"})),
        ("Windows as CSV", _api(name, "windows", times | {"format": "csv"})),
    ]


def _series_lines(
    name: str, metric: str, exact: Mapping[str, str], request: Request, service: Service
) -> list[tuple[str, str]]:
    """The same series elsewhere."""
    file = service.config.path.name
    ends = (("since", "from"), ("until", "to"), ("group", "group"))
    since = "".join(f", {key}={exact[end]!r}" for key, end in ends if end in exact)
    return [
        ("With curl", f"curl '{_origin(request)}{_api(name, 'series', {'metric': metric, **exact})}'"),
        (
            "In Python",
            f"import sketchstream as ss\nss.windows({file!r}, sketch={name!r}{since}).to_pandas([{metric!r}])",
        ),
        (
            "On the command line",
            f"sketchstream profile -c {file} --sketch {name} "
            + "".join(f"--{key} {shlex.quote(value)} " for key, value in exact.items())
            + "--all --format json",
        ),
    ]


def _window_links(name: str, data: Mapping[str, Any], where: Mapping[str, str]) -> list[tuple[str, str]]:
    """Downloads of a window."""
    what = "profile" if "fractions" in data else "estimate"
    return [
        ("CSV", _api(name, what, {**where, "format": "csv"})),
        ("JSON", _api(name, what, where)),
        ("Arrow", _api(name, what, {**where, "format": "arrow"})),
    ]


def _window_lines(
    name: str, profile: bool, where: Mapping[str, str], request: Request, service: Service
) -> list[tuple[str, str]]:
    """The same answer elsewhere."""
    file, what = service.config.path.name, "profile" if profile else "estimate"
    chosen = "".join(f"--{key} {shlex.quote(value)} " for key, value in where.items())
    line = f"sketchstream {what} -c {file} --sketch {name} {chosen}--format json"
    group = f", group={where['group']!r}" if "group" in where else ""
    python = (
        f"import sketchstream as ss\n(window,) = ss.windows({file!r}, sketch={name!r}, since={where['from']!r}, "
        f"until={where['to']!r}{group})\nwindow.{'profile' if profile else 'published.estimate()'}"
    )
    return [
        ("With curl", f"curl '{_origin(request)}{_api(name, what, where)}'"),
        ("On the command line", line),
        ("In Python", python),
    ]


def _origin(request: Request) -> str:
    """How the visitor calls this service."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _svg(chart: charts.Chart) -> Response:
    """A chart as a file."""
    headers = {"Content-Disposition": "attachment"}
    return Response(charts.alone(chart.svg), 200, headers, "image/svg+xml; charset=utf-8")


def _loss(value: Any) -> str:
    """A loss as text."""
    return show(value)
