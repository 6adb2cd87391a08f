"""Sites of published sketches for tests of the service's page.

In: nothing. Out: services whose page shows every state: kinds, incomplete windows, incidents; and the demo's.
Touches: folders of the tests.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import orjson

from helpers.configurations import CLOSED_MINUTES, EVENTS_FILE, SEALED_DIRECTORY
from helpers.serving import HOUR, MINUTE, TEXT, publish, serving, write
from helpers.streams import EPOCH
from sketchstream.cli import main
from sketchstream.serve.service import Service
from sketchstream.testing.driver import Driver

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
ODD = 'a <b> "c" $'
"""A name of a group that has to be escaped everywhere."""
OVERLAPPING = (
    EVENTS_FILE
    + "close_at_end = true"
    + SEALED_DIRECTORY
    + """[[sketch]]
name = "reach"
unit = "item"
window = "1h"
epsilon = "3"
domain = { size = 600 }
group_by = "campaign"
groups = ["spring", "a <b> \\"c\\" $", "brand"]
overlap = true
counts = "presence"
[[sketch]]
name = "plain"
unit = "event"
window = "1h"
epsilon = "2"
max_count = 20
domain = { size = 600 }
"""
)
EVERY_KIND = (
    EVENTS_FILE
    + "close_at_end = true"
    + SEALED_DIRECTORY
    + """[[sketch]]
name = "reach"
unit = "event"
window = "1h"
epsilon = "2"
max_count = 20
domain = { size = 60 }
group_by = "campaign"
groups = ["spring", "autumn"]
[[sketch]]
name = "counts"
kind = "gaussian"
window = "1h"
epsilon = 1
delta = 1e-6
domain = { size = 60 }
[[sketch]]
name = "tables"
kind = "workload"
window = "1h"
epsilon = 1
delta = 1e-6
mechanism = "gaussian"
workload = "marginals:1,2"
[[sketch.columns]]
name = "place"
values = ["north", "south", "west"]
[[sketch.columns]]
name = "delay"
start = 0
width = 10
count = 4
[[sketch]]
name = "series"
kind = "convolution"
window = "1h"
step = "10s"
kernel = ["window:3", "sum"]
epsilon = 1
delta = 1e-6
[[sketch]]
name = "rows"
kind = "projection"
window = "1h"
row = "shop"
rows = { size = 5 }
domain = { size = 60 }
k = 32
epsilon = 1
delta = 1e-6
[[sketch]]
name = "tree"
kind = "hierarchy"
window = "1h"
epsilon = 1
delta = 1e-6
levels = ["campaign", "place"]
paths = [
  ["spring", "north"], ["spring", "south"], ["spring", "west"],
  ["autumn", "north"], ["autumn", "south"], ["autumn", "west"],
]
"""
)
"""A sketch of each kind by the hour; that of profiles has groups."""
KINDS = ("reach", "counts", "tables", "series", "rows", "tree")
"""Their names."""
DAY = 1_356_998_400_000
"""When the events of `every_kind` begin, ms."""
CLOSED_START = 1_704_067_200_000
"""2024-01-01T00:00Z, when the minutes of `send_minutes` begin, ms."""
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


def publish_every_kind(folder: Path, hours: int = 3, text: str = EVERY_KIND) -> None:
    """Some hours of purchases, counted by a sketch of each kind: a configuration and what was published."""
    draw = random.Random(7)
    records = [
        {
            "ts": DAY + hour * HOUR + 40_000 * number,
            "user": draw.randrange(10 + 15 * hour),
            "campaign": "spring" if number % 3 else "autumn",
            "place": ("north", "south", "west")[number % 7 % 3],
            "delay": draw.randrange(40),
            "shop": number % 5,
        }
        for hour in range(hours)
        for number in range(90)
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "sketchstream.toml").write_text(text)
    with contextlib.chdir(folder):
        assert main(["worker", "-c", "sketchstream.toml"]) == 0


@contextlib.contextmanager
def every_kind(folder: Path) -> Iterator[Site]:
    """What `publish_every_kind` left, served."""
    publish_every_kind(folder)
    with serving(folder, EVERY_KIND) as (service, client):
        settle(service)
        yield folder, service, client


@contextlib.contextmanager
def overlapping(folder: Path) -> Iterator[Site]:
    """Two hours of three campaigns that share users: 400, 200 and 200, 134 of them in the first and the last."""
    reached = {"spring": range(400), ODD: range(300, 500), "brand": range(0, 600, 3)}
    records = [
        {"ts": DAY + hour * HOUR + user, "user": user, "campaign": campaign}
        for hour in range(2)
        for campaign, users in reached.items()
        for user in users
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "sketchstream.toml").write_text(OVERLAPPING)
    with contextlib.chdir(folder):
        assert main(["worker", "-c", "sketchstream.toml"]) == 0
    with serving(folder, OVERLAPPING) as (service, client):
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


def send_minutes(driver: Driver, minutes: range) -> None:
    """An event of each of two partitions in each minute, counted; positions close on the way."""
    for minute in minutes:
        for partition in (0, 1):
            at = CLOSED_START + minute * MINUTE
            driver.send({"ts": at}, timestamp=at, partition=partition)
        if minute % 6 == 5 or minute == minutes[-1]:
            driver.run()
            driver.snapshot()


@contextlib.contextmanager
def closed_minutes(folder: Path) -> Iterator[Site]:
    """A series by minutes: one hour is sealed, the next one still open, with positions that have closed."""
    driver = Driver(CLOSED_MINUTES, partitions=2, now="2024-01-01T03:00:00Z")
    send_minutes(driver, range(100))
    write(driver, folder / "sealed")
    with serving(folder, CLOSED_MINUTES) as (service, client):
        settle(service)
        yield folder, service, client


def settle(service: Service) -> None:
    """Wait until nothing is left to compute."""
    service.pool.wake()
    until = time.monotonic() + 300
    while service.store.pending():
        assert time.monotonic() < until, "reconstruction hangs"
        time.sleep(0.05)


def settled(client: httpx.Client, address: str, **params: str) -> str:
    """The text of a page when nothing that it shows is being computed any more."""
    until = time.monotonic() + 300
    while "data-refresh" in (found := client.get(address, params=params)).text:
        assert time.monotonic() < until, "reconstruction hangs"
        time.sleep(0.05)
    assert found.status_code == 200, Parsed(found.text).said
    return found.text


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
