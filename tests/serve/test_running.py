"""A running service: what it says while it cannot read, deadlines, settings that change, intervals of differences."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from helpers.serving import TEXT, publish, serving
from sketchstream.errors import DeadlineError, StoreError
from sketchstream.query.differences import subtract
from sketchstream.serve.reconstruction.pool import Pool
from sketchstream.serve.reconstruction.questions import Question


class Broken:
    """A feed that cannot be read."""

    identity = "test"

    def newest(self):
        raise StoreError("the folder is not mounted")

    def read(self, positions):
        raise AssertionError(positions)

    def close(self):
        """Nothing."""


def test_it_is_not_ready_while_it_cannot_read_and_answers_what_it_has(tmp_path):
    publish(tmp_path / "sealed", minutes=1, partitions=1)
    with serving(tmp_path) as (service, client):
        assert client.get("/readyz").text.startswith("ready, 0 s behind the frontier")
        whole, service.follower._feed = service.follower._feed, Broken()
        service.follower._refresh_s = 0.01
        service.follower.start()
        for _ in range(500):
            found = client.get("/readyz")
            if found.status_code == 503:
                break
            time.sleep(0.02)
        assert "cannot be read" in found.text
        status = client.get("/v1/status").json()
        assert status["ready"] is False
        assert status["error"] == "the folder is not mounted"
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/sketches/minutes/windows").status_code == 200
        service.follower._feed = whole


def test_a_reconstruction_that_takes_too_long_is_given_up_and_says_so(tmp_path):
    publish(tmp_path / "sealed", minutes=1, partitions=1)
    with serving(tmp_path, processes=0) as (service, client):
        pool = Pool(service.store, TEXT, 1, 0.0)  # no time at all
        service.pool = pool
        pool.start()
        try:
            stored = service.store.windows("minutes", limit=1)[0]
            with pytest.raises(DeadlineError, match=r"serve\.deadline"):
                pool.ask(stored, Question(method="inverse")).result(60)
            for _ in range(600):
                if service.store.pending() == 0:
                    break
                time.sleep(0.1)
            found = client.get("/v1/sketches/minutes/windows", params={"order": "asc"}).json()["windows"][0]
            assert found["answer"] == "none"
            assert "serve.deadline" in found["failure"]
        finally:
            pool.close()


def test_another_configuration_puts_windows_together_again(tmp_path):
    publish(tmp_path / "sealed", minutes=1, partitions=1)

    def version(text):
        with serving(tmp_path, text, processes=0) as (service, _):
            assert service.store.windows("minutes", limit=1)[0].fields["complete"] is True
            return service.store.windows("minutes", limit=1)[0].version

    first = version(TEXT)
    assert version(TEXT) == first
    assert version(TEXT + "[quality]\nwarn = 0.4\nincomplete = 0.5\n") > first


def test_the_log_says_what_was_followed_once(tmp_path, caplog):
    publish(tmp_path / "sealed", minutes=1, partitions=1)
    caplog.set_level(logging.INFO, "sketchstream.serve")
    with serving(tmp_path, processes=0) as (service, _):
        service.follower.step()
    assert caplog.text.count("event=followed") == 1


def test_a_difference_covers_what_it_says():
    """Estimates with exact 95% intervals: normal ones of unequal width, and skew ones (chi-square)."""
    rng = np.random.default_rng(20260102)
    covered = {"normal": 0, "skew": 0}
    runs = 4000
    z = 1.959964
    low_quantile, high_quantile = np.quantile(rng.chisquare(8, 400_000), [0.025, 0.975]) / 8
    for _ in range(runs):
        a, b = rng.normal(0, 1), rng.normal(0, 3)
        _, low, high = subtract((a, a - z, a + z), (b, b - 3 * z, b + 3 * z))
        covered["normal"] += low <= 0 <= high
        a, b = 5 * rng.chisquare(8) / 8, 3 * rng.chisquare(8) / 8
        first, second = ((one, one / high_quantile, one / low_quantile) for one in (a, b))
        _, low, high = subtract(first, second)
        covered["skew"] += low <= 2 <= high
    assert 0.94 < covered["normal"] / runs < 0.96
    assert 0.935 < covered["skew"] / runs < 0.98


def test_an_end_without_a_bound_stays_without_one():
    assert subtract((5.0, 3.0, None), (1.0, 0.0, 2.0))[2] is None
    assert subtract((5.0, 3.0, None), (1.0, 0.0, 2.0))[1] == pytest.approx(4 - (4 + 1) ** 0.5)
    assert subtract((None, None, None), (1.0, 0.0, 2.0)) == (None, None, None)
