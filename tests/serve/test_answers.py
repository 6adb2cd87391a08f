"""Every number of the service is the command line's; lists, series, comparisons, refusals."""

from __future__ import annotations

import io
import json
import time

import orjson
import pyarrow.parquet as pq
import pytest

from helpers.serving import MINUTE, TEXT, publish, serving, write
from helpers.streams import EPOCH
from sketchstream.config.loader import Config
from sketchstream.kinds.exports import read_csv
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.serve.http.api import Api
from sketchstream.serve.http.formats import FORMATS, flat
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.sealed import DirectorySealed

DOCUMENT = Api(None, None).document


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    publish(folder / "sealed")
    with serving(folder) as (service, client):
        yield folder, service, client


def read_directly(folder):
    """What the command line reads."""
    source = DirectorySealed(folder / "sealed")
    config = Config.load(folder / "sketchstream.toml", {})
    return PublishedWindows(config, SealedReader(source, config.quality_rule), source)


def span(number, width=MINUTE):
    return {"from": iso(EPOCH + number * width), "to": iso(EPOCH + (number + 1) * width)}


def test_answers_are_the_command_lines_byte_for_byte(site):
    folder, _, client = site
    direct = read_directly(folder)
    for window in direct.every("minutes", None, None):
        found = client.get(
            "/v1/sketches/minutes/profile", params={"from": iso(window.window[0]), "to": iso(window.window[1])}
        )
        answer = direct.answer(window)
        assert found.status_code == 200
        assert found.content.decode() == answer.to_json()
        table = client.get(
            "/v1/sketches/minutes/profile",
            params={"from": iso(window.window[0]), "to": iso(window.window[1]), "format": "csv"},
        )
        assert table.text == answer.to_csv()


def test_another_method_is_computed_when_asked_for_and_kept(site):
    folder, service, client = site
    direct = read_directly(folder)
    window = direct.only_window("minutes", EPOCH, EPOCH + MINUTE)
    given = {**span(0), "method": "inverse", "max_count": "3"}
    found = client.get("/v1/sketches/minutes/profile", params=given)
    wanted = direct.answer(window, lambda published: published.profile(method="inverse", max_count=3))
    assert found.content.decode() == wanted.to_json()
    before = service.pool.computed
    again = client.get("/v1/sketches/minutes/profile", params=given)
    assert again.content == found.content
    assert service.pool.computed == before


