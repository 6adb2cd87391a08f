"""`sketchstream verify` in tests: the command's verdict on a build, quick, on chosen checks.

In: names of checks. Out: the exit code, and findings. Touches: nothing.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from sketchstream.audit import cases
from sketchstream.cli.app import run


def forget_specs() -> None:
    """Forget the specs that audits keep: those of a broken build are not used again."""
    for _, audit in cases.audits():
        if audit is not None:
            module: Any = import_module(type(audit).__module__)
            specs: Any = getattr(audit, "specs", None) or module.specs  # the audit of profiles has a function
            specs.cache_clear()


def verify(capsys: pytest.CaptureFixture[str], *only: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code of the command, and its findings.

    Args:
        capsys: reads what the command prints.
        only: checks, or beginnings of their names.
    """
    capsys.readouterr()
    forget_specs()
    try:
        code = run(["verify", "--quick", "--format", "json", *(word for one in only for word in ("--only", one))])
    finally:
        forget_specs()
    return code, json.loads(capsys.readouterr().out)["findings"]
