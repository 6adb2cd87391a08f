"""Who may ask, what the request log says, hostile requests, and what leaks: nothing."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import string
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from helpers.serving import MINUTE, TEXT, publish, serving, write_tokens
from helpers.streams import EPOCH
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.key import Key
from sketchstream.serve import status
from sketchstream.serve.app import create
from sketchstream.serve.clients.access import Access, read_tokens
from sketchstream.serve.clients.clients import Guesses
from sketchstream.serve.settings import ServeSettings
from sketchstream.stream.windows.calendar import iso

ALL, SOME = "all-of-the-sketches", "only-the-minutes-please"
TOKENS = f"""
[[token]]
name = "ops"
token = "{ALL}"
sketches = "*"

[[token]]
name = "team"
sha256 = "{hashlib.sha256(SOME.encode()).hexdigest()}"
sketches = ["minutes"]
"""
MARK = "LEAK7314MARK"
PARAMETERS = (
    "from",
    "to",
    "group",
    "metric",
    "method",
    "format",
    "cursor",
    "order",
    "limit",
    "top",
    "sum",
    "item",
    "next",
)
HEADERS = ("Accept", "Authorization", "Cookie", "If-None-Match", "Referer", "User-Agent", "X-Forwarded-For")


def estimates(folder, items):
    """A configuration of two sketches over a list of items, one of which gives estimates."""
    (folder / "items").write_text("".join(f"{item}\n" for item in items))
    Key.generate().save(folder / "key")
    listed = f'domain = {{ items_file = "{folder / "items"}" }}'
    text = TEXT.replace('item_type = "int"', 'item_type = "text"').replace("domain = { size = 40 }", listed)
    text = text.replace('window = "1m"', 'window = "1m"\nkind = "gaussian"\ndelta = "1e-6"')
    return f'{text}[key]\nfile = "{folder / "key"}"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("access")
    publish(made / "sealed", minutes=2, partitions=1)
    write_tokens(made, TOKENS)
    return made


def test_readiness_is_that_of_all_sketches_whoever_asks(folder, monkeypatch):
    access = Access(read_tokens(folder / "tokens", ["minutes", "hours"]), None)
    with serving(folder, access=access) as (service, client):
        monkeypatch.setattr(status, "behind_seconds", lambda service, name: {"minutes": 3.0, "hours": 90.0}[name])
        monkeypatch.setattr(status, "status", lambda service: {"seen": service.catalog.names()})
        assert "ready, 90 s behind" in client.get("/readyz").text
        for token, names in ((SOME, ["minutes"]), (ALL, ["minutes", "hours"])):
            seen = {"Authorization": f"Bearer {token}"}
            assert client.get("/v1/status", headers=seen).json()["seen"] == names
        assert "ready, 90 s behind" in client.get("/readyz").text
        assert service.catalog.names() == ["minutes", "hours"]


def test_a_token_sees_its_sketches_and_no_others(folder):
    access = Access(read_tokens(folder / "tokens", ["minutes", "hours"]), None)
    with serving(folder, access=access) as (_, client):
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
        for wrong in (
            {},
            {"Authorization": "Bearer nobody"},
            {"Authorization": f"Basic {ALL}"},
            {"Authorization": ALL},
        ):
            for path in ("/v1/sketches", "/v1/ledger", "/metrics", "/openapi.json", "/nowhere"):
                access.guesses = Guesses()
                assert client.get(path, headers=wrong).status_code == 401
        seen = {"Authorization": f"Bearer {SOME}"}
        assert [one["name"] for one in client.get("/v1/sketches", headers=seen).json()["sketches"]] == ["minutes"]
        for rest in ("", "/windows", "/profile", "/estimate", "/series", "/difference"):
            hidden = client.get(f"/v1/sketches/hours{rest}", headers=seen)
            unknown = client.get(f"/v1/sketches/nobody{rest}", headers=seen)
            assert (hidden.status_code, hidden.content) == (unknown.status_code, unknown.content)
            assert hidden.status_code == 404
        for path in ("/v1/ledger", "/v1/status", "/v1/incidents", "/metrics"):
            assert "hours" not in client.get(path, headers=seen).text
        whole = {"Authorization": f"bearer {ALL}"}
        assert len(client.get("/v1/sketches", headers=whole).json()["sketches"]) == 2


def test_without_tokens_only_names_of_this_machine_are_answered(folder):
    with serving(folder, processes=0) as (_, client):
        assert client.get("/v1/sketches", headers={"Host": "localhost:1"}).status_code == 200
        assert client.get("/v1/sketches", headers={"Host": "[::1]:8400"}).status_code == 200
        assert client.get("/v1/sketches", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/v1/sketches", headers={"Host": "localhost.evil.example"}).status_code == 421


@pytest.mark.parametrize("text", ["", "[[token]]\nname='a'", "x = 1", TOKENS.replace("minutes", "other"), "[["])
def test_tokens_that_cannot_be_read_say_so_without_showing_any(tmp_path, text):
    write_tokens(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_tokens(tmp_path / "tokens", ["minutes"])
    assert ALL not in str(caught.value)


def test_other_machines_need_tokens(tmp_path):
    path = tmp_path / "sketchstream.toml"
    path.write_text(TEXT + '[serve]\naddress = "0.0.0.0:8400"\n')
    with pytest.raises(ConfigError, match=r"serve\.tokens"):
        ServeSettings.from_config(Config.load(path, {}))
    write_tokens(tmp_path, TOKENS)
    path.write_text(TEXT + '[serve]\naddress = "0.0.0.0:8400"\ntokens = "tokens"\n')
    found = ServeSettings.from_config(Config.load(path, {}))
    assert found.access.hosts is None
    assert len(found.access.tokens) == 2


def resident_mib():
    """Memory of this process, in which the service runs."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def attack(folder, requests):
    """Hostile requests; what the service's memory grew by in the second half of them, MiB."""
    random_ = random.Random(20260101)
    half = 0.0
    words = [
        "v1",
        "sketches",
        "minutes",
        "profile",
        "windows",
        "series",
        "estimate",
        "..",
        "%2e%2e",
        "%00",
        "\\",
        "é",
        "",
    ]
    letters = string.printable.strip() + "\x7f€☃"

    def word():
        return "".join(random_.choice(letters) for _ in range(random_.randrange(12)))

    def value():
        usual = [
            iso(EPOCH),
            iso(EPOCH + MINUTE),
            "-1",
            "1e400",
            "9" * 400,
            "NaN",
            "0001-01-01T00:00+14:00",
            "\x00",
            word(),
        ]
        return random_.choice(
            [*usual, "9999-12-31T23:59:59-14:00", "at_least.1", "quantile.0.5", "distinct", "_1", "1_2"]
        )

    names = [
        "from",
        "to",
        "metric",
        "method",
        "limit",
        "cursor",
        "order",
        "format",
        "max_count",
        "item",
        "top",
        "sum",
        word(),
    ]
    with serving(folder) as (service, client):
        seen = set()
        for number in range(requests):
            if number == requests // 2:
                half = resident_mib()
            path = "/" + "/".join(random_.choice([*words, word()]) for _ in range(random_.randrange(6)))
            if random_.random() < 0.7:
                path = f"/v1/sketches/minutes/{random_.choice(words[3:7])}"
            query = [(random_.choice(names), value()) for _ in range(random_.randrange(4))]
            path = quote(path, safe="/%.\\")
            headers = {
                random_.choice(["Accept", "If-None-Match", "Accept-Encoding", "X-Odd"]): word()
                .encode("latin-1", "ignore")
                .strip()
            }
            method = random_.choice(["GET", "GET", "GET", "POST", "HEAD", "PUT", "OPTIONS"])
            body = word().encode() if method in ("POST", "PUT") else None
            if method == "POST" and random_.random() < 0.7:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                body = random_.choice([body, b"item=%ff", b"item=1&" * 50, b"from=x", b"&&=&", b"item=" + b"a" * 5000])
            try:
                request = client.build_request(
                    method,
                    httpx.URL(str(client.base_url)).copy_with(raw_path=path.encode()),
                    params=query,
                    headers=headers,
                    content=body,
                )
                found = client.send(request)
            except (httpx.InvalidURL, httpx.LocalProtocolError):  # the client itself refuses it
                continue
            seen.add(found.status_code)
            assert found.status_code != 500, (method, path, query)
            if found.status_code >= 400 and method != "HEAD":
                assert found.headers["content-type"].startswith(("application/problem+json", "text/plain", "text/html"))
        assert {200, 400, 404, 405} <= seen
        assert (
            client.post(
                "/v1/sketches/minutes/estimate",
                content=b"a" * (2 << 20),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            ).status_code
            == 413
        )
        (kept,) = service.store._rows("SELECT count(*) FROM answers")[0]
        assert kept < 200
        assert client.get("/v1/sketches").status_code == 200
        return resident_mib() - half


