"""The procedure for each change of a configuration, followed as docs/operations.md has it: nothing lost or doubled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import sketchstream as ss
from helpers.configurations import EVENTS_TOPIC
from helpers.streams import EPOCH, HOUR, MINUTE, exact
from helpers.workers import close_windows
from sketchstream.errors import DataLossError
from sketchstream.query.sealed import SealedWindow
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"
LISTS = ("even.txt", "all.txt")
"""Files of items: the even ones of 0 to 39, and all of them."""
BEFORE = EVENTS_TOPIC + (
    'quorum = 1\nquorum_time = "1ms"\nmax_ahead = "9h"\n[key]\nfile = "k"\n'
    '[[sketch]]\nname = "seen"\nwindow = "1h"\nunit = "event"\nepsilon = 30\ndomain = { size = 40 }\n'
)
LISTED = BEFORE.replace("size = 40", f'items_file = "{LISTS[0]}"')
GROUPED = BEFORE + 'group_by = "site"\ngroups = ["a", "b"]\n'
OTHER = '[[sketch]]\nname = "other"\nwindow = "1h"\nunit = "event"\nepsilon = 30\ndomain = { size = 40 }\n'
CHANGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "epsilon": (BEFORE, lambda text: text.replace("epsilon = 30", "epsilon = 25")),
    "slots or size": (BEFORE, lambda text: text.replace("size = 40", "size = 48")),
    "window": (BEFORE, lambda text: text.replace('"1h"', '"2h"')),
    "list of items": (LISTED, lambda text: text.replace(LISTS[0], LISTS[1])),
    "groups": (GROUPED, lambda text: text.replace('["a", "b"]', '["b", "c"]')),
    "added sketch": (BEFORE, lambda text: text + OTHER),
    "removed sketch": (BEFORE + OTHER, lambda text: text.removesuffix(OTHER)),
    "renamed sketch": (BEFORE, lambda text: text.replace('"seen"', '"known"')),
}
"""Row of the table: the file before, and what is edited."""
RECORDS = [(number * 7 % 40, "abc"[number % 3], EPOCH + number * MINUTE) for number in range(480)]
CHANGED_AT = 150
"""Records before the change, in the third hour."""


def rows() -> list[str]:
    """First cells of the table of changes."""
    (section,) = re.findall(r"^## Changing a configuration\n(.*?)^## ", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| ([^|-]+?) \|", section, re.MULTILINE)[1:]


def followed(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A stream whose workers are restarted with another configuration in its third hour."""
    monkeypatch.chdir(tmp_path)
    for name, step in zip(LISTS, (2, 1), strict=True):
        Path(name).write_text("".join(f"{number}\n" for number in range(0, 40, step)))
    text, edited = CHANGES[change]
    driver = Driver(text, partitions=3, now=EPOCH + 9 * HOUR, key=ss.Key(bytes(16)))
    for number, (item, site, at) in enumerate(RECORDS):
        if number == CHANGED_AT:
            driver.run()
            driver.change(edited(text))
        driver.send({"user": item, "ts": at, "site": site}, timestamp=at)
        driver.run()
    close_windows(driver, EPOCH + 12 * HOUR)
    driver.run()
    driver.advance(hours=12)
    return driver


def before_the_end(driver: Driver, sketch: str) -> list[SealedWindow]:
    """The windows of a sketch without that of the records that close all others."""
    return [one for one in driver.windows(sketch) if one.window[0] < EPOCH + 8 * HOUR]


def counted(window: SealedWindow) -> int:
    """Events of a window, over its parts and groups."""
    return sum(exact(part, k) for part in window.parts for k in range(1, 5))


def test_every_change_of_the_table_is_followed() -> None:
    assert rows() == [*CHANGES, "hash key"]


@pytest.mark.parametrize("change", CHANGES)
def test_open_windows_finish_as_they_began_and_later_ones_are_new(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = followed(tmp_path, change, monkeypatch)
    seen = {name: before_the_end(driver, name) for name in ("seen", "known", "other")}
    spans = {name: [one.window for one in windows] for name, windows in seen.items()}
    told = {name: [repr(one.parts[0].spec.to_dict()) for one in windows] for name, windows in seen.items()}
    edge = EPOCH + 3 * HOUR  # the third window was open when the workers were restarted
    first = [span for name in ("seen", "known") for span in spans[name]]
    assert [start for start, _ in first][1:] == [end for _, end in first][:-1], "no gap and no overlap"
    assert first[0][0] == EPOCH
    assert first[-1][1] >= EPOCH + 8 * HOUR
    old = [spec for (start, _), spec in zip(spans["seen"], told["seen"], strict=True) if start < edge]
    new = [spec for (start, _), spec in zip(spans["seen"], told["seen"], strict=True) if start >= edge]
    assert len(old) == 3
    assert len(set(old)) == 1
    if change in ("epsilon", "slots or size", "list of items", "groups"):
        assert len(set(new)) == 1
        assert old[0] != new[0]
    widths = Counter(end - start for start, end in spans["seen"])
    assert widths.keys() == ({HOUR, 2 * HOUR} if change == "window" else {HOUR})
    if change == "added sketch":
        assert spans["other"][0][0] == edge
    if change == "removed sketch":
        assert [start for start, _ in spans["other"]] == [EPOCH, EPOCH + HOUR, EPOCH + 2 * HOUR]
    if change == "renamed sketch":
        assert spans["known"][0][0] == spans["seen"][-1][1] == edge
    lacking = [one.window[0] for windows in seen.values() for one in windows if one.fields()["complete"] is False]
    # partitions end windows of a former width at different times: those about the change may lack some
    assert lacking == ([EPOCH + 2 * HOUR, edge] if change == "window" else [])


@pytest.mark.parametrize("change", [one for one in CHANGES if one not in ("groups", "list of items")])
def test_no_event_is_lost_or_counted_twice_by_a_change(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = followed(tmp_path, change, monkeypatch)
    for name in ("seen", "known"):
        for window in before_the_end(driver, name):
            begin, end = window.window
            wanted = sum(begin <= at < end for _, _, at in RECORDS)
            assert counted(window) == wanted, (name, begin)


def test_another_hash_key_halts_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = BEFORE.replace("domain = { size = 40 }", "domain = { slots = 64, levels = 1 }\nmax_count = 8")
    driver = Driver(text, partitions=1, now=EPOCH, key=ss.Key(bytes(16)))
    driver.send({"user": 1, "ts": EPOCH}, timestamp=EPOCH)
    driver.run()
    driver._key = ss.Key(bytes(range(16)))
    driver.change(text)
    with pytest.raises(DataLossError, match="reset"):
        driver.run()
