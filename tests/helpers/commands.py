"""Running commands in tests: in this process for speed, or as a process of its own.

In: nothing. Out: fixtures `run`, `spawn`, `key`, `made`. Touches: temporary folders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sketchstream.cli import main


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything it printed."""
        return self.out + self.err

    @property
    def complaint(self) -> str:
        """The one line on standard error; fails if there is not exactly one, or if it is a traceback."""
        lines = [line for line in self.err.splitlines() if "NO PRIVACY" not in line]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("sketchstream: error: "), self.err
        assert "Traceback" not in self.err
        assert "internal error" not in self.err, self.err
        return lines[0].removeprefix("sketchstream: error: ")


Run = Callable[..., Result]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SKETCHSTREAM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SKETCHSTREAM_ANSWERS", "")

    def call(*arguments: str | Path) -> Result:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Run:
    """Run a command line as a process of its own, its output in pipes, in a folder of its own."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SKETCHSTREAM__")}
        done = subprocess.run(
            [sys.executable, "-m", "sketchstream.cli", *(str(argument) for argument in arguments)],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            cwd=tmp_path,
            env=environment,
            timeout=120,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def key(run: Run, tmp_path: Path) -> Path:
    """A key file."""
    assert run("keygen", "-o", "key").code == 0
    return tmp_path / "key"


@pytest.fixture
def made(run: Run, key: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make an open sketch; options may be added."""

    def make(name: str = "s.sketch", *more: str) -> Path:
        domain = () if {"--size", "--items-file"} & set(more) else ("--open", "--slots", "1024", "--levels", "2")
        epsilon = () if "--epsilon" in more else ("--epsilon", "1")
        unit = () if {"--unit", "--kind", "--table"} & set(more) else ("--unit", "event")
        done = run("create", "-o", name, *unit, *epsilon, *domain, "--key-file", key, *more)
        assert done.code == 0, done.err
        return tmp_path / name

    return make
