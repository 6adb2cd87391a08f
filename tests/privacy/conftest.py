"""Command lines run in this process, with what they wrote to both streams.

In: nothing. Out: fixture `run`. Touches: temporary folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sketchstream.cli import main


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Run a command line in a folder of its own: exit code, and all that it printed."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SKETCHSTREAM_")]:
        monkeypatch.delenv(name)

    def call(*arguments: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out + err

    return call
