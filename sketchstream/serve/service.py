"""Answers of the service as plain data: windows, answers and their numbers, the ledger, incidents.

In: names and times from a request. Out: dictionaries and JSON texts, for the HTTP API and the page. Touches: the store,
reading; the pool.

Every number comes from `sketchstream.query`, as on the command line.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from sketchstream.errors import BusyError, ConfigError, DataLossError, EstimateError, StoreError
from sketchstream.kinds import closing_kind, presentation
from sketchstream.query.closed import closed_windows
from sketchstream.query.differences import Point
from sketchstream.serve.catalog import Catalog, NotFoundError
from sketchstream.serve.clients.access import VIEWER, may_see, may_see_all
from sketchstream.serve.clients.traffic import Traffic
from sketchstream.serve.recent import RecentlyUsed
from sketchstream.serve.reconstruction.questions import Question, title_of_number
from sketchstream.serve.reconstruction.reconstruct import published_in
from sketchstream.serve.store.ledgers import Ledgers
from sketchstream.serve.store.source import StoreSource
from sketchstream.serve.store.store import Store
from sketchstream.serve.store.stored_windows import INCIDENT, MISSING, NEW, SETTLED, Computed, StoredWindow
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.naming import Names

if TYPE_CHECKING:
    from sketchstream.config.loader import Config
    from sketchstream.privacy.deployments.deployment import Deployment
    from sketchstream.query.estimates import EstimateAnswer
    from sketchstream.query.sealed import Span
    from sketchstream.serve.follower import Follower
    from sketchstream.serve.reconstruction.pool import Pool

MAX_WINDOWS: Final = 1000
"""Most windows of one response."""
KEPT_CLOSED: Final = 16
"""Most answers at closed positions that are kept in memory."""
KEPT_NUMBERS: Final = 50_000
"""Most numbers of answers that are kept in memory for series."""
MAX_PRODUCTS: Final = 1 << 26
"""Most products of coefficients and words that one request for closed positions may ask for: some seconds."""
WINDOWS_OF_A_REQUEST: Final = 400
"""Most windows whose estimates one request may ask for."""
SERIES_LIMIT: Final = 10_000
"""Most windows of one series."""
COMPARED_WINDOWS: Final = 100
"""Most windows over which rows are compared."""
JUST_CHANGED: Final = "this window has just changed and is being put together: ask again in a few seconds"
VERSION: Final = version("sketchstream")


class SeveralWindowsError(ValueError):
    """A range of several windows in a request for one answer; the text says what to do."""


class ReadNumber(NamedTuple):
    """A number of a stored answer.

    Args:
        title: what it is; empty if there is none.
        point: the number with its interval; None if there is none.
        others: some available names, if there is none.
        bound: what it is a bound of, see `Estimate`; None: it is not a bound.
    """

    title: str
    point: Point | None
    others: Sequence[str] = ()
    bound: str | None = None


@dataclass(frozen=True)
class WindowAnswer:
    """The answer of one window, ready to be written.

    Args:
        stored: the window.
        computed: the answer.
        names: words for items and events.
    """

    stored: StoredWindow
    computed: Computed
    names: Names

    def json(self) -> bytes:
        """One JSON object, as the command line prints it: facts, numbers, guarantee."""
        named = orjson.dumps(self.names.facts())
        parts = [part[1:-1] for part in ((self.stored.facts or "{}").encode(), named, self.computed.json)]
        parts.append(b'"guarantee":' + guarantee_seen(self.computed).encode())
        return b"{" + b",".join(part for part in parts if part) + b"}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        data: dict[str, Any] = orjson.loads(self.json())
        return data


def guarantee_seen(stored: StoredWindow | Computed) -> str:
    """The guarantee that the client may see: if they may not see every sketch, that of the window's sketch alone."""
    return (stored.guarantee if may_see_all() else stored.guarantee_alone) or "null"


