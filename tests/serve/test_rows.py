"""Questions about rows over HTTP: distances, products, norms, vectors, neighbours, drift; and who hears of them."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.configurations import EVENTS_TOPIC
from helpers.json_schema import faults
from helpers.paths import ROOT
from helpers.serving import EPOCH, HOUR, serving, write
from sketchstream import Key
from sketchstream.config.loader import Config
from sketchstream.kinds.exports import as_json
from sketchstream.kinds.presentation import rows_of
from sketchstream.serve.service import COMPARED_WINDOWS, Service
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "estimate.schema.json").read_text())
MARK = "LEAK9041MARK"
SHOPS = [f"shop {MARK}", "twin", "south", "west"]
GOODS = ["tea", f"salt {MARK}", "oil", "rice"]
HOURS = (
    {(0, 0): 900, (1, 0): 880, (2, 1): 700, (3, 2): 500},
    {(0, 0): 900, (1, 1): 880, (2, 1): 700, (3, 2): 500},
    {(0, 0): 900, (1, 1): 880, (2, 1): 700, (3, 3): 500},
)
BLOCK = """[[sketch]]
name = "shops"
kind = "projection"
window = "1h"
epsilon = 8
delta = "1e-6"
row = "shop"
rows = {{ items_file = "{folder}/shops.txt" }}
domain = {{ items_file = "{folder}/goods.txt" }}
k = 256
matrix = "rademacher"
max_weight = 10

