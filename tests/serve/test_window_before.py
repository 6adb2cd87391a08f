"""Answers that use the window before: computed again when that window arrives, changes or may not be shown."""

from __future__ import annotations

from dataclasses import replace

from helpers.configurations import CLOSED_MINUTES
from helpers.pages import settle
from helpers.serving import HOUR, MINUTE, serving, write
from sketchstream.config.loader import Config
from sketchstream.published import read_published
from sketchstream.query.sealed import SealedReader
from sketchstream.query.windows import PublishedWindows
from sketchstream.stream.feed import FeedBatch
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver
from sketchstream_connectors.files.sealed import DirectorySealed

TEXT = CLOSED_MINUTES.replace('publish = "closed"\nintrusion = false\n', "")
START = 1_704_067_200_000
"""2024-01-01T00:00Z."""
ESTIMATE = "/v1/sketches/minutes/estimate"


def sealed(folder, partitions=1):
    """Four hours of events, the last one open; what was published, and the same on the command line."""
    driver = Driver(TEXT, partitions=partitions, now="2024-01-01T06:00:00Z")
    for minute in range(0, 190, 5):
        for partition in range(partitions):
            at = START + minute * MINUTE
            driver.send({"ts": at}, timestamp=at, partition=partition)
        driver.run()
        driver.snapshot()
    write(driver, folder)
    source, config = DirectorySealed(folder), Config.parse(TEXT)
    return driver, PublishedWindows(config, SealedReader(source), source)


def given(hour):
    return {"from": iso(START + hour * HOUR), "to": iso(START + (hour + 1) * HOUR)}


def step(service):
    """Put together what has changed, and wait for the answers."""
    service.follower.step()
    settle(service)


def ask(client, hour):
    found = client.get(ESTIMATE, params=given(hour))
    assert found.status_code == 200, found.text
    return found.json(), found.headers["etag"]


def entries(driver, hour):
    return [one for one in driver.publisher.log if one.window[0] == START + hour * HOUR]


def expected(direct, hour):
    """The numbers of the command line."""
    (window,) = direct.every("minutes", START + hour * HOUR, START + (hour + 1) * HOUR)
    return direct.estimates(window).numbers()


def test_an_earlier_window_that_arrives_later_changes_the_answer_after_it(tmp_path):
    driver, direct = sealed(tmp_path / "all")
    frontiers = list(driver.publisher.frontiers().values())
    (tmp_path / "sealed").mkdir()
    with serving(tmp_path, TEXT) as (service, client):
        service.store.take(FeedBatch([*entries(driver, 1), *entries(driver, 2)], frontiers))
        step(service)
        alone, tag = ask(client, 1)
        after, tag_after = ask(client, 2)
        assert "joined" not in alone
        assert alone["partial"][:9] == [True] * 9
        computed = service.pool.computed
        service.store.take(FeedBatch(entries(driver, 0)))
        step(service)
        both, now = ask(client, 1)
        assert both["joined"] == iso(START)
        assert now != tag
        assert not any(both["partial"][: both["filters"][0]["count"]])
        assert both["values"] == expected(direct, 1)["values"]
        assert ask(client, 2) == (after, tag_after), "its own window before is the same"
        assert service.pool.computed == computed + 2, "the new window and the one after it, and no other"


def test_an_incident_of_the_window_before_is_not_joined(tmp_path):
    sealed(tmp_path / "sealed")
    twin, _ = sealed(tmp_path / "other")
    with serving(tmp_path, TEXT) as (service, client):
        settle(service)
        both, _ = ask(client, 1)
        after = ask(client, 2)
        assert both["joined"] == iso(START)
        service.store.take(FeedBatch(entries(twin, 0)))
        step(service)
        assert client.get(ESTIMATE, params=given(0)).status_code == 409
        alone, _ = ask(client, 1)
        assert "joined" not in alone
        assert ask(client, 2) == after


def test_a_window_before_that_cannot_be_read_is_not_joined(tmp_path):
    _, direct = sealed(tmp_path / "sealed")
    first, second, third = direct.every("minutes", START, START + 3 * HOUR)
    assert [direct.before(one) is None for one in (first, second, third)] == [True, False, False]
    file = min((tmp_path / "sealed" / "minutes" / "r0").glob("*/*.sealed"))
    file.write_bytes(file.read_bytes()[:-3])
    assert direct.before(second) is None
    assert direct.before(third).window == second.window


def test_noise_that_is_shared_with_any_window_is_not_joined(tmp_path):
    driver, _ = sealed(tmp_path / "sealed")
    (first,) = entries(driver, 0)
    part = read_published(first.body)
    later = (START + 30 * HOUR, START + 31 * HOUR)
    copied = replace(part, origin=replace(part.origin, window=later), seal_id=bytes(16))
    with serving(tmp_path, TEXT) as (service, client):
        settle(service)
        assert ask(client, 1)[0]["joined"] == iso(START)
        service.store.take(FeedBatch([SealedEntry("minutes", 0, later, 0, copied.seal_id, copied.to_bytes())]))
        step(service)
        assert "joined" not in ask(client, 1)[0]


def test_the_window_before_is_joined_when_its_last_partition_has_passed_it(tmp_path):
    driver, _ = sealed(tmp_path / "all", partitions=2)
    (tmp_path / "sealed").mkdir()
    frontiers = list(driver.publisher.frontiers().values())
    early = [replace(one, published_through=START, sequence=0) if one.partition else one for one in frontiers]
    here = [one for one in entries(driver, 0) if one.partition == 0] + entries(driver, 1)
    with serving(tmp_path, TEXT) as (service, client):
        service.store.take(FeedBatch(here, early))
        step(service)
        assert service.store.window("minutes", (START, START + HOUR)).state == "missing"
        alone, _ = ask(client, 1)
        assert alone["complete"] is None, "one frontier is older than the window: what it refused is not known yet"
        assert "joined" not in alone
        service.store.take(FeedBatch(frontiers=frontiers))
        step(service)
        assert ask(client, 1)[0]["joined"] == iso(START)


def test_a_window_before_that_is_too_old_to_keep_is_not_joined(tmp_path):
    sealed(tmp_path / "sealed")
    with serving(tmp_path, TEXT) as (service, client):
        settle(service)
        assert ask(client, 1)[0]["joined"] == iso(START)
    with serving(tmp_path, TEXT, retention_ms=HOUR - MINUTE) as (service, client):
        settle(service)
        assert service.store.window("minutes", (START, START + HOUR)) is None
        assert "joined" not in ask(client, 1)[0]
        assert ask(client, 2)[0]["joined"] == iso(START + HOUR)
