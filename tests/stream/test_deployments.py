"""Deployments in which something goes wrong: no window says that it is complete with a number that is not true.

In: deployments of `helpers.deployments`. Out: verdicts. Touches: memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from helpers.deployments import HOUR, START, Deployment, Played, play, with_trouble

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10", "ignore:.*NO PRIVACY")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Workers of these tests warn once a minute for hours."""
    log = logging.getLogger("sketchstream")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def verdicts(played: Played) -> dict[int, set[bool | None]]:
    """`complete` by the hour of the window, over groups."""
    found: dict[int, set[bool | None]] = {}
    for window in played.windows():
        found.setdefault((window.window[0] - START) // HOUR, set()).add(window.complete)
    return found


def test_a_partition_that_was_silent_for_two_hours_makes_its_windows_incomplete() -> None:
    """Of four partitions, one has no record for two hours, then its backlog, whose records are late."""
    played = play(with_trouble("silence", minutes=120, hours=5))
    found = verdicts(played)
    assert found[0] == {True}
    assert found[2] == {False}
    assert played.lies() == []
    reasons = " ".join(window.quality.reason for window in played.windows() if not window.complete)
    assert "silent partition" in reasons


def test_a_backlog_after_a_short_silence_with_fast_producers_shows() -> None:
    """A partition is silent for 95 s with an idle time of 20 s; a tenth of its records are then late."""
    given = 'idle = "20s"\nlateness = "5s"\nquorum_time = "10s"'
    played = play(with_trouble("silence", partitions=2, minutes=95 / 60, input=given, per_hour=2400, hours=4))
    assert played.lies() == []
    assert verdicts(played)[0] == {True}
    assert verdicts(play(with_trouble("fast", share=0.2, minutes=2, input=given, hours=3)))[1] == {False}


def test_records_of_fast_clocks_are_refused_by_the_windows_that_they_name() -> None:
    played = play(with_trouble("fast", share=0.2, minutes=15, hours=4))
    assert played.lies() == []
    assert verdicts(played)[2] == {False}
    refused = [window.quality.refused for window in played.windows() if window.window[0] == START + 2 * HOUR]
    assert refused[0] is not None
    assert refused[0].value > 100


@pytest.mark.parametrize(
    "more", [{"unit": "item"}, {"filtered": True}, {"grouped": True}, {"unit": "item", "grouped": True}]
)
def test_a_partitioner_that_changes_in_mid_life_shows_where_no_share_is_counted(more: dict[str, object]) -> None:
    played = play(with_trouble("late", **more))
    found = verdicts(played)
    assert played.lies() == []
    assert found[0] == found[1] == {True}
    assert found[3] == {False}


def test_windows_in_which_partitions_were_added_are_not_complete() -> None:
    played = play(with_trouble("growth", partitions=2))
    assert played.lies() == []
    straddling = [window for window in played.windows() if window.repartitioned]
    assert straddling
    assert all(window.complete is False for window in straddling)
    assert verdicts(played)[0] == {True}


def examine(seeds: range) -> None:
    """Play random deployments: nothing may be told that is not true, and undisturbed windows are complete."""
    judged: list[bool | None] = []
    lies = []
    for seed in seeds:
        given = Deployment.at_random(seed)
        played = play(given)
        lies += [(given, one) for one in played.lies()]
        judged += played.judged()
    assert lies == []
    assert judged.count(True) >= 0.95 * len(judged)


@pytest.mark.statistics
def test_no_random_deployment_has_a_complete_window_that_is_not() -> None:
    examine(range(1000, 1002))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_none_of_three_hundred_deployments_has_a_complete_window_that_is_not() -> None:
    examine(range(300))
