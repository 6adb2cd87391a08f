"""The service shows what was published of windows that are still open, as preliminary, until they are sealed."""

from __future__ import annotations

import shutil

import pytest

from helpers.pages import settle
from helpers.serving import serving, write
from helpers.streams import EPOCH, HOUR, MINUTE
from helpers.workers import TEXT, close_windows, send
from sketchstream.stream.windows.calendar import iso
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning", "ignore:.*NO PRIVACY")

EMITTED = TEXT.replace(
    'window = "1h"\nepsilon = 30', 'window = "1h"\nepsilon = 30\nemit_every = "30m"\nepsilon_early = 50'
)
START = EPOCH // HOUR * HOUR + HOUR


def test_preliminary_answers_are_served_until_the_window_is_sealed(tmp_path):
    driver = Driver(EMITTED, partitions=2, now=EPOCH)
    for minute in range(40):
        send(driver, minute, START + minute * MINUTE)
    driver.run()
    write(driver, tmp_path / "sealed")
    span = {"from": iso(START), "to": iso(START + HOUR)}
    with serving(tmp_path, EMITTED) as (service, client):
        settle(service)
        (row,) = client.get("/v1/sketches/hours/windows").json()["windows"]
        assert (row["preliminary"], row["complete"], row["window_start"]) == (True, False, iso(START))
        assert row["status"].startswith(f"preliminary, as of {row['as_of']}: 2 of 2 partitions")
        answer = client.get("/v1/sketches/hours/profile", params=span).json()
        assert answer["preliminary"] is True
        assert 15 <= answer["distinct"]["value"] <= 40
        assert "preliminary" in client.get("/sketches/hours").text
        for minute in range(40, 60):
            send(driver, minute % 40, START + minute * MINUTE)
        close_windows(driver, START + 3 * HOUR)
        driver.run()
        shutil.rmtree(tmp_path / "sealed")
        write(driver, tmp_path / "sealed")
        service.follower.step()
        settle(service)
        rows = client.get("/v1/sketches/hours/windows").json()["windows"]
        row = next(one for one in rows if one["window_start"] == iso(START))
        assert "preliminary" not in row
        answer = client.get("/v1/sketches/hours/profile", params=span).json()
        assert "preliminary" not in answer
        assert answer["distinct"]["value"] == pytest.approx(40)
        assert len(service.store._write.execute("SELECT * FROM early WHERE start = ?", (START,)).fetchall()) == 0
