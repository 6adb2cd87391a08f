"""Workers as processes on a real broker: nothing lost, nothing twice, whatever happens to them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_app import MINUTE, App

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE


@pytest.fixture
def app_of(kafka: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    made: list[App] = []

    def make(**options: object) -> App:
        made.append(App(str(options.pop("bootstrap", kafka)), tmp_path / f"app{len(made)}", **options))
        return made[-1]

    yield make
    for app in made:
        app.close()


def stream(app: App, windows: int, per_window: int, seed: int, pace_s: float = 0.0) -> int:
    """Events over some windows, item popularity skewed; returns the end of the last one."""
    rng, load = random.Random(seed), app.load()
    for w in range(windows):
        for i in range(per_window):
            item = int(499 * rng.random() ** 3)
            load.send(item, BASE + w * MINUTE + i * MINUTE // per_window)
            if pace_s and i % 500 == 499:
                load.flush()
                time.sleep(pace_s * 500 / per_window)
    load.flush()
    load.close_windows(BASE + (windows + 1) * MINUTE)
    return BASE + windows * MINUTE


def test_two_workers_one_killed_in_mid_stream_and_restarted_count_exactly(app_of: Callable[..., App]) -> None:
    app = app_of()
    app.start("a")
    doomed = app.start("b")
    end = BASE + 3 * MINUTE
    rng, load = random.Random(1), app.load()
    for w in range(3):
        for i in range(4000):
            load.send(int(499 * rng.random() ** 3), BASE + w * MINUTE + i * MINUTE // 4000)
            if i % 1000 == 999:
                load.flush()
                time.sleep(0.5)
        if w == 1:
            doomed.kill()
            app.start("b")
    load.close_windows(end + MINUTE)
    app.wait_published(end)
    app.check_exact()
