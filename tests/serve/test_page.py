"""The service's page without a browser: its numbers, its fences, its states, its words."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import sketchstream as ss
from helpers.pages import MIXED, Parsed, ends, mixed, settle
from helpers.paths import ROOT
from helpers.serving import MINUTE, TEXT, publish, serving
from helpers.streams import EPOCH
from sketchstream.config.loader import Config
from sketchstream.pictures.numbers import draw_numbers, spelling
from sketchstream.pictures.numbers import interval as interval_cell
from sketchstream.pictures.numbers import value as value_cell
from sketchstream.query import differences, words
from sketchstream.query.times import read_time
from sketchstream.serve.clients.access import Access, Token
from sketchstream.serve.page import calendar, comparison, home, pictures, rendering, series, wording
from sketchstream.serve.store.stored_windows import StoredWindow
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.naming import USUAL
from sketchstream.texts.number_texts import with_interval


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with mixed(tmp_path_factory.mktemp("page")) as found:
        yield found


def window(number, sketch="minutes"):
    return f"/sketches/{sketch}/window?from={iso(EPOCH + number * MINUTE)}&to={iso(EPOCH + (number + 1) * MINUTE)}"


ADDRESSES = [
    "/",
    "/sketches/minutes",
    "/sketches/minutes?metric=exactly.1&order=largest",
    "/sketches/minutes?from=2023-11-14&to=2023-11-14",
    "/sketches/minutes?from=1999-01-01&to=1999-01-02",
    "/sketches/counts",
    "/sketches/hours",
    window(0),
    window(2),
    window(5),
    window(1, "counts"),
    "/ledger",
    "/incidents",
    "/help",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_pages_are_fenced_in_and_load_nothing_from_elsewhere(site, address):
    _, _, client = site
    found = client.get(address)
    assert found.status_code == 200
    assert found.headers["Content-Security-Policy"] == rendering.POLICY
    assert "unsafe" not in rendering.POLICY
    page = Parsed(found.text)
    assert page.inline == [], "no inline style, script or handler: the policy would refuse it"
    assert page.loads
    assert all(load.startswith("/static/") for load in page.loads)
    for load in page.loads:
        asset = client.get(load)
        assert asset.status_code == 200
        assert "immutable" in asset.headers["Cache-Control"]
        assert not re.search(r"https?://(?!www\.w3\.org/)", asset.text)
    assert len(page.ids) == len(set(page.ids))


def test_every_link_leads_somewhere(site):
    _, _, client = site
    seen, todo = set(), ["/"]
    while todo:
        address = todo.pop()
        if address in seen or address.startswith("#"):
            continue
        seen.add(address)
        found = client.get(address)
        if "/profile?" in address and found.status_code == 409:
            continue  # the API's own answer for an incident
        assert found.status_code == 200, address
        if found.headers["Content-Type"].startswith("text/html"):
            todo += Parsed(found.text).links
    assert len(seen) > 40


def test_numbers_of_a_series_are_those_of_the_api_exactly(site):
    _, _, client = site
    for metric in ("distinct", "exactly.1", "at_least.2", "mean", "quantile.0.5"):
        points = client.get("/v1/sketches/minutes/series", params={"metric": metric}).json()["points"]
        page = Parsed(client.get("/sketches/minutes", params={"metric": metric}).text)
        expected = [one[end] for one in points for end in ("value", "low", "high") if one[end] is not None]
        assert page.values == expected
        assert len(expected) >= 12


def test_numbers_of_a_window_are_those_of_the_api_exactly(site):
    _, _, client = site
    given = {"from": iso(EPOCH + 2 * MINUTE), "to": iso(EPOCH + 3 * MINUTE)}
    earlier = {"from": iso(EPOCH + MINUTE), "to": iso(EPOCH + 2 * MINUTE)}
    answer, before = (client.get("/v1/sketches/minutes/profile", params=one).json() for one in (given, earlier))
    against = {f"against_{name}": value for name, value in earlier.items()}
    changes = [
        client.get("/v1/sketches/minutes/difference", params=given | against | {"metric": metric}).json()["difference"]
        for metric in ("distinct", "exactly.1", "at_least.2", "at_least.10", "total", "mean")
    ]
    changed = {end for one in changes for end in one.values()}
    page = Parsed(client.get(window(2)).text)
    assert len(page.values) > 80
    assert set(page.values) <= ends(answer) | ends(before) | changed
    assert changed <= set(page.values)
    for k in ("1", "2", "3"):
        assert {*answer["at_least"][k].values(), *answer["exactly"][k].values()} <= set(page.values)
    counts = client.get("/v1/sketches/counts/estimate", params=given).json()
    page = Parsed(client.get(window(2, "counts")).text)
    assert page.values[: 3 * len(counts["raw"])] == [
        number for value, two in zip(counts["raw"], counts["intervals"], strict=True) for number in (value, *two)
    ]


def test_charts_say_the_numbers_of_their_tables(site):
    _, _, client = site
    text = client.get(window(2)).text
    given = {"from": iso(EPOCH + 2 * MINUTE), "to": iso(EPOCH + 3 * MINUTE)}
    answer = client.get("/v1/sketches/minutes/profile", params=given).json()
    found = re.findall(r'data-points="([^"]*)"', text)
    reach, exact = (json.loads(one.replace("&#34;", '"')) for one in found)
    from sketchstream.texts.number_texts import with_interval

    whole = spelling("exactly")
    told = with_interval(*(answer["distinct"][end] for end in ("value", "low", "high")), whole)
    assert [point[2] for point in exact] == [
        f"exactly {k} times: "
        f"{with_interval(*(answer['exactly'][str(k)][end] for end in ('value', 'low', 'high')), whole)}"
        for k in range(1, 13)
    ]
    assert reach[0][2] == f"1 times or more: {told}"


@pytest.mark.parametrize("metric", ["distinct", "at_least.3", "exactly.2", "rarity", "answer.0"])
def test_a_number_just_below_zero_has_no_sign(metric):
    tiny = -1e-8 if metric in ("rarity", "answer.0") else -0.3
    assert not spelling(metric)(tiny).startswith("-")
    assert not spelling(metric)(-0.0).startswith("-")


def test_states_are_shown_in_words(site):
    _, _, client = site
    page = Parsed(client.get("/sketches/minutes").text).said
    assert "4 of 6 windows shown are complete, 1 is not complete, 1 has no answer." in page
    incident = Parsed(client.get(window(0)).text)
    assert "Nothing of this window is shown" in incident.said
    assert incident.values == []
    listed = Parsed(client.get("/incidents").text)
    assert "1 incident. Two" in listed.said
    assert window(0) in listed.links
    unfinished = Parsed(client.get(window(5)).text).said
    assert "2 of 3 partitions" in unfinished
    empty = Parsed(client.get("/sketches/minutes?from=1999-01-01&to=1999-01-02").text).said
    assert "No window of this sketch is published between these times" in empty


def test_an_incomplete_window_is_computed_when_somebody_opens_it(tmp_path):
    with mixed(tmp_path) as (_, service, client):
        first = client.get(window(5)).text
        assert 'data-refresh="3"' in first
        assert "are being reconstructed" in first
        for _ in range(600):
            page = client.get(window(5)).text
            if "data-refresh" not in page:
                break
            settle(service)
        assert len(Parsed(page).values) > 30


def test_windows_that_wait_say_so(tmp_path):
    publish(tmp_path / "sealed", MIXED)
    with serving(tmp_path, MIXED, processes=0) as (_, client):
        for sketch in ("minutes", "counts"):  # of counts nothing tells yet which numbers there are
            series = client.get(f"/sketches/{sketch}").text
            assert "6 of these windows are being reconstructed" in Parsed(series).said
            assert 'data-refresh="3"' in series
        assert 'data-refresh="3"' in client.get("/").text
        waiting = client.get(window(1)).text
        assert 'data-refresh="3"' in waiting
        assert "being reconstructed" in waiting
        assert client.get(window(1).replace("/window?", "/window/reach.svg?")).status_code == 404


@pytest.mark.parametrize(
    ("count", "unit", "said"),
    [(12, "month", "one year"), (120, "month", "10 years"), (18, "month", "18 months"), (60, "minute", "one hour")],
)
def test_lengths_are_said_in_the_largest_unit(count, unit, said):
    assert wording.duration(count, unit) == said


def test_a_service_without_windows_says_what_will_happen(tmp_path):
    (tmp_path / "sealed").mkdir()
    with serving(tmp_path, processes=0) as (_, client):
        assert "0 windows are published" in Parsed(client.get("/").text).said
        assert "A window appears here when a worker has sealed it" in Parsed(client.get("/sketches/minutes").text).said
        assert "Nothing is published yet" in Parsed(client.get("/ledger").text).said


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/sketches/nothing", 404, "There is no such sketch"),
        ("/sketches/minutes?metric=x.y", 400, "Metric must be a number of an answer"),
        ("/sketches/minutes?metric=nonsense", 400, "have no number 'nonsense'"),
        ("/sketches/minutes?order=x", 400, "Order must be one of time, newest, largest"),
        ("/sketches/minutes?from=tomorrow", 400, "From must be a day, such as 2013-07-01"),
        ("/sketches/minutes?to=9999-12-31", 400, "To must be a day"),
        ("/sketches/minutes?from=2023-02-30", 400, "From must be a day"),
        ("/sketches/minutes/window", 400, "The range holds several windows"),
        (window(-5), 404, "No window of sketch minutes lies in that range"),
        ("/sketches/%3Cscript%3E", 404, "There is no such sketch"),
        ("/sketches/minutes?metric=%3Cscript%3E", 400, "Metric must be"),
    ],
)
def test_refusals_are_pages_that_say_what_to_do(site, address, status, said):
    _, _, client = site
    found = client.get(address)
    assert found.status_code == status
    assert said in Parsed(found.text).said
    assert "<script>" not in found.text
    assert found.headers["Content-Security-Policy"] == rendering.POLICY


def test_pictures_are_files_of_their_own(site):
    _, _, client = site
    for address in (
        window(2).replace("/window?", "/window/reach.svg?"),
        window(2).replace("/window?", "/window/exact.svg?"),
        window(2, "counts").replace("/window?", "/window/counts.svg?"),
        "/sketches/minutes/over-time/series.svg?metric=exactly.1",
    ):
        found = client.get(address)
        assert found.status_code == 200, address
        assert found.headers["Content-Type"].startswith("image/svg+xml")
        assert "var(" not in found.text, "a file has its own colors"
        assert found.text.startswith("<?xml")
    assert client.get(window(2).replace("/window?", "/window/none.svg?")).status_code == 404
    assert client.get("/static/none.css").status_code == 404


TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    publish(folder / "sealed")
    access = Access((Token("ada", hashlib.sha256(TOKEN.encode()).digest(), frozenset({"hours"})),), None)
    with serving(folder, access=access, processes=0) as (_, client):
        yield client


def test_tokens_hide_the_sketches_of_others(guarded):
    assert guarded.get("/").status_code == 401
    headers = {"Authorization": f"Bearer {TOKEN}"}
    home = Parsed(guarded.get("/", headers=headers).text)
    assert "/sketches/hours" in home.links
    assert "/sketches/minutes" not in home.links
    assert guarded.get("/sketches/minutes", headers=headers).status_code == 404
    assert "minutes" not in Parsed(guarded.get("/ledger", headers=headers).text).said


def test_a_browser_signs_in_with_a_form_and_a_cookie_keeps_the_token(guarded):
    html = {"Accept": "text/html"}
    sent = guarded.get("/sketches/hours?metric=mean", headers=html)
    assert sent.status_code == 303
    assert sent.headers["Location"] == "/login?next=%2Fsketches%2Fhours%3Fmetric%3Dmean"
    form = guarded.get(sent.headers["Location"], headers=html)
    assert form.status_code == 200
    assert 'value="/sketches/hours?metric=mean"' in form.text
    wrong = guarded.post("/login", data={"token": "not-a-token-of-theirs", "next": "/"})
    assert wrong.status_code == 401
    assert "Set-Cookie" not in wrong.headers
    assert "not-a-token-of-theirs" not in wrong.text
    right = guarded.post("/login", data={"token": TOKEN, "next": "/sketches/hours?metric=mean"})
    assert (right.status_code, right.headers["Location"]) == (303, "/sketches/hours?metric=mean")
    kept = right.headers["Set-Cookie"]
    assert "HttpOnly" in kept
    assert "samesite=strict" in kept.lower()
    guarded.cookies.clear()
    cookie = {"Cookie": kept.split(";")[0]}
    assert guarded.get("/sketches/hours", headers=cookie).status_code == 200
    assert guarded.get("/v1/sketches/hours", headers=cookie).status_code == 200
    assert guarded.get("/sketches/minutes", headers=cookie).status_code == 404
    assert "You are signed in" in guarded.get("/login", headers=cookie).text
    left = guarded.post("/login/leave", headers=cookie)
    assert 'sketchstream_session=""' in left.headers["Set-Cookie"]
    guarded.cookies.clear()
    assert guarded.get("/static/nothing", headers=html).status_code == 404, "what the form looks like is open"


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\nb"])
def test_signing_in_leads_nowhere_else(guarded, wanted):
    found = guarded.post("/login", data={"token": TOKEN, "next": wanted})
    guarded.cookies.clear()
    assert found.headers["Location"] == "/"
    assert guarded.post("/login", content=b"x" * 20_000).status_code == 413


def test_the_ledger_is_the_command_lines(site):
    _, service, client = site
    page = Parsed(client.get("/ledger").text).said
    printed = str(service.deployment())
    rows = printed.splitlines()[1:4]
    assert len(rows) == 3
    for row in rows:
        assert " ".join(row.split()) in page
    assert "One event loses at most" in page
    assert "No bound on what one item loses to minutes: somebody with m events" in page
    assert "By day (UTC) of what a unit did" in page, "not of the days on which windows begin"


# ---------------------------------------------------------------------- words


def test_windows_are_named_as_people_name_them():
    zone = "America/New_York"

    def at(*when: int) -> int:
        return round(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[misc, arg-type]

    assert words.window_label(at(2013, 7, 1), at(2013, 8, 1), zone) == "July 2013"
    assert words.window_label(at(2013, 12, 1), at(2014, 1, 1), zone) == "December 2013"
    assert words.window_label(at(2013, 1, 1), at(2014, 1, 1), zone) == "2013"
    assert words.window_label(at(2013, 7, 4), at(2013, 7, 5), zone) == "2013-07-04"
    assert words.window_label(at(2013, 3, 10), at(2013, 3, 11), zone) == "2013-03-10", "a day of 23 hours"
    assert words.window_label(at(2013, 7, 1), at(2013, 7, 8), zone) == "2013-07-01 to 2013-07-07"
    assert words.window_label(at(2013, 7, 4, 13), at(2013, 7, 4, 14), zone) == "2013-07-04 13:00 to 14:00"
    assert words.window_label(at(2013, 7, 4, 23), at(2013, 7, 5, 0), zone) == "2013-07-04 23:00 to 2013-07-05 00:00"


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        ({"unit": "item", "published": "1", "delta": 0}, "a factor of at most 2.72 (epsilon 1)"),
        ({"unit": "event", "published": "1/2"}, "a factor of at most 1.65 (epsilon 1/2)"),
        ({"unit": "item", "published": "8"}, "a factor of at most 2,990 (epsilon 8)"),
        ({"unit": "item", "published": "11/16"}, "a factor of at most 1.99 (epsilon 11/16)"),
        ({"unit": "item", "published": "3/2"}, "a factor of at most 4.49 (epsilon 3/2)"),
        (
            {"unit": "event", "published": {"epsilon": 0.5, "delta": 1e-6}, "delta": 1e-6},
            "a factor of at most 1.65, and by at most 1e-06 beyond that (epsilon 0.5, delta 1e-06)",
        ),
        (
            {"unit": "event", "published": {"epsilon": None, "delta": 1e-6}, "delta": 1e-6},
            "can learn almost everything: its loss is unlimited",
        ),
        ({"unit": "item", "published": "unlimited"}, "can learn almost everything: its loss is unlimited"),
        ({"unit": "item", "published": "40"}, "can learn almost everything: its loss is 40"),
        ({"unit": "item", "published": "1", "no_privacy": True, "warning": "NO PRIVACY"}, "NO PRIVACY"),
    ],
)
def test_a_guarantee_is_one_plain_sentence(guarantee, said):
    loss = guarantee["published"]
    if isinstance(loss, str):
        loss = {"pure": loss}
    text = loss.get("pure", "unlimited")
    found = words.promise({**guarantee, "published": text, "losses": {"published": loss}})
    assert said in found
    assert found.count(". ") == 0


def test_the_length_of_windows_is_said_in_words():
    text = (
        TEXT + '[[sketch]]\nname = "hopping"\nunit = "event"\nwindow = "7d"\nevery = "1d"\nepsilon = 1\n'
        "domain = { size = 40 }\n"
    )
    said = {plan.name: wording.width(plan) for plan in Config.parse(text).sketches}
    assert said == {"minutes": "one minute", "hours": "one hour", "hopping": "7 days, one beginning every day"}


def points(*values: Any) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    day = 86_400_000
    found = [
        {"value": value, "low": low, "high": high, "complete": True, "answer": "ready"} for value, low, high in values
    ]
    return found, [(at * day, (at + 1) * day) for at in range(len(values))]


def test_the_largest_window_is_named_with_those_that_may_be_larger():
    clear = series.largest(*points((1, 0, 2), (9, 8, 10)), "items seen only once", "UTC")
    assert clear == (
        "Most items seen only once: 1970-01-02, 9 (95% interval 8 to 10). All other windows have less: no 95% interval "
        "of a difference holds 0."
    )
    close = series.largest(*points((8, 7, 9), (9, 8, 10), (None, None, None)), "items seen only once", "UTC")
    assert close.endswith("1970-01-01 may have more: the 95% interval of the difference holds 0.")
    # intervals that overlap a little, and a difference whose interval does not hold 0
    apart = (7.5, 6.4, 8.6), (9, 8, 10)
    assert "All other windows have less" in series.largest(*points(*apart), "x", "UTC")
    joined = series.largest(*points(*apart), "x", "UTC", independent=False)
    assert joined.endswith("1970-01-01 may have more: its interval reaches into this one.")
    many = series.largest(*points(*[(8, 7, 9)] * 6, (9, 8, 10)), "x", "UTC")
    assert "6 other windows may have more: the 95% intervals of the differences hold 0." in many
    mean = series.largest(*points((8, 7, None)), "events for each item, on average", "UTC", counts=False)
    assert mean.startswith("Largest events for each item")
    assert "7 or more" in mean
    assert series.largest(*points((None, None, None)), "mean", "UTC").startswith("No window in this range")
    bare = series.largest(*points((8, None, None)), "distinct items", "UTC")
    assert bare == "Most distinct items: 1970-01-01, 8."


def test_calendars_have_a_cell_for_each_window():
    hour = 3_600_000
    start = round(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1000)
    described = {"answer": "ready", "complete": True, "status": "complete"}
    for width, count, corner in ((hour, 50, "day"), (24 * hour, 40, "month"), (hour // 4, 9, "hour")):
        windows = [(described, (start + at * width, start + (at + 1) * width)) for at in range(count)]
        (found,) = calendar.calendars(windows, "UTC", lambda window: f"#{window[0]}")
        assert found.corner == corner
        cells = [cell for row in found.rows for cell in row.cells if cell]
        assert {cell.href for cell in cells} == {f"#{window[0]}" for _, window in windows}
        assert all(len(row.cells) == len(found.columns) for row in found.rows)
    assert calendar.calendars([], "UTC", str) == []


@pytest.mark.parametrize(
    ("answer", "complete", "expected"),
    [
        ("ready", True, "complete"),
        ("ready", False, "incomplete"),
        ("on_request", False, "incomplete"),
        ("pending", True, "pending"),
        ("none", True, "incident"),
        ("incident", False, "incident"),
    ],
)
def test_a_window_has_one_state(answer, complete, expected):
    assert calendar.state_of_window({"answer": answer, "complete": complete}) == expected


# ---------------------------------------------------------------------- all kinds


def test_workloads_are_bars_and_heat_maps_with_their_tables():
    answer = {
        "kind": "workload",
        "values": np.arange(8.0).tolist(),
        "intervals": [[one - 1.0, one + 1.0] for one in range(8)],
        "tables": [
            {"name": "age", "offset": 0, "shape": [2], "columns": [{"name": "age", "labels": ["young", "old"]}]},
            {"name": "both", "offset": 2, "shape": [2, 3], "columns": [
                {"name": "age", "labels": ["young", "old"]}, {"name": "region", "labels": ["n", "s", "w"]}]},
        ],
    }  # fmt: skip
    bars, heat = pictures.pictures(answer)
    assert [point.text for point in bars.chart.points] == [
        "young: 0, 95% interval -1 to 1",
        "old: 1, 95% interval 0 to 2",
    ]
    assert [row[0] for row in heat.table.rows] == ["young, n", "young, s", "young, w", "old, n", "old, s", "old, w"]
    assert heat.chart.points[-1].text == "old, w: 7, 95% interval 6 to 8"
    assert len(heat.table.rows) == len(heat.chart.points) == 6


def test_filters_are_lines_with_their_bands():
    size = 60
    answer = {
        "kind": "convolution",
        "filters": [{"name": "window:3", "offset": 0, "count": size, "columns": ["position"]}],
        "labels": {"position": list(range(size))},
        "values": [1.0] * size,
        "intervals": [[0.0, 2.0]] * size,
        "partial": [True] * 2 + [False] * (size - 2),
    }
    (found,) = pictures.pictures(answer)
    assert found.folded
    assert "2 values stand on a part of the filter only" in found.note
    assert len(found.chart.points) == len(found.table.rows) == size


@pytest.mark.filterwarnings("ignore:epsilon above")
def test_kinds_of_sketches_have_pictures_of_what_they_really_say():
    gaussian = ss.Sketch.create(ss.GaussianSpec(epsilon="1", delta="1e-6", domain=ss.ClosedDomain(size=5)))
    gaussian.update(np.arange(5))
    (counts,) = pictures.pictures(json.loads(json.dumps(gaussian.seal().estimate().to_dict())))
    assert len(counts.table.rows) == 5
    assert len(counts.chart.points) == 5


def test_large_tables_are_cut_and_say_so():
    size = 1500
    labels = {"slot": list(range(size)), "item": [None] * size}
    answer = {"kind": "gaussian", "labels": labels, "raw": [1.0] * size, "intervals": [[0.0, 2.0]] * size}
    (found,) = pictures.pictures(answer)
    assert len(found.table.rows) == 1000
    assert "first 1,000 of 1,500 rows" in found.note


def test_the_first_page_shows_the_newest_numbers_of_the_api(site):
    _, _, client = site
    points = client.get("/v1/sketches/minutes/series", params={"metric": "at_least.3"}).json()["points"]
    newest = [one for one in points if one["complete"] and one["value"] is not None][-1]
    page = client.get("/", params={"metric": "at_least.3"}).text
    found = Parsed(page)
    assert found.values[0] == newest["value"]
    low, high = newest["low"], newest["high"]
    assert f"95% interval {low:,.0f} to {high:,.0f}" in found.said
    assert "Items seen 3 times or more" in found.said
    assert "/sketches/minutes?metric=at_least.3" in found.links
    assert "What is guaranteed" in found.said
    refused = client.get("/", params={"metric": "at_least.4"})
    assert refused.status_code == 400
    assert "Metric must be one of distinct" in refused.text


def test_a_range_shows_means_of_its_windows_and_never_their_sum(site):
    _, _, client = site
    points = client.get("/v1/sketches/minutes/series", params={"metric": "at_least.3"}).json()["points"]
    known = [one for one in points if one["complete"] is not False and one["value"] is not None]
    last = read_time(known[-1]["window_end"], "to")
    points = [tuple(one[end] for end in ("value", "low", "high")) for one in known]
    found = Parsed(client.get("/", params={"metric": "at_least.3", "days": "7"}).text)
    assert found.values[0] == pytest.approx(differences.mean(points, together=False)[0])
    assert f"Items seen 3 times or more, mean of {len(known)} windows" in found.said
    assert "windows do not add up to a range" in found.said
    assert client.get("/", params={"days": "3"}).status_code == 400
    assert home.earlier(last, 1, "UTC") == last - 86_400_000
    sunday = int(datetime(2024, 3, 31, 22, tzinfo=UTC).timestamp() * 1000)  # midnight in Berlin; the clock changed
    assert sunday - home.earlier(sunday, 1, "Europe/Berlin") == 23 * 3_600_000


def test_means_average_the_ends_of_ratios(site, monkeypatch):
    _, _, client = site
    asked = []
    monkeypatch.setattr(home, "mean", lambda points, *, together: asked.append(together) or points[0])
    client.get("/", params={"metric": "mean", "days": "7"})
    assert set(asked) == {True, False}
    asked.clear()
    client.get("/", params={"metric": "exactly.1", "days": "7"})
    assert set(asked) == {False}


def test_a_bound_is_said_once_behind_its_interval():
    assert home.tile("users", (8.0, 6.0, 9.0), "distinct", bound="lower").interval == "95% interval 6 to 9, or more"
    assert home.tile("users", (8.0, 6.0, None), "distinct", bound="lower").interval == "95% interval 6 or more"
    assert home.tile("users", (8.0, 6.0, 9.0), "distinct").interval == "95% interval 6 to 9"


@pytest.mark.parametrize(("windows", "compared"), [(2, True), (1, False)])
def test_a_range_is_compared_with_a_whole_one_alone(site, monkeypatch, windows, compared):
    """Two windows now, and so many in the range before."""
    _, _, client = site
    ends = {7: 2 * MINUTE, 14: (2 + windows) * MINUTE}
    monkeypatch.setattr(home, "earlier", lambda time, days, zone: time - ends[days])
    said = Parsed(client.get("/", params={"days": "7"}).text).said
    assert "Distinct items, mean of 2 windows" in said
    assert ("the 7 days before" in said) is compared


@pytest.mark.parametrize("complete", [True, False, None])
def test_a_comparison_says_what_is_not_complete(complete):
    def side(day, state):
        facts = json.dumps({"window_start": f"2026-01-0{day}T00:00:00Z", "complete": state})
        stored = StoredWindow(
            "s", (day * MINUTE, (day + 1) * MINUTE), 1, "settled", None, facts, "", None, None, None, 0
        )
        return comparison.Side(stored, None)

    for pair in ((side(1, True), side(2, complete)), (side(2, complete), side(1, True))):
        said = comparison.note([], *pair, None, USUAL)
        known = {False: "is not complete", None: "is not known to be complete"}.get(complete)
        told = (
            f" The window that begins at 2026-01-02T00:00:00Z {known}: what is missing there is part of the difference."
        )
        assert (told in said) is (complete is not True)
        assert ("missing" in said) is (complete is not True)


def test_the_page_has_what_the_question_of_the_week_names(site):
    """docs/week.md names labels, choices and an address: all of them are on the page."""
    _, _, client = site
    text = (ROOT / "docs" / "week.md").read_text()
    (address,) = re.findall(r"`(/\?[^`]+)`", text)
    page = client.get(address)
    assert page.status_code == 200
    for said in ("items seen 3 times or more", "last 7 days"):
        assert f'"{said}"' in text
        assert re.search(rf"<option[^>]* selected>{said}</option>", page.text), said
    for label in re.findall(r"\*\*(Number|Time|Show)\*\*", text):
        assert re.search(rf"<(label|button[^>]*)>{label}\b", page.text), label


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("distinct", 184.9, "185"),
        ("at_least.3", 12_345.6, "12,346"),
        ("one_hit_ratio", 0.09611, "9.6%"),
        ("mean", 2.34567, "2.346"),
        ("", 29.87, "29.87"),
    ],
)
def test_things_are_whole_and_shares_are_in_per_cent(metric, value, said):
    assert spelling(metric)(value) == said
    tile = home.tile("title", (value, value - 1, None), metric)
    assert tile.title == "Title"
    assert tile.interval.endswith(" or more")


def test_an_estimate_that_cannot_be_is_named():
    tile = home.tile("squared norm of 1", (-372.6, 0.0, 826.8), "")
    assert ">0</data>" in tile.value
    assert tile.interval == "95% interval 0 to 827; the estimate itself, -373, is not possible"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.1773, -21.68, 22.04), ["0", "-22 to 22"]),
        ((405.94, 359.4, 473.02), ["406", "359 to 473"]),
        ((12.345, 11.04, 14.0), ["12.3", "11 to 14"]),
        ((0.5214, 0.5121, 0.5302), ["0.521", "0.512 to 0.53"]),
        ((7.7091, None, 7.9), ["7.709", "7.9 or less"]),
    ],
)
def test_no_digits_are_shown_of_which_an_interval_tells_nothing(numbers, said):
    one = dict(zip(("value", "low", "high"), numbers, strict=True))
    cells = [re.sub("<[^>]*>", "", str(cell(one))) for cell in (value_cell, interval_cell)]
    assert cells == said
    tile = home.tile("title", numbers, "")
    assert (re.sub("<[^>]*>", "", tile.value), tile.interval.removeprefix("95% interval ")) == tuple(said)
    if numbers[1] is not None:
        assert with_interval(*numbers) == f"{said[0]}, 95% interval {said[1]}"
        (row,) = draw_numbers("name", "title", ["x"], tuple([one] for one in numbers), ("a", "b")).table.rows
        assert [re.sub("<[^>]*>", "", str(cell)) for cell in row[1:]] == said


def test_numbers_beyond_the_largest_count_are_not_offered(tmp_path):
    text = TEXT.replace('name = "minutes"', 'name = "minutes"\nmax_count = 4')
    publish(tmp_path / "sealed", text, minutes=2)
    with serving(tmp_path, text) as (service, client):
        settle(service)
        for sketch, largest in (("minutes", 4), ("hours", 300)):
            page = client.get(f"/sketches/{sketch}").text
            for k in (2, 3, 5, 10, 30, 100):
                assert (f'<option value="at_least.{k}"' in page) is (k <= largest + 1)
            for k in (2, 3, 5, 10):
                links = Parsed(client.get("/", params={"metric": f"at_least.{k}"}).text).links
                assert (f"/sketches/{sketch}?metric=at_least.{k}" in links) is (k <= largest + 1)
