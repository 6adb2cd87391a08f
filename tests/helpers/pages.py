"""Sites of published sketches for tests of the service's page.

In: nothing. Out: services whose page shows every state: kinds, incomplete windows, incidents; and the demo's.
Touches: folders of the tests.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import orjson

from helpers.serving import MINUTE, TEXT, publish, serving
from helpers.streams import EPOCH
from sketchstream.cli import main
from sketchstream.serve.service import Service

MIXED = (
    TEXT
    + """
[[sketch]]
name = "counts"
kind = "gaussian"
window = "1m"
epsilon = 1
delta = 1e-6
domain = { size = 40 }
"""
)
Site = tuple[Path, Service, httpx.Client]


@contextlib.contextmanager
def mixed(folder: Path) -> Iterator[Site]:
    """Profiles and counts by the minute; of the sketch "minutes" the first is an incident, the last incomplete."""
    publish(folder / "sealed", MIXED)
    minutes = folder / "sealed" / "minutes" / "r0"
    first, *_, last = sorted(path for path in minutes.iterdir() if path.is_dir())
    (first / "p00000.sealed").write_bytes(b"not a sketch")
    behind = minutes / "frontier.p00002.json"
    data = orjson.loads(behind.read_bytes())
    behind.write_bytes(orjson.dumps(data | {"published_through": EPOCH + 5 * MINUTE}))
    (last / "p00002.sealed").unlink()
    with serving(folder, MIXED) as (service, client):
        settle(service)
        yield folder, service, client


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[Site]:
    """What `sketchstream demo` leaves, served."""
    made = folder / "demo-output"
    assert main(["demo", "-o", str(made), "--format", "csv"]) == 0
    with serving(made, (made / "sketchstream.toml").read_text()) as (service, client):
        settle(service)
        yield made, service, client


def settle(service: Service) -> None:
    """Wait until nothing is left to compute."""
    service.pool.wake()
    until = time.monotonic() + 60
    while service.store.pending():
        assert time.monotonic() < until, "reconstruction hangs"
        time.sleep(0.05)


def ends(answer: dict[str, Any]) -> set[float | None]:
    """Every value and every end of an interval in a profile's JSON."""
    found = [one for family in ("at_least", "exactly", "quantiles") for one in answer[family].values()]
    found += [one for one in answer.values() if isinstance(one, dict) and one.keys() == {"value", "low", "high"}]
    return {end for one in found for end in one.values()}


class Parsed(HTMLParser):
    """A page: its text, its links, its tables with their exact values, and what in it is inline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.values: list[float] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self._stack: list[str] = []
        self.feed(text)
        assert self._stack == [], self._stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in ("meta", "link", "input", "br"):
            self._stack.append(tag)
        self._see(tag, found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, dict(attrs))

    def _see(self, tag: str, found: dict[str, str | None]) -> None:
        self.inline += [name for name in found if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and not found.get("src")):
            self.inline.append(tag)
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag == "data":
            self.values.append(float(found["value"] or "nan"))
        if found.get("id"):
            self.ids.append(found["id"] or "")
        self.loads += [found[name] or "" for name in ("src", "srcset", "poster") if name in found]
        if tag == "link":
            self.loads.append(found["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self._stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def said(self) -> str:
        """All text, in one line."""
        return re.sub(r"\s+", " ", " ".join(self.text))
