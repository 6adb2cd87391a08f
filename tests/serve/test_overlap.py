"""What groups have in common over HTTP: the numbers of the command line, in every format, and what is refused."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import sketchstream as ss
from helpers.json_schema import faults
from helpers.pages import DAY, ODD, OVERLAPPING, Parsed, overlapping, settle, settled
from helpers.serving import serving
from sketchstream.cli import main
from sketchstream.serve.http import shapes

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "overlap.schema.json").read_text())
PATH = "/v1/sketches/reach/overlap"
SETS = ["spring & brand", f"spring - '{ODD}'"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    """Two hours of three campaigns; the client of a service, and what the command line prints of them."""
    folder: Path = tmp_path_factory.mktemp("overlap")

    def said(*words: str) -> list[dict]:
        command = [sys.executable, "-m", "sketchstream.cli", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    ask = ("overlap", "-c", "sketchstream.toml", "--sketch", "reach", "--all", "--format", "json")
    with overlapping(folder) as (_, _, client):
        yield client, said(*ask), said(*ask, "--query", SETS[0], "--query", SETS[1])


def of(window: dict) -> dict[str, str]:
    """The range of a window."""
    return {"from": window["window_start"], "to": window["window_end"]}


def test_answers_are_those_of_the_command_line(site) -> None:
    client, usual, asked = site
    assert len(usual) == 2
    for one, chosen in zip(usual, asked, strict=True):
        assert not [*faults(one, SCHEMA, SCHEMA), *faults(chosen, SCHEMA, SCHEMA)]
        found = client.get(PATH, params=of(one))
        assert found.json() == one
        shapes.Overlap.model_validate_json(found.content, strict=True)
        sets = {**of(one), "query": SETS}
        for _ in range(2):  # computed, and from the store
            assert client.get(PATH, params=sets).json() == chosen
        assert [row["query"] for row in chosen["answers"]] == sets["query"]
        both = chosen["answers"][0]
        assert abs(both["value"] - 134) < 5 * both["sd"]


def test_all_formats_hold_the_same_rows(site) -> None:
    client, usual, _ = site
    given = of(usual[0])
    rows = usual[0]["answers"]
    with pa.ipc.open_stream(client.get(PATH, params={**given, "format": "arrow"}).content) as stream:
        table = stream.read_all()
    assert table.to_pylist() == rows
    again = parquet.read_table(io.BytesIO(client.get(PATH, params={**given, "format": "parquet"}).content))
    assert again.to_pylist() == rows
    text = client.get(PATH, params={**given, "format": "csv"}).text
    assert text.splitlines()[0] == "query,value,low,high,sd"
    assert len(text.splitlines()) == 1 + len(rows)


def test_some_of_the_groups_can_be_combined(site) -> None:
    client, usual, _ = site
    found = client.get(PATH, params={**of(usual[0]), "groups": "brand, spring"}).json()
    assert found["groups"] == ["brand", "spring"]
    assert all(row["in"] in (["brand"], ["spring"], ["brand", "spring"]) for row in found["regions"])


def test_an_unchanged_answer_is_not_sent_twice(site) -> None:
    client, usual, _ = site
    first = client.get(PATH, params=of(usual[0]))
    again = client.get(PATH, params=of(usual[0]), headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    other = client.get(PATH, params={**of(usual[0]), "query": "spring"})
    assert other.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    ("path", "more", "code", "says"),
    [
        (PATH, {"query": "spring & sumer"}, 422, "no group 'sumer'"),
        (PATH, {"query": "spring &"}, 422, "at its end"),
        (PATH, {"query": "(" * 60 + "spring"}, 422, "at most 50 brackets"),
        (PATH, {"groups": "spring,nobody"}, 422, "no group 'nobody'"),
        (PATH, {"groups": "spring,spring"}, 422, "each once"),
        (PATH, {"groups": "spring", "query": "brand"}, 422, "no group 'brand'"),
        (PATH, {"group": "spring"}, 400, "unknown parameter 'group'; there are: "),
        (PATH, {"query": ["spring"] * 1001}, 400, "query"),
        (PATH, {"query": ""}, 422, "at its end"),
        (PATH, {"groups": ""}, 422, "no group ''"),
        (PATH, {"format": "eror"}, 400, "json, csv, arrow"),
        (PATH, {"from": "eror"}, 400, "from"),
        ("/v1/sketches/plain/overlap", {}, 400, "that needs overlap = true; sketches that have it: reach"),
    ],
)
def test_what_is_no_set_of_groups_is_refused(site, path: str, more: dict, code: int, says: str) -> None:
    client, usual, _ = site
    found = client.get(path, params={**of(usual[0]), **more})
    assert found.status_code == code, found.text
    assert says in found.json()["detail"]


def test_the_page_shows_regions_increments_and_the_set_that_is_asked_for(site) -> None:
    client, usual, asked = site
    given, address = of(usual[0]), "/sketches/reach/overlap"
    page = Parsed(settled(client, address, **given))
    shown_numbers = set(page.values)
    for row in [*usual[0]["regions"], *usual[0]["answers"], *(one["added"] for one in usual[0]["increments"])]:
        assert {row["value"], row["low"], row["high"]} <= shown_numbers
    text = settled(client, address, **given, query=SETS[0])
    assert "spring &amp; brand: " in text
    assert f"{round(asked[0]['answers'][0]['value']):,}"[:2] in text
    for form, kind in (("svg", "image/svg+xml"), ("png", "image/png")):
        picture = client.get(f"{address}/upset.{form}", params=given)
        assert picture.headers["content-type"].startswith(kind)
    assert "Items in exactly these groups" in text
    assert "<b>" not in text, "names of groups are escaped"
    window = client.get("/sketches/reach/window", params={**given, "group": "spring"}).text
    assert "What its groups have in common" in window
    assert "What its groups have in common" in client.get("/sketches/reach").text
    assert "What its groups have in common" not in client.get("/sketches/plain").text


def test_the_first_page_calls_groups_by_their_names_and_says_what_is_not_published(site) -> None:
    client = site[0]
    window = settled(client, "/")
    assert "<dt>In spring</dt>" in window
    assert "not published of this sketch" not in window
    assert "Items seen 3 times or more: not published of this sketch." in settled(client, "/", metric="at_least.3")


@pytest.mark.parametrize(
    ("given", "says"), [({"query": "spring & nobody"}, "no group"), ({"query": "&"}, "Expected the name of a group")]
)
def test_the_page_refuses_what_is_no_set(site, given: dict, says: str) -> None:
    client, usual, _ = site
    found = client.get("/sketches/reach/overlap", params={**of(usual[0]), **given})
    assert found.status_code == 400
    assert says in found.text
    assert client.get("/sketches/plain/overlap", params=of(usual[0])).status_code == 400


def test_a_question_without_an_answer_says_why_and_is_not_asked_again(tmp_path: Path) -> None:
    """Every slot is full, so nothing tells how many items there are."""
    names = [f"g{number}" for number in range(3)]
    text = OVERLAPPING[: OVERLAPPING.index('[[sketch]]\nname = "plain"')]
    text = re.sub(r"^groups = .*$", f"groups = {json.dumps(names)}", text, flags=re.MULTILINE).replace('"3"', '"1"')
    text = text.replace("domain = { size = 600 }", "domain = { slots = 256, levels = 1 }")
    text = f'[key]\nfile = "key"\n{text}'
    ss.Key.generate().save(tmp_path / "key")
    records = [{"ts": DAY + user, "user": user, "campaign": names[user % 3]} for user in range(12_000)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "sketchstream.toml").write_text(text)
    assert main(["worker", "-c", str(tmp_path / "sketchstream.toml")]) == 0  # here, where noise is the same in each run
    with serving(tmp_path, text) as (service, client):
        settle(service)
        page = settled(client, "/sketches/reach/overlap")
        assert "tells the groups" in page
        asked = service.pool.failed
        assert asked == 1
        assert "tells the groups" in settled(client, "/")
        assert client.get(PATH).status_code == 422
        assert service.pool.failed == asked, "nothing is computed again"
