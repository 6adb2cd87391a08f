"""The table of cases in docs/kafka.md names tests that exist."""

from __future__ import annotations

import re

from helpers.paths import ROOT


def test_every_case_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "kafka.md").read_text()
    table = text[text.index("## Every case") : text.index("## Rights")]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    named = re.findall(r"`(test_\w+)`", table)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in tests] == []
    assert len(rows) > 30
    assert len([row for row in rows[1:] if "`test_" not in row[2]]) == 1, "one case has nothing to test"
