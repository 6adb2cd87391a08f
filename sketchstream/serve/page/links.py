"""Addresses of the page and of the API, and commands for the same answers elsewhere.

In: names and times. Out: addresses, commands. Touches: the store, reading, for the windows around some.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode
from zoneinfo import ZoneInfo

from sketchstream.errors import ConfigError
from sketchstream.query import words
from sketchstream.query.times import read_time
from sketchstream.stream.windows.calendar import iso

if TYPE_CHECKING:
    from sketchstream.query.sealed import Span
    from sketchstream.serve.store.stored_windows import StoredWindow

Links = list[tuple[str, str]]
"""Links, each with what it is called, and its address or its text."""


def day(text: str | None, zone: str, name: str, *, after: bool = False) -> int | None:
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
        raise ConfigError(f"{name} must be a day, such as 2013-07-01, found {text!r:.40}") from None


def query(parameters: Mapping[str, str]) -> str:
    """Parameters of an address; colons of times stay readable."""
    return urlencode(parameters, safe=":")


def ends(window: Span) -> dict[str, str]:
    """The start and the end of a window as parameters."""
    return {"from": iso(window[0]), "to": iso(window[1])}


def sketch_address(name: str) -> str:
    """The page of a sketch."""
    return f"/sketches/{quote(name, safe='')}"


def api(name: str, what: str, parameters: Mapping[str, str]) -> str:
    """A path of the API."""
    query_string = f"?{query(parameters)}" if parameters else ""
    return f"/v1/sketches/{quote(name, safe='')}/{what}{query_string}"


def downloads(name: str, what: str, parameters: Mapping[str, str]) -> Links:
    """An answer of the API as files, one for each format."""
    forms = {"CSV": {"format": "csv"}, "JSON": {}, "Arrow": {"format": "arrow"}, "Parquet": {"format": "parquet"}}
    return [(form, api(name, what, {**parameters, **parameter})) for form, parameter in forms.items()]


def link(stored: StoredWindow | None, zone: str, href: Callable[[Span], str]) -> dict[str, str] | None:
    """A link to a window."""
    if stored is None:
        return None
    return {"href": href(stored.window), "label": words.window_label(*stored.window, zone)}


def links_around(
    name: str,
    stored: Sequence[StoredWindow],
    more: bool,
    since: int | None,
    parameters: Mapping[str, str],
    zone: str,
) -> list[tuple[str, str]]:
    """Links to the windows before and after those that are shown."""
    carried = {key: parameters[key] for key in ("metric", "order", "group") if parameters.get(key)}
    path, pages = sketch_address(name), []

    def day(at: int) -> str:
        return f"{datetime.fromtimestamp(at / 1000, ZoneInfo(zone)):%Y-%m-%d}"

    if more and since is None:
        pages.append(("Older windows", f"{path}?{query(carried | {'to': day(stored[0].window[0] - 1)})}"))
    if more and since is not None:
        pages.append(("Later windows", f"{path}?{query(carried | {'from': day(stored[-1].window[1])})}"))
    if parameters.get("from") or parameters.get("to"):
        pages.append(("The newest windows", f"{path}{'?' if carried else ''}{query(carried)}"))
    return pages


def file_name(address: str, form: str) -> str:
    """What the file at an address is called: sketch, what it is of, which number, group and time.

    Args:
        address: path of the page or the API, below one sketch.
        form: ending of its name, without a dot.
    """
    path, _, query_string = address.partition("?")
    parameters = dict(parse_qsl(query_string))
    parts = path.rpartition("/sketches/")[2].removesuffix(f".{form}").split("/")
    parts += [parameters[key][:40] for key in ("metric", "group", "query", "from") if key in parameters]
    return f"{re.sub('[^0-9A-Za-z_.+-]+', '_', '-'.join(map(unquote, parts)).replace(':', ''))}.{form}"


def series_links(name: str, metric: str, exact: Mapping[str, str]) -> Links:
    """Downloads of a series, and of those of all groups if it is one group's."""
    times = {key: exact[key] for key in ("from", "to") if key in exact}
    every = api(name, "series", {"metric": metric, "by": "group", **times, "format": "csv"})
    return [
        *([("All groups as CSV", every)] if "group" in exact else []),
        *((f"Series as {form}", href) for form, href in downloads(name, "series", {"metric": metric, **exact})),
        ("Windows as CSV", api(name, "windows", times | {"format": "csv"})),
    ]


