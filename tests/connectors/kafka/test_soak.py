"""A long run with quotas that come and go: memory stays flat, healthy stretches log no warning, every window is exact.

In: a broker of its own. Out: a summary, printed. Touches: topics and quotas. An hour at 2,000 records a second, unless
SKETCHSTREAM_SOAK_MINUTES and SKETCHSTREAM_SOAK_RATE say otherwise.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from helpers.kafka.app import MINUTE, App, Worker
from helpers.kafka.devbroker import DevCluster
from helpers.kafka.quotas import limit
from helpers.memory import resident_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning"),
]

MINUTES = float(os.environ.get("SKETCHSTREAM_SOAK_MINUTES", "60"))
RATE = int(os.environ.get("SKETCHSTREAM_SOAK_RATE", "2000"))
EVERY_S, FOR_S = 240.0, 45.0
"""A quota comes this often, and stays so long."""
LIMITED = ("producer_byte_rate", "consumer_byte_rate")
QUOTA = 64 << 10
"""Bytes a second of each client."""
SETTLED_S = 60.0
"""After a quota has gone, warnings about what it delayed are no surprise for so long."""
GROWTH = 1.15
"""Most by which the memory of a worker may grow from the second quarter of the run to the last."""
DEFAULTS = {"session.timeout.ms": 15_000, "heartbeat.interval.ms": 3_000, "max.poll.interval.ms": 60_000}
"""Those of a worker: other tests have shorter ones, which a busy machine misses without a fault of anybody."""


def complaints(
    worker: Worker, disturbed: list[tuple[float, float]], since: float, until: float
) -> tuple[int, list[str]]:
    """Number of log lines, and the warnings of healthy stretches between two times."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    found = []
    for line in lines:
        at = datetime.fromisoformat(line["time"]).timestamp()
        calm = since <= at <= until and not any(begin <= at <= end + SETTLED_S for begin, end in disturbed)
        if calm and line["level"] in {"warning", "error"}:
            found.append(json.dumps(line))
    return len(lines), found


def test_a_long_run_with_quotas_is_exact_calm_and_flat(own_broker: DevCluster, tmp_path: Path) -> None:
    app = App(
        own_broker.bootstrap,
        tmp_path / "app",
        input='item_type = "int"\nitem = "u"\ntime = "ts"\nlateness = "5s"\nmax_ahead = "1h"\nidle = "off"',
        snapshot_every="10s",
        kafka=DEFAULTS,
    )
    workers = [app.start(options=("--log-format", "json"), fresh=True) for _ in range(2)]
    draw, load = np.random.default_rng(7), app.load(linger_ms=100)
    used: dict[str, list[int]] = {worker.name: [] for worker in workers}
    disturbed: list[tuple[float, float]] = []
    try:
        deadline = time.monotonic() + 300
        while min(runs := [worker.says('"event": "running"') for worker in workers]) < 1 or sum(runs) < app.partitions:
            assert time.monotonic() < deadline, app.logs()
            time.sleep(0.5)
        began, since = time.monotonic(), time.time()
        sent, looked, paced, throttled_at = 0, began, began, 0.0
        next_quota = began + EVERY_S / 2
        while (now := time.monotonic()) < began + 60 * MINUTES:
            if not throttled_at and now >= next_quota:
                disturbed.append((time.time(), float("inf")))
                limit(own_broker, **dict.fromkeys(LIMITED, QUOTA))
                throttled_at = time.monotonic()
            elif throttled_at and now >= throttled_at + FOR_S:
                limit(own_broker, **dict.fromkeys(LIMITED))
                disturbed[-1] = (disturbed[-1][0], time.time())
                throttled_at, next_quota = 0.0, now + EVERY_S
            at = time.time_ns() // 1_000_000
            load.send_many((499 * draw.random(RATE // 20) ** 3).astype(int).tolist(), at)
            sent += RATE // 20
            if now >= looked + min(15.0, 60 * MINUTES / 20):  # at least a few looks in each quarter
                looked = now
                for worker in workers:
                    used[worker.name].append(resident_bytes(worker.process.pid))
            paced = max(paced + RATE // 20 / RATE, time.monotonic() - 0.5)  # what a quota delayed is not made up for
            time.sleep(max(0.0, paced - time.monotonic()))
        if throttled_at:
            limit(own_broker, **dict.fromkeys(LIMITED))
            disturbed[-1] = (disturbed[-1][0], time.time())
        load.flush()
        last = max(app.truth)
        ended = time.time()
        for step in range(1, 25):
            load.close_windows(int(ended * 1000) + step * 15_000)
        app.wait_published(last + MINUTE, timeout_s=600)
        app.check_exact()
        read = time.time()  # whoever takes the partitions of one that ends says again that epsilon 30 protects nobody
        print(f"{sent:,} records sent, {sent / (60 * MINUTES):,.0f}/s with the quotas")
        print(f"{len(app.truth)} windows exact, {len(disturbed)} quotas")
        wrong: list[str] = []
        for worker in workers:
            assert worker.terminate(120) == 0
            lines, found = complaints(worker, disturbed, since, read)
            quarters = [statistics.median(part) for part in np.array_split(used[worker.name], 4)]
            print(
                f"{worker.name}: {lines} log lines, {len(found)} warnings in healthy stretches, "
                f"memory in the four quarters {', '.join(f'{one / 2**20:.0f}' for one in quarters)} MiB"
            )
            wrong += found[:20]
            if quarters[3] > GROWTH * quarters[1]:
                wrong.append(f"{worker.name}: memory in MiB: {[one >> 20 for one in used[worker.name]]}")
        quotas = [tuple(datetime.fromtimestamp(at, UTC).strftime("%T") for at in one) for one in disturbed]
        print("FAILED" if wrong else "passed")
        assert not wrong, "\n".join([*wrong, f"quotas: {quotas}"])
    finally:
        app.close()
