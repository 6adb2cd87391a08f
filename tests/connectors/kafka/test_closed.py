"""Continual publication over a real broker: each position goes out once, whenever the worker is killed."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from helpers.kafka.app import MINUTE, App, everything
from sketchstream.instalment import Instalment
from sketchstream.kinds.convolution.reading.answers import closed_values
from sketchstream.published import SealedState, read_published
from sketchstream.quality import judge
from sketchstream.query.closed import closed_windows
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.feed import KafkaFeed
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource, read_key

BASE = 1_704_067_200_000
"""2024-01-01T00:00Z."""
HOUR = 3_600_000
SERIES = (
    'kind = "convolution"\nepsilon = 1\ndelta = "1e-6"\nnoise = "gaussian"\n'
    'kernel = ["window:30", "sum"]\nstep = "1s"\npublish = "closed"\nintrusion = false'
)


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_positions_are_published_once_by_a_killed_worker(kafka: str, tmp_path: Path) -> None:
    check(App(kafka, tmp_path / "app", partitions=2, window="1h", sketch=SERIES), positions=240, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_thousand_positions_are_published_once_by_a_worker_killed_ten_times(kafka: str, tmp_path: Path) -> None:
    check(App(kafka, tmp_path / "app", partitions=2, window="1h", sketch=SERIES), positions=2000, kills=10)


def check(app: App, positions: int, kills: int) -> None:
    """Send events second by second, kill the worker in between, and compare what went out with the final state."""
    random = np.random.default_rng(3)
    truth = np.zeros(3600, np.int64)
    try:
        load, worker = app.load(), app.start()
        for part in np.array_split(np.arange(positions), kills + 1):
            if not worker.alive:
                worker = app.start()
            for second in part.tolist():
                for item in random.integers(0, 500, 3).tolist():
                    load.send(item, BASE + second * 1000 + int(random.integers(1000)), count=False)
                    truth[second] += 1
            load.flush()
            app.wait_running(worker)
            time.sleep(float(random.uniform(0.3, 2.5)))
            if part[-1] + 1 < positions:
                worker.kill()
        load.close_windows(BASE + 2 * HOUR)
        app.wait_published(BASE + HOUR)
        worker.terminate()
        compare(app, truth)
    finally:
        app.close()


def compare(app: App, truth: np.ndarray) -> None:
    """Repetitions are byte-identical, no position is in two instalments, and answers are those of the final state."""
    log, copies = Log(app.connection, app.names.sealed), defaultdict(set)
    for record in log.advance():
        key = read_key(record.key)
        body = None if key is None else key.body
        if key is not None and body is not None and body.positions is not None and body.window[0] == BASE:
            copies[body.partition, body.positions, key.number].add((record.key, record.value))
    log.close()
    assert all(len(found) == 1 for found in copies.values())
    source = KafkaSealedSource(app.connection, app.names.sealed)
    try:
        found = [one for one in source.closed("seen") if one.window[0] == BASE]
        for partition in range(app.partitions):
            spans = [one.positions for one in found if one.partition == partition]
            assert len(spans) > 2, "published position by position, not at the end"
            assert [first for first, _ in spans] == [0, *(stop for _, stop in spans[:-1])]  # type: ignore[misc]
            assert spans[-1][1] == 3600  # type: ignore[index]
        assert len({Instalment.from_bytes(one.body).seal_id for one in found}) == len(found)
        feed = KafkaFeed(app.connection, app.names.sealed)
        followed = {one.body for batch in feed.read({}) for one in batch.entries if one.positions is not None}
        feed.close()
        assert followed >= {one.body for one in found}, "a service that follows the topic has them all"
        (early,) = (one for one in closed_windows(source, "seen") if one.window[0] == BASE)
    finally:
        source.close()
    sealed = [read_published(one.body) for one in app.check_publications() if one.window[0] == BASE]
    states = [part.state for part in sealed if isinstance(part, SealedState)]
    state = np.sum(states, axis=0, dtype=np.int64)
    spec = sealed[0].spec
    assert early.positions == 3600
    answers = early.estimate()
    for place, kernel in ((0, np.ones(30)), (1, np.ones(3600))):
        one = answers.answers[place]
        assert one.values.tolist() == closed_values(spec, state, 0, 3600, place).tolist()
        expected = np.convolve(truth, kernel)[:3600]
        assert np.abs((one.values - expected) / one.stderr).max() < 6


MARK = "marked-5f1d-seat"
PLACE, TIMES = 73_331, 5_417


@pytest.mark.kafka
def test_neither_topics_nor_logs_hold_a_position_or_how_often_it_came(kafka: str, tmp_path: Path) -> None:
    """Marked values that are no positions, and a telling number of events at a telling position."""
    app = App(
        kafka,
        tmp_path / "app",
        partitions=2,
        sketch='kind = "convolution"\nepsilon = 1\nnoise = "counts"\nkernel = "sum"\nposition = "u"\nlength = 146662',
    )
    try:
        load = app.load()
        for number in range(TIMES):
            load.send(PLACE, BASE + number % 1000, count=False)
        for number in range(600):  # so that what the worker says of all events is not what came at one position
            load.send(number, BASE + 1000, count=False)
        for number in range(TIMES // 4):
            load.send(f"{MARK}-{number}", BASE + 1000 + number, count=False)
        load.flush()
        worker = app.start(options=("--log-level", "debug"))
        load.close_windows(BASE + 3 * MINUTE)
        app.wait_published(BASE + MINUTE)
        assert worker.terminate() == 0
        log = worker.log.read_bytes()
        places = {"state": everything(app, app.names.state), "sealed": everything(app, app.names.sealed), "log": [log]}
        assert places["sealed"], "nothing was published: the search would prove nothing"
        for place, records in places.items():
            assert not any(b"marked-5f1d" in record for record in records), place
        assert not re.search(rb"\b(%d|%d)\b" % (PLACE, TIMES), log.replace(b",", b""))
        parts = [read_published(entry.body) for entry in app.check_publications() if entry.window[0] == BASE]
        states = [part for part in parts if isinstance(part, SealedState)]
        assert abs(int(np.sum([part.state[PLACE] for part in states])) - TIMES) < 60
        quality = judge(states)
        assert quality.verdict == "incomplete"
        assert quality.share is not None
        truth, half = (TIMES + 600) / (TIMES + 600 + TIMES // 4), (quality.share.high - quality.share.low) / 2
        assert abs(quality.share.value - truth) < 2.6 * half < 0.2, "five standard deviations of the noise"
    finally:
        app.close()
