"""The tables and sections of docs/operations.md, for tests that compare them with what runs.

In: the document. Out: metrics and events by name, sections by heading. Touches: nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from helpers.paths import ROOT

OPERATIONS = ROOT / "docs" / "operations.md"


class Documented(NamedTuple):
    """One metric of the table.

    Args:
        type: counter, gauge or histogram.
        labels: its labels.
        of: worker, serve or both.
    """

    type: str
    labels: frozenset[str]
    of: str


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading of the second or third level."""
    text = below(heading)
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def below(heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    text = OPERATIONS.read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text, re.MULTILINE)
    assert found is not None, heading
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest if end is None else rest[: end.start()]


def sections(heading: str) -> dict[str, str]:
    """The texts below the headings one level down, by heading."""
    parts = re.split(r"^#{3} (.*)\n", below(heading), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented() -> dict[str, Documented]:
    """The metrics of the table, by the name under which Prometheus has them."""
    found = {}
    for name, kind, labels, of, *_ in rows("Metrics"):
        found[name.strip("`")] = Documented(kind, frozenset(re.findall(r"`(\w+)`", labels)), of)
    return found


def documented_events() -> dict[str, tuple[str, str]]:
    """Levels and meaning of the events, by name."""
    return {name.strip("`"): (levels, meaning) for name, levels, meaning in rows("Log events")}
