"""Folders of the repository.

In: nothing. Out: paths. Touches: nothing.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
