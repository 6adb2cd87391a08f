"""What large states cost on a real broker: room on its disk, time behind a quota, evictions from the group.

In: options. Out: a line every few seconds, and a summary. Touches: a broker of its own with default retention checks, a
temporary folder, Java, worker processes of its own.

    python bench/snapshots.py disk --mib 4 --minutes 20
    python bench/snapshots.py windows --groups 1000 --slots 16384                  # five open windows
    python bench/snapshots.py windows --slots 16777216 --windows 4                 # without groups
    python bench/snapshots.py windows --slots 16777216 --windows 16 --quota 20     # 1 GiB; MB a second for producers
    python bench/snapshots.py windows --slots 1024 --windows 10000 --width 1m      # small ones, ten thousand

`disk` compares a snapshot every 30 s with as many as the rule allows, side by side. `windows` keeps the default
time-outs of the client, opens the windows in five steps or more, kills the worker, and closes them; it prints the
longest time between two polls that was seen, how long the next worker took to go on, evictions, and snapshots.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path

# this folder has a kafka.py, which must not be taken for the client
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.kafka.app import AT_ONCE, App, Nobody  # noqa: E402
from helpers.kafka.devbroker import DevCluster, free_ports  # noqa: E402
from helpers.kafka.quotas import limit  # noqa: E402
from sketchstream.stream.interfaces import Snapshot  # noqa: E402
from sketchstream.stream.worker.policy import snapshot_every_s  # noqa: E402
from sketchstream.stream.worker.settings import Settings  # noqa: E402
from sketchstream_connectors.kafka.cluster import topics  # noqa: E402
from sketchstream_connectors.kafka.cluster.client import Connection  # noqa: E402
from sketchstream_connectors.kafka.cluster.topics import TopicNames  # noqa: E402
from sketchstream_connectors.kafka.state.store import SUPERSEDED_S, KafkaStore  # noqa: E402

MIB = 1 << 20
WIDTHS_MS = {"1m": 60_000, "1h": 3_600_000}
START_MS = 1_700_000_000_000 // WIDTHS_MS["1h"] * WIDTHS_MS["1h"]
FORMER = {"segment.ms": "600000"}
"""What the state topic had when a snapshot was written every 30 s."""


def on_disk(cluster: DevCluster, topic: str) -> int:
    """Bytes of a topic's segments, indexes aside."""
    data = next(iter(cluster.nodes.values())).directory / "data"
    total = 0
    for path in data.glob(f"{topic}-*/*.log*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def disk(options: argparse.Namespace) -> None:
    """Two stores whose snapshots have one size, by two rules."""
    size = int(options.mib * MIB)
    now_s = snapshot_every_s(Settings(), size, 0.0, SUPERSEDED_S)
    rules = {"former": (30.0, FORMER), "now": (now_s, {})}
    with DevCluster(1, heap="1g") as cluster:
        stores, names = {}, {}
        for rule, (every_s, more) in rules.items():
            names[rule] = TopicNames(f"bench-{rule}", f"input-{rule}")
            connection = Connection({"bootstrap.servers": cluster.bootstrap, "group.id": names[rule].group})
            with connection.admin.client("creating") as admin:
                admin.create_topics({names[rule].input: {"num_partitions": 1, "replication_factor": 1}})
                admin.wait_for_topics([names[rule].input])
            topics.create(connection, names[rule])
            if more:
                from kafka.admin import ConfigResource, ConfigResourceType

                with connection.admin.client("settings") as admin:
                    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names[rule].state, more)])
            stores[rule] = KafkaStore(connection, names[rule].input, Nobody(names[rule].group))
            stores[rule].take(0)
            print(f"{rule}: {options.mib:g} MiB every {every_s:.0f} s", flush=True)
        due, number = dict.fromkeys(rules, 0.0), 0
        held: dict[str, list[float]] = {rule: [] for rule in rules}
        began = time.monotonic()
        while (passed := time.monotonic() - began) < options.minutes * 60:
            for rule, (every_s, _) in rules.items():
                if passed >= due[rule]:
                    number += 1
                    blob = {f"state-{number}": os.urandom(size)}
                    stores[rule].commit(0, Snapshot(0, 0, {}, blob, frozenset()))
                    due[rule] += every_s
                held[rule].append(on_disk(cluster, names[rule].state) / size)
            time.sleep(2.0)
        for rule, found in held.items():
            later = found[len(found) // 2 :]
            print(
                f"{rule}: the state topic takes {sum(later) / len(later):.1f} times what lives, up to {max(found):.1f}"
            )
        for store in stores.values():
            store.close()


def gauges(port: int) -> dict[str, float]:
    """Numbers of a worker without labels, or none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return {}
    return {name: float(value) for name, value in re.findall(r"^(\w+) ([-+.e0-9]+)$", text, re.MULTILINE)}


def windows(options: argparse.Namespace) -> None:
    """A worker with large windows, which are opened, snapshotted and closed under the client's default time-outs."""
    n, width_ms, (port,) = options.windows, WIDTHS_MS[options.width], free_ports(1)
    at_once = max(1, n // 5)
    groups = [f"g{number}" for number in range(options.groups)]
    grouped = f'group_by = "g"\ngroups = {json.dumps(groups)}\n' if groups else ""
    with tempfile.TemporaryDirectory() as name, DevCluster(1, heap="1g") as cluster:
        app = App(
            cluster.bootstrap,
            Path(name) / "app",
            partitions=1,
            sketch=f'epsilon = "1"\ndomain = {{ slots = {options.slots} }}\nmax_count = 300\n{grouped}',
            window=options.width,
            input=f'item = "u"\ntime = "ts"\nlateness = "{n}{options.width[1]}"\n'
            f'{AT_ONCE.split(chr(10), 1)[1]}\nidle = "off"'.replace('max_ahead = "1h"', 'max_ahead = "500h"'),
            key=True,
            snapshot_every="30s",
            extra=f'[worker]\nmetrics = "127.0.0.1:{port}"\nmemory_limit = "16GiB"\n',
            kafka={"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3000, "max.poll.interval.ms": 60_000},
        )
        if options.quota:
            limit(cluster, producer_byte_rate=int(options.quota * 1e6))
        producer = app.connection.producer()
        began, slowest, late = time.monotonic(), 0.0, 0.0
        try:
            worker = app.start(fresh=True)
            app.wait_running(worker, timeout_s=300)
            last = {}

            def watch(seconds: float, what: str) -> None:
                nonlocal slowest, late, last
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    assert worker.alive, app.logs()
                    last = gauges(port) or last
                    slowest = max([slowest, *(v for k, v in last.items() if "loop_age" in k)])
                    time.sleep(0.25)
                print(
                    f"{time.monotonic() - began:5.0f} s  {what:12}  longest time between polls {slowest:.1f} s  "
                    f"snapshots {last.get('sketchstream_snapshots_total', 0):.0f}, "
                    f"{last.get('sketchstream_snapshot_bytes_total', 0) / MIB:,.0f} MiB",
                    flush=True,
                )

            def send(first: int, many: int) -> None:
                for number in range(max(200, many)):
                    at = START_MS + (first + number % many) * width_ms + number
                    value = {"u": f"user-{number}", "ts": at, "g": f"g{number % max(1, len(groups))}"}
                    producer.send(app.topic, key=b"k", value=json.dumps(value).encode(), timestamp_ms=at)
                producer.flush()

            for first in range(0, n, at_once):
                send(first, min(at_once, n - first))
                watch(5, "opening")
            for _ in range(options.rounds):
                send(0, n)
                watch(options.seconds, "open")
            app.wait_committed(1800)
            worker.kill()
            killed = time.monotonic()
            worker = app.start(fresh=True)
            app.wait_running(worker, timeout_s=1800)
            print(f"killed; the next worker reads on {time.monotonic() - killed:.1f} s after its start", flush=True)
            published = last.get("sketchstream_published_total", 0)
            last = {}
            send(3 * n + 1, 1)
            deadline = time.monotonic() + 1800
            while last.get("sketchstream_published_total", 0) < n - published and time.monotonic() < deadline:
                watch(10, "closing")
            taken = worker.says("event=running")
            print(
                f"{n:,} windows of {max(1, len(groups)):,} x {options.slots:,} slots: taken {taken} time(s), revoked "
                f"{worker.says('event=revoked')}, "
                f"failed commits {last.get('sketchstream_commit_failures_total', 0):.0f}, "
                f"published {last.get('sketchstream_published_total', 0):.0f}; "
                f"longest time between polls {slowest:.1f} s of 60"
            )
            code = worker.terminate(600)
            print(f"SIGTERM: code {code}")
        finally:
            app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("disk")
    one.add_argument("--mib", type=float, default=4.0)
    one.add_argument("--minutes", type=float, default=20.0)
    one.set_defaults(run=disk)
    two = parts.add_parser("windows")
    two.add_argument("--groups", type=int, default=0)
    two.add_argument("--slots", type=int, default=1 << 14)
    two.add_argument("--windows", type=int, default=5)
    two.add_argument("--width", choices=sorted(WIDTHS_MS), default="1h")
    two.add_argument("--quota", type=float, default=0.0)
    two.add_argument("--rounds", type=int, default=2)
    two.add_argument("--seconds", type=float, default=60.0)
    two.set_defaults(run=windows)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.run(options)


if __name__ == "__main__":
    main()
