"""How long partitions are without an owner: taking 16 and 64 of them, and after one of two workers is killed.

In: a Kafka of its own on loopback, workers as processes. Out: seconds, resident memory and threads, against the limit
of the issue (session timeout + 5 s). Touches: a temporary folder, Java and worker processes of its own.

    python bench/recovery.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

# this folder has a kafka.py, which must not be taken for the client
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.kafka.app import AT_ONCE, MINUTE, App, Worker  # noqa: E402
from helpers.kafka.devbroker import DevCluster  # noqa: E402

SLOTS = 2**16
SKETCH = f'epsilon = "1"\ndomain = {{ slots = {SLOTS}, levels = 4 }}\nmax_count = 300'
INPUT = f'item = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"'
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
SESSION_S = 6.0


def wait_for(true: Callable[[], bool], seconds: float = 180) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            raise TimeoutError
        time.sleep(0.02)
    return time.monotonic() - began


def running(worker: Worker) -> int:
    return worker.says("event=running")


def process(worker: Worker) -> tuple[float, int]:
    """Resident megabytes and threads."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"])


def take_all(bootstrap: str, folder: Path, partitions: int) -> None:
    """One worker takes partitions that have state: from their assignment to the last one running."""
    app = App(bootstrap, folder, partitions=partitions, sketch=SKETCH, input=INPUT, key=True)
    try:
        load = app.load()
        for i in range(20_000):
            load.send(f"user-{i % 5000}", BASE + i)
        load.flush()
        first = app.start(fresh=True)
        wait_for(lambda: running(first) >= partitions)
        time.sleep(4)
        empty = process(first)
        first.terminate()
        times = []
        for _ in range(3):
            worker = app.start(fresh=True)
            wait_for(lambda: worker.says("event=partition_taken") >= 1)  # noqa: B023
            began = time.monotonic()
            wait_for(lambda: running(worker) >= partitions)  # noqa: B023
            times.append(time.monotonic() - began)
            memory, threads = process(worker)
            worker.terminate()
        print(
            f"{partitions:3d} partitions x {SLOTS} slots: all running {statistics.median(times):.2f} s after the first "
            f"was taken; {memory:.0f} MB, {threads} threads ({empty[0]:.0f} MB before the restart)"
        )
    finally:
        app.close()


def kill_one(bootstrap: str, folder: Path, rounds: int) -> None:
    """Two workers, one killed: how long until all partitions of the dead one run again, and whether the others flow.

    What moves before that are the other worker's partitions: a committed position, once in a snapshot's interval.
    """
    times, gaps = [], []
    for number in range(rounds):
        app = App(bootstrap, folder / str(number), partitions=4, sketch=SKETCH, input=INPUT, key=True)
        try:
            first, second = app.start(fresh=True), app.start(fresh=True)
            load = app.load()
            for i in range(5000):
                load.send(f"user-{i}", BASE + i)
            load.flush()
            wait_for(lambda: running(first) >= 2 and running(second) >= 2)  # noqa: B023
            time.sleep(3)
            before = running(second)
            first.kill()
            began, gap, last = time.monotonic(), 0.0, time.monotonic()
            positions = committed(app)
            while running(second) < before + 2:
                for i in range(20):
                    load.send(f"user-{i}", BASE + 6000)
                load.flush()
                now = committed(app)
                if now != positions:
                    positions, last = now, time.monotonic()
                gap = max(gap, time.monotonic() - last)
                if time.monotonic() - began > 120:
                    raise TimeoutError
                time.sleep(0.05)
            times.append(time.monotonic() - began)
            gaps.append(gap)
        finally:
            app.close()
    median = statistics.median(times)
    print(
        f"one of two workers killed: its partitions run again after {median:.1f} s (median of {rounds}), "
        f"{median / (SESSION_S + 5):.2f} of the limit (session timeout {SESSION_S:.0f} s + 5 s); "
        f"no committed position moved for at most {max(gaps):.1f} s meanwhile (a snapshot every second)"
    )


def committed(app: App) -> dict[int, int]:
    from kafka import TopicPartition

    with app.connection.admin.client("asking") as admin:
        wanted = {app.group: [TopicPartition(app.topic, p) for p in range(app.partitions)]}
        found = admin.list_group_offsets(wanted)[app.group]
    return {tp.partition: offset.offset for tp, offset in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name, DevCluster(1, quick=False, heap="1g") as cluster:
        for partitions in (16,) if quick else (16, 64):
            take_all(cluster.bootstrap, Path(name) / f"take{partitions}", partitions)
        kill_one(cluster.bootstrap, Path(name) / "kill", 1 if quick else 3)


if __name__ == "__main__":
    main()
