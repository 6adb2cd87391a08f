"""Parts of pages: the answers, pictures, tables and links that several views of the page show.

In: a `Service`, windows, parameters of addresses. Out: values of templates. Touches: the service.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from sketchstream.errors import BusyError, ConfigError, DataLossError, EstimateError
from sketchstream.kinds import closing_kind, presentation
from sketchstream.kinds.capabilities import Continuing
from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import Panel, Spell, spelling, value
from sketchstream.query import words
from sketchstream.query.estimates import RowQuestion
from sketchstream.query.times import read_time, require_order
from sketchstream.serve import over_time, status
from sketchstream.serve.edge.drawing_pool import DrawingPool
from sketchstream.serve.page import comparison, links, pictures, series, wording
from sketchstream.serve.recent import RecentlyUsed
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import Service, WindowAnswer
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from starlette.requests import Request

    from sketchstream.query.sealed import Span
    from sketchstream.serve.store.stored_windows import StoredWindow
    from sketchstream.stream.windows.plans import SketchPlan

GROUPS_OF_A_WINDOW: Final = 40
"""Most groups of a window that stand side by side."""
WINDOWS_OF_GROUPS: Final = 24
"""Number of newest windows in which groups are shown side by side."""
WINDOWS_WITH_NAMES: Final = 10
"""Number of newest windows that are looked at for the names of numbers."""
AT_ONCE: Final = 8
"""Most answers of groups that are computed for one look at a window."""
COMPARED_NUMBERS: Final = ("distinct", "exactly.1", "at_least.2", "at_least.10", "total", "mean")
"""Numbers of a profile that are compared with those of the window before; of other kinds, the first ones."""
OPEN_WINDOWS: Final = 2
"""Number of newest windows, still open, whose closed positions are shown."""
POSITIONS_OF_A_CHART: Final = 2000
"""Most positions of series that run on from window to window in one chart."""
FORMS: Final = ("svg", "png")
"""Formats in which a chart can be downloaded."""
UNCOUNTED: Final = ("mean", "one_hit_ratio", "coverage", "entropy", "quantile")
"""Numbers of profiles that are not numbers of things."""
KEPT_PICTURES: Final = 200
"""Most pictures that are kept: drawing takes a tenth of a second, and they change only with their numbers."""


class PageParts:
    """What the views of the page have in common.

    Args:
        service: answers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drawn = RecentlyUsed[Hashable, Any](KEPT_PICTURES)
        self._drawing_pool = DrawingPool()

    def _name(self, request: Request) -> str:
        return self._service.catalog.require(request.path_params["name"])

    def _elsewhere(self, request: Request, name: str) -> links.Elsewhere:
        """How the answers of a sketch are got elsewhere, by the address that the visitor uses."""
        origin = f"{request.url.scheme}://{request.url.netloc}"
        return links.Elsewhere(self._service.config.path.name, name, origin)

    def _group(self, name: str, query: Mapping[str, str]) -> str | None:
        """The chosen group, by default the first one; None if the sketch has none."""
        groups = self._service.catalog.groups(name)
        group = query.get("group") or (groups[0] if groups else None)
        self._service.catalog.require_group(name, group)
        return group

    def _beside(self, stored: StoredWindow) -> tuple[dict[str, Any], int]:
        """The available numbers of all groups of a window, and how many are missing; some are computed."""
        answers, missing = {}, 0
        for group in self._service.catalog.groups(stored.sketch)[:GROUPS_OF_A_WINDOW]:
            answer, failure = self._answer(stored, group, ask=missing < AT_ONCE)
            if answer is None:
                missing += failure is None
            else:
                answers[group] = answer.to_dict()
        return answers, missing

    def _href(self, name: str, group: str | None = None) -> Callable[[Span], str]:
        """Addresses of windows, or of their chosen group."""

        def address(window: Span) -> str:
            where = links.ends(window) | ({"group": group} if group else {})
            return f"{links.sketch_address(name)}/window?{links.query(where)}"

        return address

    def _chosen(self, request: Request) -> tuple[str, StoredWindow]:
        """The sketch and the window of an address."""
        name = self._name(request)
        return name, self._service.require_one_window(name, *span_of(request.query_params))

    def _answer(
        self, stored: StoredWindow, group: str | None = None, *, ask: bool = True
    ) -> tuple[WindowAnswer | None, str | None]:
        """The usual answer of a window, or of one of its groups, or why there is none; neither while it is computed."""
        compute = ask and self._service.answer_state(stored) == "on_request"
        return self._reply(stored, Question(group=group), ask=compute)

    def _reply(self, stored: StoredWindow, question: Question, *, ask: bool) -> tuple[WindowAnswer | None, str | None]:
        """The answer to a question, or why there is none; neither while it is computed, which `ask` begins."""
        try:
            answer = self._service.ready(stored, question)
            if answer is None and ask:
                self._service.ask(stored, question)
        except BusyError:  # it is requested again with the next view of the page
            return None, None
        except (DataLossError, EstimateError) as error:
            return None, str(error)
        return answer, None

    def _pictures(self, stored: StoredWindow, data: Mapping[str, Any], group: str | None) -> list[Panel]:
        """The pictures of a window's usual answer, or of one of its groups."""
        etag = self._service.etag(stored, Question(group=group), "page")
        note = self._on_groups(stored.sketch)
        name = None if etag is None else (etag, note, tuple(data.get("groups") or ()))
        panels = self._drawn.get_or_make(name, lambda: pictures.pictures(data, note))
        question = further_question(data)
        answer = None if question is None else self._reply(stored, question, ask=False)[0]
        if answer is None or question is None:
            return panels
        etag = self._service.etag(stored, question, "page")
        return [*panels, *self._drawn.get_or_make(etag, lambda: pictures.pictures(answer.to_dict()))]

    def _differences(
        self, answer: WindowAnswer, before: StoredWindow | None, zone: str, group: str | None
    ) -> list[report.ReportTable]:
        """Changes since the window before, with the interval of each difference."""
        earlier = None if before is None else self._answer(before, group)[0]
        if before is None or earlier is None:
            return []
        rows = []
        for change in self._changes(answer, earlier, len(COMPARED_NUMBERS), COMPARED_NUMBERS):
            spell = spelling(change["spelled"])
            numbers = [value(change[part], spell) for part in ("window", "against", "difference")]
            rows.append((change["title"], *numbers, comparison.interval_cell(change, spell)))
        label = words.window_label(*before.window, zone)
        columns = ("number", "this window", "the one before", "difference", "95% interval of it")
        return [report.ReportTable(f"Compared with {label}", columns, rows)] if rows else []

    def _compare_address(self, name: str, stored: StoredWindow, other: StoredWindow | None, group: str | None) -> str:
        """The address that compares a window with another; empty if there is none."""
        if other is None:
            return ""
        chosen = comparison.Chosen(comparison.Side(stored, group), comparison.Side(other, group))
        return f"{links.sketch_address(name)}/compare?{links.query(chosen.parameters)}"

    def _neighbours(self, stored: StoredWindow) -> tuple[StoredWindow | None, StoredWindow | None]:
        """The windows before and after one."""
        store, (start, end) = self._service.store, stored.window
        before = store.windows(stored.sketch, None, end - 1, limit=1, newest=True)
        after = store.windows(stored.sketch, start + 1, None, limit=1)
        return (before[0] if before else None), (after[0] if after else None)

    def _series(self, name: str, zone: str, stored: Sequence[StoredWindow], query: Mapping[str, str]) -> dict[str, Any]:
        """A number over time."""
        order = query.get("order", "time")
        if order not in series.ORDERS:
            raise ConfigError(f"order must be one of {', '.join(series.ORDERS)}, found {order!r:.40}")
        group = self._group(name, query)
        offered = self._offered(name, stored, group)
        metric = query.get("metric") or next(iter(offered), "")
        values: dict[str, Any] = {
            "metric": metric,
            "order": order,
            "metrics": list(offered.items()),
            "orders": list(series.ORDERS.items()),
            "waiting": [],
            "groups": self._service.catalog.groups(name),
            "group": group,
        }
        if metric:
            self._service.catalog.require_number(name, metric)
        spans = [window.window for window in stored]
        if not spans or not metric:  # which numbers there are is known from an answer
            return values | {"waiting": self._waits(sum(bool(window.todo) for window in stored))}
        data = over_time.series(self._service, name, metric, spans[0][0], max(end for _, end in spans), group)
        title, points = data["title"], data["points"]
        values["metrics"] = list((offered | {metric: title}).items())
        key = orjson.dumps([name, group, title, order, zone, points])
        href, spell = self._href(name, group), self._spelling(name, metric)
        heading = title if group is None else f"{title}, {charts.shorten(group)}"
        picture = self._drawn.get_or_make(key, lambda: series.picture(points, spans, heading, zone, order, href, spell))
        where = {"metric": metric, "from": iso(spans[0][0]), "to": iso(spans[-1][1])}
        where |= {"group": group} if group else {}
        address = links.sketch_address(name)
        panels = [*self._by_group(name, stored, metric, title, zone), *self._chain(name, stored, group)]
        values |= {
            "series": with_files(picture, f"{address}/over-time/series", where),
            "chain": [
                with_files(panel, f"{address}/over-time/{panel.name}", where | part)
                for panel, part in zoom(panels, query, address)
            ],
            "compare": f"{address}/compare" if len(stored) > 1 or self._service.catalog.groups(name) else "",
            "waiting": self._waits(data["pending"]),
            "largest": "",
        }
        if not data["pending"]:  # which window has most is known when all are there
            counts = self._service.catalog.answers(name) == "profile" and metric.partition(".")[0] not in UNCOUNTED
            independent = not isinstance(self._service.catalog.kind(name), Continuing)
            values["largest"] = series.largest(
                points, spans, title, zone, counts=counts, independent=independent, spell=spell
            )
        return values

    def _waits(self, pending: int) -> list[str]:
        """A sentence on how many windows are being reconstructed, and for how long; empty if there are none."""
        if not pending:
            return []
        seconds = status.pending_seconds(self._service, pending)
        left = "" if seconds is None else f", about {seconds:,.0f} seconds more"
        few = wording.count_text(pending, "of these windows is", "of these windows are")
        return [f"{few} being reconstructed{left}; their numbers are not here yet."]

    def _by_group(self, name: str, stored: Sequence[StoredWindow], metric: str, title: str, zone: str) -> list[Panel]:
        """A number of all groups over the newest windows that are shown, as far as it has been computed."""
        groups, windows = self._service.catalog.groups(name)[:GROUPS_OF_A_WINDOW], stored[-WINDOWS_OF_GROUPS:]
        points = [over_time.computed(self._service, windows, metric, group) for group in groups]
        if len(groups) < 2 or not any(point is not None for row in points for point in row):
            return []
        key = orjson.dumps(["by group", name, title, zone, [window.window for window in windows], points])
        spans, spell = [window.window for window in windows], self._spelling(name, metric)
        note = self._on_groups(name)
        panel = self._drawn.get_or_make(key, lambda: pictures.by_group(title, groups, spans, zone, points, spell, note))
        return [panel]

    def _on_groups(self, name: str) -> str:
        """Sentences on the groups of a sketch that stand side by side; empty if they add up, and all are there."""
        return wording.on_groups(self._service.catalog.plan(name), self._service.config.names, GROUPS_OF_A_WINDOW)

    def _spelling(self, name: str, metric: str) -> Spell:
        """How a number of a sketch is written."""
        return spelling(metric if self._service.catalog.answers(name) == "profile" else "")

    def _offered(self, name: str, stored: Sequence[StoredWindow] = (), group: str | None = None) -> dict[str, str]:
        """The numbers of a sketch's windows, by name; for kinds other than profiles, those of the newest window."""
        if self._service.catalog.answers(name) == "profile":
            plan = self._service.catalog.plan(name)
            largest = {} if plan is None else {"max_count": getattr(plan.spec, "max_count", math.inf)}
            return presentation.presentation_of_kind("profile").numbers(
                {**self._service.config.names.facts(), **largest}
            )
        for window in reversed(stored[-WINDOWS_WITH_NAMES:]):
            answer, _ = self._answer(window, group, ask=False)
            if answer is not None:
                return self._numbers(answer, group)
        return {}

    def _numbers(self, answer: WindowAnswer, group: str | None) -> dict[str, str]:
        """Numbers of an answer with their titles."""
        etag = self._service.etag(answer.stored, Question(group=group), "numbers")

        def read() -> dict[str, str]:
            data = answer.to_dict()
            return presentation.presentation_of(data).numbers(data)

        return self._drawn.get_or_make(etag, read)

    def _chain(self, name: str, stored: Sequence[StoredWindow], group: str | None) -> list[Panel]:
        """Series that continue from window to window, drawn as one over the newest windows that are shown."""
        if not isinstance(self._service.catalog.kind(name), Continuing):
            return []
        answers: list[dict[str, Any]] = []
        windows: list[StoredWindow] = []
        positions = 0
        for window in reversed(stored):
            answer, _ = self._answer(window, group, ask=False)
            if answer is None:
                continue
            data = answer.to_dict()
            positions += max(series_of_filter["count"] for series_of_filter in data["filters"])
            if positions > POSITIONS_OF_A_CHART and answers:
                break
            answers.insert(0, data)
            windows.insert(0, window)
        etags = [self._service.etag(window, Question(group=group), "chain") for window in windows]
        key = None if None in etags else ("chain", *etags)
        panels = self._drawn.get_or_make(key, lambda: presentation.chain_pictures(answers))
        gaps = not windows or any(
            windows[0].window[0] < window.window[0] and window not in windows for window in stored
        )
        if gaps:
            return panels
        span = windows[0].window[0], windows[-1].window[1]
        table = links.api(name, "estimates", links.ends(span) | {"format": "csv"})
        return [replace(panel, downloads=[("CSV", table)]) for panel in panels]

    def _open_windows(self, name: str, plan: SketchPlan) -> list[tuple[str, dict[str, Any], tuple[str, list[Panel]]]]:
        """The newest open windows, ascending: start, answers at closed positions as plain data, and how to show these.

        Raises:
            ConfigError: there are too many positions for one look.
            DataLossError: an incident.
        """
        if closing_kind(plan.spec) is None:
            return []

        def read() -> list[tuple[str, dict[str, Any], tuple[str, list[Panel]]]]:
            answers = [window.to_dict() for window in self._service.closed(name)[-OPEN_WINDOWS:]]
            return [
                (str(data["window_start"]), data, presentation.presentation_of(data).so_far(data)) for data in answers
            ]

        return self._drawn.get_or_make(("open", *self._service.closed_version(name)), read)

    def _still_open(self, request: Request, name: str, plan: SketchPlan | None) -> list[dict[str, Any]]:
        """Windows that are not sealed, with what has been published of them, as values of the template."""
        if plan is None:
            return []
        try:
            windows = self._open_windows(name, plan)
        except (ConfigError, DataLossError, EstimateError) as error:
            return [{"id": "open", "label": "the newest window", "failure": str(error), "status": ""}]
        described = []
        for start, data, (sentence, drawn) in windows:
            window = read_time(start, "from") or 0, read_time(data["window_end"], "to") or 0
            where = links.ends(window)
            address, mark = f"{links.sketch_address(name)}/open", f"open-{window[0]}"
            spec: Any = plan.spec
            described.append(
                {
                    "id": mark,
                    "label": words.window_label(*window, plan.calendar.timezone),
                    "failure": "",
                    "headline": sentence,
                    "status": wording.still_open(data["closed"], spec.positions_of(window)),
                    "pictures": [
                        replace(with_files(panel, f"{address}/{panel.name}", where), name=f"{mark}-{panel.name}")
                        for panel in drawn
                    ],
                    "links": links.downloads(name, "closed", where),
                    "lines": self._elsewhere(request, name).open(where),
                }
            )
        return described

    def _changes(
        self, first: WindowAnswer, second: WindowAnswer, most: int, metrics: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Changes between two windows in the form of the API: of these numbers of profiles, or of those offered."""
        data = first.to_dict()
        names = list(presentation.presentation_of(data).numbers(data))
        profile = self._service.catalog.answers(first.stored.sketch) == "profile"
        if metrics and profile:
            names = list(metrics)
        read, changes = over_time.difference(self._service, first, second), []
        for metric in names[:most]:
            try:
                changes.append(read(metric) | {"spelled": metric if profile else ""})
            except EstimateError:  # this number is not one of both windows
                continue
        return changes

    def _notices(self, request: Request) -> list[str]:
        """Notices before the numbers: on their delay."""
        delays = status.status(self._service)
        if delays["error"]:
            missing = "What is published cannot be read at the moment, so newer windows may be missing"
            return [f"{missing}: {delays['error']}"]
        if not delays["ready"]:
            return ["What is published is still being read: windows are missing."]
        return []

    def _overlap_address(self, stored: StoredWindow) -> str:
        """The address of what a window's groups have in common; empty if it publishes nothing of it."""
        if not self._service.catalog.combined(stored.sketch):
            return ""
        return f"{links.sketch_address(stored.sketch)}/overlap?{links.query(links.ends(stored.window))}"


def span_of(query: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The range of time of an address, ms."""
    span = read_time(query.get("from"), "from"), read_time(query.get("to"), "to")
    require_order(*span)
    return span


def further_question(data: Mapping[str, Any]) -> Question | None:
    """The question whose answer is shown next to the usual one of a window; None without one."""
    options = presentation.presentation_of(data).further(data)
    return Question(rows=RowQuestion(**options)) if options else None


def zoom(panels: Sequence[Panel], query: Mapping[str, str], address: str = "") -> list[tuple[Panel, dict[str, str]]]:
    """Add links to the stretches of each picture; a chosen stretch is drawn alone.

    Args:
        panels: the pictures.
        query: parameters of the address, of which `stretch` is PICTURE.FIRST.LAST.
        address: path of the page; empty for the present one.

    Returns:
        Each picture, with the parameter that chose its stretch.

    Raises:
        ConfigError: `stretch` names no stretch of its picture.
    """
    name, *ends = query.get("stretch", "").split(".")
    zoomed: list[tuple[Panel, dict[str, str]]] = []
    for whole in panels:
        if whole.stretches is None:
            zoomed.append((whole, {}))
            continue
        first, last = 0, len(whole.stretches.names)
        chosen = {"stretch": query["stretch"]} if name == whole.name else {}
        panel = whole
        if chosen:
            places = [int(end) for end in ends if end.isdecimal()]
            if len(places) != 2 or not 0 <= places[0] < places[1] <= last:
                raise ConfigError(
                    f"stretch is a picture and two places, as {whole.name}.0.{last}, found {query['stretch']!r:.40}"
                )
            first, last = places
            panel = whole.stretches.draw(first, last)
        offered = [(f"All: {whole.stretches.label(0, len(whole.stretches.names))}", "")] if chosen else []
        offered += [(text, f"{whole.name}.{a}.{b}") for text, a, b in whole.stretches.within(first, last)]
        carried = {key: text for key, text in query.items() if key != "stretch"}
        closer = [
            (text, f"{address}?{links.query(carried | ({'stretch': at} if at else {}))}#{whole.name}")
            for text, at in offered
        ]
        zoomed.append((replace(panel, closer=closer), chosen))
    return zoomed


def with_files(picture: Panel, address: str, where: Mapping[str, str]) -> Panel:
    """A picture with the addresses of its files."""
    if picture.chart is None:
        return picture
    forms = [(form.upper(), f"{address}.{form}?{links.query(where)}") for form in FORMS]
    return replace(picture, downloads=[*forms, *picture.downloads])
