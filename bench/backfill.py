"""History from Parquet: processor and wall time of a whole backfill, against the engine's bare GROUP BY.

In: events that are drawn here and written as Parquet. Out: a table of medians and ratios on standard output. Touches:
a temporary folder, which it removes.

Peer, in the same process and on the same file: the same engine's GROUP BY of (window, item) with the number of events
and the sum of the weights, whose rows are counted and not fetched. Of Spark the processor time of its JVM is added.
Ours is everything from the configuration to the published bodies: rows over Arrow, rules for each row, keyed hash,
noise, ledger, files. Rounds alternate; numbers are medians. Memory is the highest resident size of the process,
engine included; Spark's JVM is another process.
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
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.memory import forget_peak, resident_bytes  # noqa: E402

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


def bare(folder: Path, threads: int, *, weight: bool, engine: str) -> int:
    """Number of rows of the engine's own GROUP BY."""
    if engine == "polars":
        return bare_polars(folder, weight=weight)
    if engine == "spark":
        return bare_spark(folder, weight=weight)
    import duckdb

    with duckdb.connect(":memory:", config={"threads": threads}) as engine:
        total = ", sum(w)" if weight else ""
        found = engine.sql(
            f"select count(*) from (select (epoch_ms(ts) - {START}) // {DAY} as d, user, count(*){total} "
            f"from read_parquet('{folder}/events/*.parquet') group by all)"
        ).fetchall()
    return int(found[0][0])


def bare_polars(folder: Path, *, weight: bool) -> int:
    """The same with Polars' streaming engine."""
    import polars as pl

    day = (pl.col("ts").to_physical() // 1000 - START) // DAY
    told = [pl.len().alias("n"), *([pl.col("w").cast(pl.Int64).sum()] if weight else [])]
    rows = pl.scan_parquet(f"{folder}/events/*.parquet").group_by([day.alias("day"), "user"]).agg(told)
    return int(rows.select(pl.len()).collect(engine="streaming").item())


def session() -> Any:
    """A local session of Spark on all cores; the one that a backfill uses too."""
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.ui.enabled", "false")
    made = made.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    made = made.config("spark.driver.memory", "6g").config("spark.driver.maxResultSize", "4g")
    found = made.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def bare_spark(folder: Path, *, weight: bool) -> int:
    """The same with Spark in local mode."""
    from pyspark.sql import functions as f

    rows = session().read.parquet(f"{folder}/events")
    day = f.floor((f.unix_millis("ts") - START) / DAY)
    told = [f.count(f.lit(1)).alias("n"), *([f.sum("w").alias("w")] if weight else [])]
    return int(rows.groupBy(day.alias("day"), "user").agg(*told).count())


def spent_s(engine: str) -> float:
    """Processor seconds of this process, and of Spark's JVM."""
    used = time.process_time()
    if engine == "spark":
        process = session()._sc._gateway.proc.pid
        user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        used += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return used


def whole(folder: Path, engine: str) -> int:
    """Number of windows that a backfill publishes."""
    from sketchstream.config.loader import Config
    from sketchstream_connectors.lake.job import BackfillJob

    shutil.rmtree(folder / "state", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    job = BackfillJob(Config.load(folder / "sketchstream.toml"), START, START + DAYS * DAY, engine=engine)
    try:
        return sum(done.outcome == "published" for done in job.run())
    finally:
        job.close()


def timed(engine: str, work: Callable[[], int]) -> tuple[float, float, int]:
    """Processor seconds, wall seconds and result."""
    wall, spent = time.perf_counter(), spent_s(engine)
    found = work()
    return spent_s(engine) - spent, time.perf_counter() - wall, found


def peak_mib() -> int:
    """Highest resident size so far, and begin anew."""
    found = resident_bytes(peak=True) >> 20
    forget_peak()
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=float, default=1e7)
    arguments.add_argument("--people", type=float, default=2e6)
    arguments.add_argument("--slots", type=int, default=1 << 20)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--engine", choices=["duckdb", "polars", "spark"], default="duckdb")
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
        if said.engine == "spark":
            session()
        whole(folder, said.engine)  # compiles, and warms the page cache
        took: dict[str, list[tuple[float, float, int]]] = {"bare GROUP BY": [], "backfill": []}
        memory = {}
        for _ in range(rounds):
            peak_mib()
            weighed = {"weight": not said.no_weight, "engine": said.engine}
            took["bare GROUP BY"].append(timed(said.engine, lambda: bare(folder, threads, **weighed)))  # noqa: B023
            memory["bare GROUP BY"] = peak_mib()
            took["backfill"].append(timed(said.engine, lambda: whole(folder, said.engine)))
            memory["backfill"] = peak_mib()
        size = sum(path.stat().st_size for path in (folder / "events").iterdir())
        rows = took["bare GROUP BY"][0][2]
        print(f"{events:,} events, {size / 1e6:,.0f} MB, {rows:,} rows (window, item), {DAYS} windows of")
        load = os.getloadavg()[0]
        print(f"{said.slots:,} slots, {said.engine}, {threads} threads; medians of {rounds} rounds; load {load:.1f}")
        print(f"{'':16}{'processor s':>12}{'wall s':>9}{'peak MiB':>10}")
        for what, rounds_ in took.items():
            spent, wall = (statistics.median(one[at] for one in rounds_) for at in (0, 1))
            print(f"{what:16}{spent:12.2f}{wall:9.2f}{memory[what]:10}")
        pairs = list(zip(took["backfill"], took["bare GROUP BY"], strict=True))
        ratios = [statistics.median(ours[at] / peer[at] for ours, peer in pairs) for at in (0, 1)]
        print(f"backfill / bare: processor {ratios[0]:.2f}, wall {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
