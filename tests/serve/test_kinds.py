"""Sketches of all kinds over HTTP and on the page: the numbers are those of the command line everywhere."""

from __future__ import annotations

import functools
import io
import itertools
import json
import re
import shlex
import subprocess
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import pages
from helpers.commands import Run
from helpers.pages import Parsed, settled
from helpers.serving import HOUR
from sketchstream import kinds
from sketchstream.config.loader import Config
from sketchstream.errors import EstimateError
from sketchstream.kinds import presentation
from sketchstream.kinds.exports import read_csv
from sketchstream.pictures.numbers import MAX_ROWS
from sketchstream.query.differences import difference
from sketchstream.serve import service as serve_service
from sketchstream.serve.http import tables as serve_tables
from sketchstream.serve.page.pictures import by_group
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.number_texts import with_interval

METRICS = {
    "reach": ("distinct", "exactly.1", "at_least.2", "mean"),
    "counts": ("sum", "count.0", "count.17"),
    "tables": ("answer.0", "answer.18"),
    "series": ("last.0", "last.1", "answer.0.3"),
    "rows": ("norm.0", "norm.4"),
    "tree": ("count.0", "count.3"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pages.every_kind(tmp_path_factory.mktemp("kinds")) as found:
        yield found


def given(hour: int, sketch: str = "", group: str = "spring") -> dict[str, str]:
    start = pages.DAY + hour * HOUR
    return {"from": iso(start), "to": iso(start + HOUR)} | ({"group": group} if sketch == "reach" else {})


def answer(client: Any, sketch: str, hour: int, group: str = "spring") -> dict[str, Any]:
    what = "profile" if sketch == "reach" else "estimate"
    found = client.get(f"/v1/sketches/{sketch}/{what}", params=given(hour, sketch, group))
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


def numbers(value: Any) -> set[float]:
    """Every number in plain data."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def page(client: Any, address: str, **params: str) -> Parsed:
    return Parsed(settled(client, address, **params))


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_the_page_the_api_and_the_command_line_have_the_same_numbers(site, run: Run, sketch) -> None:
    folder, _, client = site
    answers = [answer(client, sketch, hour) for hour in range(3)]
    what = "profile" if sketch == "reach" else "estimate"
    group = ("--group", "spring") if sketch == "reach" else ()
    printed = run(
        what, "-c", folder / "sketchstream.toml", "--sketch", sketch, *group, "--all", "--format", "json"
    ).out.splitlines()
    assert [json.loads(line) for line in printed] == answers
    known = set().union(*map(numbers, answers))
    if sketch == "reach":  # the page shows all groups beside each other
        known |= set().union(*(numbers(answer(client, sketch, hour, "autumn")) for hour in range(3)))
    windows = [page(client, f"/sketches/{sketch}/window", **given(hour, sketch)) for hour in range(3)]
    changes: set[float] = set()
    for metric in METRICS[sketch]:
        params = {"metric": metric} | ({"group": "spring"} if sketch == "reach" else {})
        points = client.get(f"/v1/sketches/{sketch}/series", params=params).json()
        asked = [presentation.presentation_of(one).number(one, metric) for one in answers]
        expected = [(title, {end: one[end] for end in ("value", "low", "high")}) for title, one in filter(None, asked)]
        assert [(points["title"], {end: one[end] for end in ("value", "low", "high")}) for one in points["points"]] == (
            expected
        )
        view = page(client, f"/sketches/{sketch}", **params)
        values = [one[1][end] for one in expected if one for end in ("value", "low", "high") if one[1][end] is not None]
        assert view.values[: len(values)] == values
        assert set(view.values) <= known
        against = {f"against_{name}": text for name, text in given(1, sketch).items()}
        changed = client.get(
            f"/v1/sketches/{sketch}/difference", params=given(2, sketch) | against | {"metric": metric}
        ).json()
        changes |= numbers(changed["difference"])
    for hour, one in enumerate(windows):
        assert len(one.values) >= 10
        pairs = [(answers[hour], answers[hour - 1])] if hour else []
        told = {
            end
            for first, second in pairs
            for metric in presentation.presentation_of(first).numbers(first)
            for found in [_difference(sketch, first, second, metric)]
            for end in found
        }
        others = numbers(answer(client, sketch, hour, "autumn"))
        if sketch == "rows":
            others |= numbers(distances(client, hour))
        assert set(one.values) <= known | told | others
        assert numbers(answers[hour]) & set(one.values)


def distances(client: Any, hour: int) -> dict[str, Any]:
    """Squared distances between all rows."""
    found = client.get("/v1/sketches/rows/estimate", params=given(hour) | {"among": "5"})
    assert found.status_code == 200, found.text
    return found.json()  # type: ignore[no-any-return]


def test_distances_between_rows_are_a_heat_map(site, run: Run) -> None:
    folder, _, client = site
    view = page(client, "/sketches/rows/window", **given(2))
    found = distances(client, 2)
    assert len(presentation.rows_of(found)) == 10
    asked = ("-c", folder / "sketchstream.toml", "--sketch", "rows", "--from", given(2)["from"], "--to", given(2)["to"])
    printed = run("estimate", *asked, "--among", "5", "--format", "json")
    assert json.loads(printed.out) == found
    assert "Squared distances between rows" in view.said
    pairs = [one[end] for one in presentation.rows_of(found) for end in ("value", "low", "high")]
    start = view.values.index(pairs[0])
    assert view.values[start : start + len(pairs)] == pairs
    (table,) = [link for link in view.links if "among=5" in link]
    text = client.get(table).text.splitlines()
    assert text[0] == "user,other,value,stderr,low,high"
    assert len(text) == 11
    drawn = unescape(client.get("/sketches/rows/window", params=given(2)).text)
    for one in presentation.rows_of(found):
        told = with_interval(*(one[end] for end in ("value", "low", "high")))
        assert f"{one['user']}, {one['other']}: {told}" in drawn
        assert f"{one['other']}, {one['user']}: {told}" in drawn
    html = folder / "rows.html"
    assert run("estimate", *asked, "--html", html).code == 0
    assert "Squared distances between rows" in html.read_text()


@functools.cache
def _plans() -> Config:
    """The configuration of all kinds; reading it calibrates four of them."""
    return Config.parse(pages.EVERY_KIND)


def _difference(sketch: str, first: Any, second: Any, metric: str) -> set[float]:
    try:
        found = difference(_plans().plan(sketch).spec, first, second, metric)
    except EstimateError:
        return set()
    return {end for end in (found.value, found.low, found.high) if end is not None}


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_two_windows_are_compared_with_the_numbers_of_the_api(site, sketch) -> None:
    _, _, client = site
    first, second = given(2, sketch), given(0, sketch)
    view = page(
        client,
        f"/sketches/{sketch}/compare",
        window=f"{first['from']}/{first['to']}",
        against=f"{second['from']}/{second['to']}",
        **({"group": "spring"} if sketch == "reach" else {}),
    )
    rows = [link for link in view.links if link.startswith(f"/v1/sketches/{sketch}/difference")]
    assert 5 <= len(rows) <= 40 or sketch == "series"
    expected = []
    for link in rows:
        found = client.get(link).json()
        assert found["independent"]
        ends = [found[one] for one in ("window", "against", "difference")]
        expected += [one[end] for one in ends for end in ("value", "low", "high") if one[end] is not None]
    assert view.values == expected
    assert "because the noises of two windows are independent" in view.said


def test_groups_of_one_window_are_compared(site) -> None:
    _, _, client = site
    window = "{from}/{to}".format(**given(2))
    view = page(
        client, "/sketches/reach/compare", window=window, against=window, group="spring", against_group="autumn"
    )
    assert "02:00 to 03:00, spring has" in view.said
    assert "One item can be in both groups" in view.said
    same = client.get("/sketches/reach/compare", params={"window": window, "against": window})
    assert same.status_code == 400
    assert "one and the same" in same.text


def test_a_number_that_holds_noise_of_the_other_window_has_no_interval(site) -> None:
    _, _, client = site
    later = given(2)

    def ask(metric: str, hour: int) -> dict[str, Any]:
        against = {f"against_{name}": text for name, text in given(hour).items()}
        found = client.get("/v1/sketches/series/difference", params=later | against | {"metric": metric})
        return found.json()  # type: ignore[no-any-return]

    # window:3 reaches back over two positions: those at places 0 and 1 stand on the window before too
    assert answer(client, "series", 2)["joined"] == given(1)["from"]
    for metric, independent in (("answer.0.0", False), ("answer.0.1", False), ("answer.0.2", True), ("last.0", True)):
        for hour in (1, 0):
            found = ask(metric, hour)
            assert found["independent"] is (independent or hour == 0)
            assert (found["difference"]["low"] is None) is not found["independent"]
            assert ("holds its noise" in found["assumes"]) is not found["independent"]
    first, second = answer(client, "series", 1), answer(client, "series", 2)
    spec = Config.parse(pages.EVERY_KIND).plan("series").spec
    assert not difference(spec, first, second, "answer.0.0").independent, "in either order"
    assert not difference(None, first, second, "answer.0.2").independent, "nobody knows the filters"


def test_a_place_that_is_another_item_is_not_compared_and_not_drawn(site) -> None:
    _, _, client = site
    first, second = (answer(client, "tables", hour) for hour in (2, 1))
    second["tables"][0]["columns"][0]["labels"] = ["east", "south", "west"]
    with pytest.raises(EstimateError, match="the domain was changed between them"):
        difference(None, first, second, "answer.0")
    assert difference(None, first, second, "answer.1").independent


LINES = re.compile(r'<pre tabindex="0" aria-label="([^"]+)"><code>(.*?)</code></pre>', re.DOTALL)


def lines(client: Any, address: str, **params: str) -> dict[str, str]:
    text = settled(client, address, **params)
    return {name: unescape(unescape(line)) for name, line in LINES.findall(text)}


def curl(line: str) -> Any:
    """What the line for curl prints."""
    done = subprocess.run([*shlex.split(line), "-s", "-f"], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def python(code: str) -> Any:
    """What the last line of the Python lines is."""
    *before, last = code.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(before), names)
    return eval(last, names)


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_every_line_of_the_page_gives_the_numbers_of_the_page(site, run: Run, monkeypatch, sketch) -> None:
    folder, _, client = site
    monkeypatch.chdir(folder)
    where = given(2, sketch)
    metric = METRICS[sketch][0]
    told = lines(client, f"/sketches/{sketch}/window", **where)
    assert set(told) == {"With curl", "On the command line", "In Python"}
    expected = answer(client, sketch, 2)
    assert curl(told["With curl"]) == expected
    command = run(*shlex.split(told["On the command line"])[1:])
    assert json.loads(command.out) == expected
    found = python(told["In Python"])
    assert numbers(json.loads(json.dumps(found.to_dict(), default=float))) <= numbers(expected) | {0.0}

    group = {"group": "spring"} if sketch == "reach" else {}
    told = lines(client, f"/sketches/{sketch}", metric=metric, **group)
    points = client.get(f"/v1/sketches/{sketch}/series", params={"metric": metric, **group}).json()["points"]
    assert curl(told["With curl"])["points"] == points
    frame = python(told["In Python"])
    assert isinstance(frame, pd.DataFrame)
    columns = [metric.replace(".", "_") + end for end in ("", "_low", "_high")]
    assert np.array_equal(frame[columns], [[one[end] for end in ("value", "low", "high")] for one in points])
    printed = [json.loads(line) for line in run(*shlex.split(told["On the command line"])[1:]).out.splitlines()]
    assert printed == [answer(client, sketch, hour) for hour in range(3)]

    told = lines(client, f"/sketches/{sketch}/compare", **group)
    asked = curl(told["With curl"])
    change = python(told["In Python"])
    assert {"value": change.value, "low": change.low, "high": change.high} == asked["difference"]
    assert str(change).startswith(f"{asked['title']}: ")


def test_series_that_run_on_are_one_picture(site) -> None:
    _, _, client = site
    view = page(client, "/sketches/series", metric="last.1")
    answers = [answer(client, "series", hour) for hour in range(3)]
    values = [value for one in answers for value in one["values"][one["filters"][1]["offset"] :]]
    text = client.get("/sketches/series").text
    assert "sum, the last 3 windows shown" in text
    assert set(values[:MAX_ROWS]) <= set(view.values)
    rest = page(client, "/sketches/series", metric="last.1", stretch=f"chain-1.{MAX_ROWS - 1}.{len(values)}")
    assert set(values[MAX_ROWS:]) <= set(rest.values)
    assert "The table has the first 1,000 of 1,080 rows" in text


@pytest.mark.parametrize("sketch", pages.KINDS[1:])
def test_estimates_of_several_windows_are_those_of_the_command_line(site, run: Run, monkeypatch, sketch) -> None:
    folder, _, client = site
    monkeypatch.chdir(folder)
    where = {"from": given(0)["from"], "to": given(2)["to"]}
    path = f"/v1/sketches/{sketch}/estimates"
    command = ("estimate", "-c", "sketchstream.toml", "--sketch", sketch, "--all")
    found = client.get(path, params=where)
    assert found.status_code == 200
    assert found.json()["windows"] == [answer(client, sketch, hour) for hour in range(3)]
    table = client.get(path, params=where | {"format": "csv"}).text
    assert table == run(*command, "--format", "csv").out
    half = client.get(path, params={"from": given(1)["from"], "format": "csv"}).text.splitlines()
    assert half == [line for at, line in enumerate(table.splitlines()) if not at or given(0)["from"] not in line[:20]]
    assert client.get(path, params={"from": given(2)["to"]}).status_code == 404


def test_the_picture_of_a_series_that_runs_on_has_its_numbers_as_csv(site) -> None:
    _, _, client = site
    links = [one for one in page(client, "/sketches/series").links if "/estimates?" in one]
    assert len(set(links)) == 1
    table = pd.read_csv(io.StringIO(client.get(links[0]).text))
    expected = [value for hour in range(3) for value in answer(client, "series", hour)["values"]]
    assert np.array_equal(table["value"], expected)
    assert np.all((table["low"] < table["value"]) & (table["value"] < table["high"]))
    assert len(set(table["window_start"])) == 3
    refused = client.get("/v1/sketches/reach/estimates")
    assert refused.status_code == 400


def test_estimates_of_too_many_windows_are_refused(site, monkeypatch) -> None:
    _, _, client = site
    monkeypatch.setattr(serve_service, "WINDOWS_OF_A_REQUEST", 2)
    found = client.get("/v1/sketches/series/estimates")
    assert found.status_code == 400
    assert "more than 2 windows" in found.json()["detail"]
    monkeypatch.undo()
    monkeypatch.setattr(serve_tables, "TOGETHER_BYTES", 1000)
    found = client.get("/v1/sketches/series/estimates")
    assert found.status_code == 400
    assert "narrow it" in found.json()["detail"]
    for form, kind in (("svg", "image/svg+xml"), ("png", "image/png")):
        found = client.get(f"/sketches/series/over-time/chain-1.{form}")
        assert found.headers["Content-Type"].startswith(kind)
        assert f'filename="series-over-time-chain-1.{form}"' in found.headers["Content-Disposition"]


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_every_picture_has_its_table_and_its_files(site, sketch) -> None:
    _, _, client = site
    for hour in range(3):  # the page of a sketch shows what is there, and does not wait for groups
        answer(client, sketch, hour)
    for address in (f"/sketches/{sketch}", f"/sketches/{sketch}/window", f"/sketches/{sketch}/compare"):
        params = given(2, sketch) if address.endswith("window") else {}
        view = page(client, address, **params)
        text = client.get(address, params=params).text
        files = [link for link in view.links if re.search(r"\.(svg|png)\?", link)]
        assert files
        assert text.count("<svg") >= len(files) / 2
        assert text.count("<table") >= len(files) / 2
        for link in files:
            found = client.get(link)
            assert found.status_code == 200, link
            start = b"\x89PNG" if ".png?" in link else b"<?xml"
            assert found.content.startswith(start)
            assert len(found.content) > 2000


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/sketches/counts/compare?window=x", 400, "window must be"),
        ("/sketches/counts/compare?window=2013-01-01T00:00:00Z", 400, "Window must be a window such as"),
        ("/sketches/counts/compare?against=2012-01-01T00:00:00Z/2012-01-01T01:00:00Z", 404, "has no window from"),
        ("/sketches/reach/compare?against_group=none", 400, "has no such group"),
        ("/sketches/counts/compare/other.svg", 404, "have no such picture"),
        ("/sketches/counts/compare/differences.gif", 404, "ends in svg or png"),
        ("/sketches/counts?metric=count.60", 400, "have no number 'count.60'"),
        ("/sketches/series?metric=last.7", 400, "have no number 'last.7'"),
    ],
)
def test_refusals_say_what_to_do(site, address, status, said) -> None:
    _, _, client = site
    found = client.get(address)
    assert found.status_code == status
    assert said.lower() in Parsed(found.text).said.lower()


def test_groups_and_windows_are_one_heat_map(site) -> None:
    _, _, client = site
    answers = {
        (group, hour): answer(client, "reach", hour, group) for group in ("spring", "autumn") for hour in range(3)
    }
    view = page(client, "/sketches/reach", metric="at_least.2", group="autumn")
    ends = [answers[key]["at_least"]["2"][end] for key in answers for end in ("value", "low", "high")]
    assert view.values[-len(ends) :] == ends
    assert "Items seen 2 times or more by group and window" in view.said
    found = client.get("/sketches/reach/over-time/by-group.svg", params={"metric": "at_least.2"})
    assert found.status_code == 200
    value = answers["autumn", 2]["at_least"]["2"]
    told = with_interval(*(value[end] for end in ("value", "low", "high")), "{:,.0f}".format)
    assert f"autumn, 01-01 02:00: {told}" in unescape(client.get("/sketches/reach?metric=at_least.2").text)


def test_numbers_that_are_not_computed_leave_their_cells_empty() -> None:
    spans = [(pages.DAY + hour * HOUR, pages.DAY + (hour + 1) * HOUR) for hour in range(2)]
    found = by_group("x", ("a", "b"), spans, "UTC", [[(1.0, 0.0, 2.0), None], [None, (3.0, 2.0, None)]])
    assert [row[:2] for row in found.table.rows] == [
        ("a", "2013-01-01 00:00 to 01:00"),
        ("b", "2013-01-01 01:00 to 02:00"),
    ]
    assert found.chart is not None
    assert [point.text for point in found.chart.points] == [
        "a, 01-01 00:00: 1, 95% interval 0 to 2",
        "b, 01-01 01:00: 3, 95% interval 2 or more",
    ]
    assert "2 of 4 numbers are not computed yet" in found.note


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_arrow_has_one_schema_in_all_windows_and_the_items_of_csv(site, sketch) -> None:
    _, service, client = site
    what = "profile" if sketch == "reach" else "estimate"

    def arrow(path: str, **asked: str) -> pa.Table:
        found = client.get(f"/v1/sketches/{sketch}/{path}", params=asked | {"format": "arrow"})
        assert found.status_code == 200, found.text
        return pa.ipc.open_stream(found.content).read_all()

    tables = [arrow(what, **given(hour, sketch)) for hour in range(3)]
    assert all(one.schema == tables[0].schema for one in tables)
    declared = service.catalog.rows(sketch).types
    for field in tables[0].schema:
        kind = declared.get(field.name)
        wanted = {None: "string", "float64": "double", "time": "timestamp[ms, tz=UTC]"}.get(kind, kind)
        assert str(field.type) == wanted, field.name
    texts = [name for name in tables[0].column_names if name not in declared]
    text = client.get(f"/v1/sketches/{sketch}/{what}", params=given(0, sketch) | {"format": "csv"}).text
    assert tables[0].select(texts).to_pylist() == [{name: row[name] for name in texts} for row in read_csv(text)]
    if what == "estimate":
        together = arrow("estimates")
        assert together.drop_columns(["window_start", "complete"]) == pa.concat_tables(tables)
    group = {"group": "spring"} if sketch == "reach" else {}
    assert arrow("series", **group).schema == arrow("series", **group, to="1990-01-01T00:00Z").schema
    assert arrow("windows").schema == arrow("windows", to="1990-01-01T00:00Z").schema


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_tables_have_the_columns_that_are_declared_whatever_is_in_them(site, sketch) -> None:
    _, service, client = site
    what = "profile" if sketch == "reach" else "estimate"

    def parquet(table: str, **asked: str) -> pa.Table:
        found = client.get(f"/v1/tables/{sketch}/{table}.parquet", params=asked)
        assert found.status_code == 200, found.text
        return pq.read_table(io.BytesIO(found.content))

    for hour in range(3):  # answers of groups are there when they have been asked for
        answer(client, sketch, hour)
    listed = [one for one in client.get("/v1/tables").json()["tables"] if one["sketch"] == sketch]
    assert len(listed) == 3
    for one in listed:
        whole, nothing = parquet(one["table"]), parquet(one["table"], to="1990-01-01T00:00Z")
        assert whole.num_rows > nothing.num_rows == 0
        assert whole.schema.equals(nothing.schema)
        spelled = {"text": "string", "float64": "double", "time": "timestamp[ms, tz=UTC]"}
        said = [(each["name"], spelled.get(each["type"], each["type"])) for each in one["columns"]]
        assert [(field.name, str(field.type)) for field in whole.schema] == said
    whole = parquet("answers")
    for hour in range(3):
        text = client.get(f"/v1/sketches/{sketch}/{what}", params=given(hour, sketch) | {"format": "csv"}).text
        header = text.partition("\n")[0].split(",")
        assert header == list(service.catalog.rows(sketch).header)
        start = pd.Timestamp(given(hour)["from"])
        mine = [row for row in whole.to_pylist() if row["window_start"] == start and row["group"] in (None, "spring")]
        texts = [name for name in header if name not in service.catalog.rows(sketch).types]
        assert [{name: row[name] for name in texts} for row in mine] == [
            {name: row[name] for name in texts} for row in read_csv(text)
        ]
        assert [row["value" if "value" in header else "items"] for row in mine] == [
            float(row["value" if "value" in header else "items"]) for row in read_csv(text)
        ]
    group = {"group": "spring"} if sketch == "reach" else {}
    metric = next(iter(service.named_numbers(service.store.windows(sketch)[0], Question(**group))))[0]
    series = client.get(f"/v1/sketches/{sketch}/series", params={"metric": metric} | group).json()["points"]
    rows = [row for row in parquet("numbers").to_pylist() if row["metric"] == metric]
    found = [row["value"] for row in rows if row["group"] in (None, "spring")]
    assert found == [one["value"] for one in series]


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_a_series_without_a_metric_shows_the_usual_number_of_its_kind(site, sketch) -> None:
    _, _, client = site
    group = {"group": "spring"} if sketch == "reach" else {}
    found = client.get(f"/v1/sketches/{sketch}/series", params=group)
    assert found.status_code == 200, found.text
    data = answer(client, sketch, 2)
    assert found.json()["metric"] == next(iter(presentation.presentation_of(data).numbers(data)))


def test_every_kind_has_numbers_in_series_tables_metrics_and_pages(site) -> None:
    """A kind that is added to the registry has to be added to the site."""
    _, service, client = site
    assert {kinds.kind_of(plan.spec).name for plan in service.config.sketches} == set(kinds.names()) - set(
        unconfigured()
    )
    for sketch, hour in itertools.product(pages.KINDS, range(3)):
        answer(client, sketch, hour)
    metrics = client.get("/metrics").text
    for sketch in pages.KINDS:
        group = {"group": "spring"} if sketch == "reach" else {}
        usual = service.catalog.rows(sketch).usual_number
        for metric in (usual, METRICS[sketch][-1]):
            points = client.get(f"/v1/sketches/{sketch}/series", params={"metric": metric} | group).json()["points"]
            assert all(None not in (one["value"], one["low"], one["high"]) for one in points)
            assert page(client, f"/sketches/{sketch}", metric=metric, **group).values
        table = pq.read_table(io.BytesIO(client.get(f"/v1/tables/{sketch}/numbers.parquet").content))
        assert usual in table.column("metric").to_pylist()
        sample = rf'^sketchstream_serve_answer{{group="[^"]*",number="([^"]+)",sketch="{sketch}"}}'
        kept = re.findall(sample, metrics, re.MULTILINE)
        assert usual in kept


def unconfigured() -> list[str]:
    """Kinds of other tests, which no configuration has."""
    return [name for name in kinds.names() if kinds.module_of_kind(name, "table") is None]


@pytest.mark.parametrize("sketch", pages.KINDS)
def test_every_number_that_a_page_offers_can_be_shown(site, sketch) -> None:
    _, _, client = site
    for hour in range(3):
        answer(client, sketch, hour)
    select = re.search(r'<select[^>]*name="metric".*?</select>', settled(client, f"/sketches/{sketch}"), re.DOTALL)
    assert select is not None
    offered = re.findall(r'<option value="([^"]+)"', select[0])
    assert len(offered) >= 2
    for metric in offered:
        assert client.get(f"/sketches/{sketch}", params={"metric": metric}).status_code == 200, metric


def test_an_unknown_number_of_a_series_is_told_how_its_answers_are_named(site) -> None:
    _, _, client = site
    found = client.get("/v1/sketches/series/series", params={"metric": "answer.7.0"})
    assert found.status_code == 422
    for one in ("answer.F.P (filter F, place P, both from 0)", "last.0", "last.1"):
        assert one in found.json()["detail"]


def test_a_sum_ends_before_its_second_place(site) -> None:
    _, _, client = site
    data = answer(client, "counts", 2)
    asked = [client.get("/v1/sketches/counts/estimate", params=given(2) | {"sum": one}) for one in ("0:49", "49:50")]
    first, last = (one.json()["answers"][0]["value"] for one in asked)
    assert first == pytest.approx(sum(data["raw"][:49]))
    assert last == pytest.approx(data["raw"][49])
