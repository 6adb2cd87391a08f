"""A backfill on a Spark whose executors are killed while they count; run as a script.

In: a configuration, its range, how many executors are to be killed. Out: a line of JSON on standard output: how many
were, how many tasks ended otherwise than well, how many stages ran again. Touches: what the configuration names; a
driver and two executors, which are processes of their own. Bodies have no noise.

Executors are killed (SIGKILL) while a stage runs that has ended some of its tasks, after the one that reads the files:
so what they had read for others, and had kept, is lost and computed a second time. Second copies of slow tasks are
allowed (`spark.speculation`); none was seen to run here, where both executors have one host.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.noiseless import without_noise
from sketchstream.config.loader import Config
from sketchstream_connectors.lake import engines
from sketchstream_connectors.lake.job import Backfill

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For processes of Java that do not live long."""
ROUNDS = 10
"""After which a backfill that was over before enough executors were killed is given up."""


def session(log: Path) -> Any:
    """Two executors of one core, in processes of their own."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    made = SparkSession.builder.master("local-cluster[2,1,512]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "1m",  # a task for each file
        "spark.speculation": "true",
        "spark.task.maxFailures": "100",
        "spark.stage.maxConsecutiveAttempts": "100",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }.items():
        made = made.config(name, value)
    started = made.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started


def executors(driver: int) -> list[int]:
    """Processes of the executors that a driver has begun, the oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == driver and b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return sorted(found)


class Killer(threading.Thread):
    """Kills an executor in each stage after the reading of files, so many times in all.

    Args:
        spark: the session.
        files: their number; a stage that reads them has as many tasks.
        most: how many executors are killed.

    Attributes:
        killed: how many were.
    """

    def __init__(self, spark: Any, files: int, most: int) -> None:
        super().__init__(daemon=True)
        self._context, self._files, self._most = spark.sparkContext, files, most
        self._driver = self._context._gateway.proc.pid
        self._ended = threading.Event()
        self.killed = 0

    def run(self) -> None:
        seen = set[int]()
        tracker = self._context.statusTracker()
        while not self._ended.is_set() and self.killed < self._most:
            for stage in tracker.getActiveStageIds():
                about = tracker.getStageInfo(stage)
                at_work = about and about.numActiveTasks and 0 < about.numCompletedTasks < about.numTasks
                fetches = about and about.numTasks != self._files
                if stage not in seen and at_work and fetches and len(found := executors(self._driver)) == 2:
                    seen.add(stage)
                    os.kill(found[0], signal.SIGKILL)
                    self.killed += 1
            time.sleep(0.002)

    def end(self) -> None:
        """Kill no more."""
        self._ended.set()
        self.join()


def events(log: Path) -> Iterator[dict[str, Any]]:
    """What Spark wrote about its tasks."""
    for path in log.rglob("*"):
        if path.is_file() and path.stat().st_size:
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # of a line that is being written
                    yield json.loads(line)


def main() -> None:
    path, start, end, kills = sys.argv[1:]
    folder = Path(path).parent
    config = Config.load(path)
    engines.PART = 500  # type: ignore[misc]  # several parts of each window
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        without_noise(patch)
        spark = session(Path(name))
        killer = Killer(spark, len(list((folder / "events.parquet").iterdir())), int(kills))
        killer.start()
        for _ in range(ROUNDS):
            for one in ("sealed", "sealed.state"):
                shutil.rmtree(folder / one, ignore_errors=True)
            with contextlib.closing(Backfill(config, int(start), int(end), engine="spark")) as job:
                done = [one.what for one in job.run()]
            assert {*done} == {"published"}, done
            if killer.killed == int(kills):
                break
        killer.end()
        spark.stop()
        ended = [one for one in events(Path(name)) if one["Event"] == "SparkListenerTaskEnd"]
    said = {
        "killed": killer.killed,
        "tasks not ended well": sum(one["Task End Reason"]["Reason"] != "Success" for one in ended),
        "stages computed again": len({one["Stage ID"] for one in ended if one["Stage Attempt ID"]}),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
