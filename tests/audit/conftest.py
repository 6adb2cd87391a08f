"""Fixture of the tests of the audit: what a broken build computed never answers for the next one."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Forget what functions of the product keep: cases of the audit, shapes, losses."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sketchstream."):
            for function in list(vars(module).values()):
                if hasattr(function, "cache_clear") and hasattr(function, "cache_info"):
                    function.cache_clear()
