"""Tables as files: parts of them, tags, limits, and what a restricted token sees of them."""

from __future__ import annotations

import hashlib
import io
import re
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.requests import Request

from helpers.paths import ROOT
from helpers.serving import MINUTE, publish, serving
from helpers.streams import EPOCH
from sketchstream.kinds.exports import with_columns
from sketchstream.serve import service as service_module
from sketchstream.serve.clients.access import VIEWER, Access, Token
from sketchstream.serve.http import formats, tables
from sketchstream.stream.windows.calendar import iso

NUMBERS = "/v1/tables/minutes/numbers.parquet"
PROFILE = "/v1/sketches/minutes/profile"
FIRST = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    publish(folder / "sealed", minutes=2, partitions=1)
    with serving(folder) as (service, client):
        while service.store.pending():
            client.get(PROFILE, params=FIRST)
        yield service, client


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("bytes=0-3", slice(0, 4)),
        ("bytes=4-", slice(4, None)),
        ("bytes=-8", slice(-8, None)),
        ("bytes=0-999999999", slice(0, None)),
        ("bytes=-999999999", slice(0, None)),
        ("bytes=7-7", slice(7, 8)),
    ],
)
def test_a_part_of_a_file_is_that_part(site, wanted, part):
    _, client = site
    whole = client.get(NUMBERS)
    assert whole.status_code == 200
    assert whole.headers["Accept-Ranges"] == "bytes"
    found = client.get(NUMBERS, headers={"Range": wanted})
    assert found.status_code == 206
    assert found.content == whole.content[part]
    first = range(len(whole.content))[part][0]
    assert found.headers["Content-Range"] == f"bytes {first}-{first + len(found.content) - 1}/{len(whole.content)}"
    head = client.head(NUMBERS, headers={"Range": wanted})
    assert head.headers["Content-Length"] == str(len(found.content))


@pytest.mark.parametrize(
    "odd",
    [
        "bytes=-", "bytes=3-1", "bytes=0-1,4-5", "lines=0-1", "bytes=x-1", "bytes= 0-1", "bytes=٣-٤", "",
        "bytes=" + "9" * 50,
    ],
)  # fmt: skip
def test_what_is_no_range_gets_the_whole_file(site, odd):
    _, client = site
    whole = client.get(NUMBERS).content
    found = client.get(NUMBERS, headers={"Range": odd.encode()})
    assert (found.status_code, found.content) == (200, whole)


@pytest.mark.parametrize("beyond", ["bytes=999999999-", "bytes=999999999-1999999999", "bytes=-0"])
def test_a_range_behind_the_end_is_refused_with_the_size(site, beyond):
    _, client = site
    size = len(client.get(NUMBERS).content)
    found = client.get(NUMBERS, headers={"Range": beyond})
    assert found.status_code == 416
    assert found.headers["Content-Range"] == f"bytes */{size}"
    assert found.headers["Content-Type"] == "application/problem+json"


def test_a_part_of_another_file_is_never_given_for_one_of_this(site):
    _, client = site
    tag = client.get(NUMBERS).headers["ETag"]
    assert client.get(NUMBERS, headers={"Range": "bytes=0-3", "If-Range": tag}).status_code == 206
    for other in ('"0"', f"W/{tag}", "Wed, 25 Nov 2026 00:00:00 GMT"):
        assert client.get(NUMBERS, headers={"Range": "bytes=0-3", "If-Range": other}).status_code == 200
    assert client.get(NUMBERS, headers={"If-None-Match": tag}).status_code == 304


def test_a_file_is_made_once_and_again_only_when_something_was_stored(site, monkeypatch):
    service, client = site
    before = client.get(NUMBERS)
    made = []
    whole = tables.make
    monkeypatch.setattr(tables, "make", lambda *given: made.append(given) or whole(*given))
    assert client.get(NUMBERS).content == before.content
    assert not made
    service.store.generation += 1
    again = client.get(NUMBERS)
    assert len(made) == 1
    assert (again.content, again.headers["ETag"]) == (before.content, before.headers["ETag"])


