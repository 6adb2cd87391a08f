"""The store: incidents, restarts, lost databases, retention, guarantees that follow what is published."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from fractions import Fraction

import orjson
import pytest

from helpers import pages
from helpers.serving import HOUR, MINUTE, TEXT, publish, serving, write
from helpers.streams import EPOCH
from helpers.workers import close_windows, send
from sketchstream.config.loader import Config
from sketchstream.errors import StoreError
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.published import read_published
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.serve.store.intake import _changed_evidence
from sketchstream.serve.store.ledgers import Ledgers
from sketchstream.serve.store.store import Store
from sketchstream.stream.feed import FeedBatch
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence, WindowNumbers
from sketchstream.stream.windows.calendar import iso
from sketchstream_connectors.files.sealed import DirectorySealed


def params(number):
    return {"from": iso(EPOCH + number * MINUTE), "to": iso(EPOCH + (number + 1) * MINUTE)}


def test_a_sketch_that_is_added_while_a_service_runs_has_all_its_numbers_after_a_restart(tmp_path):
    publish(tmp_path / "sealed", pages.MIXED, minutes=3)
    with serving(tmp_path) as (service, client):
        pages.settle(service)
        counts = client.get("/v1/sketches/counts").json()
        assert not counts["configured"]
        assert counts["counts"]["windows"] == 3
        assert "or it was added since, and a restart" in pages.Parsed(client.get("/sketches/counts").text).said
    with serving(tmp_path, pages.MIXED) as (service, client):
        pages.settle(service)
        points = client.get("/v1/sketches/counts/series").json()["points"]
        assert len(points) == 3
        assert None not in [one["value"] for one in points]


def test_windows_of_a_former_noise_are_judged_anew_when_their_numbers_change():
    """The first of two frontiers after a change of epsilon, and one that tells that a former window refused records."""
    now, window = EvidenceNoise(Fraction(1)), (EPOCH, EPOCH + MINUTE)

    def said(sequence, refused):
        former = PublishedEvidence(EvidenceNoise(Fraction(2)), windows={window: WindowNumbers(refused, sequence)})
        return Frontier("m", 0, 0, window[1], 1, sequence, evidence=PublishedEvidence(now, window[1], former=(former,)))

    assert _changed_evidence(said(1, 0), said(2, 5)) == [window]
    assert _changed_evidence(said(1, 0), said(1, 0)) == []


def test_old_windows_are_judged_anew_when_records_come_for_some_of_them(tmp_path):
    publish(tmp_path / "sealed", minutes=3)
    with serving(tmp_path) as (service, client):
        pages.settle(service)
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).json()["complete"] is True
        said = DirectorySealed(tmp_path / "sealed").frontiers("minutes")[0]
        older = replace(said.evidence, older=10**6, older_draws=1, windows={})
        newest = replace(said, sequence=said.sequence + 1, evidence=older)
        service.store.take(FeedBatch(frontiers=[newest]))
        service.follower.step()
        pages.settle(service)
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).json()["complete"] is None


def test_guarantees_follow_the_configuration(tmp_path):
    publish(tmp_path / "sealed", minutes=3)
    said = []
    for text in (TEXT, pages.MIXED):
        with serving(tmp_path, text) as (service, client):
            pages.settle(service)
            answer = client.get("/v1/sketches/minutes/profile", params=params(0)).json()
            source = DirectorySealed(tmp_path / "sealed")
            direct = PublishedWindows(service.config, SealedReader(source, service.config.quality_rule), source)
            window = direct.only_window("minutes", EPOCH, EPOCH + MINUTE)
            assert answer["guarantee"] == orjson.loads(direct.answer(window).to_json())["guarantee"]
            said.append(answer["guarantee"])
    assert said[0] != said[1]


def test_what_failed_is_tried_again_when_a_service_starts(tmp_path):
    publish(tmp_path / "sealed", minutes=3)
    with serving(tmp_path, processes=0) as (service, client):
        for stored in service.store.windows("minutes"):
            service.store.put_failure(stored, "the reconstruction took longer than serve.deadline (1 s)")
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).status_code == 422
        assert [one["answer"] for one in client.get("/v1/sketches/minutes/series").json()["points"]] == ["none"] * 3
    with serving(tmp_path) as (service, client):
        pages.settle(service)
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).status_code == 200
        assert [one["answer"] for one in client.get("/v1/sketches/minutes/series").json()["points"]] == ["ready"] * 3


def bodies(path):
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT sketch, start, partition, digest FROM bodies ORDER BY 1, 2, 3, 4").fetchall()


def test_two_publications_of_one_window_are_one_incident(tmp_path):
    publish(tmp_path / "sealed", minutes=3, partitions=1)
    publish(tmp_path / "other", minutes=3, partitions=1)
    with serving(tmp_path) as (service, client):
        assert client.get("/v1/sketches/minutes/profile", params=params(1)).status_code == 200
        file = sorted((tmp_path / "other" / "minutes" / "r0").glob("*/p00000.sealed"))[1].relative_to(
            tmp_path / "other"
        )
        shutil.copy(tmp_path / "other" / file, tmp_path / "sealed" / file)
        service.follower.step()
        found = client.get("/v1/sketches/minutes/profile", params=params(1))
        assert found.status_code == 409
        assert "published twice" in found.json()["detail"]
        listed = client.get("/v1/incidents").json()["incidents"]
        assert [(one["sketch"], one["window_start"]) for one in listed] == [("minutes", iso(EPOCH + MINUTE))]
        windows = client.get("/v1/sketches/minutes/windows", params={"order": "asc"}).json()["windows"]
        assert [one["answer"] for one in windows[:3]].count("incident") == 1
        assert windows[1]["complete"] is False
        series = client.get("/v1/sketches/minutes/series").json()["points"]
        assert series[1]["value"] is None
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).status_code == 200
        # it stays one, whatever comes later
        shutil.copy(tmp_path / "other" / file, tmp_path / "sealed" / file)
        service.follower.step()
        assert len(client.get("/v1/incidents").json()["incidents"]) == 1
    with serving(tmp_path) as (_, client):
        assert client.get("/v1/sketches/minutes/profile", params=params(1)).status_code == 409


def test_two_publications_of_one_noise_are_an_incident_in_both_places(tmp_path):
    driver = publish(tmp_path / "sealed", minutes=3, partitions=1)
    first = next(one for one in driver.publisher.log if one.sketch == "minutes")
    part = read_published(first.body)
    later = (EPOCH + HOUR, EPOCH + HOUR + MINUTE)
    copied = replace(part, origin=replace(part.origin, window=later), seal_id=bytes(16))
    with serving(tmp_path) as (service, client):
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).status_code == 200
        service.store.take(FeedBatch([SealedEntry("minutes", 0, later, 0, copied.seal_id, copied.to_bytes())]))
        service.follower.step()
        for start in (EPOCH, EPOCH + HOUR):
            given = {"from": iso(start), "to": iso(start + MINUTE)}
            found = client.get("/v1/sketches/minutes/profile", params=given)
            assert found.status_code == 409
            assert "share their noise" in found.json()["detail"]
        assert client.get("/v1/sketches/minutes/profile", params=params(1)).status_code == 200


def test_an_unreadable_file_hides_its_window_and_no_other(tmp_path):
    publish(tmp_path / "sealed", minutes=3, partitions=2)
    file = sorted((tmp_path / "sealed" / "minutes" / "r0").glob("*/p00001.sealed"))[0]
    file.write_bytes(file.read_bytes()[:-3])
    with serving(tmp_path) as (_, client):
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).status_code == 409
        assert client.get("/v1/sketches/minutes/profile", params=params(1)).status_code == 200
        assert len(client.get("/v1/incidents").json()["incidents"]) == 1


def test_a_restart_reads_on_and_computes_nothing_again(tmp_path):
    publish(tmp_path / "sealed", minutes=3, partitions=2)
    with serving(tmp_path) as (service, client):
        first = client.get("/v1/sketches/minutes/profile", params=params(0)).content
    with serving(tmp_path) as (service, client):
        assert service.follower.stored == 0
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).content == first
        assert service.store.window("minutes", (EPOCH, EPOCH + MINUTE)).todo == 0


def test_a_lost_database_is_filled_again(tmp_path):
    publish(tmp_path / "sealed", minutes=3, partitions=2)
    with serving(tmp_path) as (_, client):
        first = client.get("/v1/sketches/minutes/profile", params=params(0)).content
        lists = client.get("/v1/sketches/minutes/windows").json()["windows"]
    before = bodies(tmp_path / "serve.sqlite")
    for path in tmp_path.glob("serve.sqlite*"):
        path.unlink()
    with serving(tmp_path) as (_, client):
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).content == first
        again = client.get("/v1/sketches/minutes/windows").json()["windows"]
        strip = [{name: value for name, value in one.items() if name != "answer"} for one in lists]
        assert [{name: value for name, value in one.items() if name != "answer"} for one in again] == strip
    assert bodies(tmp_path / "serve.sqlite") == before


def test_a_window_is_complete_when_all_partitions_have_passed_it(tmp_path):
    driver = publish(tmp_path / "all", minutes=3, partitions=2)
    mine = [one for one in driver.publisher.log if one.partition == 0]
    frontiers = list(driver.publisher.frontiers().values())
    config = Config.parse(TEXT)
    store = Store(tmp_path / "serve.sqlite", config, "test")
    store.take(FeedBatch(mine, [one for one in frontiers if one.partition == 0]))
    while store.refresh():
        pass
    found = store.windows("minutes", limit=1)[0]
    assert (found.state, found.fields["complete"], found.todo) == ("missing", False, 0)
    store.take(FeedBatch([one for one in driver.publisher.log if one.partition == 1], frontiers))
    while store.refresh():
        pass
    found = store.windows("minutes", limit=1)[0]
    assert (found.state, found.fields["complete"]) == ("settled", True)
    assert found.todo > 0
    store.close()


def test_what_was_deleted_before_it_was_read_is_missing(tmp_path):
    driver = publish(tmp_path / "all", minutes=3, partitions=2)
    entries = [one for one in driver.publisher.log if one.partition == 0 or one.window[0] > EPOCH]
    store = Store(tmp_path / "serve.sqlite", Config.parse(TEXT), "test")
    deleted = Deleted("minutes", 1, EPOCH + MINUTE)
    store.take(FeedBatch(entries, list(driver.publisher.frontiers().values()), deleted=[deleted]))
    while store.refresh():
        pass
    first, second = store.windows("minutes", limit=2)
    assert first.fields["partitions"]["missing"] == [1]
    assert first.fields["deleted"] is True
    assert second.fields["complete"] is True
    store.close()


def test_old_windows_are_dropped_and_stay_away(tmp_path):
    driver = publish(tmp_path / "sealed", minutes=6, partitions=1)
    with serving(tmp_path, processes=0, retention_ms=2 * HOUR - 3 * MINUTE) as (service, _):
        starts = [one.window[0] for one in service.store.windows("minutes")]
        newest = max(starts)
        assert starts
        assert min(starts) >= newest - (2 * HOUR - 3 * MINUTE) - MINUTE
        kept = bodies(tmp_path / "serve.sqlite")
        service.store.take(FeedBatch(driver.publisher.log))
        assert bodies(tmp_path / "serve.sqlite") == kept
    with serving(tmp_path, processes=0) as (service, _):
        assert [one.window[0] for one in service.store.windows("minutes")] == starts


def test_of_answers_by_other_methods_the_oldest_go(tmp_path):
    publish(tmp_path / "sealed", minutes=2, partitions=1)

    def stored(special):
        with sqlite3.connect(tmp_path / "serve.sqlite") as connection:
            return connection.execute("SELECT id, bytes FROM answers WHERE special = ?", (special,)).fetchall()

    with serving(tmp_path, special_bytes=9000) as (service, client):
        usual = client.get("/v1/sketches/minutes/profile", params=params(0))
        seen = []
        for count in range(1, 9):
            asked = params(0) | {"method": "inverse", "max_count": str(count)}
            assert client.get("/v1/sketches/minutes/profile", params=asked).status_code == 200
            assert sum(size for _, size in stored(True)) <= 9000
            seen.append(max((number for number, _ in stored(True)), default=0))
        kept = [number for number, _ in stored(True)]
        assert 0 < len(kept) < len(seen), "the bound was never reached, or nothing fits below it"
        assert kept == seen[-len(kept) :]
        before = service.pool.computed
        assert client.get("/v1/sketches/minutes/profile", params=params(0)).content == usual.content
        assert service.pool.computed == before
        assert stored(False)


def test_an_incident_leaves_no_answer(tmp_path):
    publish(tmp_path / "sealed", minutes=2, partitions=1)
    driver = publish(tmp_path / "other", minutes=2, partitions=1)
    with serving(tmp_path) as (service, client):
        for method in ("likelihood", "inverse"):
            assert client.get("/v1/sketches/minutes/profile", params=params(0) | {"method": method}).status_code == 200
        service.store.take(FeedBatch([one for one in driver.publisher.log if one.window == (EPOCH, EPOCH + MINUTE)]))
        with sqlite3.connect(tmp_path / "serve.sqlite") as connection:
            left = connection.execute("SELECT count(*) FROM answers WHERE stop = ?", (EPOCH + MINUTE,)).fetchone()
        assert left == (0,)


def test_the_ledger_of_the_store_is_that_of_all_bodies(tmp_path):
    driver = publish(tmp_path / "sealed", minutes=4, partitions=2)
    entries = list(driver.publisher.log)
    first, second = (one for one in entries if one.window == (EPOCH, EPOCH + MINUTE))
    later = (EPOCH + HOUR, EPOCH + HOUR + MINUTE)
    copied = replace(
        read_published(first.body), origin=replace(read_published(first.body).origin, window=later), seal_id=bytes(16)
    )
    again = replace(
        read_published(second.body), origin=replace(read_published(second.body).origin, revision=1), seal_id=b"s" * 16
    )
    # of another noise, in the place of another one
    other = next(one for one in publish(tmp_path / "other").publisher.log if one.key == entries[-1].key)
    entries += [SealedEntry("minutes", 0, later, 0, copied.seal_id, copied.to_bytes()), other]
    entries.append(replace(second, revision=1, seal_id=again.seal_id, body=again.to_bytes()))
    wanted = Deployment.of([read_published(one.body) for one in entries], keyed=True)
    assert wanted.copied()
    assert wanted.conflicts()
    for order in (entries, entries[::-1]):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        store = Store(path, Config.parse(TEXT), "test")
        for one in order:
            store.take(FeedBatch([one]))
            store.take(FeedBatch([one]))
        found = Ledgers(store._write).census(store.config)
        assert found.summary() == wanted.summary()
        assert found.rows() == wanted.rows()
        beside = Ledgers(store._write).overlapping(first.window, lambda _: 2 * HOUR)
        near = [one for one in wanted.records if one.window[0] < first.window[1] and first.window[0] < one.window[1]]
        assert sorted((one.place, one.event(), one.item()) for one in beside) == sorted(
            (one.place, one.event(), one.item()) for one in near
        )
        assert Ledgers(store._write).census(store.config, {"hours"}).rows() == [
            row for row in wanted.rows() if row["sketch"] == "hours"
        ]
        store.close()


def test_another_topic_is_refused(tmp_path):
    Store(tmp_path / "serve.sqlite", Config.parse(TEXT), "topic a").close()
    with pytest.raises(StoreError, match="filled again"):
        Store(tmp_path / "serve.sqlite", Config.parse(TEXT), "topic b")


def test_a_guarantee_follows_what_else_is_published(tmp_path):
    publish(tmp_path / "sealed", minutes=3, partitions=1)
    with serving(tmp_path) as (service, client):
        first = client.get("/v1/sketches/minutes/profile", params=params(0))
        etag = first.headers["etag"]
        # a reset counts the hour again: the first minute is part of it
        again = publish(tmp_path / "again", minutes=3, partitions=1)
        entry = next(one for one in again.publisher.log if one.sketch == "hours")
        part = read_published(entry.body)
        renewed = replace(part, origin=replace(part.origin, revision=1))
        service.store.take(FeedBatch([replace(entry, revision=1, body=renewed.to_bytes())]))
        service.follower.step()
        now = client.get("/v1/sketches/minutes/profile", params=params(0), headers={"If-None-Match": etag})
        assert now.status_code == 200
        assert now.json()["guarantee"] != first.json()["guarantee"]
        assert now.json()["distinct"] == first.json()["distinct"]


def test_windows_that_come_while_it_runs_are_answered(tmp_path):
    driver = publish(tmp_path / "sealed", minutes=2, partitions=1)
    with serving(tmp_path) as (service, client):
        before = len(service.store.windows("minutes"))
        for minute in range(3):
            send(driver, 5, EPOCH + 3 * HOUR + minute * MINUTE)
        driver.run()
        close_windows(driver, EPOCH + 4 * HOUR)
        driver.run()
        driver.snapshot()
        write(driver, tmp_path / "sealed")
        service.follower.step()
        assert len(service.store.windows("minutes")) > before
        given = {"from": iso(EPOCH + 3 * HOUR), "to": iso(EPOCH + 3 * HOUR + MINUTE)}
        assert client.get("/v1/sketches/minutes/profile", params=given).json()["complete"] is True


def test_numbers_of_windows_are_those_of_the_windows(tmp_path):
    def counted(store):
        rows = store._write.execute(
            "SELECT s.name, count(*), sum(state = 'settled'), sum(todo > 0), sum(state = 'incident')"
            " FROM windows w JOIN sketches s ON s.id = w.sketch GROUP BY s.name"
        )
        names = ("windows", "settled", "pending", "incidents")
        return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}

    driver = publish(tmp_path / "sealed", minutes=6, partitions=2)
    twin = publish(tmp_path / "other", minutes=6, partitions=2)
    frontiers = list(driver.publisher.frontiers().values())
    seen = []
    with serving(tmp_path, processes=0, retention_ms=2 * HOUR - 3 * MINUTE) as (service, _):
        store = service.store
        late = SealedEntry("minutes", 0, (EPOCH + 9 * HOUR, EPOCH + 9 * HOUR + MINUTE), 0, bytes(16), b"not a sketch")
        for batch in (
            FeedBatch(driver.publisher.log[:3]),
            FeedBatch(driver.publisher.log, frontiers),
            FeedBatch(twin.publisher.log[-2:]),
            FeedBatch(deleted=[Deleted("minutes", 1, EPOCH + 3 * HOUR)]),
            FeedBatch([late]),
        ):
            store.take(batch)
            seen.append(counted(store))
            assert store.counts() == seen[-1]
            while store.refresh():
                pass
            seen.append(counted(store))
            assert store.counts() == seen[-1]
            assert store.pending() == sum(one["pending"] for one in seen[-1].values())
            while store.retain():
                pass
            seen.append(counted(store))
            assert store.counts() == seen[-1]
    assert len({str(one) for one in seen}) > 4
    assert all(any(one["minutes"][name] for one in seen) for name in ("settled", "pending", "incidents"))
    assert seen[-1]["minutes"]["windows"] == 1, "everything else is too old"