[[sketch]]
name = "flat"
unit = "event"
window = "1h"
epsilon = 2
domain = {{ items_file = "{folder}/goods.txt" }}
"""
PATH = "/v1/sketches/shops/estimate"
FIRST = {"from": iso(EPOCH), "to": iso(EPOCH + HOUR)}
ALL = {"from": iso(EPOCH), "to": iso(EPOCH + 3 * HOUR)}


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Service, httpx.Client]]:
    """A service over three hours of four shops."""
    (folder / "shops.txt").write_text("\n".join(SHOPS) + "\n")
    (folder / "goods.txt").write_text("\n".join(GOODS) + "\n")
    Key.generate().save(folder / "key")
    text = EVENTS_TOPIC.replace('item_type = "int"', 'item_type = "text"\nweight = "w"')
    text += f'[key]\nfile = "{folder / "key"}"\n' + BLOCK.format(folder=folder)
    driver = Driver(Config.parse(text), partitions=2, now=EPOCH + 6 * HOUR)
    for hour, counts in enumerate(HOURS):
        for (shop, good), number in counts.items():
            for part in range(number // 10 + 1):
                at = iso(EPOCH + hour * HOUR + 1000 * part)
                weight = min(10, number - 10 * part)
                driver.send({"user": GOODS[good], "shop": SHOPS[shop], "w": weight, "ts": at}, timestamp=at)
    for number in range(200):  # a single clock moves no watermark
        at = iso(EPOCH + 5 * HOUR + 10_000 * number)
        driver.send({"user": "tea", "shop": "twin", "w": 0, "ts": at}, timestamp=at, partition=number % 2)
    driver.run()
    driver.snapshot()
    write(driver, folder / "sealed")
    with serving(folder, text) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, httpx.Client]]:
    """One for all tests that read only."""
    with served(tmp_path_factory.mktemp("rows")) as found:
        yield found


def asked(client: httpx.Client, **form: Any) -> dict[str, Any]:
    """The answer to a form, which no cache keeps."""
    found = client.post(PATH, data=form)
    assert found.status_code == 200, found.text
    assert found.headers["cache-control"] == "no-store"
    assert "etag" not in found.headers
    out: dict[str, Any] = found.json()
    assert not faults(out, SCHEMA, SCHEMA)
    return out


def test_every_question_about_rows_is_that_of_the_window(site: tuple[Service, httpx.Client]) -> None:
    """The same numbers as the published window gives in Python, within its errors of the truth."""
    service, client = site
    from sketchstream.serve.reconstruction.reconstruct import published_in

    windows = published_in(service.store._write, service.config)
    window = windows.only_window("shops", EPOCH, EPOCH + HOUR)
    rows = windows.result(window).estimate(users=SHOPS, features=GOODS)
    both = {"row": [SHOPS[0], "south"], "other": ["twin", "west"]}
    for form, found, exact in (
        (both, rows.distance(both["row"], both["other"]), [20**2, 700**2 + 500**2]),
        ({**both, "quantity": "inner"}, rows.inner(both["row"], both["other"]), [900 * 880, 0]),
        ({"row": both["row"], "quantity": "sq_norm"}, rows.sq_norm(both["row"]), [900**2, 700**2]),
        (
            {"row": SHOPS, "quantity": "with_vector", "feature": ["tea", GOODS[1]], "weight": ["2", "-1.5e0"]},
            rows.with_vector(SHOPS, {"tea": 2, GOODS[1]: -1.5}),
            [1800, 1760, -1050, 0],
        ),
        (
            {"row": "twin", "quantity": "with_vector", "feature": "tea"},
            rows.feature(["twin"], "tea"),
            [880],
        ),
    ):
        answer = asked(client, **FIRST, **form)
        assert answer["question"] == form.get("quantity", "distance")
        assert [one["user"] for one in rows_of(answer)] == (
            [form["row"]] if isinstance(form["row"], str) else form["row"]
        )
        for at, row in enumerate(rows_of(answer)):
            wanted = json.loads(as_json(found.rows()[at]))
            assert {name: row[name] for name in wanted} == pytest.approx(wanted)
            assert abs(row["value"] - exact[at]) < 6 * row["stderr"]
        assert answer["complete"]
        assert answer["guarantee"]["unit"] == "event"
    near = asked(client, **FIRST, nearest=SHOPS[0], count="1")
    (row,) = rows_of(near)
    assert (row["user"], row["neighbour"], row["rank"]) == (SHOPS[0], "twin", 1)


def test_distances_among_the_first_rows_are_those_of_their_pairs(site: tuple[Service, httpx.Client]) -> None:
    _, client = site
    first = [(SHOPS[0], "twin"), (SHOPS[0], "south"), ("twin", "south")]
    wanted = asked(client, **FIRST, row=[one for one, _ in first], other=[one for _, one in first])
    found = client.get(PATH, params={**FIRST, "among": "3"})
    assert found.json() == wanted
    tag = found.headers["etag"]  # no row is named, so the answer is kept
    assert client.get(PATH, params={**FIRST, "among": "3"}, headers={"If-None-Match": tag}).status_code == 304
    assert len(client.get(PATH, params={**FIRST, "among": "100"}).json()["values"]) == 6
    for wrong in ({"among": "1"}, {"among": "101"}, {"among": "3", "top": "2"}):
        assert client.get(PATH, params={**FIRST, **wrong}).status_code == 400
    both = client.post(PATH, data={**FIRST, "among": "3", "nearest": "twin"})
    assert both.status_code == 400
    assert "one question about rows at a time" in both.json()["detail"]


def test_drift_goes_over_all_windows_of_the_range(site: tuple[Service, httpx.Client]) -> None:
    _, client = site
    answer = asked(client, **ALL, drift=["twin", "west"])
    assert answer["window_start"] == ALL["from"]
    assert answer["window_end"] == ALL["to"]
    assert answer["windows"] == 3
    assert answer["complete"]
    starts = [iso(EPOCH + hour * HOUR) for hour in range(3)]
    steps = [(row["user"], row["before"], row["after"]) for row in rows_of(answer)]
    assert steps == [(user, *starts[at : at + 2]) for user in ("twin", "west") for at in (0, 1)]
    for row, exact in zip(rows_of(answer), (2 * 880**2, 0, 0, 2 * 500**2), strict=True):
        assert abs(row["value"] - exact) < 6 * row["stderr"]
    table = client.post(PATH, data={**ALL, "drift": "west", "format": "csv"}).text.splitlines()
    assert table[0] == "user,before,after,value,stderr,low,high"
    assert len(table) == 3
    alone = client.post(PATH, data={**FIRST, "drift": "west"})
    assert alone.status_code == 400
    assert f"drift compares 2 to {COMPARED_WINDOWS} windows, the range holds 1" in alone.text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"row": MARK}, "row and other come in pairs, found 1 of row and 0 of other"),
        ({"row": MARK, "nearest": MARK}, "one question about rows at a time"),
        ({"nearest": MARK, "drift": MARK}, "one question about rows at a time"),
        ({"row": MARK, "other": MARK, "item": MARK}, "ask about rows, or about items"),
        ({"row": MARK, "other": MARK, "count": "3"}, "count belongs to nearest"),
        ({"other": MARK}, "belong to row"),
        ({"feature": MARK}, "belong to row"),
        ({"nearest": MARK, "quantity": "inner"}, "belong to row"),
        ({"row": MARK, "other": MARK, "quantity": "sq_norm"}, "other belongs to the quantities distance and inner"),
        ({"row": MARK, "quantity": "with_vector"}, "feature and quantity=with_vector go together"),
        ({"row": MARK, "quantity": "sq_norm", "feature": MARK}, "feature and quantity=with_vector go together"),
        (
            {"row": MARK, "quantity": "with_vector", "feature": [MARK, "tea"], "weight": "1"},
            "feature and weight come in pairs",
        ),
        ({"row": MARK, "quantity": "with_vector", "feature": MARK, "weight": MARK}, "each weight must be a number"),
        ({"row": MARK, "quantity": "with_vector", "feature": MARK, "weight": "nan"}, "each weight must be a number"),
        ({"row": MARK, "quantity": "angle"}, "quantity must be one of distance, inner, sq_norm, with_vector"),
        ({"row": "twin", "other": MARK}, "unknown one at position 0"),
        ({"row": MARK, "quantity": "sq_norm"}, "unknown one at position 0"),
        ({"row": "twin", "quantity": "with_vector", "feature": MARK}, "unknown one at position 0"),
        ({"row": "twin", "other": "twin", "quantity": "inner"}, "use sq_norm"),
    ],
)
def test_a_wrong_question_says_what_is_wrong_and_names_no_row(
    site: tuple[Service, httpx.Client], form: dict[str, Any], said: str
) -> None:
    _, client = site
    found = client.post(PATH, data={**FIRST, **form})
    assert found.status_code in (400, 422), found.text
    assert said in found.json()["detail"]
    assert MARK not in found.text


def test_rows_and_features_are_asked_for_in_forms_only_and_are_written_nowhere(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    with served(tmp_path) as (service, client):
        _ask_everything(client)
        (asked_for,) = service.store._rows("SELECT count(*) FROM answers WHERE special")[0]
        assert not asked_for
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("event=request" in line for line in ours)
    said = "\n".join(ours)
    assert MARK not in said
    assert "1234567" not in said
    assert "with_vector" not in said
    for path in (tmp_path / "sealed").rglob("*"):
        assert not path.is_file() or MARK.encode() not in path.read_bytes()


def _ask_everything(client: httpx.Client) -> None:
    """Marked rows and features in questions of every kind, right and wrong."""
    for name in ("row", "other", "nearest", "drift", "feature", "weight"):
        refused = client.get(PATH, params={**FIRST, name: MARK})
        assert refused.status_code == 400
        assert "POST form" in refused.text
        assert MARK not in refused.text
        unknown = client.post("/v1/sketches/flat/profile", data={name: MARK})
        assert MARK not in unknown.text
    marked = {"row": SHOPS[0], "quantity": "with_vector", "feature": GOODS[1], "weight": "1234567"}
    assert MARK in client.post(PATH, data={**FIRST, **marked}).text  # the answer to who asked
    assert MARK in client.post(PATH, data={**ALL, "drift": SHOPS[0]}).text
    assert MARK in client.post(PATH, data={**FIRST, "nearest": SHOPS[0]}).text
    for path in ("/metrics", "/v1/status", "/v1/sketches/shops", "/v1/ledger", "/openapi.json"):
        assert MARK not in client.get(path).text