@dataclass(frozen=True)
class Elsewhere:
    """Commands and code that give the answers of a sketch elsewhere.

    Args:
        file: name of the configuration.
        name: name of the sketch.
        origin: address by which the visitor calls this service.
    """

    file: str
    name: str
    origin: str

    def series(self, answer: str, metric: str, exact: Mapping[str, str]) -> Links:
        """Commands and code for the same series.

        Args:
            answer: "profile" or "estimate".
            metric: name of the number.
            exact: `from`, `to` and `group`, as far as they are chosen.
        """
        return [
            ("With curl", self._curl(api(self.name, "series", {"metric": metric, **exact}))),
            ("In Python", f"import sketchstream as ss\n{self._python(exact)}.to_pandas([{metric!r}])"),
            ("On the command line", self._command(answer, exact, " --all")),
        ]

    def window(self, answer: str, where: Mapping[str, str]) -> Links:
        """Commands and code for the same answer of one window. Arguments are explained at `series`."""
        return [
            ("With curl", self._curl(api(self.name, answer, where))),
            ("On the command line", self._command(answer, where)),
            ("In Python", f"import sketchstream as ss\n(window,) = {self._python(where)}\nwindow.{answer}()"),
        ]

    def open(self, where: Mapping[str, str]) -> Links:
        """Commands for the same closed positions. Arguments are explained at `series`."""
        return [
            ("With curl, the open window", self._curl(api(self.name, "closed", where))),
            ("On the command line, the open window", self._command("estimate", where, " --closed")),
        ]

    def difference(self, metric: str, first: Mapping[str, str], second: Mapping[str, str]) -> Links:
        """One number of a comparison.

        Args:
            metric: name of the number.
            first: `from`, `to` and `group` of one window.
            second: `from`, `to` and `group` of the other window.
        """
        python = (
            f"import sketchstream as ss\n(window,) = {self._python(first)}\n(against,) = {self._python(second)}\n"
            f"window.difference(against, {metric!r})"
        )
        address = difference_address(self.name, metric, first, second)
        return [("With curl", self._curl(address)), ("In Python", python)]

    def overlap(self, where: Mapping[str, str], expression: str) -> Links:
        """Commands for the same set of groups.

        Args:
            where: `from` and `to` of the window.
            expression: the set; empty: the usual ones.
        """
        parameters = {"query": expression} if expression else {}
        chosen = f" --query {shlex.quote(expression)}" if expression else ""
        return [
            ("With curl", self._curl(api(self.name, "overlap", {**where, **parameters}))),
            ("On the command line", self._command("overlap", where, chosen)),
        ]

    def _curl(self, address: str) -> str:
        return f"curl '{self.origin}{address}'"

    def _python(self, where: Mapping[str, str]) -> str:
        ends = (("since", "from"), ("until", "to"), ("group", "group"))
        arguments = "".join(f", {key}={where[end]!r}" for key, end in ends if end in where)
        return f"ss.windows({self.file!r}, sketch={self.name!r}{arguments})"

    def _command(self, answer: str, where: Mapping[str, str], more: str = "") -> str:
        chosen = "".join(f" --{key} {shlex.quote(value)}" for key, value in where.items())
        command = f"sketchstream {answer} -c {shlex.quote(self.file)} --sketch {self.name}"
        return f"{command}{chosen}{more} --format json"


def difference_address(name: str, metric: str, first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """The address of a number of one window minus that of another, in the API."""
    against = {f"against_{key}": value for key, value in second.items()}
    return api(name, "difference", {**first, **against, "metric": metric})
