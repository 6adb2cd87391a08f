"""What groups have in common over HTTP: the numbers of the command line, in every format, and what is refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from helpers.json_schema import faults
from helpers.pages import settle
from helpers.serving import serving
from sketchstream.serve import shapes

START = 1_356_998_400_000
HOUR = 3_600_000
ODD = 'a "b", $c'
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "overlap.schema.json").read_text())
PATH = "/v1/sketches/reach/overlap"
CONFIG = (
    EVENTS_FILE.replace('partitioned_by = "none"', 'partitioned_by = "item"')
    + "close_at_end = true"
    + SEALED_DIRECTORY
    + """[[sketch]]
name = "reach"
unit = "item"
window = "1h"
epsilon = "3"
domain = { size = 600 }
group_by = "campaign"
groups = ["spring", "a \\"b\\", $c", "brand"]
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
SETS = ["spring & brand", f"spring - '{ODD}'"]
REACHED = {"spring": range(400), ODD: range(300, 500), "brand": range(0, 600, 3)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    """Two hours of three campaigns; the client of a service, and what the command line prints of them."""
    folder: Path = tmp_path_factory.mktemp("overlap")
    records = [
        {"ts": START + hour * HOUR + user, "user": user, "campaign": campaign}
        for hour in range(2)
        for campaign, users in REACHED.items()
        for user in users
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "sketchstream.toml").write_text(CONFIG)

    def said(*words: str) -> list[dict]:
        command = [sys.executable, "-m", "sketchstream.cli", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    said("worker", "-c", "sketchstream.toml")
    ask = ("overlap", "-c", "sketchstream.toml", "--sketch", "reach", "--all", "--format", "json")
    usual, asked = said(*ask), said(*ask, "--query", SETS[0], "--query", SETS[1])
    with serving(folder, CONFIG) as (service, client):
        settle(service)
        yield client, usual, asked


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
        ("/v1/sketches/plain/overlap", {}, 400, "that needs overlap = true; sketches that have it: reach"),
    ],
)
def test_what_is_no_set_of_groups_is_refused(site, path: str, more: dict, code: int, says: str) -> None:
    client, usual, _ = site
    found = client.get(path, params={**of(usual[0]), **more})
    assert found.status_code == code, found.text
    assert says in found.json()["detail"]