def test_windows_come_in_pages_of_all_windows(site):
    folder, _, client = site
    wanted = [iso(window.window[0]) for window in read_directly(folder).every("minutes", None, None)]
    for order in ("asc", "desc"):
        seen, cursor = [], {}
        while True:
            page = client.get("/v1/sketches/minutes/windows", params={"limit": 2, "order": order, **cursor}).json()
            assert len(page["windows"]) <= 2
            seen += [one["window_start"] for one in page["windows"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert seen == (wanted if order == "asc" else wanted[::-1])


def test_a_series_has_the_numbers_of_the_answers(site):
    folder, _, client = site
    direct = read_directly(folder)
    answers = [json.loads(direct.answer(window).to_json()) for window in direct.every("minutes", None, None)]
    for metric, path in (
        ("distinct", ("distinct",)),
        ("at_least.2", ("at_least", "2")),
        ("at_least.7", ("at_least", "7")),
        ("exactly.1", ("exactly", "1")),
        ("quantile.0.9", ("quantiles", "0.9")),
    ):
        for start in range(len(answers)):  # each is there as soon as it was asked for
            client.get("/v1/sketches/minutes/profile", params=span(start))
        found = client.get("/v1/sketches/minutes/series", params={"metric": metric}).json()
        assert found["pending"] == 0
        wanted = answers
        for name in path:
            wanted = [one[name] for one in wanted]
        assert [{name: one[name] for name in ("value", "low", "high")} for one in found["points"]] == wanted


def test_a_plus_sign_of_an_offset_need_not_be_encoded(site):
    _, _, client = site
    expected = client.get("/v1/sketches/minutes/profile", params=span(0)).content
    start, end = (iso(EPOCH + (60 + n) * MINUTE).replace("Z", "+01:00") for n in (0, 1))
    for address in ("/v1/sketches/minutes/profile", "/sketches/minutes/window", "/sketches/minutes"):
        for first, last in ((start, end), (start.replace("+", "%2B"), end.replace("+01:00", "+0100"))):
            found = client.get(f"{address}?from={first}&to={last}")
            assert found.status_code == 200, found.text
            assert "/v1/" not in address or found.content == expected
    for wrong in ("2024-03-26+00:00", "2024-03-26T00:00:00+1", "2024-03-26T00:00:00"):
        found = client.get(f"/v1/sketches/minutes/profile?from={wrong}")
        assert found.status_code == 400
        assert repr(wrong.replace("+", " "))[:20] in found.json()["detail"]


def test_a_range_of_several_windows_is_refused_with_what_to_do(site):
    _, _, client = site
    found = client.get("/v1/sketches/minutes/profile", params={"from": iso(EPOCH), "to": iso(EPOCH + 60 * MINUTE)})
    assert found.status_code == 400
    assert found.headers["content-type"] == "application/problem+json"
    assert "series" in found.json()["detail"]
    assert "Sketch hours has windows of 1h in that range" in found.json()["detail"]
    short = client.get("/v1/sketches/minutes/profile", params={"from": iso(EPOCH), "to": iso(EPOCH + 2 * MINUTE)})
    assert 'add a sketch with window = "2m"' in short.json()["detail"]


def test_a_difference_is_that_of_the_two_answers(site):
    _, _, client = site
    against = {f"against_{name}": value for name, value in span(1).items()}
    found = client.get("/v1/sketches/minutes/difference", params={**span(0), **against}).json()
    first, second = (client.get("/v1/sketches/minutes/profile", params=span(n)).json() for n in (0, 1))
    assert found["difference"]["value"] == first["distinct"]["value"] - second["distinct"]["value"]
    assert found["difference"]["low"] <= found["difference"]["value"] <= found["difference"]["high"]
    same = {f"against_{name}": value for name, value in span(0).items()}
    assert client.get("/v1/sketches/minutes/difference", params={**span(0), **same}).status_code == 400


def test_the_ledger_is_the_command_lines(site):
    folder, _, client = site
    wanted = read_directly(folder).deployment()
    found = client.get("/v1/ledger").json()
    rows = found.pop("sketches")
    assert found == orjson.loads(orjson.dumps(wanted.summary()))
    assert [list(row.values()) for row in rows] == [list(row.values()) for row in wanted.rows()]


def test_an_answer_that_the_client_has_is_not_sent_again(site):
    _, _, client = site
    found = client.get("/v1/sketches/minutes/profile", params=span(0))
    again = client.get("/v1/sketches/minutes/profile", params=span(0), headers={"If-None-Match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/v1/sketches/minutes/profile", params=span(0) | {"format": "csv"})
    assert other.headers["etag"] != found.headers["etag"]


def test_arrow_has_the_table_of_csv(site):
    pa = pytest.importorskip("pyarrow")
    _, _, client = site
    table = pa.ipc.open_stream(
        client.get("/v1/sketches/minutes/profile", params=span(0) | {"format": "arrow"}).content
    ).read_all()
    lines = client.get("/v1/sketches/minutes/profile", params=span(0) | {"format": "csv"}).text.splitlines()
    assert table.column_names == lines[0].split(",")
    assert table.num_rows == len(lines) - 1
    assert [repr(float(x)) for x in table.column("items").to_pylist()] == [line.split(",")[4] for line in lines[1:]]


def test_gzip_is_the_same_answer_smaller(site):
    _, _, client = site
    plain = client.get("/v1/sketches/minutes/profile", params=span(0), headers={"Accept-Encoding": "identity"})
    small = client.get("/v1/sketches/minutes/profile", params=span(0), headers={"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == plain.content
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"])


@pytest.mark.parametrize("metric", ["above", "coverage", "exactly.2", "quantile.0.9"])
def test_numbers_of_profiles_are_known_before_the_first_answer(tmp_path, metric):
    publish(tmp_path / "sealed", minutes=2)
    with serving(tmp_path, processes=0) as (_, client):
        series = client.get("/v1/sketches/minutes/series", params={"metric": metric})
        assert {one["answer"] for one in series.json()["points"]} == {"pending"}
        wrong = client.get("/v1/sketches/minutes/series", params={"metric": f"{metric[1:]}"})
        assert wrong.status_code == 422
        assert "they have distinct, exactly.1" in wrong.json()["detail"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/sketches/nobody", 404),
        ("/v1/sketches/minutes/profile?from=1999-01-01T00:00Z&to=1999-01-02T00:00Z", 404),
        ("/v1/sketches/minutes/profile?from=yesterday", 400),
        ("/v1/sketches/minutes/profile?method=guess", 400),
        ("/v1/sketches/minutes/profile?wrong=1", 400),
        ("/v1/sketches/minutes/estimate", 400),
        ("/v1/sketches/minutes/windows?limit=0", 400),
        ("/v1/sketches/minutes/windows?limit=1&limit=2", 400),
        ("/v1/sketches/minutes/windows?cursor=x", 400),
        ("/v1/sketches/minutes/series?metric=__class__.x", 400),
        ("/v1/sketches/minutes/series?metric=nonsense", 422),
        ("/v1/sketches/minutes/series?metric=at_most.2", 422),
        ("/v1/sketches/minutes/difference", 400),
        ("/v1/nothing", 404),
    ],
)
def test_what_cannot_be_answered_says_why(site, path, code):
    _, _, client = site
    found = client.get(path)
    assert found.status_code == code
    assert found.json()["status"] == code
    assert found.json()["detail"]


def test_a_group_has_answers_of_its_own(tmp_path):
    (tmp_path / "groups").write_text("spring\nautumn\n")
    text = TEXT.replace('name = "minutes"', f'name = "minutes"\ngroup_by = "c"\ngroups = "{tmp_path / "groups"}"')
    driver = Driver(Config.parse(text), partitions=1, now=EPOCH)
    for item in range(20):
        driver.send({"user": item, "ts": EPOCH + item, "c": "spring" if item % 3 else "autumn"}, timestamp=EPOCH + item)
    driver.run()
    driver.send({"user": 1, "ts": EPOCH + 90 * MINUTE, "c": "spring"}, timestamp=EPOCH + 90 * MINUTE)
    driver.run()
    driver.snapshot()
    write(driver, tmp_path / "sealed")
    with serving(tmp_path, text) as (_, client):
        assert client.get("/v1/sketches/minutes").json()["groups"] == ["spring", "autumn"]
        assert client.get("/v1/sketches/minutes/windows").json()["windows"][0]["answer"] == "on_request"
        assert client.get("/v1/sketches/minutes/profile", params=span(0)).status_code == 400
        assert client.get("/v1/sketches/hours/series", params={"group": "spring"}).status_code == 400
        direct = read_directly(tmp_path)
        window = direct.only_window("minutes", EPOCH, EPOCH + MINUTE)
        for group in ("spring", "autumn"):
            given = {**span(0), "group": group}
            found = client.get("/v1/sketches/minutes/profile", params=given)
            assert found.json() == json.loads(direct.answer(window.of_group(group)).to_json())
            assert (
                client.get("/v1/sketches/minutes/profile", params={**span(0), "group": group}).content == found.content
            )
        for _ in range(200):
            series = client.get("/v1/sketches/minutes/series", params={"group": "autumn"}).json()
            if not series["pending"]:
                break
            time.sleep(0.05)
        assert series["points"][0]["value"] == found.json()["distinct"]["value"]


@pytest.mark.parametrize(
    "path", [path for path, one in DOCUMENT["paths"].items() if path.startswith("/v1") and "get" in one]
)
def test_every_path_takes_its_formats(site, path):
    _, _, client = site
    listed = {one["name"]: one["schema"] for one in DOCUMENT["paths"][path]["get"].get("parameters", [])}
    if path.endswith(".parquet"):
        return
    forms = listed["format"].get("enum") or [listed["format"]["const"]]
    assert forms == (["json"] if path.endswith(("{name}", "difference", "tables", "status")) else list(FORMATS))
    address = path.replace("{name}", "minutes")
    against = {f"against_{name}": text for name, text in span(1).items()}
    given = {**(span(0) if "from" in listed else {}), **(against if "against_from" in listed else {})}
    whole = client.get(address, params=given | {"format": "json"})
    if whole.status_code == 400:  # of another kind, or without groups
        assert "format" not in whole.text
        return
    assert whole.content == client.get(address, params=given).content
    for form in forms[1:]:
        found = client.get(address, params=given | {"format": form})
        assert found.status_code == 200, found.text
        assert found.headers["content-type"] == FORMATS[form]


def test_lists_as_tables_have_the_rows_of_the_json(site):
    _, _, client = site
    for path in ("/v1/sketches", "/v1/ledger"):
        rows = client.get(path).json()["sketches"]
        table = read_csv(client.get(path, params={"format": "csv"}).text)
        assert [one.get("name", one.get("sketch")) for one in table] == [
            one.get("name", one.get("sketch")) for one in rows
        ]
        parquet = pq.read_table(io.BytesIO(client.get(path, params={"format": "parquet"}).content))
        assert parquet.column_names == list(table[0])
        found = [flat(row) for row in rows]
        for name in {"windows", "all_windows", "summary", "counts_windows", "configured"} & set(table[0]):
            assert parquet.column(name).to_pylist() == [row[name] for row in found]


def test_a_range_that_ends_before_it_begins_is_refused(site):
    _, _, client = site
    (start, end), (first, last) = span(0).values(), span(1).values()
    turned, empty = {"from": last, "to": start}, {"from": start, "to": start}
    paths = [path for path, one in DOCUMENT["paths"].items() if '"from"' in json.dumps(one.get("get", {}))]
    assert len(paths) > 6
    pages = ("/sketches/{name}", "/sketches/{name}/window", "/sketches/{name}/over-time/series.svg")
    for path in (*paths, *pages):
        address = path.replace("{name}", "minutes").replace("{table}", "windows")
        for given in (turned, empty):
            found = client.get(address, params=given | {"against_from": start, "against_to": last})
            assert found.status_code == 400, path
            told = f"from must be before to, found {given['from']} and {given['to']}: exchange them"
            assert told in found.text.replace("From", "from"), path
    against = {"from": start, "to": end, "against_from": last, "against_to": first}
    found = client.get("/v1/sketches/minutes/difference", params=against)
    assert found.status_code == 400
    assert "against_from must be before against_to" in found.json()["detail"]
    form = client.post("/v1/sketches/minutes/estimate", data=turned)
    assert "from must be before to" in form.json()["detail"]
    days = client.get("/sketches/minutes", params={"from": "2026-01-02", "to": "2026-01-01"})
    assert days.status_code == 400
    assert "From must be before to, found 2026-01-02 and 2026-01-01" in days.text


def test_a_title_is_one_for_every_error_of_a_type(site):
    _, _, client = site
    titles = {
        client.get(path).json()["title"] for path in ("/v1/none", "/v1/sketches/none", "/v1/sketches/none/windows")
    }
    assert titles == {"Not found"}


def test_a_sketch_without_closed_positions_says_so(site):
    _, _, client = site
    found = client.get("/v1/sketches/minutes/closed")
    assert found.status_code == 400
    assert "needs publish = 'closed'" in found.json()["detail"]
    assert "/v1/sketches/minutes/profile" in found.json()["detail"]
