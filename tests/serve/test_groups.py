"""Groups of a sketch over HTTP and on the page: a dimension of all views, with the numbers of the command line."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import time
from pathlib import Path

import pytest

from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from helpers.pages import Parsed, settle, settled
from helpers.serving import serving
from sketchstream.config.loader import Config
from sketchstream.query import differences
from sketchstream.serve import over_time
from sketchstream.serve.page import home, parts, wording
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import Service
from sketchstream.serve.store.stored_windows import StoredWindow
from sketchstream.texts.naming import USUAL

START = 1_356_998_400_000
HOUR = 3_600_000
ODD = 'a "b", c'
CONFIG = (
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
groups = ["spring", "a \\"b\\", c"]
"""
)


@pytest.fixture
def site(run: Run, tmp_path: Path):
    """Two hours of two campaigns, one of them with a name that has to be escaped everywhere."""
    records = [
        {"ts": START + hour * HOUR + user, "user": user, "campaign": campaign}
        for hour in range(2)
        for campaign, size in (("spring", 40), (ODD, 10))
        for user in range(size)
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "sketchstream.toml").write_text(CONFIG)
    result = run("worker", "-c", "sketchstream.toml")
    assert result.code == 0, result.err
    lines = run("profile", "-c", "sketchstream.toml", "--all", "--by", "group", "--format", "json").out.splitlines()
    with serving(tmp_path, CONFIG) as (service, client):
        settle(service)
        yield client, [json.loads(line) for line in lines]


