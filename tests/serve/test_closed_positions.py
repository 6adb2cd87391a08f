"""Series whose positions are published when they close: stored, answered and accounted for before the seal."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
import sqlite3
from html import unescape

import numpy as np
import pytest

from helpers.configurations import CLOSED_MINUTES
from helpers.pages import CLOSED_START as START
from helpers.pages import Parsed, send_minutes, settle
from helpers.serving import MINUTE, serving, write
from sketchstream.instalment import Instalment
from sketchstream.privacy.deployments.deployment import Deployment, Record
from sketchstream.published import read_published
from sketchstream.query.closed import closed_windows
from sketchstream.serve import service as serve_module
from sketchstream.serve.store.ledgers import Ledgers
from sketchstream.stream.feed import FeedBatch
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.published.evidence import noise_of_frontiers
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.sealed import DirectorySealed

CLOSED = "/v1/sketches/minutes/closed"
OFFLINE = (
    '[input]\nfile = "events.jsonl"\ntime = "ts"\nlateness = "5m"\n[output]\ndirectory = "sealed"\n'
    + CLOSED_MINUTES[CLOSED_MINUTES.index("[[sketch]]") :]
)
"""The same series, for commands without a broker."""


def stored(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT start) FROM instalments").fetchone()


def accounted(service, folder, parts):
    """The ledger has one publication for each window and partition, sealed or not, as that of the command line has."""
    source = DirectorySealed(folder)
    published = [read_published(one.body) for one in source.read("minutes") if isinstance(one, SealedEntry)]
    places = {(one.origin.window, one.origin.partition) for one in published}
    for entry in source.closed("minutes"):
        if (entry.window, entry.partition) not in places:
            places.add((entry.window, entry.partition))
            published.append(Instalment.from_bytes(entry.body))
    assert len(places) == parts
    evidence = noise_of_frontiers((one.sketch, one.evidence) for one in source.frontiers())
    keyed = service.config.checks_partitions or not service.config.from_kafka
    wanted = Deployment.from_records(map(Record.of, published), keyed=keyed, evidence=evidence)
    assert service.deployment().summary() == wanted.summary()
    assert service.deployment().rows() == wanted.rows()
    near = Ledgers(service.store._write).overlapping((START, START + 60 * MINUTE), lambda _: 120 * MINUTE)
    assert {one.place for one in near} == {one.place for one in wanted.records if one.window[0] == START}


def test_closed_positions_are_answered_until_their_window_is_sealed(tmp_path, monkeypatch):
    driver = Driver(CLOSED_MINUTES, partitions=2, now="2024-01-01T03:00:00Z")
    send_minutes(driver, range(40))
    write(driver, tmp_path / "sealed")
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        (window,) = client.get(CLOSED).json()["windows"]
        assert (window["window_start"], window["closed"], window["complete"]) == (iso(START), 34, False)
        (early,) = closed_windows(DirectorySealed(tmp_path / "sealed"), "minutes")
        assert window["values"] == early.estimate().values.tolist()
        table = client.get(CLOSED, params={"format": "csv"}).text.splitlines()
        assert len(table) == 1 + 2 * 34
        assert table[1].startswith(f"{iso(START)},window:10,0,")
        assert client.get(CLOSED, params={"from": iso(START + 1)}).json() == {"sketch": "minutes", "windows": []}
        with monkeypatch.context() as patched:
            patched.setattr("sketchstream.serve.service.closed_windows", None)
            again = client.get(CLOSED)
        assert again.json()["windows"] == [window], "computed once, while nothing more is published"
        accounted(service, tmp_path / "sealed", parts=2)
        before = stored(tmp_path / "serve.sqlite")
        assert before[0] >= 2
        service.follower.step()
        assert stored(tmp_path / "serve.sqlite") == before, "nothing is stored twice"
        send_minutes(driver, range(40, 100))
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        (window,) = client.get(CLOSED).json()["windows"]
        assert window["window_start"] == iso(START + 60 * MINUTE)
        accounted(service, tmp_path / "sealed", parts=4)
        assert stored(tmp_path / "serve.sqlite")[1] == 1, "the sealed hour needs its instalments no more"
        span = {"from": iso(START), "to": iso(START + 60 * MINUTE)}
        answer = client.get("/v1/sketches/minutes/estimate", params=span).json()
        assert [one["count"] for one in answer["filters"]] == [60, 60]
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        assert len(client.get(CLOSED).json()["windows"]) == 1
        assert stored(tmp_path / "serve.sqlite")[1] == 1


@pytest.mark.parametrize(("noise", "wider"), [("gaussian", math.sqrt(2)), ("counts", 1.0)])
def test_first_positions_are_completed_with_the_window_before(tmp_path, noise, wider):
    text = CLOSED_MINUTES + f'noise = "{noise}"\n'
    driver = Driver(text, partitions=2, now="2024-01-01T03:00:00Z")
    send_minutes(driver, range(100))
    write(driver, tmp_path / "sealed")
    with serving(tmp_path, text) as (service, client):
        settle(service)
        (early,) = client.get(CLOSED).json()["windows"]
        assert (early["window_start"], early["joined"]) == (iso(START + 60 * MINUTE), iso(START))
        (values, totals), (stderr, errors) = (np.array(early[name]).reshape(2, 34) for name in ("values", "stderr"))
        assert np.abs((values - 20) / stderr).max() < 6, "two events a minute, also across the hour"
        assert np.allclose(stderr[:9], wider * stderr[9])
        assert not any(early["partial"])
        assert np.abs((totals - 2 * np.arange(1, 35)) / errors).max() < 6
        page = client.get("/sketches/minutes").text
        assert "stand on a part of the filter" not in page
        assert "34 of 60 positions have closed" in page

        send_minutes(driver, range(100, 130))
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        settle(service)
        span = {"from": iso(START + 60 * MINUTE), "to": iso(START + 120 * MINUTE)}
        final = client.get("/v1/sketches/minutes/estimate", params=span).json()
        for name, limit in (("values", 1e-6), ("stderr", 0), ("intervals", 1e-6)):
            one, late = np.array(early[name]).reshape(2, 34, -1), np.array(final[name]).reshape(2, 60, -1)
            assert np.allclose(one, late[:, :34], rtol=0, atol=limit)


def lines(text):
    """Commands of a page by their titles."""
    found = re.findall(r'<pre tabindex="0" aria-label="([^"]+)"><code>(.*?)</code></pre>', text, re.DOTALL)
    return {name: unescape(unescape(line)) for name, line in found}


def test_the_page_shows_the_series_so_far_and_that_its_window_is_open(tmp_path, run, monkeypatch):
    driver = Driver(CLOSED_MINUTES, partitions=2, now="2024-01-01T03:00:00Z")
    send_minutes(driver, range(40))
    write(driver, tmp_path / "sealed")
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        (window,) = client.get(CLOSED).json()["windows"]
        found = client.get("/sketches/minutes")
        view = Parsed(found.text)
        assert "Still open: 2024-01-01 00:00 to 01:00" in view.said
        assert "This window is still open: 34 of 60 positions have closed." in view.said
        assert "window:10 so far, in a window that is still open" in view.said
        assert "At 2024-01-01 00:33, the last position that has closed" in view.said
        assert "9 values stand on a part of the filter only." in view.said
        shown = [
            end for value, ends in zip(window["values"], window["intervals"], strict=True) for end in (value, *ends)
        ]
        assert view.values == shown
        assert len(view.ids) == len(set(view.ids))
        asked = [link for link in view.links if "/open/" in link]
        assert len(asked) == 2 * 2
        for link in asked:
            picture = client.get(link)
            assert picture.status_code == 200
            assert picture.headers["content-type"].startswith("image/")
        assert b"still open" in client.get(asked[0]).content
        assert client.get(asked[0].replace("filter-0", "filter-9")).status_code == 404
        assert client.get("/sketches/minutes/open/filter-0.png").status_code == 404
        tables = [link for link in view.links if link.startswith(CLOSED) and "csv" in link]
        assert client.get(tables[0]).text.count("\n") == 1 + 2 * 34
        told = lines(found.text)
        (tmp_path / "sketchstream.toml").write_text(OFFLINE)
        command = run(*shlex.split(told["On the command line, the open window"])[1:])
        assert json.loads(command.out) == window
        address = shlex.split(told["With curl, the open window"])[1]
        assert client.get(address).json()["windows"] == [window]

        send_minutes(driver, range(40, 50))
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        assert "44 of 60 positions have closed" in client.get("/sketches/minutes").text, "nothing stale is shown"
        send_minutes(driver, range(50, 67))
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        settle(service)
        text = client.get("/sketches/minutes").text
        assert "00:00 to 01:00" in text
        assert "Still open: 2024-01-01 01:00 to 02:00" in text
        assert "Still open: 2024-01-01 00:00" not in text, "it has been sealed"


def test_too_many_products_are_said_on_the_page(tmp_path, monkeypatch):
    driver = Driver(CLOSED_MINUTES.replace('"sum"]', '"decay:0.9"]'), partitions=1, now="2024-01-01T03:00:00Z")
    for minute in range(40):
        driver.send({"ts": START + minute * MINUTE}, timestamp=START + minute * MINUTE)
    driver.run()
    driver.snapshot()
    write(driver, tmp_path / "sealed")
    monkeypatch.setattr(serve_module, "MAX_PRODUCTS", 30 * 34)
    with serving(tmp_path, CLOSED_MINUTES.replace('"sum"]', '"decay:0.9"]')) as (_, client):
        text = client.get("/sketches/minutes").text
        assert "so many positions are too many for one request" in text
        assert client.get(CLOSED).status_code == 400
        monkeypatch.setattr(serve_module, "MAX_PRODUCTS", 35 * 34)
        assert "34 of 60 positions have closed" in client.get("/sketches/minutes").text


def test_two_publications_of_one_position_are_an_incident(tmp_path):
    driver = Driver(CLOSED_MINUTES, partitions=1, now="2024-01-01T03:00:00Z")
    twin = Driver(CLOSED_MINUTES, partitions=1, now="2024-01-01T03:00:00Z")
    for one, folder in ((driver, "sealed"), (twin, "other")):
        for minute in range(30):
            at = START + minute * MINUTE
            one.send({"ts": at}, timestamp=at)
        one.run()
        one.snapshot()
        write(one, tmp_path / folder)
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        assert client.get(CLOSED).status_code == 200
        for entry in DirectorySealed(tmp_path / "other").closed("minutes"):
            service.store.take(FeedBatch([entry]))
        found = client.get(CLOSED)
        assert found.status_code == 409
        assert "published twice" in found.json()["detail"]
        text = client.get("/sketches/minutes").text
        assert "published twice" in text
        assert "positions have closed" not in text


@pytest.mark.parametrize("sealed", [False, True])
def test_instalments_of_a_copied_state_are_in_the_ledger(tmp_path, sealed):
    """A copy of the open state goes on by itself: what it shows differs from the window's instalments, or its seal."""
    text = CLOSED_MINUTES + 'noise = "counts"\n'
    driver = Driver(text, partitions=2, now="2024-01-01T03:00:00Z")
    send_minutes(driver, range(100))
    write(driver, tmp_path / "sealed")
    source = DirectorySealed(tmp_path / "sealed")
    start = START if sealed else START + 60 * MINUTE
    early = next(one for one in source.closed("minutes") if one.window[0] == start and one.positions[0] == 0)
    mine = Instalment.from_bytes(early.body)
    words = mine.words.copy()
    words[:3] += np.array([1, 2, 0])
    other = dataclasses.replace(mine, words=words, seal_id=bytes(range(16)))
    copy = dataclasses.replace(early, seal_id=other.seal_id, body=other.to_bytes())
    with serving(tmp_path, text) as (service, _):
        settle(service)
        assert service.deployment().summary()["copied"] == 0
        service.store.take(FeedBatch([copy]))
        found = service.deployment()
        assert found.summary()["copied"] == 1
        assert found.total().event == math.inf
    published = [read_published(one.body) for one in source.read("minutes") if isinstance(one, SealedEntry)]
    published += [Instalment.from_bytes(one.body) for one in source.closed("minutes")]
    assert Deployment.of(published).copied() == []
    assert len(Deployment.of([*published, other]).copied()) == 1
