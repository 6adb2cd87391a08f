"""Items and events have the names of the configuration wherever people read; words of users are left alone.

In: a file of visits, counted by group. Out: verdicts on tables, JSON, reports, notebooks and pages. Touches: a
temporary folder, a service over it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from helpers.pages import DAY, settle, settled
from helpers.paths import ROOT
from helpers.serving import HOUR, serving
from sketchstream import windows
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.texts.naming import USUAL, Names

NAMED = """
[names]
item = "person"
items = "people"
event = "visit"
"""
SKETCHES = """
[[sketch]]
name = "plain"
unit = "event"
window = "1h"
epsilon = "4"
domain = { size = 400 }
[[sketch]]
name = "reach"
unit = "item"
window = "1h"
epsilon = "1"
domain = { size = 400 }
group_by = "campaign"
groups = ["items", "brand"]
overlap = true
"""
TEXT = EVENTS_FILE + "close_at_end = true\n" + NAMED + SEALED_DIRECTORY + SKETCHES


def test_sentences_keep_their_capitals_and_their_other_words() -> None:
    say = Names("user", "users", "visit", "visits")
    assert say("Items with one event: 3 of 4 items, by events") == "Users with one visit: 3 of 4 users, by visits"
    assert say("itemised eventually") == "itemised eventually"
    assert USUAL("One item, two events") == "One item, two events"
    assert (USUAL.facts(), say.facts()["names"]["items"]) == ({}, "users")


@pytest.mark.parametrize(
    ("given", "held"),
    [("item = 'user'", Names("user", "users")), ("item = 'person'\nitems = 'people'", Names("person", "people"))],
)
def test_plurals_follow_unless_they_are_given(given: str, held: Names) -> None:
    assert Config.parse(TEXT.replace(NAMED, f"\n[names]\n{given}\n")).names == held


@pytest.mark.parametrize("name", ["", "<b>", "a\\nb", "7 users", "x" * 41, "{items}", "a_b"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"names\.item must be up to 40 letters") as caught:
        Config.parse(TEXT.replace('"person"', f'"{name}"'))
    assert len(caught.value.mistakes) == 1


def test_every_answer_has_the_names(run: Run, tmp_path: Path) -> None:
    records = [
        {"ts": DAY + hour * HOUR + user, "user": user, "campaign": ("items", "brand")[user % 2]}
        for hour in range(2)
        for user in range(300)
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "sketchstream.toml").write_text(TEXT)
    assert run("worker", "-c", "sketchstream.toml").code == 0
    named = ["-c", "sketchstream.toml", "--sketch", "plain", "--to", "2013-01-01T01:00Z"]

    table = run("profile", *named, "--html", "report.html").out
    assert "distinct people" in table
    assert "\nvisits" in table
    assert "\nnames" not in table, "the words are translated, so they are not said again"
    report = re.sub(r"(?s)<details.*?</details>|<svg.*?</svg>", "", (tmp_path / "report.html").read_text())
    for text in ("distinct people were counted", "People by how often", "share of people with one visit only"):
        assert text in report

    for command, schema in (("profile", "profile"), ("overlap", "overlap")):
        asked = named if command == "profile" else [*named[:3], "reach", *named[4:]]
        data = json.loads(run(command, *asked, "--format", "json").out)
        jsonschema_rs.validate(json.loads((ROOT / "docs" / f"{schema}.schema.json").read_text()), data)
        assert data["names"] == {"item": "person", "items": "people", "event": "visit", "events": "visits"}

    card = windows("sketchstream.toml", sketch="plain")[0].profile()._repr_html_()
    assert "distinct people" in card

    with serving(tmp_path, TEXT) as (service, client):
        settle(service)
        home, sketch = settled(client, "/", metric="at_least.3"), settled(client, "/sketches/plain")
        assert "People seen 3 times or more" in home
        assert "everything that one person did in a window" in home
        assert "Counts how many people occurred how often" in home
        assert "distinct people" in sketch
        title = client.get("/v1/sketches/plain/series?metric=at_least.7").json()["title"]
        assert title == "people seen 7 times or more"
        where = {"from": "2013-01-01T00:00Z", "to": "2013-01-01T01:00Z"}
        answer = client.get("/v1/sketches/plain/profile", params=where)
        assert answer.json()["names"]["event"] == "visit"
        group = {**where, "group": "items"}
        shown = settled(client, "/sketches/plain/window", **where)
        assert "visits for each person, on average" in shown
        grouped = settled(client, "/sketches/reach/window", **group)
        assert "One person can be in several groups" in grouped
        assert 'value="items"' in grouped, "the name of a group is no word of ours"
        for page in (home, sketch, shown, grouped):
            seen = re.sub(r"(?s)<(script|pre|code)\b.*?</\1>|<[^>]*>", " ", page)
            assert not re.search(r"(?i)distinct items|items seen", seen)