def test_groups_are_a_dimension_of_every_view(site) -> None:
    client, printed = site
    assert [one["group"] for one in printed] == ["spring", ODD] * 2
    spans = [{"from": one["window_start"], "to": one["window_end"], "group": one["group"]} for one in printed]
    first = client.get("/sketches/reach/window", params={key: spans[0][key] for key in ("from", "to")})
    assert 'data-refresh="3"' in first.text, "computed when somebody looks"
    for one, given in zip(printed, spans, strict=True):
        assert client.get("/v1/sketches/reach/profile", params=given).json() == one, "the same as the command line"
    for one, given in zip(printed, spans, strict=True):
        page = client.get("/sketches/reach/window", params=given)
        assert page.status_code == 200
        assert "data-refresh" not in page.text
        shown = Parsed(page.text)
        for count in ("1", "2", "5"):
            assert {*one["distinct"].values(), *one["exactly"][count].values()} <= set(shown.values)
        for other in printed:
            if other["window_start"] == one["window_start"]:
                assert set(other["distinct"].values()) <= set(shown.values), "all groups stand side by side"
        assert client.get("/sketches/reach/window/groups.svg", params=given).status_code == 200
        assert client.get("/sketches/reach/window/reach.svg", params=given).status_code == 200
    for group in ("spring", ODD):
        mine = [one["exactly"]["1"] for one in printed if one["group"] == group]
        page = Parsed(client.get("/sketches/reach", params={"metric": "exactly.1", "group": group}).text)
        line = [one[end] for one in mine for end in ("value", "low", "high")]
        assert page.values[: len(line)] == line
        cells = sorted(one["exactly"]["1"][end] for one in printed for end in ("value", "low", "high"))
        assert sorted(page.values[len(line) :]) == cells, "the table of the heat map has all groups"
        assert any("group=" in link for link in page.links)
    # without a group the page shows the first one
    alone = Parsed(client.get("/sketches/reach", params={"metric": "exactly.1"}).text)
    assert alone.values[:3] == list(printed[0]["exactly"]["1"].values())
    unknown = {key: spans[0][key] for key in ("from", "to")} | {"group": "summer"}
    assert client.get("/sketches/reach", params={"group": "summer"}).status_code == 400
    assert "no such group" in Parsed(client.get("/sketches/reach/window", params=unknown).text).said
    assert client.get("/").status_code == 200
    path = "/v1/sketches/reach/series"
    whole = client.get(path, params={"metric": "exactly.1", "by": "group"}).json()
    assert [one["group"] for one in whole["groups"]] == ["spring", ODD]
    for one in whole["groups"]:
        alone = client.get(path, params={"metric": "exactly.1", "group": one["group"]}).json()
        assert {name: one[name] for name in ("title", "pending", "points")} == {
            name: alone[name] for name in ("title", "pending", "points")
        }
        assert [point["value"] for point in one["points"]] == [
            answer["exactly"]["1"]["value"] for answer in printed if answer["group"] == one["group"]
        ]
    text = client.get(path, params={"metric": "exactly.1", "by": "group", "format": "csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["group"], row["window_start"]) for row in rows] == [
        (group, one["window_start"]) for group in ("spring", ODD) for one in printed if one["group"] == group
    ]
    for wrong in ({"by": "group", "group": "spring"}, {"by": "item"}):
        assert client.get(path, params=wrong).status_code == 400


@pytest.mark.parametrize(
    ("rule", "several"),
    [("event", True), ("item", True), ('item"\nmax_groups = 1', False), ('item"\ngroup_of_item = true', False)],
)
def test_groups_are_said_not_to_add_up_where_an_item_can_be_in_several(rule: str, several: bool) -> None:
    unit = f'unit = "{rule}' + ('"' if rule in ("event", "item") else "")
    (plan,) = Config.parse(CONFIG.replace('unit = "event"', unit).replace('epsilon = "2"', 'epsilon = "1"')).sketches
    assert bool(wording.on_groups(plan, USUAL, 2)) == wording.shares_items(plan) == several


def test_pictures_and_files_say_of_which_group_they_are(site, monkeypatch: pytest.MonkeyPatch) -> None:
    client, printed = site
    window = {"from": printed[0]["window_start"], "to": printed[0]["window_end"]}
    for group, called in (("spring", "spring"), (ODD, "a_b_c")):
        given = {"metric": "exactly.1", "group": group}
        settled(client, "/sketches/reach/window", **window, group=group)
        client.get("/v1/sketches/reach/series", params={"metric": "exactly.1", "by": "group"})
        page = client.get("/sketches/reach", params=given)
        (saved,) = re.findall(r'by=group[^"]*format=csv" download="([^"]*)">All groups as CSV', page.text)
        assert saved == "reach-series-exactly.1.csv"
        assert f'download="reach-series-exactly.1-{called}.parquet"' in page.text
        svg = client.get("/sketches/reach/over-time/series.svg", params=given)
        name = f"reach-over-time-series-exactly.1-{called}.svg"
        assert svg.headers["Content-Disposition"] == f'attachment; filename="{name}"'
        assert f">items seen only once, {html.escape(group, quote=False)}<" in svg.text
    assert "groups are shown" not in client.get("/sketches/reach/window", params=window).text
    monkeypatch.setattr(parts, "GROUPS_OF_A_WINDOW", 1)
    assert "The first 1 of 2 groups are shown." in client.get("/sketches/reach/window", params=window).text


def test_one_look_has_every_group_computed_and_kept(run: Run, tmp_path: Path) -> None:
    """Answers of one window are asked for together: storing one makes none of the others stale."""
    names = [f"c{number}" for number in range(6)]
    records = [{"ts": START + user, "user": user, "campaign": name} for name in names for user in range(20)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    text = CONFIG.replace('"spring", "a \\"b\\", c"', ", ".join(f'"{name}"' for name in names))
    (tmp_path / "sketchstream.toml").write_text(text)
    assert run("worker", "-c", "sketchstream.toml").code == 0
    with serving(tmp_path, text) as (service, client):
        settle(service)
        assert "6 answers are being computed" in client.get("/").text
        until = time.monotonic() + 120
        while service.pool.waiting or service.pool.running:
            assert time.monotonic() < until
            time.sleep(0.05)
        (stored,) = service.store.windows("reach", limit=2)
        assert [name for name in names if service.lacks(stored, Question(group=name))] == []
        assert service.pool.computed == len(names)
        assert "being computed" not in client.get("/").text


def test_groups_are_compared_with_what_was_before(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hours; in the last one "spring" has five times as many users, the other group as many as before."""
    sizes = ((10, 30), (10, 30), (55, 30))
    records = [
        {"ts": START + hour * HOUR + user, "user": user, "campaign": campaign}
        for hour, both in enumerate(sizes)
        for campaign, size in zip(("spring", ODD), both, strict=True)
        for user in range(size)
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "sketchstream.toml").write_text(CONFIG)
    assert run("worker", "-c", "sketchstream.toml").code == 0
    with serving(tmp_path, CONFIG) as (service, client):
        settle(service)

        def said(**parameters: str) -> str:
            return Parsed(settled(client, "/", **parameters)).said

        def more(other: str, page: str) -> tuple[int, int]:
            found = re.search(rf"spring: \d+ more than {other} \((\d+) to (\d+)\)", page)
            assert found, page
            assert f"{ODD}: no difference from {other} can be shown" in page
            return int(found[1]), int(found[2])

        low, high = more("the window before", said())
        assert low <= 45 <= high
        ends = {7: HOUR * 3 // 2, 14: 3 * HOUR, 28: 2 * HOUR, 56: 4 * HOUR}
        monkeypatch.setattr(home, "earlier", lambda time, days, zone: time - ends[days])
        low, high = more("the 7 days before", said(days="7"))
        assert low <= 45 <= high
        whole = said(days="28")  # two hours of which there is one before
        assert "mean of 2 windows" in whole
        assert "the 28 days before" not in whole


def test_a_series_of_a_group_asks_for_the_answers_of_all_windows_at_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"ts": START + hour * HOUR, "user": 1, "campaign": "spring"} for hour in range(12)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "sketchstream.toml").write_text(CONFIG)
    assert run("worker", "-c", "sketchstream.toml").code == 0
    queries: list[str] = []
    with serving(tmp_path, CONFIG, processes=0) as (service, _):
        asked = service.store._rows
        monkeypatch.setattr(service.store, "_rows", lambda query, *given: queries.append(query) or asked(query, *given))
        counts = []
        for hours in (2, 12):
            queries.clear()
            found = over_time.series(service, "reach", "exactly.1", START, START + hours * HOUR, "spring")
            assert (len(found["points"]), found["pending"]) == (hours, hours)
            counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
def test_numbers_that_wrapping_makes_bounds_say_so_on_the_page_and_in_series(run: Run, tmp_path: Path) -> None:
    """Users with far more events than the modulus: of each group, the interval may be exceeded."""
    records = [
        {"ts": START + hour * HOUR + 100 * user + n, "user": user, "campaign": campaign}
        for hour in range(2)
        for campaign in ("spring", ODD)
        for user in range(50)
        for n in range(2 + user % 25)
    ]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    text = CONFIG.replace('unit = "event"', 'unit = "item"\nmodulus = 21').replace('epsilon = "2"', 'epsilon = "5"')
    (tmp_path / "sketchstream.toml").write_text(text)
    assert run("worker", "-c", "sketchstream.toml").code == 0
    with serving(tmp_path, text) as (service, client):
        settle(service)
        page = settled(client, "/", metric="at_least.10")
        series = client.get("/v1/sketches/reach/series", params={"metric": "at_least.10", "group": "spring"}).json()
        assert {one["bound"] for one in series["points"]} == {"lower"}
        assert f"spring, {ODD}: may be more than the interval says, as large counts wrap" in Parsed(page).said
        whole = client.get("/v1/sketches/reach/series", params={"metric": "mean", "group": "spring"}).json()
        assert whole["bound"] == "lower"
        assert all(one["high"] is None and "bound" not in one for one in whole["points"])


def test_a_mean_of_windows_waits_for_all_of_them(site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hours of two groups: while one answer is missing, its group has no mean."""
    client, printed = site
    lacks, computed = Service.lacks, over_time.computed

    def missing(service: Service, stored: StoredWindow, group: str) -> bool:
        return group == "spring" and stored.window[0] == START

    monkeypatch.setattr(
        Service,
        "lacks",
        lambda self, stored, question: missing(self, stored, question.group or "") or lacks(self, stored, question),
    )
    monkeypatch.setattr(
        over_time,
        "computed",
        lambda service, windows, metric, group: [
            None if missing(service, one, group) else point
            for one, point in zip(windows, computed(service, windows, metric, group), strict=True)
        ],
    )
    for one in printed:
        span = {"from": one["window_start"], "to": one["window_end"], "group": one["group"]}
        assert client.get("/v1/sketches/reach/profile", params=span).status_code == 200
    page = client.get("/", params={"days": "1"})
    assert "Distinct items, mean of 2 windows by group" in Parsed(page.text).said
    assert 'scope="row">spring' not in page.text
    assert 'scope="row">a ' in page.text
    assert "1 answer is being computed" in page.text
    monkeypatch.undo()
    page = client.get("/", params={"days": "1"})
    assert 'scope="row">spring' in page.text
    assert "being computed" not in page.text
    mean = differences.mean(
        [tuple(one["distinct"].values()) for one in printed if one["group"] == "spring"], together=False
    )
    assert mean[0] in Parsed(page.text).values