def test_no_hostile_request_breaks_it(folder):
    attack(folder, 800)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_hostile_requests_break_nothing_and_leave_nothing(folder):
    assert attack(folder, 100_000) < 64


def test_no_item_reaches_a_log_an_error_or_the_database(tmp_path, caplog):
    text = estimates(tmp_path, [*range(39), MARK])
    publish(tmp_path / "sealed", text, minutes=2, partitions=1, items=[MARK, *range(10)])
    caplog.set_level(logging.DEBUG)
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    with serving(tmp_path, text) as (_, client):
        found = client.post("/v1/sketches/minutes/estimate", data={**span, "item": [MARK, "3"]})
        assert found.status_code == 200
        assert [one["what"] for one in found.json()["answers"]] == [MARK, "3"]  # the answer to who asked
        assert found.headers["cache-control"] == "no-store"
        assert "etag" not in found.headers
        for answer in (
            client.post("/v1/sketches/minutes/estimate", data={**span, "item": [f"{MARK}x"]}),
            client.post("/v1/sketches/minutes/estimate", data={**span, "row": [MARK], "other": [MARK]}),
            client.post("/v1/sketches/minutes/estimate", data={**span, "nearest": MARK}),
            client.post("/v1/sketches/hours/profile", data={"item": MARK}),
            client.get("/v1/sketches/minutes/estimate", params={**span, "item": MARK}),
            client.get(f"/v1/sketches/{MARK}"),
            client.get(f"/v1/{MARK}"),
        ):
            assert 400 <= answer.status_code < 500
            assert MARK not in answer.text
        for path in (
            "/v1/sketches",
            "/v1/sketches/minutes",
            "/v1/sketches/minutes/windows",
            "/v1/sketches/hours/windows",
            "/v1/sketches/hours/profile",
            "/v1/sketches/hours/series",
            "/v1/ledger",
            "/v1/incidents",
            "/v1/status",
            "/metrics",
            "/readyz",
            "/healthz",
            "/openapi.json",
        ):
            answer = client.get(path, params={"format": "json"} if path.endswith("windows") else None)
            assert answer.status_code == 200, path
            assert MARK not in answer.text
        client.get("/v1/sketches/hours/series", params={"metric": MARK})
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("event=request" in line for line in ours)
    assert MARK not in "\n".join(ours)


