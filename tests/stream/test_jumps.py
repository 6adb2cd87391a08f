"""Moves of a watermark are judged by their cause, and a healthy stream logs no warning."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from helpers.streams import EPOCH, MINUTE
from helpers.workers import TEXT, driver, send
from sketchstream.stream.monitoring.lag import MAX_LOG_ENDS, LogEnds
from sketchstream.stream.state.outcome import Outcome
from sketchstream.stream.worker.jumps import LATE_SHARE, MIN_LATE_RECORDS, Jumps

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
LATENESS, QUORUM_MS = 5_000, 15_000


def chunk(times: list[int], late: list[int], moved: tuple[int, int] | None = None, at: int = -1) -> tuple:
    """The outcome of a chunk, and its event times."""
    outcome = Outcome(records=len(times), moved=moved, moved_at=at, late_records=np.array(late, np.int64))
    return outcome, np.array(times, np.int64)


def test_records_that_a_move_made_late_are_reported_once() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    assert jumps.observe(*chunk([0, 100_000], [], (0, 100_000), 1)) == 0
    behind = [50_000] * (MIN_LATE_RECORDS - 1)
    assert jumps.observe(*chunk(behind, list(range(len(behind))))) == 0, "too few"
    assert jumps.observe(*chunk([50_000], [0])) == MIN_LATE_RECORDS
    assert jumps.observe(*chunk([50_000] * 20, list(range(20)))) == 0, "it was said"


def test_records_that_were_late_before_the_move_are_not_its_fault() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    old = [-LATENESS] * 40
    assert jumps.observe(*chunk([0, *old], list(range(1, 41)), (0, 100_000), 0)) == 0
    assert jumps.observe(*chunk([-LATENESS + 1] * 40, list(range(40)))) == 40


def test_a_few_late_records_among_many_are_the_disorder_of_the_stream() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    many = LATE_SHARE * MIN_LATE_RECORDS + 1
    times = [150_000] * (many - MIN_LATE_RECORDS) + [50_000] * MIN_LATE_RECORDS
    jumps.observe(*chunk([0], [], (0, 100_000), 0))
    assert jumps.observe(*chunk(times, list(range(many - MIN_LATE_RECORDS, many)))) == 0


def test_late_records_before_the_move_in_its_own_chunk_are_not_counted_for_it() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    times = [50_000] * 20 + [200_000]
    assert jumps.observe(*chunk(times, list(range(20)), (40_000, 200_000), 20)) == 0
    assert jumps.observe(*chunk([60_000] * 9, list(range(9)))) == 0


def test_steps_of_the_quorum_are_no_gap() -> None:
    jumps = Jumps(LATENESS, 150_000)
    assert not jumps.over_gap(None)
    assert not jumps.over_gap((0, 155_000))
    assert jumps.over_gap((0, 155_001))


def test_steps_after_the_move_do_not_hide_it() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    jumps.observe(*chunk([0], [], (0, 100_000), 0))
    jumps.observe(*chunk([110_000], [], (100_000, 110_000), 0))
    assert jumps.observe(*chunk([50_000] * 20, list(range(20)))) == 20


def test_a_long_quiet_time_after_the_move_does_not_hide_what_it_makes_late() -> None:
    jumps = Jumps(LATENESS, QUORUM_MS)
    jumps.observe(*chunk([0], [], (0, 100_000), 0))
    for _ in range(100):
        jumps.observe(*chunk([200_000] * 1000, []))
    late = [jumps.observe(*chunk([50_000] * 100, list(range(100)))) for _ in range(10)]
    assert sum(one > 0 for one in late) == 1


QUORUM = TEXT.replace('lateness = "1m"\nquorum = 1\nquorum_time = "1ms"', 'lateness = "5s"')


def test_a_healthy_stream_with_a_short_lateness_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sketchstream")
    d = driver(QUORUM, partitions=1)
    for second in range(1200):
        send(d, second % 40, EPOCH + second * 1000 - 2000 * (second % 2), 0)
        if second % 20 == 19:
            d.run()
    d.run()
    assert d.worker.metrics.counters["jumps"] > 5, "each step of the quorum is longer than the lateness"
    assert not [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "watermark_jumped" not in caplog.text


def test_a_producer_that_is_fast_while_the_others_are_silent_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sketchstream")
    d = driver(QUORUM, partitions=1)
    for second in range(600):
        send(d, second % 40, EPOCH + second * 1000, 0)
    d.run()
    for second in range(0, 400, 5):  # at night: one producer, 30 minutes fast
        send(d, 1, EPOCH + 600_000 + second * 1000 + 30 * MINUTE, 0)
    d.run()
    assert "watermark_ahead" not in caplog.text, "nobody is late yet"
    for second in range(400):
        send(d, second % 40, EPOCH + 1_000_000 + second * 1000, 0)
    d.run()
    said = [one for one in caplog.records if "event=watermark_ahead partition=0" in one.getMessage()]
    assert len(said) == 1
    assert said[0].levelno == logging.WARNING
    assert d.worker.metrics.counters["late"] > MIN_LATE_RECORDS


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_committed() -> None:
    ends = LogEnds()
    assert ends.waiting_s(0, 0.0) is None
    for end, now in ((10, 0.0), (20, 5.0), (20, 9.0), (30, 10.0)):
        ends.note(end, now)
    assert ends.waiting_s(None, 12.0) is None
    assert ends.waiting_s(5, 12.0) == 12.0
    assert ends.waiting_s(10, 12.0) == 7.0
    assert ends.waiting_s(29, 12.0) == 2.0
    assert ends.waiting_s(30, 12.0) == 0.0
    ends.note(3, 13.0)  # cut, or made again
    assert ends.waiting_s(1, 15.0) == 2.0


def test_lag_in_seconds_takes_bounded_memory_and_only_looks_younger() -> None:
    ends, exact = LogEnds(), {}
    for end in range(1, 4 * MAX_LOG_ENDS):
        ends.note(end, float(end))
        exact[end] = end
    assert len(ends._seen) <= MAX_LOG_ENDS
    for committed in (0, 100, 3 * MAX_LOG_ENDS, 4 * MAX_LOG_ENDS - 2):
        shown = ends.waiting_s(committed, 5.0 * MAX_LOG_ENDS)
        assert shown is not None
        assert 0 < shown <= 5.0 * MAX_LOG_ENDS - exact[committed + 1]


def test_a_halted_partition_has_a_lag_in_records_and_seconds() -> None:
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    d.run()
    d.clock.advance(20)
    d.run()
    one = d.worker._partitions[0]
    one.halt("a person decides")
    for item in range(3):
        send(d, item, EPOCH + item, 0)
    for _ in range(10):
        d.clock.advance(10)
        d.worker.step(0.0)
    (gauge,) = d.worker.gauges().partitions
    assert gauge.status == "halted"
    assert gauge.lag == 3
    assert gauge.lag_s is not None
    assert 80 <= gauge.lag_s <= 100
