"""Fault schedules on real brokers: exact at epsilon 30, one noise of the right law at epsilon 1."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from helpers.kafka.app import MINUTE, App
from helpers.kafka.chaos import ITEMS, Run, plan
from helpers.kafka.devbroker import DevCluster

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
EXACT = f'epsilon = "30"\ndomain = {{ size = {ITEMS} }}\nmax_count = 300'
NOISY = f'epsilon = "1"\ndomain = {{ size = {ITEMS} }}\nmax_count = 300\npublish = "state"\nintrusion = false'
LONG = [(seed, seed % 3 == 2) for seed in range(100, 114)]  # a third of them at epsilon 1


def check_law(rest: np.ndarray) -> None:
    """State minus truth is discrete Laplace with a = exp(-1), once: chi-square at 1e-7, and the second moment."""
    a, n = math.exp(-1), rest.size
    bins = [(rest == value).sum() for value in range(-3, 4)] + [(np.abs(rest) > 3).sum()]
    mass = [(1 - a) / (1 + a) * a ** abs(value) for value in range(-3, 4)]
    expected = [n * m for m in [*mass, 1 - sum(mass)]]
    statistic = sum((have - want) ** 2 / want for have, want in zip(bins, expected, strict=True))
    assert statistic < 46.0, f"chi-square {statistic:.1f} with 7 degrees of freedom"
    variance = 2 * a / (1 - a) ** 2
    fourth = 12 * variance**2  # generous
    assert abs(float((rest.astype(float) ** 2).mean()) - variance) < 6 * math.sqrt(fourth / n)


def check(app: App, run: Run, *, exact: bool) -> None:
    windows = range(run.base, run.windows, MINUTE)
    twice = app.believe_log()
    print(
        f"seed {run.seed}: {run.sent} events, {twice} of them twice, {len(windows)} windows, "
        f"standstill {run.standstill:.1f} s; {run.done}"
    )
    if exact:
        app.check_exact(windows)
    else:
        check_law(app.residuals(ITEMS, windows))
    for partition, manifests in app.live_manifests().items():
        assert manifests == 1, f"partition {partition} has {manifests} manifests that a committed pointer opens"
    assert run.standstill < 60  # last: a machine that is too busy hides no wrong count


Minutes = Mapping[str, tuple[Run, "Future[None]"]]  # by the name of the test


@pytest.fixture(scope="module")
def minutes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minutes]:
    """One minute of faults for each of these tests that is run: at the same time, for they wait more than they work."""

    def on_three_brokers(folder: Path) -> Run:
        cluster: DevCluster = request.getfixturevalue("cluster3")
        app = App(cluster.bootstrap, folder, partitions=6, replication=3, sketch=EXACT)
        return Run(app, seed=1, seconds=60, cluster=cluster)

    def on_one_broker(folder: Path) -> Run:
        return Run(App(request.getfixturevalue("kafka"), folder, sketch=NOISY), seed=2, seconds=60)

    tests = {
        test_one_minute_of_faults_on_three_brokers_counts_exactly: on_three_brokers,
        test_one_minute_of_faults_on_one_broker_draws_each_noise_once: on_one_broker,
    }
    selected = {item.name for item in request.session.items}
    runs = {
        test.__name__: make(tmp_path_factory.mktemp("minute") / "app")
        for test, make in tests.items()
        if test.__name__ in selected
    }
    try:
        with ThreadPoolExecutor() as threads:
            yield {name: (run, threads.submit(run.run)) for name, run in runs.items()}
    finally:
        for run in runs.values():
            run.app.close()


@pytest.fixture
def minute(request: pytest.FixtureRequest, minutes: Minutes) -> Run:
    """The run of this test, at its end."""
    run, done = minutes[request.node.name]
    done.result()
    return run


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_one_minute_of_faults_on_three_brokers_counts_exactly(minute: Run) -> None:
    check(minute.app, minute, exact=True)


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_one_minute_of_faults_on_one_broker_draws_each_noise_once(minute: Run) -> None:
    check(minute.app, minute, exact=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seed", "noisy"), LONG)
def test_ninety_seconds_of_faults(cluster3: DevCluster, tmp_path: Path, seed: int, noisy: bool) -> None:
    report = os.environ.get("SKETCHSTREAM_FAULTS_REPORT")  # one line is added for each seed that passed
    app = App(cluster3.bootstrap, tmp_path / "app", partitions=6, replication=3, sketch=NOISY if noisy else EXACT)
    began = time.time()
    try:
        run = Run(app, seed=seed, seconds=90, cluster=cluster3)
        run.run()
        check(app, run, exact=not noisy)
    finally:
        app.close()
    if report:
        with Path(report).open("a") as handle:
            handle.write(
                f"seed {seed} ok epsilon={1 if noisy else 30} events={run.sent} faults={len(run.done)} "
                f"standstill={run.standstill:.1f}s took={time.time() - began:.0f}s\n"
            )


def test_schedules_are_replayable() -> None:
    assert plan(5, 90, brokers=True) == plan(5, 90, brokers=True)
    assert plan(5, 90, brokers=True) != plan(6, 90, brokers=True)
    kinds = {step.what for seed, _ in LONG for step in plan(seed, 90, brokers=True)}
    assert kinds == {"kill", "terminate", "stop", "join", "kill-node", "terminate-node"}
