"""A backfill on a Spark whose executors are killed, or stopped for a while, while they count; run as a script.

In: a configuration, its range, what happens to executors, how often. Out: a line of JSON on standard output: how often
it happened, how many tasks ended otherwise than well, how many stages ran again, how many second copies of a task ran
to their end. Touches: what the configuration names; a master, a driver and two executors, which are processes of their
own on two addresses of this host, as Spark starts second copies on another host only. Bodies have no noise.

`kill`: an executor is killed (SIGKILL) while a stage runs that has ended some of its tasks, after the one that reads
the files: so what it had read for others, and had kept, is lost and computed a second time. `stop`: an executor is
stopped (SIGSTOP) in the middle of the stage that reads the files, until a second copy of its task has had the time to
end on the other one; then it goes on, and its own copy comes to its end, or is told that it is late.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.kafka.devbroker import free_ports
from helpers.noiseless import without_noise
from sketchstream.config.loader import Config
from sketchstream_connectors.lake import engines
from sketchstream_connectors.lake.job import BackfillJob

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For processes of Java that do not live long."""
HOSTS = ("127.0.0.2", "127.0.0.3")
ROUNDS = 10
"""After which a backfill that was over before it happened often enough is given up."""
STOPPED_S = 5.0
"""So long an executor is stopped: a second copy of its task starts within a fraction of a second, and ends as soon."""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers; its address, and the processes of the workers."""
    import pyspark

    home = Path(pyspark.__file__).parent
    os.environ["SPARK_HOME"] = str(home)
    given = os.environ | {"SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_DAEMON_MEMORY": "256m"}
    port, *pages = free_ports(4)
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages[0])]]
    for host, page in zip(HOSTS, pages[1:], strict=True):
        place = ["--host", host, "--webui-port", str(page), "--work-dir", str(folder / host)]
        commands.append([f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "1g", address])
    with contextlib.ExitStack() as stack:
        begun = []
        for command in commands:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                env=given,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            begun.append(process.pid)
        yield address, begun[1:]


def session(address: str, log: Path) -> Any:
    """A driver with two executors of one core."""
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master(address)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "1m",  # a task for each file
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.locality.wait": "0s",
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


def executors(workers: list[int]) -> list[int]:
    """Processes of the executors that workers have begun, the oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent in workers and b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return sorted(found)


class Disturber(threading.Thread):
    """Kills or stops one of two executors in the middle of a stage, in so many stages.

    Args:
        spark: the session.
        workers: processes of the workers.
        what: "kill" or "stop".
        files: their number; a stage that reads them has as many tasks.
        most: how often.

    Attributes:
        times: how often it was done.
    """

    def __init__(self, spark: Any, workers: list[int], what: str, files: int, most: int) -> None:
        super().__init__(daemon=True)
        self._context, self._workers, self._what = spark.sparkContext, workers, what
        self._files, self._most = files, most
        self._ended = threading.Event()
        self.times = 0

    def run(self) -> None:
        seen = set[int]()
        tracker = self._context.statusTracker()
        while not self._ended.is_set() and self.times < self._most:
            for stage in tracker.getActiveStageIds():
                about = tracker.getStageInfo(stage)
                if not about or stage in seen or (about.numTasks == self._files) != (self._what == "stop"):
                    continue
                both = about.numActiveTasks == 2 or (self._what == "kill" and about.numActiveTasks)
                enough = about.numTasks // 2 if self._what == "stop" else 1
                at_work = both and enough <= about.numCompletedTasks < about.numTasks
                if at_work and len(found := executors(self._workers)) == 2:
                    seen.add(stage)
                    self._disturb(found[0])
                    self.times += 1
            time.sleep(0.002)

    def _disturb(self, executor: int) -> None:
        """Kill it, or stop it for a while."""
        if self._what == "kill":
            os.kill(executor, signal.SIGKILL)
            return
        os.kill(executor, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(executor, signal.SIGCONT)

    def end(self) -> None:
        """Do it no more."""
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
    path, start, end, what, times = sys.argv[1:]
    folder = Path(path).parent
    config = Config.load(path)
    engines.MAX_ROWS = 500  # type: ignore[misc]  # several parts of each window
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        without_noise(patch)
        (log := Path(name) / "log").mkdir()
        with cluster(Path(name)) as (address, workers):
            spark = session(address, log)
            files = len(list((folder / "events.parquet").iterdir()))
            disturber = Disturber(spark, workers, what, files, int(times))
            disturber.start()
            for _ in range(ROUNDS):
                for one in ("sealed", "sealed.state"):
                    shutil.rmtree(folder / one, ignore_errors=True)
                with contextlib.closing(BackfillJob(config, int(start), int(end), engine="spark")) as job:
                    done = [one.outcome for one in job.run()]
                assert {*done} == {"published"}, done
                if disturber.times == int(times):
                    break
            disturber.end()
            spark.stop()
        ended = [one for one in events(log) if one["Event"] == "SparkListenerTaskEnd"]
    said = {
        "disturbed": disturber.times,
        "tasks not ended well": sum(one["Task End Reason"]["Reason"] != "Success" for one in ended),
        "stages computed again": len({one["Stage ID"] for one in ended if one["Stage Attempt ID"]}),
        "second copies": sum(
            one["Task Info"]["Speculative"] and one["Task End Reason"]["Reason"] == "Success" for one in ended
        ),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