def test_answers_are_remembered_by_what_may_be_seen_and_long_queries_are_not(site):
    _, client = site
    store = SimpleNamespace(generation=1)
    memory = formats.AnswerMemory(store)

    def asked(query, allowed, method="GET"):
        scope = {"type": "http", "method": method, "path": PROFILE, "query_string": query, "headers": []}
        VIEWER.set(allowed)
        return Request({**scope, "route": SimpleNamespace(path=PROFILE), "state": {"asked": ""}})

    memory.keep(asked(b"a", None), 1, '"all"', "json", b"all")
    memory.keep(asked(b"a", frozenset({"x"})), 1, '"x"', "json", b"x only")
    assert memory.recall(asked(b"a", None)).body == b"all"
    assert memory.recall(asked(b"a", frozenset({"x"}))).body == b"x only"
    assert memory.recall(asked(b"a", frozenset({"y"}))) is None
    assert memory.recall(asked(b"a", None, "POST")) is None
    long = b"a" * (formats.MAX_QUERY + 1)
    memory.keep(asked(long, None), 1, '"long"', "json", b"long")
    assert memory.recall(asked(long, None)) is None
    for number in range(formats.TAGS + 10):
        memory.learn(asked(str(number).encode(), None), 1, '"all"', "json")
    assert len(memory._known) == formats.TAGS
    memory.keep(asked(b"a", None), 1, '"all"', "json", b"all")
    store.generation = 2
    assert memory.recall(asked(b"a", None)) is None
    assert client.get(PROFILE, params=FIRST).headers["ETag"] == client.get(PROFILE, params=FIRST).headers["ETag"]


def test_ranges_of_too_many_windows_or_bytes_are_refused(site, monkeypatch):
    service, client = site
    service.store.generation += 1
    monkeypatch.setattr(service_module, "SERIES_LIMIT", 1)
    assert "narrow it" in client.get(NUMBERS).json()["detail"]
    monkeypatch.undo()
    monkeypatch.setattr(tables, "TOGETHER_BYTES", 10)
    assert "narrow it" in client.get("/v1/tables/minutes/answers.parquet").json()["detail"]
    assert client.get("/v1/tables/minutes/other.parquet").status_code == 400


def test_every_list_and_answer_has_a_parquet_file(site):
    _, client = site
    for path, given in (
        ("/v1/sketches/minutes/windows", {}),
        ("/v1/sketches/minutes/series", {}),
        (PROFILE, FIRST),
        ("/v1/incidents", {}),
    ):
        found = client.get(path, params={**given, "format": "parquet"})
        assert found.headers["Content-Type"] == "application/vnd.apache.parquet"
        assert "Content-Encoding" not in found.headers
        table = pq.read_table(io.BytesIO(found.content))
        text = client.get(path, params={**given, "format": "csv"}).text
        assert ",".join(table.column_names) == text.partition("\n")[0]
        assert table.num_rows == text.count("\n") - 1


def test_a_restricted_token_has_the_tables_of_its_sketches(tmp_path):
    publish(tmp_path / "sealed", minutes=1, partitions=1)
    secret = "correct-horse-battery"
    token = Token("some", hashlib.sha256(secret.encode()).digest(), frozenset({"minutes"}))
    with serving(tmp_path, processes=0, access=Access([token], None)) as (_, client):
        client.headers["Authorization"] = f"Bearer {secret}"
        listed = client.get("/v1/tables").json()["tables"]
        assert {one["sketch"] for one in listed} == {"minutes"}
        assert client.get(NUMBERS).status_code == 200
        hidden = client.get("/v1/tables/hours/numbers.parquet")
        nobody = client.get("/v1/tables/nobody/numbers.parquet")
        assert hidden.status_code == 404
        assert hidden.content == nobody.content


def test_a_column_of_a_cell_that_is_named_like_one_of_a_window_stays_apart():
    assert [tables._own_column(name) for name in ("group", "value", "complete")] == ["group_", "value", "complete_"]


def test_missing_columns_are_there_without_values_and_others_are_left_out():
    table = with_columns(pa.table({"b": [1.0], "other": ["x"]}), ("a", "b", "c"), {"b": "float64", "c": "time"})
    assert table.to_pylist() == [{"a": None, "b": 1.0, "c": None}]
    assert [str(one) for one in table.schema.types] == ["string", "double", "timestamp[ms, tz=UTC]"]


def test_every_extra_that_a_message_names_exists():
    project = (ROOT / "pyproject.toml").read_text()
    there = set(re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE))
    named = set()
    for folder in ("sketchstream", "connectors", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md"):
                for one in re.findall(r"sketchstream\[([\w,]+)\]", path.read_text()):
                    named |= set(one.split(","))
    assert {"arrow", "serve"} <= named <= there
