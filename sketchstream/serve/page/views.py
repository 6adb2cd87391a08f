"""Views of the page: one function per address.

In: requests. Out: HTML. Touches: the service.

The address determines a page completely. Numbers are those of the service and of the HTTP API.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import orjson
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import Response

from sketchstream import kinds
from sketchstream.errors import ConfigError, EstimateError, SketchstreamError, SpecError
from sketchstream.kinds import presentation
from sketchstream.kinds.groups.expression import quote_name
from sketchstream.pictures import charts, report, upset
from sketchstream.pictures.numbers import Panel
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.query import words
from sketchstream.query.times import read_time, require_order
from sketchstream.serve import status
from sketchstream.serve.catalog import NotFoundError
from sketchstream.serve.page import calendar, comparison, home, links, rendering, wording
from sketchstream.serve.page.parts import FORMS, PageParts, further_question, span_of, with_files, zoom
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import SeveralWindowsError
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from starlette.requests import Request

    from sketchstream.stream.windows.plans import SketchPlan

WINDOWS_OF_A_PAGE: Final = 400
"""Most windows of one page of a sketch; the newest ones, unless the address says otherwise."""
REFRESH_S: Final = 3
"""Seconds after which a page that waits for numbers looks again."""
MAX_COMPARED: Final = 40
"""Most numbers of two windows that are compared."""
View = Callable[..., Response]


def guard_view(view: View) -> Callable[[Views, Request], Awaitable[Response]]:
    """Draw a view in its client's turn, and show a refusal as a page that says what to do."""

    @functools.wraps(view)
    async def guarded_view(self: Views, request: Request) -> Response:
        try:
            return await self._drawing_pool.run(view, self, request)
        except NotFoundError as error:
            return _refusal(404, "Not found", error)
        except SeveralWindowsError as error:
            return _refusal(400, "Which window?", error)
        except (ConfigError, EstimateError, SpecError) as error:
            return _refusal(400, "This cannot be shown", error)
        except SketchstreamError as error:
            return _refusal(503, "Not available at the moment", error)

    return guarded_view


def _refusal(status: int, title: str, error: Exception) -> Response:
    """A page with the reason of a refusal."""
    text = " ".join(str(error).split())
    return rendering.html("text.html", status, title=title, lead=[f"{text[:1].upper()}{text[1:]}."])


