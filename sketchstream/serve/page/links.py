"""Addresses of the page and of the API, and commands for the same answers elsewhere.

In: names and times. Out: addresses, commands. Touches: the store, reading, for the windows around some.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode
from zoneinfo import ZoneInfo

from sketchstream.errors import ConfigError
from sketchstream.query import words
from sketchstream.query.times import read_time
from sketchstream.stream.windows.windows import iso

if TYPE_CHECKING:
    from sketchstream.query.sealed import Span
    from sketchstream.serve.store.store import StoredWindow
    from sketchstream.stream.windows.plans import SketchPlan

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


def around(
    name: str,
    stored: Sequence[StoredWindow],
    more: bool,
    since: int | None,
    parameters: Mapping[str, str],
    zone: str,
) -> list[tuple[str, str]]:
    """Links to the windows before and after those that are shown."""
    carried = {key: parameters[key] for key in ("metric", "order", "group") if parameters.get(key)}
    out = []

    def day(at: int) -> str:
        return f"{datetime.fromtimestamp(at / 1000, ZoneInfo(zone)):%Y-%m-%d}"

    if more and since is None:
        out.append(("Older windows", f"{sketch_address(name)}?{query(carried | {'to': day(stored[0].window[0] - 1)})}"))
    if more and since is not None:
        out.append(("Later windows", f"{sketch_address(name)}?{query(carried | {'from': day(stored[-1].window[1])})}"))
    if parameters.get("from") or parameters.get("to"):
        out.append(("The newest windows", f"{sketch_address(name)}{'?' if carried else ''}{query(carried)}"))
    return out


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


def series_lines(file: str, plan: SketchPlan, answer: str, metric: str, exact: Mapping[str, str], origin: str) -> Links:
    """Commands and code for the same series elsewhere.

    Args:
        file: name of the configuration.
        plan: plan of the sketch.
        answer: "profile" or "estimate".
        metric: name of the number.
        exact: `from`, `to` and `group`, as far as they are chosen.
        origin: address by which the visitor calls this service.
    """
    python = f"import sketchstream as ss\nss.windows({_python(file, plan.name, exact)}).to_pandas([{metric!r}])"
    return [
        ("With curl", f"curl '{origin}{api(plan.name, 'series', {'metric': metric, **exact})}'"),
        ("In Python", python),
        ("On the command line", _command(answer, file, plan.name, exact) + " --all --format json"),
    ]


def window_lines(file: str, name: str, answer: str, where: Mapping[str, str], origin: str) -> Links:
    """Commands and code for the same answer elsewhere. Arguments are explained at `series_lines`."""
    python = f"import sketchstream as ss\n(window,) = ss.windows({_python(file, name, where)})\nwindow.{answer}"
    return [
        ("With curl", f"curl '{origin}{api(name, answer, where)}'"),
        ("On the command line", _command(answer, file, name, where) + " --format json"),
        ("In Python", python),
    ]


def open_lines(file: str, name: str, where: Mapping[str, str], origin: str) -> Links:
    """Commands for the same positions elsewhere. Arguments are explained at `series_lines`."""
    return [
        ("With curl, the open window", f"curl '{origin}{api(name, 'closed', where)}'"),
        (
            "On the command line, the open window",
            _command("estimate", file, name, where) + " --closed --format json",
        ),
    ]


def difference_lines(
    file: str, name: str, metric: str, first: Mapping[str, str], second: Mapping[str, str], origin: str
) -> Links:
    """One number of a comparison elsewhere.

    Args:
        file: name of the configuration.
        name: name of the sketch.
        metric: name of the number.
        first: `from`, `to` and `group` of one window.
        second: `from`, `to` and `group` of the other window.
        origin: address by which the visitor calls this service.
    """
    python = (
        f"import sketchstream as ss\n(window,) = ss.windows({_python(file, name, first)})\n"
        f"(against,) = ss.windows({_python(file, name, second)})\nwindow.difference(against, {metric!r})"
    )
    return [
        ("With curl", f"curl '{origin}{difference_address(name, metric, first, second)}'"),
        ("In Python", python),
    ]


def overlap_lines(file: str, name: str, where: Mapping[str, str], expression: str, origin: str) -> Links:
    """Commands for sets of groups elsewhere.

    Args:
        file: name of the configuration.
        name: name of the sketch.
        where: `from` and `to` of the window.
        expression: expression; empty: the usual ones.
        origin: address by which the visitor calls this service.
    """
    parameters = {"query": expression} if expression else {}
    chosen = f" --query {shlex.quote(expression)}" if expression else ""
    return [
        ("With curl", f"curl '{origin}{api(name, 'overlap', {**where, **parameters})}'"),
        ("On the command line", f"{_command('overlap', file, name, where)}{chosen} --format json"),
    ]


def difference_address(name: str, metric: str, first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """The address of a number of one window minus that of another, in the API."""
    against = {f"against_{key}": value for key, value in second.items()}
    return api(name, "difference", {**first, **against, "metric": metric})


def _python(file: str, name: str, where: Mapping[str, str]) -> str:
    """Arguments of `ss.windows`."""
    ends = (("since", "from"), ("until", "to"), ("group", "group"))
    arguments = "".join(f", {key}={where[end]!r}" for key, end in ends if end in where)
    return f"{file!r}, sketch={name!r}{arguments}"


def _command(answer: str, file: str, name: str, where: Mapping[str, str]) -> str:
    """The command that answers."""
    chosen = "".join(f" --{key} {shlex.quote(value)}" for key, value in where.items())
    return f"sketchstream {answer} -c {shlex.quote(file)} --sketch {name}{chosen}"
