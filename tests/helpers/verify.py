"""`sketchstream verify` in tests: the command's verdict on a build, quick, on chosen checks.

In: names of checks. Out: the exit code, and findings. Touches: nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sketchstream.cli.app import run


def verify(capsys: pytest.CaptureFixture[str], *only: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code of the command, and its findings.

    Args:
        capsys: reads what the command prints.
        only: checks, or beginnings of their names.
    """
    capsys.readouterr()
    code = run(["verify", "--quick", "--format", "json", *(word for one in only for word in ("--only", one))])
    return code, json.loads(capsys.readouterr().out)["findings"]