class Views(PageParts):
    """The pages."""

    @guard_view
    def sketches(self, request: Request) -> Response:
        """The sketches, each with its newest numbers."""
        metric = request.query_params.get("metric") or home.CHOICES[0]
        if metric not in home.CHOICES:
            raise ConfigError(f"metric must be one of {', '.join(home.CHOICES)}, found {metric!r:.40}")
        days = request.query_params.get("days", "")
        if days not in home.RANGES:
            raise ConfigError(f"days must be one of {', '.join(filter(None, home.RANGES))}, found {days!r:.40}")
        sketches, waiting = [], 0
        cards = home.CardMaker(self._service, self._drawn.get_or_make, metric, int(days or 0))
        for sketch in self._service.catalog.sketches()["sketches"]:
            name, counts = sketch["name"], sketch["counts"]
            plan = self._service.config.find(name)
            zone = self._service.catalog.timezone(name)
            what, promise = wording.sentences_of_sketch(plan, self._service.config.names)
            parts = [wording.count_text(counts["windows"], "window is published", "windows are published")]
            parts += [
                wording.count_text(counts[key], singular, plural)
                for key, singular, plural in _COUNTED
                if counts.get(key)
            ]
            card = cards.card(name)
            waiting += card.waiting if card.stored is not None else counts.get("pending", 0)
            chosen = metric != home.CHOICES[0] and self._service.catalog.answers(name) == "profile"
            follows = chosen and not self._service.catalog.patterns_alone(name) and metric in self._offered(name)
            sketches.append(
                {
                    "name": name,
                    "href": links.sketch_address(name) + (f"?{links.query({'metric': metric})}" if follows else ""),
                    "what": what,
                    "guarantee": promise,
                    "windows": f"{', '.join(parts)}.",
                    "card": card,
                    "window": links.link(card.stored, zone, self._href(name)),
                    "overlap": "" if card.stored is None else self._overlap_address(card.stored),
                    "next": self._next(plan, sketch["published_through"]),
                }
            )
        profiles = any(self._service.catalog.answers(sketch["name"]) == "profile" for sketch in sketches)
        return rendering.html(
            "sketches.html",
            title="Sketches",
            here="Sketches",
            sketches=sketches,
            metrics=list(self._service.catalog.titles(home.CHOICES).items()) if profiles else [],
            metric=metric,
            ranges=list(home.RANGES.items()),
            days=days,
            notices=self._notices(request),
            refresh=REFRESH_S if waiting else 0,
        )

    def _next(self, plan: SketchPlan | None, through: str | None) -> str:
        """When the next window of a live input is published, in a sentence."""
        config = self._service.config
        if plan is None or through is None or not config.from_kafka:
            return ""
        end = plan.starts.end(plan.starts.window(read_time(through, "published_through") or 0)[0])
        zone = ZoneInfo(plan.calendar.timezone)
        end_time = datetime.fromtimestamp(end / 1000, zone)
        minutes = config.input.lateness // 60_000
        late = f"about {wording.duration(minutes, 'minute')}" if minutes else "moments"
        return f"The next window is published {late} after {end_time:%Y-%m-%d %H:%M}, when events pass that time."

    @guard_view
    def sketch(self, request: Request) -> Response:
        """One sketch: a number over time, the calendar of its windows."""
        name = self._name(request)
        plan, query = self._service.catalog.plan(name), request.query_params
        zone = self._service.catalog.timezone(name)
        since, until = links.day(query.get("from"), zone, "from"), links.day(query.get("to"), zone, "to", after=True)
        require_order(since, until, texts=(query.get("from"), query.get("to")))
        stored = self._service.store.windows(name, since, until, limit=WINDOWS_OF_A_PAGE + 1, newest=since is None)
        more = len(stored) > WINDOWS_OF_A_PAGE
        stored = sorted(stored[:WINDOWS_OF_A_PAGE], key=lambda window: window.window)
        what, promise = wording.sentences_of_sketch(self._service.config.find(name), self._service.config.names)
        values: dict[str, Any] = {
            "title": name,
            "trail": [("Sketches", "/")],
            "what": what,
            "guarantee": promise,
            "action": links.sketch_address(name),
            "count": len(stored),
            "ranged": since is not None or until is not None,
            "since": query.get("from", ""),
            "until": query.get("to", ""),
            "still_open": self._still_open(request, name, plan),
            "overlap": self._overlap_address(stored[-1]) if stored else "",
            "notices": self._notices(request),
        }
        exact: dict[str, str] = {}
        if stored and (since is not None or until is not None or more):
            exact = {"from": iso(stored[0].window[0]), "to": iso(stored[-1].window[1])}
        downloads, lines = [("Windows as CSV", links.api(name, "windows", exact | {"format": "csv"}))], []
        if plan is not None:
            values |= self._series(name, zone, stored, query)
            if waiting := values.pop("waiting"):
                values["notices"] += waiting
                values["refresh"] = REFRESH_S
        if plan is not None and "series" in values:
            chosen = {"group": values["group"]} if values["group"] else {}
            downloads = links.series_links(name, values["metric"], exact | chosen)
            answers = kinds.kind_of(plan.spec).answer
            lines = self._elsewhere(request, name).series(answers, values["metric"], exact | chosen)
        described = [(self._service.describe(window), window.window) for window in stored]
        return rendering.html(
            "sketch.html",
            **values,
            signs=calendar.SIGNS,
            completeness=wording.completeness([facts for facts, _ in described]),
            calendars=calendar.calendars(described, zone, self._href(name)),
            pages=links.links_around(name, stored, more, since, query, zone),
            links=downloads,
            lines=lines,
        )

    @guard_view
    def window(self, request: Request) -> Response:
        """One window: its numbers, its pictures, its guarantee."""
        name, stored = self._chosen(request)
        zone = self._service.catalog.timezone(name)
        described = self._service.describe(stored)
        group = self._group(name, request.query_params)
        answer, failure = self._answer(stored, group)
        state = "ready" if answer is not None else "incident" if described["answer"] == "incident" else "pending"
        href = self._href(name, group)
        before, after = self._neighbours(stored)
        values: dict[str, Any] = {
            "title": f"{name}, {words.window_label(*stored.window, zone)}",
            "trail": [("Sketches", "/"), (name, links.sketch_address(name))],
            "here_href": href(stored.window),
            "before": links.link(before, zone, href),
            "after": links.link(after, zone, href),
            "status": "" if state == "incident" else wording.status_in_words(described),
            "state": state if failure is None or state == "incident" else "failed",
            "failure": failure,
            "overlap": self._overlap_address(stored),
            "groups": self._service.catalog.groups(name),
            "group": group,
            "action": f"{links.sketch_address(name)}/window",
            "where": links.ends(stored.window),
            "notices": self._notices(request),
        }
        if values["state"] == "pending":
            values["refresh"] = REFRESH_S
            seconds = status.status(self._service)["pending_seconds"]
            if seconds:
                values["waiting"] = f"All that waits takes about {seconds:,.0f} seconds more; the newest goes first."
        if answer is not None:
            data = answer.to_dict()
            answers = "profile" if "fractions" in data else "estimate"
            if group is not None:
                data["groups"], missing = self._beside(stored)
                if missing:
                    wait = f"{wording.count_text(missing, 'group is', 'groups are')} being reconstructed."
                    values["notices"] += [f"{wait} They are not in the comparison of groups yet."]
            where = links.ends(stored.window) | ({"group": group} if group else {})
            panels = zoom(self._pictures(stored, data, group), request.query_params, values["action"])
            pictured = [with_files(panel, f"{values['action']}/{panel.name}", where | part) for panel, part in panels]
            further, question = presentation.presentation_of(data).further(data), further_question(data)
            if further and len(pictured) > 1:
                table = links.api(name, answers, where | further | {"format": "csv"})
                pictured[-1] = replace(pictured[-1], downloads=[*pictured[-1].downloads, ("CSV", table)])
            if question is not None and self._reply(stored, question, ask=True) == (None, None):
                values["refresh"] = REFRESH_S
                values["notices"] += ["Distances between rows are being computed; they are not here yet."]
            has_interval = answers == "estimate" or data["distinct"]["low"] is not None
            values |= {
                "headline": presentation.presentation_of(data).headline(data),
                "intervals": wording.intervals(data) if has_interval else words.NO_INTERVALS,
                "pictures": pictured,
                "tables": [
                    *presentation.presentation_of(data).tables(data),
                    *self._differences(answer, before, zone, group),
                ],
                "compare": self._compare_address(name, stored, before or after, group),
                "guarantee": words.statement(data["guarantee"]),
                "links": links.downloads(name, answers, where),
                "lines": self._elsewhere(request, name).window(answers, where),
            }
        return rendering.html("window.html", **values)

    @guard_view
    def window_picture(self, request: Request) -> Response:
        """A chart of a window, alone."""
        name, stored = self._chosen(request)
        group = self._group(name, request.query_params)
        answer, failure = self._answer(stored, group)
        if answer is None:
            raise NotFoundError(failure or "the numbers of this window are being reconstructed: ask again")
        data = answer.to_dict()
        if request.path_params["picture"] == "groups":
            data["groups"] = self._beside(stored)[0]
        closer = zoom(self._pictures(stored, data, group), request.query_params)
        return _picture(request, (panel for panel, _ in closer), "this window has no such picture")

    @guard_view
    def series_picture(self, request: Request) -> Response:
        """The chart of a series, alone."""
        name, query = self._name(request), request.query_params
        zone = self._service.catalog.timezone(name)
        since, until = span_of(query)
        stored = self._service.store.windows(name, since, until, limit=WINDOWS_OF_A_PAGE, newest=since is None)
        values = self._series(name, zone, sorted(stored, key=lambda window: window.window), query)
        drawn = [values["series"], *values["chain"]] if "series" in values else []
        return _picture(request, drawn, "there is no number in this range yet")

    @guard_view
    def open_picture(self, request: Request) -> Response:
        """A chart of positions that have closed, in a window that is still open, alone."""
        name, query = self._name(request), request.query_params
        plan = self._service.catalog.plan(name)
        windows = () if plan is None else self._open_windows(name, plan)
        drawn = (panel for start, _, answer in windows if start == query.get("from") for panel in answer[1])
        return _picture(request, drawn, "no position of this window has closed, or it has been sealed since")

    @guard_view
    def compare(self, request: Request) -> Response:
        """Two windows, or two groups, and what differs between them."""
        name, query = self._name(request), request.query_params
        zone = self._service.catalog.timezone(name)
        stored = self._service.store.windows(name, limit=WINDOWS_OF_A_PAGE, newest=True)
        chosen = comparison.choose(self._service, name, stored, query)
        address = f"{links.sketch_address(name)}/compare"
        values: dict[str, Any] = {
            "title": f"{name}: two windows compared",
            "trail": [("Sketches", "/"), (name, links.sketch_address(name))],
            "action": address,
            "choices": [
                (comparison.text(window.window), words.window_label(*window.window, zone)) for window in stored
            ],
            "groups": self._service.catalog.groups(name),
            "notices": self._notices(request),
        }
        if chosen is not None:
            values |= self._compared(request, name, chosen, zone, address)
        if values.get("waiting"):
            values["refresh"] = REFRESH_S
        return rendering.html("compare.html", **values)

    @guard_view
    def overlap(self, request: Request) -> Response:
        """What the groups of a window have in common, and one set of them that is asked for."""
        name, stored = self._chosen(request)
        zone = self._service.catalog.timezone(name)
        expression = request.query_params.get("query", "").strip()
        question = Question(overlap=True)
        groups = self._service.catalog.combined(name)
        self._service.catalog.require_sets(name, replace(question, sets=(expression,) if expression else ()))
        where = links.ends(stored.window)
        described = self._service.describe(stored)
        label = words.window_label(*stored.window, zone)
        window = (label, self._href(name)(stored.window))
        values: dict[str, Any] = {
            "title": f"{name}, {label}: what groups have in common",
            "trail": [("Sketches", "/"), (name, links.sketch_address(name)), window],
            "status": wording.status_in_words(described),
            "action": f"{links.sketch_address(name)}/overlap",
            "where": where,
            "groups": groups,
            "asked": expression,
            "example": " & ".join(map(quote_name, groups[:2])),
            "notices": self._notices(request),
        }
        answer, values["failure"] = self._reply(stored, question, ask=described["answer"] != "incident")
        chosen = answer
        if expression and answer is not None:
            chosen, values["failure"] = self._reply(stored, replace(question, sets=(expression,)), ask=True)
        if answer is None or chosen is None:
            values |= {} if values["failure"] else {"refresh": REFRESH_S}
            return rendering.html("overlap.html", **values)
        data = answer.to_dict()
        picture = self._drawn.get_or_make(self._service.etag(stored, question, "page"), lambda: upset.picture(data))
        has_interval = data["people"]["low"] is not None
        rows = links.downloads(name, "overlap", where | ({"query": expression} if expression else {}))
        values |= {
            "headline": upset.headline(chosen.to_dict(), expression),
            "note": upset.text_below(data) if has_interval else words.NO_INTERVALS,
            "picture": with_files(picture, f"{values['action']}/upset", where),
            "tables": upset.tables(data),
            "links": rows,
            "lines": self._elsewhere(request, name).overlap(where, expression),
        }
        return rendering.html("overlap.html", **values)

    @guard_view
    def overlap_picture(self, request: Request) -> Response:
        """The UpSet plot of a window, alone."""
        name, stored = self._chosen(request)
        question = Question(overlap=True)
        self._service.catalog.require_sets(name, question)
        answer, failure = self._reply(stored, question, ask=True)
        drawn = [] if answer is None else [upset.picture(answer.to_dict())]
        return _picture(request, drawn, failure or "this window has no such picture yet: ask again")

    def _compared(
        self, request: Request, name: str, chosen: comparison.Chosen, zone: str, address: str
    ) -> dict[str, Any]:
        """The comparison of two windows, as values of the template."""
        sides: list[dict[str, str]] = []
        answers, waiting = [], []
        apart = chosen.first.group != chosen.second.group
        for side in chosen:
            label = words.window_label(*side.stored.window, zone) + (f", {side.group}" if apart else "")
            href, value_of_side = self._href(name, side.group)(side.stored.window), comparison.text(side.stored.window)
            sides.append({"label": label, "value": value_of_side, "group": side.group or "", "href": href})
            answer, failure = self._answer(side.stored, side.group)
            answers.append(answer)
            if answer is None:
                waiting.append(f"{label}: {failure or 'its numbers are being reconstructed.'}")
        values: dict[str, Any] = {"sides": sides, "waiting": waiting}
        first, second = answers
        if first is None or second is None:
            return values
        changes = self._changes(first, second, MAX_COMPARED)
        labels = (sides[0]["label"], sides[1]["label"])
        picture = self._drawn.get_or_make(orjson.dumps([labels, changes]), lambda: comparison.picture(changes, labels))
        where = chosen.first.where, chosen.second.where
        values |= {
            "lead": comparison.lead(changes, labels, "" if apart else chosen.first.group or ""),
            "note": comparison.note(changes, *chosen, self._service.catalog.plan(name), self._service.config.names),
            "picture": None if picture is None else with_files(picture, f"{address}/differences", chosen.parameters),
            "table": comparison.table(changes, labels, name, *where),
        }
        if changes:
            values["lines"] = self._elsewhere(request, name).difference(changes[0]["metric"], *where)
        return values

    @guard_view
    def compare_picture(self, request: Request) -> Response:
        """The chart of a comparison, alone."""
        name = self._name(request)
        zone = self._service.catalog.timezone(name)
        chosen = comparison.choose(self._service, name, (), request.query_params)
        picture = None if chosen is None else self._compared(request, name, chosen, zone, "").get("picture")
        return _picture(request, [] if picture is None else [picture], "these windows have no such picture yet")

    @guard_view
    def ledger(self, request: Request) -> Response:
        """The possible loss of a unit so far, and its budget."""
        deployment = self._service.deployment()
        rows = deployment.rows()
        columns = ("sketch", "revision", "unit", "windows", "partitions", "one window", "all windows")
        cells = [[row[column] for column in columns] for row in rows]
        table = report.ReportTable("Most that one unit can have lost (epsilon)", columns, cells)
        days = sorted(deployment.by_day().items(), reverse=True)
        caption = f"By day (UTC) of what a unit did, the last {min(len(days), 31)} of {len(days)}"
        losses = [(day, loss_number(loss.event), loss_number(loss.item)) for day, loss in days[:31]]
        item = 'one item, unit "item"' if deployment.unbounded_for_items() else "one item"
        by_day = report.ReportTable(caption, ("day", "one event", item), losses)
        sentences = deployment.sentences() if rows else ["nothing is published yet"]
        return rendering.html(
            "ledger.html",
            title="Ledger",
            here="Ledger",
            sentences=[f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences],
            tables=[table, by_day] if rows else [],
            lists=[("What the columns mean", [f"{name}: {words.LEDGER_COLUMNS[name]}" for name in _EXPLAINED])],
            line=f"sketchstream ledger -c {self._service.config.path.name} --format json",
        )

    @guard_view
    def incidents(self, request: Request) -> Response:
        """Publications that cannot be trusted."""
        cell = Markup('<span class="said">{}</span>')
        rows = [
            (incident["sketch"], self._incident_cell(incident), cell.format(incident["text"]))
            for incident in self._service.incidents()["incidents"]
        ]
        lead = "No incident: everything that was published could be read, and no noise was published twice."
        if rows:
            lead = (
                f"{wording.count_text(len(rows), 'incident', 'incidents')}. Two publications of one noise, or a body "
                "that cannot be read, are shown as one incident and never averaged; the windows concerned show no "
                "numbers."
            )
        table = report.ReportTable("Incidents, the newest window first", ("sketch", "window begins", "what"), rows)
        shown = table if rows else None
        return rendering.html("incidents.html", title="Incidents", here="Incidents", lead=lead, table=shown)

    def _incident_cell(self, incident: Mapping[str, Any]) -> str:
        """The start of an incident's window, with a link where something of that window is stored."""
        start = read_time(incident["window_start"], "window_start")
        windows = self._service.store.windows(incident["sketch"], start, limit=1)
        if not windows or windows[0].window[0] != start:
            return str(incident["window_start"])
        href = self._href(incident["sketch"])(windows[0].window)
        return Markup('<a href="{}">{}</a>').format(href, incident["window_start"])

    @guard_view
    def help(self, request: Request) -> Response:
        """Explanations of terms."""
        title = "What the words and intervals mean"
        return rendering.html("text.html", title=title, here="Help", sections=wording.HELP.items())

    def asset(self, request: Request) -> Response:
        """A static file."""
        file = rendering.asset(request.path_params["asset"])
        if file is None:
            raise HTTPException(404)
        return file


_EXPLAINED: Final = ("unit", "one window", "all windows")
"""Columns of the ledger whose meaning is explained."""
_COUNTED: Final = (
    ("pending", "of them is being reconstructed", "of them are being reconstructed"),
    ("incidents", "has an incident", "have an incident"),
)


def _picture(request: Request, drawn: Iterable[Panel], missing: str) -> Response:
    """Respond with the chart that a path names, in its widest form; `missing` is the error's text if there is none."""
    form = str(request.path_params["form"])
    if form not in FORMS:
        raise NotFoundError(f"a picture is a file that ends in {' or '.join(FORMS)}")
    named = (panel.wide or panel.chart for panel in drawn if panel.name == request.path_params["picture"])
    chart = next(filter(None, named), None)
    if chart is None:
        raise NotFoundError(missing)
    name = links.file_name(f"{request.url.path}?{request.url.query}", form)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if form == "png":
        return Response(chart.png(), 200, headers, "image/png")
    return Response(charts.standalone_svg(chart.svg), 200, headers, "image/svg+xml; charset=utf-8")