class Service:
    """Answers from one store.

    Args:
        store: the store.
        pool: reconstructs missing answers.
        follower: reports the delay of the store.
    """

    def __init__(self, store: Store, pool: Pool, follower: Follower) -> None:
        self.store, self.pool, self.follower = store, pool, follower
        self.catalog, self.traffic = Catalog(store), Traffic()
        self._counting = threading.Lock()
        self._deployments: dict[frozenset[str] | None, tuple[int, Deployment]] = {}
        self._read = RecentlyUsed[tuple[bytes | None, str, str], ReadNumber](KEPT_NUMBERS)
        self._closed: RecentlyUsed[tuple[Any, ...], list[EstimateAnswer]] = RecentlyUsed(KEPT_CLOSED)

    @property
    def config(self) -> Config:
        """Configuration of the deployment."""
        return self.store.config

    # ------------------------------------------------------------------ windows

    def windows(
        self,
        name: str,
        since: int | None = None,
        until: int | None = None,
        *,
        limit: int = 100,
        newest: bool = True,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Windows of a sketch, a page at a time.

        Args:
            name: name of the sketch.
            since: windows that start at or after this time, ms.
            until: windows that end at or before this time, ms.
            limit: most of one page.
            newest: the newest first.
            cursor: `next` of the page before.

        Raises:
            ConfigError: not a cursor of ours.
        """
        after = None if cursor is None else _read_cursor(cursor)
        # one more than wanted, to know whether there is a next page
        stored = self.store.windows(name, since, until, limit=limit + 1, newest=newest, after=after)
        page = stored[:limit]
        more = "{}_{}".format(*page[-1].window) if len(stored) > limit else None
        return {"sketch": name, "windows": [self.describe(window) for window in page], "next": more}

    def describe(self, stored: StoredWindow) -> dict[str, Any]:
        """One window of a list: its facts, completeness in words, and whether its answer is there.

        `answer` is "ready", "pending" (being computed), "on_request" (incomplete: computed when asked for), "none"
        (`failure` says why) or "incident" (`status` says which; nothing of it is shown).
        """
        described: dict[str, Any] = stored.fields or {"sketch": stored.sketch, **stored.front}
        described |= {"status": stored.status or "being put together", "answer": self.answer_state(stored)}
        if stored.failure is not None:
            described["failure"] = stored.failure
        return described

    def answer_state(self, stored: StoredWindow, answered: Collection[bytes] | None = None) -> str:
        """See `describe`.

        Args:
            stored: the window.
            answered: inputs of the windows whose usual answer is stored; None: it is looked for.
        """
        if stored.state == INCIDENT:
            return "incident"
        if stored.failure is not None:
            return "none"
        if stored.state == MISSING or (stored.state == SETTLED and self.catalog.groups(stored.sketch)):
            ready = self.store.answered([stored]) if answered is None else answered
            return "ready" if stored.guarantee is not None and stored.input in ready else "on_request"
        return "pending" if stored.todo or stored.state == NEW else "ready"

    # ------------------------------------------------------------------ one window

    def require_one_window(self, name: str, since: int | None, until: int | None) -> StoredWindow:
        """The only window in a range of time.

        Raises:
            NotFoundError: there is none.
            SeveralWindowsError: there are several; the message says what to do.
        """
        windows = self.store.windows(name, since, until, limit=2)
        if not windows:
            stored = "nothing of it is published yet"
            if (ends := self.catalog.ends(name)) is not None:
                stored = f"there are windows from {iso(ends[0])} to {iso(ends[1])}"
            raise NotFoundError(f"no window of sketch {name} lies in that range; {stored}")
        if len(windows) > 1:
            raise SeveralWindowsError(self._several_found(name, since, until, windows))
        return windows[0]

    def compared_windows(self, name: str, since: int | None, until: int | None) -> Sequence[StoredWindow]:
        """The windows in a range of time that rows are compared over, ascending.

        Raises:
            ConfigError: fewer than two, or more than are compared at a time.
            DataLossError: one of them is an incident.
            StoreError: one of them is being put together.
        """
        windows = self.store.windows(name, since, until, limit=COMPARED_WINDOWS + 1)
        if not 2 <= len(windows) <= COMPARED_WINDOWS:
            number = "more" if len(windows) > COMPARED_WINDOWS else str(len(windows))
            raise ConfigError(
                f"drift compares 2 to {COMPARED_WINDOWS} windows, the range holds {number}: choose another with from "
                "and to"
            )
        _refuse_incidents(windows)
        if any(window.state == NEW for window in windows):
            raise StoreError(JUST_CHANGED)
        return windows

    def joined_window(self, windows: Sequence[StoredWindow]) -> StoredWindow:
        """The first of several windows with the facts of all: their range, and whether all are complete.

        Args:
            windows: ascending.
        """
        flags = [window.complete for window in windows]
        facts = {
            "sketch": windows[0].sketch,
            "window_start": iso(windows[0].window[0]),
            "window_end": iso(max(window.window[1] for window in windows)),
            "windows": len(windows),
            "complete": None if None in flags and False not in flags else all(flags),
        }
        return replace(windows[0], facts=orjson.dumps(facts).decode())

    def _several_found(self, name: str, since: int | None, until: int | None, windows: Sequence[StoredWindow]) -> str:
        """The error for a request of one answer for several windows."""
        starts = " and ".join(iso(window.window[0]) for window in windows)
        text = (
            f"the range holds several windows of sketch {name} (the first begin at {starts}), and their answers do not "
            "add up: an item that occurs in two windows would count twice. For a number by window ask for `series`; "
            "for one answer choose one window with from and to"
        )
        if since is None or until is None:
            return f"{text}."
        names = self.catalog.names()
        longer = [
            plan.name
            for plan in self.config.sketches
            if plan.name != name
            and plan.name in names
            and any(True for _ in self.store.windows(plan.name, since, until, limit=1))
            and plan.shortest_ms > windows[0].window[1] - windows[0].window[0]
        ]
        if longer:
            width = self.config.plan(longer[0]).window
            return f"{text}. Sketch {longer[0]} has windows of {width} in that range."
        length = _length(until - since)
        return f'{text}. For one answer over such a range add a sketch with window = "{length}" to the configuration.'

    def ready(self, stored: StoredWindow, question: Question) -> WindowAnswer | None:
        """The answer of a window, if it has been computed.

        Raises:
            DataLossError: an incident.
            EstimateError: it has no usual answer, or none to this question.
        """
        _refuse_incidents([stored])
        if stored.failure is not None and not question.text:
            raise EstimateError(stored.failure)
        refused = self.pool.refused(stored, question)
        if refused is not None:
            raise EstimateError(refused)
        if stored.guarantee is None or question.names_items:
            return None
        numbers, csv = self.store.answer_json(stored, question.text), self.store.answer_csv(stored, question.text)
        if numbers is None or csv is None:
            return None
        return WindowAnswer(
            stored, Computed(numbers, csv, stored.guarantee, stored.guarantee_alone or "null"), self.config.names
        )

    def ask(self, stored: StoredWindow, question: Question) -> Future[Computed]:
        """Have the answer of a window computed.

        Raises:
            BusyError: too many questions wait.
            StoreError: the window is being put together.
        """
        if stored.state == NEW:
            raise StoreError(JUST_CHANGED)
        return self.pool.ask(stored, question)

    def lacks(self, stored: StoredWindow, question: Question) -> bool:
        """Whether an answer is missing and may still be computed."""
        never = stored.failure if not question.text else self.pool.refused(stored, question)
        return never is None and self.store.answer_json(stored, question.text) is None

    def ask_soon(self, stored: StoredWindow, question: Question) -> bool:
        """Have an answer computed without waiting for it; returns False if too many questions wait."""
        try:
            self.ask(stored, question)
        except (BusyError, StoreError):
            return False
        return True

    def etag(self, stored: StoredWindow, question: Question, form: str) -> str | None:
        """A tag that changes if and only if an answer's inputs change; None if the answer is not computed or stored."""
        if stored.input is None or stored.guarantee is None or question.names_items:
            return None
        digest = hashlib.blake2b(digest_size=16, person=b"sketch-etag")
        guarantee = guarantee_seen(stored).encode()
        named = orjson.dumps(self.config.names.facts())
        for part in (stored.input, (stored.facts or "").encode(), guarantee, question.text.encode(), named):
            digest.update(len(part).to_bytes(8, "big") + part)
        digest.update(f"{VERSION} {form}".encode())
        return f'"{digest.hexdigest()}"'

    def closed(self, name: str, since: int | None = None, until: int | None = None) -> list[EstimateAnswer]:
        """Answers at positions that have closed, of windows that are not sealed in all partitions yet, ascending.

        Args:
            name: name of the sketch.
            since: windows that start at or after this time, ms.
            until: windows that end at or before this time, ms.

        Raises:
            ConfigError: the sketch publishes no positions when they close, or too many for one request.
            DataLossError: an incident.
        """
        key = (*self.closed_version(name), since, until)
        return self._closed.get_or_make(key, lambda: self._read_closed(name, since, until))

    def _read_closed(self, name: str, since: int | None, until: int | None) -> list[EstimateAnswer]:
        """See `closed`."""
        with self.store.reading() as connection:
            windows = published_in(connection, self.config)
            work = sum(
                window.products
                for window in closed_windows(windows.source, name, since, until, len(windows.config.per_topic()))
            )
            if work > MAX_PRODUCTS:
                raise ConfigError(
                    "so many positions are too many for one request: choose one window with from and to, or ask "
                    "`sketchstream estimate -c FILE --closed`"
                )
            answers = windows.closed(name, since, until) if work else []
        plan = self.catalog.plan(name)
        if not answers and plan is not None and closing_kind(plan.spec) is None:
            raise ConfigError(
                f"sketch {name} publishes nothing before its windows are sealed: that needs publish = 'closed', which "
                f"series have; ask for /v1/sketches/{name}/{self.catalog.answers(name)}"
            )
        return answers

    def closed_version(self, name: str) -> tuple[Any, ...]:
        """A value that changes if and only if what `closed` answers from changes."""
        with self.store.reading() as connection:
            source = StoreSource(connection)
            entries = [(entry.window, entry.partition, entry.positions, entry.seal_id) for entry in source.closed(name)]
            frontiers = source.frontiers(name)
        former = [
            (entry.window, entry.input)
            for start, end in dict.fromkeys(window for window, *_ in entries)
            for entry in self.store.windows(name, start - 2 * (end - start), start)
        ]
        closed = sorted(
            (frontier.revision, frontier.partition, frontier.partitions, frontier.closed_through)
            for frontier in frontiers
        )
        return name, tuple(entries), tuple(closed), tuple(former)

    # ------------------------------------------------------------------ several windows

    def windows_of_estimates(self, name: str, since: int | None, until: int | None) -> list[StoredWindow]:
        """Windows in a range of time whose estimates are wanted together, ascending.

        Raises:
            ConfigError: more windows than one request may ask for.
            DataLossError: one of them is an incident.
            NotFoundError: there is none.
        """
        windows = self.store.windows(name, since, until, limit=WINDOWS_OF_A_REQUEST + 1)
        if len(windows) > WINDOWS_OF_A_REQUEST:
            raise ConfigError(f"the range holds more than {WINDOWS_OF_A_REQUEST} windows: narrow it with from and to")
        _refuse_incidents(windows)
        if not windows:
            self.require_one_window(name, since, until)
        return windows

    def require_windows(self, name: str, since: int | None, until: int | None, groups: int = 1) -> list[StoredWindow]:
        """The windows in a range of time, ascending.

        Raises:
            ConfigError: there are more, counted once for each of some groups, than one request may ask for.
        """
        windows = self.store.windows(name, since, until, limit=SERIES_LIMIT + 1)
        if len(windows) * groups > SERIES_LIMIT:
            of_groups = f" of {groups} groups" if groups > 1 else ""
            raise ConfigError(
                f"the range holds more than {SERIES_LIMIT} windows{of_groups}: narrow it with from and to"
            )
        return windows

    def named_numbers(self, stored: StoredWindow, question: Question) -> list[tuple[str, str, Point]]:
        """The numbers of an answer that is there: name, title, the number with its interval; none if it is not."""
        unanswered = self.answer_state(stored) in ("incident", "none")
        answer = None if unanswered else self.store.answer_json(stored, question.text)
        if answer is None:
            return []
        numbers = self.config.names.facts() | orjson.loads(answer)
        numbered = (
            (name, title_of_number(numbers, name)) for name in presentation.presentation_of(numbers).numbers(numbers)
        )
        return [(name, *read[:2]) for name, read in numbered if read is not None]

    def number(self, stored: StoredWindow, question: Question, metric: str) -> ReadNumber:
        """A number of a stored answer.

        Answers are large, and a series reads one number of each: the numbers read are cached.
        """
        key = (stored.input, question.text, metric)
        remembered = self._read.get(key)
        if remembered is not None:
            return remembered
        answer = self.store.answer_json(stored, question.text)
        if answer is None:
            return ReadNumber("", None)
        numbers = self.config.names.facts() | orjson.loads(answer)
        number = title_of_number(numbers, metric)
        title, ends, bound = number or ("", None, None)
        read = ReadNumber(title, ends, () if number else number_names(numbers), bound)
        self._read.put(key, read)
        return read

    # ------------------------------------------------------------------ the deployment

    def ledger(self) -> dict[str, Any]:
        """Largest loss of an event or item to all stored publications, as in `sketchstream ledger`.

        In place of each sketch's own ledger, which the command line prints, there is a row for each name and revision.
        """
        deployment = self.deployment()
        rows = [{name.replace(" ", "_"): value for name, value in row.items()} for row in deployment.rows()]
        return {**deployment.summary(), "sketches": rows}

    def deployment(self) -> Deployment:
        """Everything that is stored, for the ledger; counted again when something was stored since."""
        changes, allowed = self.store.changes, VIEWER.get()
        with self._counting:
            remembered = self._deployments.get(allowed)
            if remembered is None or remembered[0] != changes:
                with self.store.reading() as connection:
                    frontiers = StoreSource(connection).frontiers()
                    remembered = changes, Ledgers(connection).census(self.config, allowed, frontiers)
                self._deployments[allowed] = remembered
        return remembered[1]

    def incidents(self) -> dict[str, Any]:
        """Publications that are not shown because of incidents, the newest window first."""
        return {
            "incidents": [
                {"sketch": name, "window_start": iso(start), "text": text}
                for name, start, text in self.store.incidents()
                if may_see(name)
            ]
        }


def _refuse_incidents(windows: Iterable[StoredWindow]) -> None:
    """Refuse windows of which nothing is shown.

    Raises:
        DataLossError: one of them is an incident.
    """
    for window in windows:
        if window.state == INCIDENT:
            raise DataLossError(window.status)


def _length(milliseconds: int) -> str:
    """A length of about this many milliseconds, as a window of a configuration."""
    for unit, size in (("mo", 2_629_800_000), ("d", 86_400_000), ("h", 3_600_000)):
        if milliseconds >= 0.9 * size:
            return f"{max(1, round(milliseconds / size))}{unit}"
    return f"{max(1, round(milliseconds / 60_000))}m"


def _read_cursor(text: str) -> Span:
    match = re.fullmatch(r"(-?[0-9]{1,16})_(-?[0-9]{1,16})", text)
    if match is None:
        raise ConfigError("cursor must be what the page before gave as `next`")
    return int(match[1]), int(match[2])


def number_names(numbers: Mapping[str, Any]) -> list[str]:
    """Names of some numbers of an answer that have intervals; see `presentation.known_names`."""
    offered = presentation.presentation_of(numbers).numbers(numbers)
    return [
        name
        for name in presentation.known_names(numbers)
        if name not in offered or title_of_number(numbers, name) is not None
    ]