SECRET = "secret7314item"
"""An item of the list, which only answers may name; `MARK` is one that nobody has listed."""


@pytest.mark.statistics
def test_no_route_puts_what_it_is_asked_into_a_log_an_error_or_the_database(tmp_path, caplog):
    """Every route there is, with the mark in every place of a request."""
    text = estimates(tmp_path, [*range(39), SECRET])
    publish(tmp_path / "sealed", text, minutes=2, partitions=1, items=[SECRET, *range(10)])
    caplog.set_level(logging.DEBUG)
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    with serving(tmp_path, text) as (service, client):
        paths = sorted({route.path for route in create(service).routes})
        assert len(paths) > 20
        asked = 0
        for path in paths:
            for name in ("minutes", MARK):
                where = path.format_map(defaultdict(lambda: MARK, name=name, picture="reach", form="svg"))
                given = [{}, span, {**span, "item": SECRET}, *({**span, key: MARK} for key in [*PARAMETERS, MARK])]
                requests = [client.build_request("GET", where, params=params) for params in given]
                requests += [
                    client.build_request("POST", where, data={**span, "item": item, "next": MARK, "token": MARK})
                    for item in (SECRET, MARK)
                ]
                requests.append(client.build_request("GET", where, headers=dict.fromkeys(HEADERS, MARK)))
                requests.append(client.build_request(MARK, where))
                for request in requests:
                    found = client.send(request)
                    asked += 1
                    assert found.status_code < 500, request
                    if found.status_code >= 400:
                        assert SECRET not in found.text, request
                        # who mistypes a time is told what was found, in a page or a problem of his own
                        assert MARK not in found.text or MARK in str(request.url.params), request
        assert asked > 800
        assert SECRET in client.post("/v1/sketches/minutes/estimate", data={**span, "item": SECRET}).text
    ours = "\n".join(one.getMessage() for one in caplog.records if not one.name.startswith(("httpx", "httpcore")))
    assert ours.count("event=request") > asked
    assert MARK not in ours
    assert SECRET not in ours
    for file in tmp_path.glob("serve.sqlite*"):
        assert MARK.encode() not in file.read_bytes()  # answers that are kept name items of the list; no question does


def test_items_of_one_answer_are_not_kept(tmp_path):
    text = estimates(tmp_path, range(40))
    publish(tmp_path / "sealed", text, minutes=1, partitions=1)
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    with serving(tmp_path, text, processes=1) as (service, client):
        usual = client.get("/v1/sketches/minutes/estimate", params=span)
        assert usual.status_code == 200
        (before,) = service.store._rows("SELECT count(*) FROM answers")[0]
        one = client.post("/v1/sketches/minutes/estimate", data={**span, "item": "3"}).json()["answers"][0]
        (after,) = service.store._rows("SELECT count(*) FROM answers")[0]
        assert after == before
        top = client.get("/v1/sketches/minutes/estimate", params={**span, "top": "2", "sum": ":"})
        assert len(top.json()["answers"]) == 3
        assert one["what"] == "3"
        csv = client.get("/v1/sketches/minutes/estimate", params={**span, "top": "2", "format": "csv"}).text
        assert csv.splitlines()[0] == "what,rank,value,low,high"
