"""Workers that are killed, moved and configured anew at random never say that a window is complete which is not.

In: schedules of `helpers.schedules`. Out: verdicts. Touches: memory only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from helpers.schedules import Schedule

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10", "ignore:.*NO PRIVACY")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Workers of these tests are configured anew and killed all the time."""
    log = logging.getLogger("sketchstream")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def examine(seeds: range) -> None:
    """Play schedules: nothing may be told that is not true, and many windows are complete for all that changes."""
    verdicts = []
    for seed in seeds:
        played = Schedule(seed)
        played.play()
        assert played.lies() == [], (seed, played.done)
        verdicts += [one.complete for one in played.windows()]
    assert verdicts.count(True) > 0.4 * len(verdicts)


@pytest.mark.statistics
def test_no_random_schedule_has_a_complete_window_that_is_not() -> None:
    examine(range(1004, 1008))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_none_of_a_hundred_schedules_has_a_complete_window_that_is_not() -> None:
    examine(range(100))
