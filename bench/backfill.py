"""History from Parquet: processor and wall time of a whole backfill, against the engine's bare GROUP BY.

In: events that are drawn here and written as Parquet. Out: a table of medians and ratios on standard output. Touches:
a temporary folder, which it removes.

Peer, in the same process and on the same file: DuckDB's GROUP BY of (window, item) with the number of events and the
sum of the weights, whose rows are counted and not fetched. Ours is everything from the configuration to the published
bodies: rows over Arrow, rules for each row, keyed hash, noise, ledger, files. Rounds alternate; numbers are medians.
Memory is the highest resident size of the process, engine included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

DAY = 86_400_000
START = 1_735_689_600_000  # 2025-01-01T00:00:00Z
DAYS = 4
PART = 10_000_000
CONFIG = """
[input]
file = "events"
format = "parquet"
item = "user"
time = "ts"
{weight}

[key]
file = "key"

[output]
directory = "out"

[store]
path = "state"

[[sketch]]
name = "users"
kind = "profile"
unit = "event"
epsilon = "1"
window = "1d"
publish = "state"
intrusion = false
domain = {{ slots = {slots} }}
{most}
"""


def write_events(folder: Path, events: int, people: int, *, text: bool) -> None:
    """Events of four days in the order of time: half of them of some thousand busy people."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    bits = np.random.default_rng(7)
    (folder / "events").mkdir()
    for part in range(-(-events // PART)):
        n = min(PART, events - part * PART)
        at = np.arange(part * PART, part * PART + n)
        times = START + at * (DAYS * DAY) // events
        wide, busy = bits.integers(0, people, n), bits.integers(0, 5_000, n)
        users = np.where(bits.random(n) < 0.5, wide, busy)
        columns: dict[str, Any] = {
            "ts": pa.array(times * 1000, pa.timestamp("us", "UTC")),
            "user": pa.array(np.char.add("user-", users.astype("U8"))) if text else pa.array(users),
            "w": pa.array(bits.integers(1, 4, n), pa.int8()),
        }
        pq.write_table(pa.table(columns), folder / "events" / f"part-{part:03}.parquet", row_group_size=1 << 20)


def bare(folder: Path, threads: int, *, weight: bool) -> int:
    """Number of rows of the engine's own GROUP BY."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": threads}) as engine:
        total = ", sum(w)" if weight else ""
        found = engine.sql(
            f"select count(*) from (select (epoch_ms(ts) - {START}) // {DAY} as d, user, count(*){total} "
            f"from read_parquet('{folder}/events/*.parquet') group by all)"
        ).fetchall()
    return int(found[0][0])


def whole(folder: Path) -> int:
    """Number of windows that a backfill publishes."""
    from sketchstream.config.loader import Config
    from sketchstream_connectors.lake.job import Backfill

    shutil.rmtree(folder / "state", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    job = Backfill(Config.load(folder / "sketchstream.toml"), START, START + DAYS * DAY)
    try:
        return sum(done.what == "published" for done in job.run())
    finally:
        job.close()


def timed(work: Callable[[], int]) -> tuple[float, float, int]:
    """Processor seconds, wall seconds and result."""
    wall, spent = time.perf_counter(), time.process_time()
    found = work()
    return time.process_time() - spent, time.perf_counter() - wall, found


def peak_mib() -> int:
    """Highest resident size so far, and begin anew."""
    status = Path("/proc/self/status").read_text()
    found = int(status.split("VmHWM:")[1].split()[0]) // 1024
    Path("/proc/self/clear_refs").write_text("5")
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=float, default=1e7)
    arguments.add_argument("--people", type=float, default=2e6)
    arguments.add_argument("--slots", type=int, default=1 << 20)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--integers", action="store_true", help="items are integers instead of text")
    arguments.add_argument("--no-weight", action="store_true", help="every event weighs 1")
    arguments.add_argument("--quick", action="store_true")
    said = arguments.parse_args()
    events, rounds = (int(1e6), 2) if said.quick else (int(said.events), said.rounds)

    import sketchstream as ss

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_events(folder, events, int(said.people), text=not said.integers)
        weight, most = ("", "") if said.no_weight else ('weight = "w"', "max_weight = 3")
        (folder / "sketchstream.toml").write_text(CONFIG.format(weight=weight, slots=said.slots, most=most))
        ss.Key.generate().save(folder / "key")
        threads = os.cpu_count() or 1
        whole(folder)  # compiles, and warms the page cache
        took: dict[str, list[tuple[float, float, int]]] = {"bare GROUP BY": [], "backfill": []}
        memory = {}
        for _ in range(rounds):
            peak_mib()
            took["bare GROUP BY"].append(timed(lambda: bare(folder, threads, weight=not said.no_weight)))
            memory["bare GROUP BY"] = peak_mib()
            took["backfill"].append(timed(lambda: whole(folder)))
            memory["backfill"] = peak_mib()
        size = sum(path.stat().st_size for path in (folder / "events").iterdir())
        rows = took["bare GROUP BY"][0][2]
        print(f"{events:,} events, {size / 1e6:,.0f} MB, {rows:,} rows (window, item), {DAYS} windows of")
        print(f"{said.slots:,} slots, {threads} threads; medians of {rounds} rounds; load {os.getloadavg()[0]:.1f}")
        print(f"{'':16}{'processor s':>12}{'wall s':>9}{'peak MiB':>10}")
        for what, rounds_ in took.items():
            spent, wall = (statistics.median(one[at] for one in rounds_) for at in (0, 1))
            print(f"{what:16}{spent:12.2f}{wall:9.2f}{memory[what]:10}")
        pairs = list(zip(took["backfill"], took["bare GROUP BY"], strict=True))
        ratios = [statistics.median(ours[at] / peer[at] for ours, peer in pairs) for at in (0, 1)]
        print(f"backfill / bare: processor {ratios[0]:.2f}, wall {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
