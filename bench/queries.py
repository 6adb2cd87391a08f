"""Queries of a sealed topic that holds a year: one window, the first of all, and all of them.

In: nothing; a broker is started, or SKETCHSTREAM_TEST_KAFKA names one. Out: seconds and peak memory of
`sketchstream profile -c`, each in a process of its own, beside the same command on one file (no broker, no topic).
Touches: topics of its own on that broker, a temporary folder; with --save, bench/results/queries.json.

What a command on one file takes is the start of the program and one reconstruction. A window of a year of hours is
to take less than a second and 150 MB, the start included.

    python bench/queries.py [--days 365] [--partitions 16] [--rounds 3] [--quick] [--save]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# this folder has a kafka.py, which must not be taken for the client
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import sketchstream as ss  # noqa: E402
from helpers.kafka.devbroker import DevCluster  # noqa: E402
from sketchstream.privacy.ledgers.ledger import Ledger  # noqa: E402
from sketchstream.provenance import Origin  # noqa: E402
from sketchstream.published import Release  # noqa: E402
from sketchstream.stream.interfaces import Frontier, SealedEntry  # noqa: E402
from sketchstream_connectors.kafka.cluster.client import Connection  # noqa: E402
from sketchstream_connectors.kafka.cluster.topics import FOR_EVER  # noqa: E402
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results" / "queries.json"
HOUR_MS = 3_600_000
FIRST_MS = 1_577_836_800_000  # 2020-01-01T00:00:00Z
CONFIG = """
[kafka]
"bootstrap.servers" = "{servers}"
"group.id" = "bench-queries"
[input]
topic = "bench-queries"
format = "json"
item = "user"
item_type = "int"
partitioned_by = "item"
partitioner = "murmur2"
[output]
topic = "bench-queries.sealed"
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "1"
max_count = 20
domain = {{ size = 1000 }}
"""


def bodies(days: int, partitions: int) -> tuple[list[list[SealedEntry]], int]:
    """Sealed histograms of every hour: one that was drawn, under identities of its own each."""
    sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=1000), max_count=20))
    sketch.update(list(range(1000)) * 2)
    drawn = sketch.seal()
    assert isinstance(drawn, Release)
    ledger = drawn.ledger.to_dict()
    made: list[list[SealedEntry]] = [[] for _ in range(partitions)]
    for hour in range(days * 24):
        window = (FIRST_MS + hour * HOUR_MS, FIRST_MS + (hour + 1) * HOUR_MS)
        for partition in range(partitions):
            fresh = secrets.token_bytes(16)
            one = replace(
                drawn,
                seal_id=secrets.token_bytes(16),
                layers=tuple(replace(layer, lineage=fresh) for layer in drawn.layers),
                ledger=Ledger.from_dict(_renamed(ledger, drawn.layers[0].lineage.hex(), fresh.hex())),
                origin=Origin("hourly", 0, window, partition, partitions, partitions),
            )
            made[partition].append(SealedEntry("hourly", 0, window, partition, one.seal_id, one.to_bytes()))
    return made, len(made[0][0].body)


def _renamed(data: Any, old: str, new: str) -> Any:
    """Plain data with another lineage."""
    if isinstance(data, dict):
        return {name: _renamed(value, old, new) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_renamed(value, old, new) for value in data]
    return new if data == old else data


def publish(connection: Connection, made: list[list[SealedEntry]]) -> None:
    """Window after window, as workers would: a day at a time, each window's entry and then its frontier."""
    publisher = KafkaPublisher(connection, "bench-queries.sealed")
    partitions = len(made)
    for first in range(0, len(made[0]), 24):
        for partition, entries in enumerate(made):
            day = entries[first : first + 24]
            frontiers = [
                Frontier("hourly", 0, partition, one.window[1], partitions, first + n) for n, one in enumerate(day)
            ]
            publisher.publish(partition, day, frontiers)
    publisher.close()


LAUNCHER = """
import os, sys
pid = os.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), b"%d" % usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a command and reports its peak memory. A process takes over the peak of the one that started it, so that one
must be small; this bench itself holds a year of sketches."""


def run(arguments: list[str]) -> tuple[float, float, float, int]:
    """Seconds to the first line and to the end, peak MiB, and lines of one command."""
    told, tell = os.pipe()
    command = [sys.executable, "-S", "-c", LAUNCHER, str(tell), sys.executable, "-m", "sketchstream.cli", *arguments]
    started = time.monotonic()
    first, lines = 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[tell]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            first = first or time.monotonic() - started
            lines += line.count(b"\n")
    whole = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"{arguments} failed")
    peak = int(os.read(told, 64)) / 1024
    os.close(told)
    os.close(tell)
    return first, whole, peak, lines


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write the table to bench/results/queries.json")
    parser.add_argument("--quick", action="store_true", help="ten days, one round")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.days, chosen.rounds = 10, 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder, DevCluster(quick=False, heap="1g") as cluster:
        config = Path(folder) / "sketchstream.toml"
        config.write_text(CONFIG.format(servers=cluster.bootstrap))
        connection = Connection({"bootstrap.servers": cluster.bootstrap, "group.id": "bench-queries"})
        with connection.admin.client("making topics") as client:
            for name in ("bench-queries", "bench-queries.sealed"):
                client.create_topics(
                    {name: {"num_partitions": chosen.partitions, "replication_factor": 1, "configs": FOR_EVER}}
                )
                client.wait_for_topics([name])
        made, size = bodies(chosen.days, chosen.partitions)
        publish(connection, made)
        connection.close()
        alone = Path(folder) / "one.sealed"
        alone.write_bytes(made[0][0].body)
        n = len(made[0]) * chosen.partitions
        print(f"{n:,} sealed sketches of {size} bytes: {chosen.days} days of hours x {chosen.partitions} partitions")
        middle = made[0][len(made[0]) // 2].window
        span = ["--from", _rfc(middle[0]), "--to", _rfc(middle[1])]
        common = ["profile", "-c", str(config), "--format", "json", "--method", "inverse"]
        cases = {
            "one file": ["profile", str(alone), "--format", "json", "--method", "inverse"],
            "one window of the year": [*common, *span],
            "every window of the year": [*common, "--all"],
        }
        print(f"{'':28}{'first line, s':>15}{'all, s':>10}{'peak, MiB':>12}{'lines':>8}")
        saved: dict[str, Any] = {"days": chosen.days, "partitions": chosen.partitions, "sketches": n, "cases": {}}
        for name, arguments in cases.items():
            rounds = 1 if name.startswith("every") else chosen.rounds
            found = [run(arguments) for _ in range(rounds)]
            first, whole, peak = (statistics.median(one[i] for one in found) for i in range(3))
            print(f"{name:28}{first:15.2f}{whole:10.2f}{peak:12.0f}{found[0][3]:8}", flush=True)
            saved["cases"][name] = {
                "rounds": rounds,
                "first_line_s": round(first, 2),
                "all_s": round(whole, 2),
                "peak_mib": round(peak),
                "lines": found[0][3],
            }
        if chosen.save:
            RESULTS.write_text(json.dumps(saved, indent=2) + "\n", encoding="utf-8")


def _rfc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


if __name__ == "__main__":
    main()
