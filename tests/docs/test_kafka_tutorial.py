"""docs/tutorial-kafka.md: its blocks run as they are written, in order, on a real broker.

In: the page; a broker, whose address stands in for the page's. Out: verdicts. Touches: a temporary folder, the topics
of the page, a worker of its own.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Result, Run
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "tutorial-kafka.md").read_text()
WRITTEN = "127.0.0.1:9092"
MINUTE_MS = 60_000
PATIENCE_S = 300.0


def commands(block: str) -> list[list[str]]:
    """The words after `sketchstream` in each line of a block."""
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert all(words[0] == "sketchstream" for words in lines), block
    return [words[1:] for words in lines]


def done(run: Run, block: str) -> list[Result]:
    """What the commands of a block did; all succeed."""
    found = [(words, run(*words)) for words in commands(block)]
    for words, result in found:
        assert result.code == 0, (words, result.err)
    return [result for _, result in found]


@contextmanager
def working(block: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The worker of a block, in a process of its own, until Ctrl-C."""
    (words,) = commands(block)
    assert words[0] == "worker"
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "sketchstream.cli", *words], cwd=folder, stderr=log)
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(60) in {0, 130}, (folder / "worker.log").read_text()
        finally:
            process.kill()
            process.wait()


def complete(file: str) -> int:
    """How many complete windows are published."""
    return sum(one.complete is True for one in ss.windows(file))


@pytest.mark.statistics
@pytest.mark.timeout(900)
def test_blocks_of_the_page_lead_from_an_empty_broker_to_the_answer(
    kafka: str, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert WRITTEN in PAGE
    text = PAGE.replace(WRITTEN, kafka)
    found = re.findall(r"^```(python|bash|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in found] == ["python", "bash", "toml", "bash", "bash", "bash", "python"]
    send, init, names_of_things, check, work, read, ask = (block for _, block in found)

    names: dict[str, Any] = {}
    exec(compile(send, "send", "exec"), names)
    (said,) = done(run, init)
    assert "distinct values of user_id or more" in said.out
    assert (tmp_path / "sketch.key").exists()
    with (tmp_path / "sketchstream.toml").open("a") as file:
        file.write(names_of_things)
    done(run, check)
    with working(work, tmp_path) as worker:
        deadline = time.monotonic() + PATIENCE_S
        while complete("sketchstream.toml") < 4:
            assert worker.poll() is None, (tmp_path / "worker.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()
            time.sleep(1.0)
        profiles, ledger = done(run, read)
        assert profiles.out.count("all 2 partitions") >= 4
        assert "epsilon" in ledger.out
        capfd.readouterr()
        exec(compile(ask, "ask", "exec"), names)
    assert re.search(r"^\d+ complete minutes\n[\d,]+ users, [\d,]+ three times or more$", capfd.readouterr().out, re.M)

    whole = names["whole"]
    assert len(whole) >= 4
    begin = round(whole[1].start.timestamp() * 1000)
    truth = len({user for user, at in names["visits"] if begin <= at < begin + MINUTE_MS})
    users = whole[1].profile().number("distinct", 0.9999)
    assert users.low <= truth <= users.high
