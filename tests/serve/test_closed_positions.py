"""Series whose positions are published when they close: stored, answered and accounted for before the seal."""

from __future__ import annotations

import shutil
import sqlite3

from helpers.configurations import CLOSED_MINUTES
from helpers.serving import MINUTE, serving, write
from sketchstream.privacy.deployment import Deployment
from sketchstream.published import Instalment, read
from sketchstream.query.closed import closed_windows
from sketchstream.serve.feed import Batch
from sketchstream.serve.ledgers import Ledgers
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.windows import iso
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.sealed import DirectorySealed

START = 1_704_067_200_000
"""2024-01-01T00:00Z."""
CLOSED = "/v1/sketches/minutes/closed"


def feed(driver, minutes):
    for minute in minutes:
        for partition in (0, 1):
            at = START + minute * MINUTE
            driver.send({"ts": at}, timestamp=at, partition=partition)
        driver.run()
        driver.snapshot()


def stored(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT start) FROM instalments").fetchone()


def accounted(service, folder, parts):
    """The ledger has one publication for each window and partition, sealed or not, as that of the command line has."""
    source = DirectorySealed(folder)
    published = [read(one.body) for one in source.read("minutes") if isinstance(one, SealedEntry)]
    places = {(one.origin.window, one.origin.partition) for one in published}
    for entry in source.closed("minutes"):
        if (entry.window, entry.partition) not in places:
            places.add((entry.window, entry.partition))
            published.append(Instalment.from_bytes(entry.body))
    assert len(places) == parts
    wanted = Deployment.of(published, keyed=service.config.checked or not service.config.from_kafka)
    assert service.deployment().summary() == wanted.summary()
    assert service.deployment().rows() == wanted.rows()
    near = Ledgers(service.store.connection()).overlapping((START, START + 60 * MINUTE), lambda _: 120 * MINUTE)
    assert {one.place for one in near} == {one.place for one in wanted.records if one.window[0] == START}


def test_closed_positions_are_answered_until_their_window_is_sealed(tmp_path):
    driver = Driver(CLOSED_MINUTES, partitions=2, now="2024-01-01T03:00:00Z")
    feed(driver, range(40))
    write(driver, tmp_path / "sealed")
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        (window,) = client.get(CLOSED).json()["windows"]
        assert (window["window_start"], window["closed"], window["complete"]) == (iso(START), 34, False)
        (early,) = closed_windows(DirectorySealed(tmp_path / "sealed"), "minutes")
        assert window["answers"][1]["values"] == early.estimate()["sum"].values.tolist()
        table = client.get(CLOSED, params={"format": "csv"}).text.splitlines()
        assert len(table) == 1 + 2 * 34
        assert table[1].startswith(f"{iso(START)},window:10,0,")
        assert client.get(CLOSED, params={"from": iso(START + 1)}).json() == {"sketch": "minutes", "windows": []}
        accounted(service, tmp_path / "sealed", parts=2)
        before = stored(tmp_path / "serve.sqlite")
        assert before[0] >= 2
        service.follower.step()
        assert stored(tmp_path / "serve.sqlite") == before, "nothing is stored twice"
        feed(driver, range(40, 100))
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        (window,) = client.get(CLOSED).json()["windows"]
        assert window["window_start"] == iso(START + 60 * MINUTE)
        accounted(service, tmp_path / "sealed", parts=4)
        assert stored(tmp_path / "serve.sqlite")[1] == 1, "the sealed hour needs its instalments no more"
        span = {"from": iso(START), "to": iso(START + 60 * MINUTE)}
        answer = client.get("/v1/sketches/minutes/estimate", params=span).json()
        assert len(answer["answers"][1]["values"]) == 60
    with serving(tmp_path, CLOSED_MINUTES) as (service, client):
        assert len(client.get(CLOSED).json()["windows"]) == 1
        assert stored(tmp_path / "serve.sqlite")[1] == 1


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
            service.store.take(Batch([entry]))
        found = client.get(CLOSED)
        assert found.status_code == 409
        assert "published twice" in found.json()["detail"]
