"""What a publisher that was killed leaves in the folder of sealed files: its successor removes it, nobody else does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from sketchstream import files
from sketchstream.cli import main
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream_connectors.files.publisher import DirectoryPublisher

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

HOUR = 3_600_000
START = 1_357_000_000_000 // HOUR * HOUR
CONFIG = f"""{EVENTS_FILE}close_at_end = true{SEALED_DIRECTORY}[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "1"
max_count = 20
domain = {{ size = 6 }}
"""
WORKER = """
import os, signal, sys
from sketchstream import faults
from sketchstream.cli.app import run
step = sys.argv[1]
faults.install(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == step else None)
raise SystemExit(run(["worker", "-c", "c.toml"]))
"""
WRITER = """
import os, signal, sys
from pathlib import Path
from sketchstream import faults, files
faults.install(lambda reached: os.kill(os.getpid(), getattr(signal, sys.argv[2])) if reached == sys.argv[3] else None)
files.write_durably(Path(sys.argv[1]), b"sealed", mode=files.PUBLIC, step="sealed")
"""


def temporaries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if files.written_for(path) is not None)


def entry(partition: int = 0, window: int = START) -> SealedEntry:
    return SealedEntry("hourly", 0, (window, window + HOUR), partition, b"i" * 16, b"sealed")


def leave(path: Path, how: str = "SIGKILL", step: str = "sealed:written") -> subprocess.Popen[bytes]:
    """A process that was killed, or stands still, while it wrote this file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), how, step])
    deadline = time.monotonic() + 60
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("step", ["sealed:written", "sealed:named", "frontier:written"])
def test_a_worker_removes_what_it_left_when_it_was_killed(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"ts": START + hour * HOUR + 1, "user": hour} for hour in (0, 1, 3)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "c.toml").write_text(CONFIG)
    run = [sys.executable, "-c", WORKER, step]
    assert subprocess.run(run, cwd=tmp_path, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert len(temporaries(tmp_path / "sealed")) == 1
    there = {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")}
    monkeypatch.chdir(tmp_path)
    assert main(["worker", "-c", "c.toml"]) == 0
    assert temporaries(tmp_path / "sealed") == []
    sealed = {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")}
    assert len(sealed) == 3
    assert sealed.items() >= there.items()


def test_the_temporary_of_a_living_writer_stays(tmp_path: Path) -> None:
    path = tmp_path / "hourly" / "r0" / "20130101T000000Z" / "p00000.sealed"
    writer = leave(path, "SIGSTOP")
    try:
        (temporary,) = temporaries(tmp_path)
        publisher = DirectoryPublisher(tmp_path)
        publisher.publish(0, [entry()], [])
        assert temporaries(tmp_path) == [temporary]
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=60)
        publisher.publish(0, [entry()], [])
        assert temporaries(tmp_path) == []
    finally:
        writer.kill()
        writer.wait(timeout=60)


def test_what_other_workers_left_in_the_folder_stays(tmp_path: Path) -> None:
    folder = tmp_path / "hourly" / "r0" / "20130101T000000Z"
    for path in (folder / "p00001.sealed", folder.parent / "frontier.p00001.json"):
        leave(path).wait(timeout=60)
    others = temporaries(tmp_path)
    DirectoryPublisher(tmp_path).publish(0, [entry()], [Frontier("hourly", 0, 0, START + HOUR, 2, 1)])
    assert temporaries(tmp_path) == others
    assert len(others) == 2
    DirectoryPublisher(tmp_path).publish(1, [entry(1)], [Frontier("hourly", 0, 1, START + HOUR, 2, 1)])
    assert temporaries(tmp_path) == []


def test_a_file_that_was_named_before_its_writer_was_killed_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "s.sketch"
    leave(path, step="sealed:named").wait(timeout=60)
    assert len(temporaries(tmp_path)) == 1
    assert files.sweep(path) == 1
    assert temporaries(tmp_path) == []
    assert path.read_bytes() == b"sealed", "the temporary was another name of it"
