"""Executors of Spark that are killed, or stopped, while they count: the bodies and bookings of an undisturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers.noiseless import without_noise
from helpers.paths import ROOT
from sketchstream.config.loader import Config
from sketchstream.stream.interfaces import SealedEntry
from sketchstream_connectors.factory import file_worker
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.lake.job import booked_rows

DAY = 86_400_000
START = 1_735_689_600_000
WINDOWS = 2
EVENTS = 12_000
FILES = 12
"""Each is a task of the first stage of a window."""
TIMES = 2
CONFIG = """
[input]
file = "events.parquet"
item = "user"
time = "ts"
weight = "w"
close_at_end = true
lateness = "2d"

[key]
file = "key"

[output]
directory = "{out}"

[store]
path = "{out}.state"

[[sketch]]
name = "users"
kind = "profile"
unit = "event"
epsilon = "1"
window = "1d"
publish = "state"
intrusion = false
domain = {{ slots = 4096, levels = 2 }}
max_weight = 3
"""


def write(folder: Path) -> None:
    """Events of two days, of all times in every file, so that every task has some of each window."""
    bits = np.random.default_rng(3)
    (folder / "events.parquet").mkdir()
    for number in range(FILES):
        n = EVENTS // FILES
        rows = pa.table(
            {
                "ts": pa.array(START + np.sort(bits.integers(0, WINDOWS * DAY, n)), pa.timestamp("ms", "UTC")),
                "user": [f"u{one}" for one in bits.integers(0, 2_000, n)],
                "w": bits.integers(1, 5, n),
            }
        )
        pq.write_table(rows, folder / "events.parquet" / f"part-{number:02}.parquet")
    ss.Key.generate().save(folder / "key")


def config(folder: Path, out: str) -> Config:
    path = folder / f"{out}.toml"
    path.write_text(CONFIG.format(out=out))
    return Config.load(path)


def numbers(given: Config) -> dict[int, list[int]]:
    """What is published of each window, slots and counters."""
    assert given.sealed_directory is not None
    entries = [one for one in DirectorySealed(given.sealed_directory).read() if isinstance(one, SealedEntry)]
    read: dict[int, Any] = {one.window[0]: ss.load(one.body) for one in entries}
    assert len(read) == len(entries), "a window twice"
    return {
        start: [*body.state.ravel().tolist(), *(one.value for one in body.counters)] for start, body in read.items()
    }


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("what", "seen"), [("kill", ("tasks not ended well", "stages computed again")), ("stop", ("second copies",))]
)
def test_executors_that_are_killed_or_stopped_change_no_body_and_no_booking(
    what: str, seen: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    history, live = config(tmp_path, "sealed"), config(tmp_path, "live")
    script = ROOT / "tests" / "helpers" / "disturbed_executors.py"
    command = [sys.executable, str(script), str(history.path), str(START), str(START + WINDOWS * DAY), what, str(TIMES)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    print(said)
    assert said["disturbed"] == TIMES
    for one in seen:
        assert said[one], f"no {one}"
    without_noise(monkeypatch)
    file_worker(live).run()
    assert numbers(history) == numbers(live)
    rows = booked_rows(history.history_path)
    assert len(rows) == len(numbers(live)) == WINDOWS
    assert all(has_body for _, has_body in rows)
